"""Pipelines: stages joined by queues, each a streaming query of Spark. See docs/pipelines.md."""

from tablequeue.spark.pipeline.failures import attempt
from tablequeue.spark.pipeline.running import Progress, run
from tablequeue.spark.pipeline.sinks import ForeachBatch, ToDelta, ToParquet, ToQueue
from tablequeue.spark.pipeline.sources import FromQueue, FromSpark
from tablequeue.spark.pipeline.stages import Pipeline, Stage

__all__ = [
    "ForeachBatch",
    "FromQueue",
    "FromSpark",
    "Pipeline",
    "Progress",
    "Stage",
    "ToDelta",
    "ToParquet",
    "ToQueue",
    "attempt",
    "run",
]
