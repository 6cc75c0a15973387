"""Lets Spark find the format `tablequeue`: it looks in every top-level module `pyspark_*` for a `DefaultSource`."""

from tablequeue.spark.source import TableQueueSource as DefaultSource

__all__ = ["DefaultSource"]
