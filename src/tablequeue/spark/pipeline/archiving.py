"""A stage that moves old messages out of the history of a queue: the archive of `tablequeue archive`, again and again.

It runs in the process that runs the pipeline, without Spark, and has no checkpoint: what was moved is known by where it
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Thread
from time import monotonic
from typing import Any

from tablequeue.bulk import archive as archives
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.model.pacing import Duration
from tablequeue.queue import Queue
from tablequeue.spark.pipeline.delta import ToDelta
from tablequeue.spark.pipeline.iceberg import ToIceberg
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.refusals import failure
from tablequeue.spark.pipeline.sinks import ToParquet

# Seconds from one run to the next: each run adds a file, and old messages can wait.
EVERY = 3600.0


@dataclass(frozen=True, slots=True)
class Archive:
    """Moves finished, cancelled and expired messages from the history of a queue to a lake. Add it by `Pipeline.add`.

    queue        name of the queue, which keeps a history.
    to           `ToParquet(folder)`, `ToDelta(folder)` or `ToIceberg(table, warehouse)`. The folder or the table is for
                 this archive alone.
    older_than   how long ago they ended, at least: seconds, or a timedelta.

    A message is deleted in the database after it was read back from the lake, and compared. Whatever is killed, it is
    in the lake once, or still in the database, or both until the next run. See `tablequeue.bulk.archive`.

    It archives at the start, and then once an hour. With `available_now` it archives once.
    """

    queue: str
    to: ToParquet | ToDelta | ToIceberg
    older_than: Duration

    def __post_init__(self) -> None:
        if not isinstance(self.to, ToParquet | ToDelta | ToIceberg):
            raise BadInput(
                f"An archive cannot write to {self.to!r}.", "Give it one of ToParquet, ToDelta and ToIceberg."
            )
        if self.to.transform or self.to.partition_by or (isinstance(self.to, ToDelta) and self.to.merge_on):
            raise BadInput(
                "An archive has the messages as they are in the history.",
                "Leave out transform, partition_by and merge_on.",
            )

    def move(self, queue: Queue, watch: archives.Watch) -> int:
        """Archive what is old enough now."""
        if isinstance(self.to, ToIceberg):
            return archives.archive(
                queue, self.to.table, self.older_than, format="iceberg", warehouse=self.to.warehouse, watch=watch
            )
        kind: archives.Format = "delta" if isinstance(self.to, ToDelta) else "parquet"
        return archives.archive(queue, self.to.path, self.older_than, format=kind, watch=watch)


class RunningArchive:
    """An archive that runs, in a thread. A stage that is a query of Spark has the same methods."""

    def __init__(self, name: str, archive: Archive, database: Database) -> None:
        self._name = name
        self._archive = archive
        self._queue = database.queue(archive.queue)
        self._stopping = Event()
        self._thread: Thread | None = None
        self._error: Exception | None = None
        self._batch: int | None = None
        self._messages = 0
        self._rate = 0.0

    def start(self, checkpoints: str, trigger: Mapping[str, Any]) -> None:
        again = "availableNow" not in trigger
        self._thread = Thread(target=self._run, args=(again,), name=self._name, daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begins_again(self) -> bool:
        """False: an error of an archive ends it."""
        return False

    def fence(self) -> None:
        """It takes messages from nobody."""

    def stop(self) -> None:
        """End it after its batch, which is settled."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise `PipelineFailed` if a run failed."""
        if self._error is not None:
            raise failure(self._name, self._error) from self._error

    def progress(self, *, recount: bool = False) -> Progress:
        return Progress(self._name, self._batch, self._messages, self._rate)

    def _run(self, again: bool) -> None:
        try:
            while not self._stopping.is_set():
                began = monotonic()
                moved = self._archive.move(self._queue, self._watch)
                self._messages += moved
                self._rate = moved / max(monotonic() - began, 1e-3)
                self._batch = 0 if self._batch is None else self._batch + 1
                if not again or self._stopping.wait(EVERY):
                    break
        except InterruptedError:
            pass
        except Exception as error:
            self._error = error

    def _watch(self, share: float) -> None:
        if self._stopping.is_set():
            raise InterruptedError
