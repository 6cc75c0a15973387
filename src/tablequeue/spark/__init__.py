"""Spark reads, fills and drains queues and topics: the data source `tablequeue`, pipelines and reports.

Import this package before a session begins, and Spark finds the format: see `tablequeue.spark.python`.
"""

from tablequeue.spark.python import ensure_python

ensure_python()
