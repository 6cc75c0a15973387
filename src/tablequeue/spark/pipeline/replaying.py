"""Replays a topic through a stage: a run of its own with a checkpoint of its own, beside the stage itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event

from pyspark.sql import SparkSession

from tablequeue.errors import BadInput, MessagesDropped
from tablequeue.ext import context_of
from tablequeue.spark.options import Options, Position
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.running import run
from tablequeue.spark.pipeline.sinks import exists
from tablequeue.spark.pipeline.sources import FromQueue, FromTopic
from tablequeue.spark.pipeline.stages import Pipeline, Stage
from tablequeue.spark.topic import offset_of
from tablequeue.topic import Topic
from tablequeue.verbs import topics


def replay(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoints: str,
    stage: str,
    start: Position,
    end: Position = "end",
    *,
    stop: Event | None = None,
    watch: Callable[[Sequence[Progress]], None] = lambda progress: None,
) -> Progress:
    """Read the topic of a stage again, from `start` to before `end`: by its function, into its sinks.

    start, end   `beginning`, `end` (of the topic when the replay begins), an offset, or an aware time: the first
                 message that was pushed then or later.

    The stage itself may run meanwhile: its checkpoint, its subscription and its numbers of batches are not touched. The
    rows are added to what the sinks have, each once. After a stop or a crash the same call goes on; when it has ended,
    it reads nothing. Its checkpoint is in `checkpoints`, in the folder that `replay_name` names.

    Raises `BadInput` for a stage that reads no topic, `MessagesDropped` if the retention has dropped messages from
    `start` on, and `PipelineFailed` like `run`.
    """
    chosen = replayed(pipeline, stage)
    assert isinstance(chosen.source, FromTopic), "it is checked"
    name = replay_name(stage, start, end)
    if not exists(spark, f"{checkpoints}/{name}/offsets/0"):
        with Options.of_database(pipeline.database).connect() as database:
            check(database.topic(chosen.source.topic), start, end)
    source = replace(chosen.source, subscription=None, starting_position=start, ending_position=end)
    alone = copy(pipeline)
    alone.stages = {name: replace(chosen, name=name, path=f"{pipeline.name}/{name}", source=source)}
    alone.archives = {}
    (progress,) = run(alone, spark, checkpoints, available_now=True, stop=stop, watch=watch)
    return progress


def replay_name(stage: str, start: Position, end: Position = "end") -> str:
    """Return the name of a replay: that of its checkpoint, and the end of the producer of its messages."""
    return f"{stage}.from-{_word(start)}.to-{_word(end)}"


def _word(position: Position) -> str:
    """A position as a part of a file name, which has no colon on Hadoop's file systems."""
    if not isinstance(position, datetime):
        return str(position)
    if position.tzinfo is None:
        raise BadInput(f"The time {position} has no zone.", "Give an aware datetime.")
    return position.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%fZ").replace(".000000", "")


def replayed(pipeline: Pipeline, name: str) -> Stage:
    """Return the stage to replay. Raises `BadInput` for one that reads no topic."""
    stage = pipeline.stages.get(name)
    if stage is None:
        there = ", ".join(pipeline.stages) or "it has none"
        kind = "is an archive" if name in pipeline.archives else "does not exist"
        raise BadInput(f"The stage {name!r} of the pipeline {pipeline.name!r} {kind}.", f"Name one of: {there}.")
    if isinstance(stage.source, FromQueue):
        raise BadInput(
            f"The stage {name!r} reads the queue {stage.source.queue!r}, and a finished message is not read again.",
            f"Redrive its dead letters: tablequeue dead redrive {stage.source.queue}. To replay the others, push them "
            "again, or have them in a topic.",
        )
    if not isinstance(stage.source, FromTopic):
        raise BadInput(f"The stage {name!r} reads no topic.", "Run it with a new checkpoint.")
    return stage


def check(topic: Topic, start: Position, end: Position) -> None:
    """Refuse a replay whose messages are not all there, and one that ends before it begins."""
    context = context_of(topic)
    first = topics.bounds(context).first
    oldest = topics.pushed_at(context, first)
    early = start < first if isinstance(start, int) else isinstance(start, datetime) and (not oldest or start < oldest)
    if early and first > 1:
        there = f"begins at the offset {first}" + (f", pushed at {oldest:%Y-%m-%dT%H:%M:%S.%f%z}" if oldest else "")
        raise MessagesDropped(
            f"The topic {topic.name!r} {there}: the retention has dropped what came before.",
            f"Replay from the beginning, or from the offset {first}.",
        )
    if offset_of(topic, start) > offset_of(topic, end):
        raise BadInput(f"The replay begins at {start}, after its end, {end}.", "Give an end that comes later.")
