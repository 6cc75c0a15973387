"""The lake: a folder that keeps the messages that reports have read, so that the next report reads only new ones.

messages/queue=…/day=…   finished messages, by the day of their end; Parquet, without payloads
live/queue=…             messages that were live at the last report
sketches/queue=…/day=…   wait and run times of each hour, in mergeable sketches
tables/…                 the reports
lake.json                the database of the lake, and the time up to which each queue was read
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from tablequeue.bulk.folder import owner_of
from tablequeue.errors import BadInput
from tablequeue.spark.reports.messages import COLUMNS
from tablequeue.spark.reports.times import sketches

VERSION = 1

# A message can be read when its transaction commits, but its finished_at is earlier. So each run also reads this time
# before the end of the last one. Ids do not help: a message with a low id may be finished last.
OVERLAP = timedelta(hours=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SKETCHES = (
    "queue string, day date, hour timestamp, time string, messages bigint, seconds double, longest double, "
    "sketch binary"
)


@dataclass(frozen=True)
class Window:
    """The time of a report: from `since` until before `until`; None means no limit."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, table: DataFrame, at: str, every: int) -> DataFrame:
        """Return the rows of a table whose interval, of `every` seconds from `at` on, overlaps the window."""
        if self.since is not None:
            table = table.where(f.col(at) > f.lit(self.since - timedelta(seconds=every)))
        return table if self.until is None else table.where(f.col(at) < f.lit(self.until))


@contextmanager
def open_lake(folder: Path, database: str) -> Iterator[Lake]:
    """Open the lake in a folder for this process alone, or create it.

    Raises `BadInput` for a lake of another `database`, for one that another report is writing to, and for one that
    cannot be read; OSError if the folder cannot be written to.
    """
    for name in (".", "messages", "live", "sketches", "tables"):
        if owner_of(folder / name):
            raise BadInput(
                f"{folder / name} is the archive of a queue.", "Name another folder: the archive may be a folder in it."
            )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lake.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released by the system, however this process ends
        except BlockingIOError:
            raise BadInput(
                f"Another report is writing to {folder}.", "Wait until it has finished, or name another folder."
            ) from None
        lake = Lake(folder, database, _read_until(folder / "lake.json", database))
        for name in ("messages", "live", "sketches"):
            (folder / name).mkdir(exist_ok=True)
        yield lake


