"""Runs a pipeline: starts its queries, watches them, and stops them after their batches. Spark does the rest."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from threading import Event
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from tablequeue.bulk import stream
from tablequeue.bulk.stream import Stream
from tablequeue.database import Database
from tablequeue.errors import BadInput, StreamRefused, TablequeueError
from tablequeue.queue import Queue
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline import culprits, failures, refusals, rejects
from tablequeue.spark.pipeline.archiving import RunningArchive
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.refusals import failure
from tablequeue.spark.pipeline.sinks import ToQueue, ToTopic
from tablequeue.spark.pipeline.sources import FromQueue, FromTopic
from tablequeue.spark.pipeline.stages import Pipeline, Stage
from tablequeue.spark.pipeline.status import behind, lag_of, opened
from tablequeue.spark.pipeline.writer import StageWriter
from tablequeue.spark.settings import LOG, REDACTION, exposed_passwords
from tablequeue.verbs.topics import Lag

# Seconds between two checks of the queries, and between two counts of the ready messages, which read an index.
PAUSE = 0.25
RECOUNT = 2.0
# Spark gives each Python process ten seconds to start: too few on a busy machine. How often a query is started for this
# reason, and what Spark says then.
TRIES = 3
TOO_SLOW = "Python worker failed to connect back"
# Spark Connect: a new run of a query stops the older one, which may be of another client.
ENDED = StreamRefused("Spark stopped its query, perhaps for another run of it.", "Run a pipeline once at a time.")


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    checkpoints: str,
    *,
    available_now: bool = False,
    trigger: float = 1.0,
    stop: Event | None = None,
    watch: Callable[[Sequence[Progress]], None] = lambda progress: None,
) -> list[Progress]:
    """Run all stages in parallel until `stop` is set. Returns the progress of each stage.

    spark           any session, also of a client of Spark Connect: then the functions of the sinks run in the server.
    checkpoints     folder for the checkpoints of the stages, on any file system of Spark. The next run continues there.
    available_now   run one stage after another instead, each until it has read all messages that are there.
    trigger         seconds between two polls for messages.
    watch           called several times a second with the progress of all stages.

    A stop lets each query finish its batch; after a crash, the next run repeats a batch. If a stage fails, the others
    are stopped, and `PipelineFailed` is raised. Warns of a password in the settings that the session shows.
    """
    stop = stop or Event()
    with Options.of_database(pipeline.database).connect() as database:
        _check(pipeline, database)
        for name in exposed_passwords(spark):
            warnings.warn(
                f"Spark shows the password in {name} on its pages, by REST and in event logs. "
                f"Put the URL into a file instead (url_file), or set {REDACTION} before the session begins.",
                stacklevel=2,
            )
        stages: list[_RunningStage | RunningArchive] = [
            *(_RunningStage(stage, spark, pipeline.database, database) for stage in pipeline.stages.values()),
            *(RunningArchive(name, archive, database) for name, archive in pipeline.archives.items()),
        ]
        every = f"{round(trigger * 1000)} milliseconds"
        when: dict[str, Any] = {"availableNow": True} if available_now else {"processingTime": every}
        for group in [[stage] for stage in stages] if available_now else [stages]:
            with ExitStack() as started:
                try:
                    for stage in group:
                        started.callback(stage.stop)
                        stage.start(checkpoints, when)
                    while not stop.wait(PAUSE) and all(stage.is_active or stage.begins_again() for stage in group):
                        watch([stage.progress() for stage in stages])
                finally:
                    # Not after a failure: another run may have taken over, which must not be fenced.
                    for stage in group if stop.is_set() else ():
                        stage.fence()
            for stage in group:
                stage.check()
            if stop.is_set():
                break
        progress = [stage.progress(recount=True) for stage in stages]
        watch(progress)
        return progress


def _check(pipeline: Pipeline, database: Database) -> None:
    if not pipeline.stages and not pipeline.archives:
        raise BadInput(f"The pipeline {pipeline.name!r} has no stages.", "Declare some, by @pipeline.stage(...).")
    for stage in pipeline.stages.values():
        if stage.rejects is not None:
            source = database.topic(stage.source.topic) if isinstance(stage.source, FromTopic) else None
            rejects.check(source, database.topic(stage.rejects.topic))
        for end in (stage.source, *stage.sinks):
            if isinstance(end, FromQueue | ToQueue):
                database.queue(end.queue)
            elif isinstance(end, FromTopic | ToTopic):
                topic = database.topic(end.topic)
                if isinstance(end, FromTopic) and end.subscription is not None:
                    topic.subscription(end.subscription)
    for archive in pipeline.archives.values():
        database.queue(archive.queue)


class _RunningStage:
    """A stage, its query, and its progress."""

    def __init__(self, stage: Stage, spark: SparkSession, options: Mapping[str, str], database: Database) -> None:
        self._stage = stage
        self._spark = spark
        self._options = options
        self._source = opened(stage.source, database)
        self._queue = self._source if isinstance(self._source, Queue) else None
        self._query: Any = None
        self._endless = False
        # The setting of the session by which the writer, which may be in another process, is told to stop.
        self._stop = f"tablequeue.stop.{uuid4().hex}"
        self._error: Exception | None = None
        self._batch: int | None = None
        self._messages = 0
        self._failed = 0
        self._dropped = 0
        self._violations = dict.fromkeys(self._stage.rules.conditions, 0) if self._stage.rules else {}
        # The last message that failed, until its error is known.
        self._failed_id: int | None = None
        self._last_error: str | None = None
        self._rate = 0.0
        self._written = 0
        self._seconds: float | None = None
        # The position in the topic, and how far that is behind.
        self._offset: int | None = None
        self._until: int | None = None
        self._lag: Lag | None = None
        self._lag_at = 0.0
        self._writer: Any = None
        # The open batch, how often it was begun, and how many of its messages were set apart, at the last start again.
        self._begun_again: tuple[int, int, int] | None = None
        # The stream that fences the query, once it is to stop.
        self._fenced_by: Stream | None = None

    def start(self, checkpoints: str, trigger: Mapping[str, Any]) -> None:
        stage = self._stage
        try:
            # What none of the sinks gets: messages that fail, and rows for the rejects.
            without = {rejects.REJECTED} | ({failures.ERROR} if self._queue else set())
            rows = failures.counted(stage.rows(self._spark, self._options), without)
            write = StageWriter(self._spark, stage, self._options, self._stop)
            writer = rows.writeStream.queryName(stage.path).outputMode(stage.output_mode).foreachBatch(write)
            writer = writer.option("checkpointLocation", f"{checkpoints}/{stage.name}").trigger(**trigger)
            self._look_for_a_culprit()
            self._writer = writer
            self._start()
        except Exception as error:
            raise failure(self._stage.name, error) from error
        self._endless = "availableNow" not in trigger

    def _start(self) -> None:
        for tries in range(1, TRIES + 1):
            if self._has_begun(self._writer, last=tries == TRIES):
                break

    def begins_again(self) -> bool:
        """Start a query again that ended because a process of Spark did: a message of its batch may be why.

        False if it ended in another way. So it is if the batch was begun as often as the queue tries a message, and no
        message of it alone ends a process.
        """
        error = self._query and self._query.exception()
        if self._queue is None or not error or not refusals.died(error):
            return False
        found = stream.change(self._queue, self._stage.path)
        again = (found.number, found.failures.begun, len(found.failures.excluded))
        if again == self._begun_again or (self._tried_all(found) and not self._look_for_a_culprit()):
            return False
        self._begun_again = again
        self._start()
        return True

    def _tried_all(self, batch: stream.Batch) -> bool:
        assert self._queue
        return bool(batch.ids) and batch.failures.begun >= self._queue.definition.max_attempts

    def _look_for_a_culprit(self) -> bool:
        """Look for a message that ends its process, if the open batch was begun often enough; whether one was found."""
        if self._queue is None or not any(each.stream == self._stage.path for each in stream.streams(self._queue)):
            return False
        batch = stream.change(self._queue, self._stage.path)
        if not self._tried_all(batch):
            return False
        found = culprits.find(self._spark, self._stage, self._options, self._queue, batch)
        if found is not None:
            self._failed += 1
            self._failed_id = found
        return found is not None

    def _has_begun(self, writer: Any, *, last: bool) -> bool:
        """Start the query. False if Spark did not wait for a Python process, and this is not the last try."""
        try:
            self._query = writer.start()
        except Exception as error:
            if last or TOO_SLOW not in str(error):
                raise
            return False
        # Stages that start at the same time would take the processor from each other.
        while self.is_active and self._query.status["message"].startswith("Initializing "):
            sleep(PAUSE)
        return last or self.is_active or TOO_SLOW not in str(self._query.exception())

    @property
    def is_active(self) -> bool:
        return self._query is not None and self._query.isActive

    def fence(self) -> None:
        """Fence the stream: the query is refused its next batch, so it claims none that it would not write."""
        if self._queue and self.is_active:
            self._fenced_by = Stream(self._queue, self._stage.path)

    def stop(self) -> None:
        """End the query after its batch, which is completed if the query was fenced."""
        if self._query is None:
            return
        if self._fenced_by is None:
            if not self.is_active:
                self._error = self._query.exception() or (ENDED if self._endless else None)
                if self._error and not refusals.died(self._error):
                    self._excuse()
                return
            self._spark.conf.set(self._stop, "true")
        while self.is_active and self._query.status["isTriggerActive"]:
            sleep(PAUSE)
        self._query.stop()
        if self._fenced_by is None:
            self._excuse()
        self._spark.conf.unset(self._stop)
        done = self._query.lastProgress
        if self._fenced_by and done:
            # The function of the stage may read other sources, too.
            ours = [end["batch"] for end in _ends(done) if end.get("stream") == self._stage.path]
            for batch in ours[:1]:
                self._fenced_by.complete(batch)

    def _excuse(self) -> None:
        """Note that the batch did not end for a reason that is known: it says nothing about its messages."""
        if self._queue is None:
            return
        with suppress(TablequeueError):  # the error of the query matters more
            stream.change(
                self._queue,
                self._stage.path,
                lambda batch: replace(batch.failures, begun=max(0, batch.failures.begun - 1)),
            )

    def check(self) -> None:
        """Raise `PipelineFailed` if the query failed, at its start or in a batch."""
        if self._error is not None:
            log = self._spark.conf.get(LOG, None)
            raise failure(self._stage.name, self._error, self._place(), log) from self._error

    def _place(self) -> str:
        """The batch that did not end, and its messages, if the stage reads a queue."""
        if self._queue is None:
            return ""
        try:
            batch = stream.change(self._queue, self._stage.path)
        except TablequeueError:  # the error of the query matters more
            return ""
        if not batch.ids:
            return ""
        return f"in batch {batch.number} of {self._queue.name!r}, with the messages {batch.ids[0]} to {batch.ids[-1]}"

    def progress(self, *, recount: bool = False) -> Progress:
        self._update()
        if recount or monotonic() - self._lag_at > RECOUNT:
            self._lag = lag_of(self._source, self._offset, self._until)
            self._lag_at = monotonic()
            self._look_for_the_error()
        return Progress(
            self._stage.name,
            self._batch,
            self._messages,
            self._rate,
            self._failed,
            self._last_error,
            written=self._written,
            seconds=self._seconds,
            dropped=self._dropped,
            violations=self._violations.copy(),
            offset=self._offset,
            **behind(self._lag),
        )

    def _update(self) -> None:
        last = self._query and self._query.lastProgress
        if not last:
            return
        seen = -1 if self._batch is None else self._batch
        if isinstance(self._stage.source, FromTopic):
            for end in [end for end in _ends(last) if "offset" in end][:1]:
                self._offset, self._until = end["offset"], end.get("until")
        # Each is a call of Spark: read all that Spark keeps only if the last one is not the next.
        for one in self._query.recentProgress if last.batchId > seen + 1 else [last]:
            # A batch without rows also has these figures: Spark runs it for what a watermark has closed.
            dropped = sum(each.numRowsDroppedByWatermark for each in one.stateOperators)
            if (one.numInputRows or dropped) and one.batchId > seen:
                self._batch, self._rate = one.batchId, one.processedRowsPerSecond / self._stage.reads
                self._seconds = one.batchDuration / 1000
                self._dropped += dropped
                self._written += failures.written(one)
                self._messages += one.numInputRows // self._stage.reads
                for name, number in self._stage.rules.reported(one).items() if self._stage.rules else ():
                    self._violations[name] += number
                failed, last_id = failures.reported(one)
                self._failed += failed
                self._failed_id = last_id or self._failed_id

    def _look_for_the_error(self) -> None:
        """Look for the error of the message that failed last: it has one when its batch is completed."""
        if self._queue is None or self._failed_id is None:
            return
        message = self._queue.find(self._failed_id)
        if message is None or message.state == "dead":
            self._failed_id = None
        if message and message.errors:
            self._last_error = message.errors[-1].error.strip().rpartition("\n")[2]


def _ends(progress: Any) -> list[dict[str, Any]]:
    """The offsets at which the last batch of a query ended, which may have several sources, and others than ours."""
    ends = [json.loads(source.endOffset) for source in progress.sources if source.endOffset]
    return [end for end in ends if isinstance(end, dict)]
