"""The lake: a folder that keeps what reports have read, so that the next one reads only what is new.

messages/queue=…/day=…   what was finished, by the day on which it was; Parquet, without payloads
live/queue=…             what was not finished when it was last looked at
sketches/queue=…/day=…   wait and run times of the hours, in mergeable sketches
tables/…                 the reports
lake.json                whose lake it is, and up to which time each queue was read
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from tablequeue.errors import BadInput
from tablequeue.spark.reports.messages import COLUMNS
from tablequeue.spark.reports.times import sketches

VERSION = 1

# A message is seen when its transaction commits, and its finished_at is from before: each run looks back so far, for
# those that came late. Ids say nothing: a message with a low one may be finished last.
OVERLAP = timedelta(hours=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SKETCHES = (
    "queue string, day date, hour timestamp, time string, messages bigint, seconds double, longest double, "
    "sketch binary"
)


@dataclass(frozen=True)
class Window:
    """The time that a report is about: from `since` to before `until`; None is without an end."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, table: DataFrame, at: str, every: int) -> DataFrame:
        """The rows of a table whose `every` seconds from `at` on are, at least in part, in the window."""
        if self.since is not None:
            table = table.where(f.col(at) > f.lit(self.since - timedelta(seconds=every)))
        return table if self.until is None else table.where(f.col(at) < f.lit(self.until))


@contextmanager
def open_lake(folder: Path, database: str) -> Iterator[Lake]:
    """The lake in a folder, made if there is none, for this process alone.

    `database` says whose messages it holds. `BadInput` for a lake of another database, one that another report is
    writing to, and one that cannot be read; OSError for a folder that cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lake.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the system lets go of it, however this process ends
        except BlockingIOError:
            raise BadInput(
                f"Another report is writing to {folder}.", "Wait until it has ended, or name another folder."
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
            f"{path} cannot be read.", "Delete that file: all is read again then, and nothing is counted twice."
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
    """What has been read of the queues of one database. Every step may be killed at any point, and repeated.

    Messages are only ever added, those that are not there yet; the time up to which they were read is noted after
    them. Sketches are made anew for each day whose number of messages is not theirs.
    """

    folder: Path
    database: str
    read_until: dict[str, datetime] = field(default_factory=dict)

    # -- filling -----------------------------------------------------------------------------------------------------

    def since(self, queue: str) -> datetime | None:
        """From when on the finished messages of a queue are to be read; None: all of them."""
        until = self.read_until.get(queue)
        return None if until is None else until - OVERLAP

    def add(self, queue: str, live: DataFrame, finished: DataFrame) -> int:
        """Keep what was live in a queue, and the messages finished since `since`, read later, that are not there yet.

        Returns how many were not. A crash leaves some of them, and the time of the run before.
        """
        spark, since = finished.sparkSession, self.since(queue)
        # An id alone would not do: a queue that was dropped and made again begins again with 1.
        there = self._messages(spark, since).where(f.col("queue") == queue)
        added = Observation()
        (
            finished.join(there.select("id", "finished_at"), ["id", "finished_at"], "left_anti")
            .withColumn("day", f.to_date("finished_at"))
            .observe(added, f.count(f.lit(1)).alias("messages"))
            .write.partitionBy("queue", "day")
            .parquet(str(self.folder / "messages"), "append")
        )
        there = self._messages(spark, since).where(f.col("queue") == queue)  # again, for the files are others now
        last = there.agg(f.unix_micros(f.max("finished_at"))).first()[0]
        if last is not None:
            # At most the present: one finishing time in the future is not to hide what is finished until then.
            self._note(queue, min(_EPOCH + timedelta(microseconds=last), datetime.now(UTC)))
        (
            live.join(there.select("id", "pushed_at"), ["id", "pushed_at"], "left_anti")
            .drop("queue")
            .write.parquet(str(self.folder / "live" / f"queue={queue}"), "overwrite")
        )
        return int(added.get["messages"])

    def sum_up(self, spark: SparkSession) -> None:
        """Bring the sketches up to date with the messages. A crash leaves days without, for the next time."""
        messages = self._messages(spark)
        counted = messages.groupBy("queue", "day").count()
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
        """Those messages of the queues that were live at some time in the window."""
        live = spark.read.schema(COLUMNS).parquet(str(self.folder / "live"))
        known = self._messages(spark, window.since).drop("day").unionByName(live).where(f.col("queue").isin(*queues))
        return known if window.until is None else known.where(f.col("pushed_at") < f.lit(window.until))

    def sketches(self, spark: SparkSession, queues: Sequence[str], window: Window) -> DataFrame:
        """The sketches of the hours in the window."""
        return window.of(self._sketches(spark).where(f.col("queue").isin(*queues)), "hour", 3600)

    def write(self, name: str, table: DataFrame) -> list[dict[str, Any]]:
        """Keep a report, and return its rows, with times in UTC. A crash leaves none, or one that is not whole."""
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

    def _note(self, queue: str, until: datetime) -> None:
        self.read_until[queue] = until
        times = {name: time.isoformat() for name, time in sorted(self.read_until.items())}
        fresh = self.folder / "lake.json.new"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "database": self.database, "read_until": times}, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.folder / "lake.json")


def _utc(value: Any) -> Any:
    # PySpark hands out times of the machine's zone, without saying so.
    return value.astimezone(UTC) if isinstance(value, datetime) else value
