"""The message that ends the process which processes it: by a fault of native code, or as it needs too much memory.

Nothing tells which one of a batch it is. So if a batch was begun `max_attempts` times without an end, its messages are
processed again by themselves, beside the query: half of them, then half of the half that ends the process, until one
stands alone. No sink is written to. So the batch keeps its number and its other messages, and a sink that has it
recognises it. What is looked at is noted before each look: a message that also ends this process, or Spark, is found by
the next run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tablequeue.bulk import arrow, stream
from tablequeue.bulk.stream import Batch
from tablequeue.queue import Queue
from tablequeue.spark.pipeline.failures import ERROR
from tablequeue.spark.pipeline.refusals import died
from tablequeue.spark.pipeline.sources import FromQueue
from tablequeue.spark.pipeline.stages import Stage


def find(spark: SparkSession, stage: Stage, options: Mapping[str, str], queue: Queue, batch: Batch) -> int | None:
    """Find a message that ends the process, set it apart as a dead letter, and return its id; None if none does.

    Each look processes messages of the batch by the function of the stage and the transforms of its sinks.
    """
    left = [id for id in batch.ids if id not in batch.failures.excluded]
    low, high = batch.failures.suspects or (0, left[-1] if left else 0)
    suspects = [id for id in left if low <= id <= high]
    was_killed = batch.failures.suspects is not None and len(suspects) == 1
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = half if _ends(spark, stage, options, queue, half) else suspects[len(half) :]
    found = bool(suspects) and (was_killed or _ends(spark, stage, options, queue, suspects))
    stream.change(queue, stage.path, lambda batch: replace(batch.failures, suspects=None))
    if not found:
        return None
    error = (
        f"It ends the process that processes it. Batch {batch.number} of the stream {stage.path!r} was begun "
        f"{batch.failures.begun} times without an end, and so was a job with this message alone."
    )
    stream.fail(queue, stage.path, {suspects[0]: error}, exclude=True)
    return suspects[0]


def _ends(
    spark: SparkSession,
    stage: Stage,
    options: Mapping[str, str],
    queue: Queue,
    suspects: Sequence[int],
) -> bool:
    """Whether a job with these messages alone ends its process."""
    span = (suspects[0], suspects[-1])
    stream.change(queue, stage.path, lambda batch: replace(batch.failures, suspects=span))
    source = stage.source
    assert isinstance(source, FromQueue)
    reader = spark.read.format("tablequeue").options(**options, queue=queue.name, table="queue")
    live = source.fitting(reader.options(minId=span[0], maxId=span[1]), arrow.columns(queue, "stream").names)
    try:
        ids = spark.createDataFrame([(id,) for id in suspects], "id bigint")
        rows = stage.function(live.join(ids, "id", "left_semi"))
        good = rows.where(f.col(ERROR).isNull()).drop(ERROR) if ERROR in rows.columns else rows
        for sink in stage.sinks:
            _process(sink.transform(good) if sink.transform else good)
        if ERROR in rows.columns:
            _process(rows)
    except Exception as error:  # another one is none of a message that ends a process
        return died(error)
    return False


def _process(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