def _read_until(path: Path, database: str) -> dict[str, datetime]:
    try:
        state = json.loads(path.read_text("utf-8"))
        version, owner = state["version"], state["database"]
        read_until = {queue: datetime.fromisoformat(time) for queue, time in state["read_until"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(
            f"{path} cannot be read.", "Delete that file: then all messages are read again, and none is counted twice."
        ) from None
    if version != VERSION:
        raise BadInput(f"{path.parent} was made by another version of tablequeue.", "Name another folder.")
    if owner != database:
        raise BadInput(
            f"{path.parent} holds the messages of {owner}, not of {database}.",
            f"Name another folder; if it is the same database under a new URL, correct {path}.",
        )
    return read_until


@dataclass
class Lake:
    """The messages that were read from the queues of one database. Each step can be killed at any time, and repeated.

    Messages are only added, each once. After them, the time up to which they were read is saved. Sketches are computed
    again for each day whose number of messages differs from theirs.
    """

    folder: Path
    database: str
    read_until: dict[str, datetime] = field(default_factory=dict)

    # -- filling -----------------------------------------------------------------------------------------------------

    def since(self, queue: str) -> datetime | None:
        """Return the time from which on to read the finished messages of a queue; None for all of them."""
        until = self.read_until.get(queue)
        return None if until is None else until - OVERLAP

    def add(
        self,
        queue: str,
        live: DataFrame,
        finished: DataFrame,
        archived: Callable[[], DataFrame | None],
    ) -> int:
        """Save the live messages of a queue, and those of the others that the lake does not have yet.

        `finished` are those of the history, from `since` on; it must be read after `live`. `archived` returns those in
        archives; it is called when the history was read, for an archive moves messages there meanwhile. Returns how
        many were added. A crash leaves some of them, and the saved time of the last run.
        """
        spark, since = finished.sparkSession, self.since(queue)
        added = self._append(queue, finished, since)
        moved = archived()
        if moved is not None:
            added += self._append(
                queue, moved if since is None else moved.where(f.col("finished_at") >= f.lit(since)), since
            )
        there = self._messages(spark, since).where(f.col("queue") == queue)  # again, as the files have changed
        last = there.agg(f.unix_micros(f.max("finished_at"))).first()[0]
        if last is not None:
            # At most the present: a finished_at in the future must not hide messages that finish before it.
            self._save_read_until(queue, min(_EPOCH + timedelta(microseconds=last), datetime.now(UTC)))
        (
            live.join(there.select("id", "pushed_at"), ["id", "pushed_at"], "left_anti")
            .drop("queue")
            .write.parquet(str(self.folder / "live" / f"queue={_escaped(queue)}"), "overwrite")
        )
        return added

    def _append(self, queue: str, finished: DataFrame, since: datetime | None) -> int:
        # Not by id alone: the ids of a queue that was dropped and created again begin at 1.
        there = self._messages(finished.sparkSession, since).where(f.col("queue") == queue)
        added = Observation()
        (
            finished.join(there.select("id", "finished_at"), ["id", "finished_at"], "left_anti")
            .withColumn("day", f.to_date("finished_at"))
            .observe(added, f.count(f.lit(1)).alias("messages"))
            .write.partitionBy("queue", "day")
            .parquet(str(self.folder / "messages"), "append")
        )
        return int(added.get["messages"])

    def update_sketches(self, spark: SparkSession) -> None:
        """Compute the sketches of all days whose messages have changed. After a crash the next run does the rest."""
        messages = self._messages(spark)
        counted = messages.where("state = 'finished'").groupBy("queue", "day").count()
        summed = (
            self._sketches(spark).where("time = 'run'").groupBy("queue", "day").agg(f.sum("messages").alias("count"))
        )
        stale = counted.join(summed, ["queue", "day", "count"], "left_anti").select("queue", "day").localCheckpoint()
        (
            sketches(messages.join(f.broadcast(stale), ["queue", "day"]), "day")
            .write.partitionBy("queue", "day")
            .option("partitionOverwriteMode", "dynamic")
            .parquet(str(self.folder / "sketches"), "overwrite")
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def messages(self, spark: SparkSession, queues: Sequence[str], window: Window) -> DataFrame:
        """Return the messages of the queues that were live at some time in the window."""
        live = spark.read.schema(COLUMNS).parquet(str(self.folder / "live"))
        known = self._messages(spark, window.since).drop("day").unionByName(live).where(f.col("queue").isin(*queues))
        return known if window.until is None else known.where(f.col("pushed_at") < f.lit(window.until))

    def sketches(self, spark: SparkSession, queues: Sequence[str], window: Window) -> DataFrame:
        """Return the sketches of the hours in the window."""
        return window.of(self._sketches(spark).where(f.col("queue").isin(*queues)), "hour", 3600)

    def write(self, name: str, table: DataFrame) -> list[dict[str, Any]]:
        """Write a report, and return its rows, with times in UTC. A crash leaves none, or an incomplete one."""
        path = str(self.folder / "tables" / name)
        table.coalesce(1).write.parquet(path, "overwrite")
        rows = table.sparkSession.read.parquet(path).collect()
        return [{name: _utc(value) for name, value in row.asDict().items()} for row in rows]

    # -- private -----------------------------------------------------------------------------------------------------

    def _messages(self, spark: SparkSession, since: datetime | None = None) -> DataFrame:
        frame = spark.read.schema(f"{COLUMNS}, day date").parquet(str(self.folder / "messages"))
        if since is None:
            return frame
        return frame.where(f.col("day") >= f.lit(since.astimezone(UTC).date())).where(
            f.col("finished_at") >= f.lit(since)
        )

    def _sketches(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(_SKETCHES).parquet(str(self.folder / "sketches"))

    def _save_read_until(self, queue: str, until: datetime) -> None:
        self.read_until[queue] = until
        times = {name: time.isoformat() for name, time in sorted(self.read_until.items())}
        fresh = self.folder / "lake.json.new"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "database": self.database, "read_until": times}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / "lake.json")


def _escaped(name: str) -> str:
    """Return a name as Spark writes it in that of a partition's folder. Other characters stay as they are."""
    return re.sub(r"""["#%'*/:=?\\{[\]^]""", lambda found: f"%{ord(found[0]):02X}", name)


def _utc(value: Any) -> Any:
    # PySpark returns naive times in the time zone of the machine.
    return value.astimezone(UTC) if isinstance(value, datetime) else value
