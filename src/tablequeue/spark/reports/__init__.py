"""Reports over a history: each is a function from DataFrame to DataFrame. To add one: a file, and a line here."""

from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import times
from tablequeue.spark.reports.workers import workers

__all__ = ["throughput", "times", "workers"]
