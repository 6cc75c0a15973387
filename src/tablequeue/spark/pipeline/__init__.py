"""Pipelines: stages joined by queues and topics, each a streaming query of Spark. See docs/pipelines.md."""

from tablequeue.spark.pipeline.archiving import Archive
from tablequeue.spark.pipeline.delta import ToDelta
from tablequeue.spark.pipeline.failures import attempt
from tablequeue.spark.pipeline.iceberg import ToIceberg
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.replaying import replay
from tablequeue.spark.pipeline.running import run
from tablequeue.spark.pipeline.sinks import ForeachBatch, ToParquet, ToQueue, ToTopic
from tablequeue.spark.pipeline.sources import FromQueue, FromSpark, FromTopic
from tablequeue.spark.pipeline.stages import Pipeline, Stage
from tablequeue.spark.pipeline.table import ToTable

__all__ = [
    "Archive",
    "ForeachBatch",
    "FromQueue",
    "FromSpark",
    "FromTopic",
    "Pipeline",
    "Progress",
    "Stage",
    "ToDelta",
    "ToIceberg",
    "ToParquet",
    "ToQueue",
    "ToTable",
    "ToTopic",
    "attempt",
    "replay",
    "run",
]
