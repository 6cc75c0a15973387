"""Where Spark looks for the format `tablequeue`: it imports every top-level `pyspark_*` module for a DefaultSource."""

from tablequeue.spark.source import TableQueueSource as DefaultSource

__all__ = ["DefaultSource"]
