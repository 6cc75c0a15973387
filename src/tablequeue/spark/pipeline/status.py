"""How far stages are behind, and a file with the progress of a run, which another command reads."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tablequeue.queue import Queue
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.sources import FromQueue, FromTopic, Source
from tablequeue.spark.pipeline.stages import Pipeline
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs import topics
from tablequeue.verbs.topics import Lag

# Seconds between two notes of the progress in the file.
EVERY = 1.0


Opened = Queue | Subscription | Topic | None
"""What a stage reads; None: another source of Spark."""


def opened(source: Source, database: Database) -> Opened:
    """Open what a stage reads. A look at it again and again needs no other look into the catalogue then."""
    if isinstance(source, FromQueue):
        return database.queue(source.queue)
    if isinstance(source, FromTopic):
        topic = database.topic(source.topic)
        return topic if source.subscription is None else topic.subscription(source.subscription)
    return None


def lag_of(source: Opened, offset: int | None, until: int | None = None) -> Lag | None:
    """Return how far a stage is behind its source: at an offset of a topic, behind its end or that of a replay."""
    if isinstance(source, Queue):
        stats = source.stats()
        return Lag(stats.ready, stats.oldest_age)
    if isinstance(source, Subscription):
        return source.lag()
    if source is None or offset is None:
        return None
    context = context_of(source)
    number = max(0, (until or topics.bounds(context).end) - offset)
    return Lag(number, topics.age(context, offset) if number else None)


def behind(lag: Lag | None) -> dict[str, Any]:
    """Return the values of `Progress` for a lag."""
    return {"lag": lag and lag.messages, "lag_seconds": lag and lag.seconds}


class Noted(NamedTuple):
    """The progress of the stages of the last run, when it was noted, and whether that run had not ended then."""

    stages: list[Progress]
    at: datetime
    running: bool


class StatusFile:
    """A file with the progress of a run, for `status`: it is replaced as a whole, every second."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._noted = 0.0
        self._last: Sequence[Progress] = ()

    def note(self, progress: Sequence[Progress]) -> None:
        self._last = progress
        if monotonic() > self._noted + EVERY:
            self._noted = monotonic()
            self._write(running=True)

    def ended(self) -> None:
        """Note that the run has ended, if it had begun."""
        if self._last:
            self._write(running=False)

    def _write(self, *, running: bool) -> None:
        told = {"at": datetime.now(UTC).isoformat(), "running": running, "stages": [asdict(one) for one in self._last]}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        fresh.touch(0o600)  # an error may have a message in it
        fresh.write_text(json.dumps(told))
        fresh.replace(self._path)

    def read(self) -> Noted:
        """Raises `BadInput` if no run has noted anything."""
        try:
            told: dict[str, Any] = json.loads(self._path.read_bytes())
            stages = [Progress(**stage) for stage in told["stages"]]
            return Noted(stages, datetime.fromisoformat(told["at"]), told["running"])
        except (OSError, ValueError, KeyError, TypeError):
            raise BadInput(
                f"No run of the pipeline has noted its progress in {str(self._path)!r}.",
                "Run it, or name the folder of its --checkpoints.",
            ) from None


def status(pipeline: Pipeline, file: StatusFile) -> Noted:
    """Return the progress of the last run, with the lag of each stage as it is now."""
    noted = file.read()
    with Options.of_database(pipeline.database).connect() as database:
        stages = []
        for one in noted.stages:
            stage = pipeline.stages.get(one.stage)
            lag = lag_of(opened(stage.source, database), one.offset) if stage else None
            stages.append(replace(one, **behind(lag)))
    return noted._replace(stages=stages)
