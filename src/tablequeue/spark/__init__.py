"""Queues as Spark data: the data source `tablequeue`, local sessions, reports over the history."""
