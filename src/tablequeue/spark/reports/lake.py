"""The lake: a folder that keeps the messages that reports have read, so that the next report reads only new ones.

messages/queue=…/day=…   finished messages, by the day of their end; Parquet, without payloads
live/queue=…             messages that were live at the last report
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

import pyarrow.parquet as pq

from tablequeue.bulk.folder import owner_of
from tablequeue.errors import BadInput
from tablequeue.spark.reports.engine import Engine, Row

VERSION = 1

# A message can be read when its transaction commits, but its finished_at is earlier. So each run also reads this time
# before the end of the last one. Ids do not help: a message with a low id may be finished last.
OVERLAP = timedelta(hours=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Window:
    """The time of a report: from `since` until before `until`; None means no limit."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, text: str, at: str, every: int) -> str:
        """Return the rows of a report whose interval, of `every` seconds from `at` on, overlaps the window."""
        since = self.since and self.since - timedelta(seconds=every)
        within = f"{_limit(at, '>', since)} and {_limit(at, '<', self.until)}"
        return f'select * from ({text}) as happened where {within} order by queue, "{at}"'


@contextmanager
def open_lake(folder: Path, database: str) -> Iterator[Lake]:
    """Open the lake in a folder for this process alone, or create it.

    Raises `BadInput` for a lake of another `database`, for one that another report is writing to, and for one that
    cannot be read; OSError if the folder cannot be written to.
    """
    for name in (".", "messages", "live", "tables"):
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
        for name in ("messages", "live"):
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
            f"{path.parent} holds the messages of the database with the identity {owner}, not of {database}.",
            f"Name another folder; if the database was declared a copy by mistake, correct {path}.",
        )
    return read_until


@dataclass
class Lake:
    """The messages that were read from the queues of one database. Each step can be killed at any time, and repeated.

    Messages are only added, each once. After them, the time up to which they were read is saved.
    """

    folder: Path
    database: str
    read_until: dict[str, datetime] = field(default_factory=dict)

    # -- filling -----------------------------------------------------------------------------------------------------

    def since(self, queue: str) -> datetime | None:
        """Return the time from which on to read the finished messages of a queue; None for all of them."""
        until = self.read_until.get(queue)
        return None if until is None else until - OVERLAP

    def add(self, engine: Engine, queue: str, archived: Callable[[], bool] = lambda: False) -> int:
        """Save the messages of a queue in the table `live`, and those of the others that the lake does not have yet.

        The others are in `ended`, read from `since` on and after `live`, and in the table `archived`. `archived` makes
        that, if there is an archive; it is called when `ended` was read, for an archive moves messages meanwhile.
        Returns how many were added. A crash leaves some of them, and the saved time of the last run.
        """
        since = self.since(queue)
        added = self._append(engine, queue, "ended", since)
        if archived():
            # Two archives of a queue that ran at once have the same messages.
            engine.define("moved", f"select distinct * from archived where {_limit('finished_at', '>=', since)}")
            added += self._append(engine, queue, "moved", since)
        self._known(engine, [queue], since)  # again, as the files have changed
        (last,) = engine.rows("select unix_micros(max(finished_at)) as micros from known")
        if last["micros"] is not None:
            # At most the present: a finished_at in the future must not hide messages that finish before it.
            self._save_read_until(queue, min(_EPOCH + timedelta(microseconds=last["micros"]), datetime.now(UTC)))
        engine.replace(self._of("live", queue), "select live.* from live anti join known using (id, pushed_at)")
        return added

    def _append(self, engine: Engine, queue: str, table: str, since: datetime | None) -> int:
        # Not by id alone: the ids of a queue that was dropped and created again begin at 1.
        self._known(engine, [queue], since)
        return engine.add(
            self._of("messages", queue),
            f"select {table}.*, cast(finished_at as date) as day from {table} anti join known using (id, finished_at)",
        )

    # -- reading -----------------------------------------------------------------------------------------------------

    def size(self, queues: Sequence[str]) -> int:
        """Return the number of ended messages of these queues."""
        files = (file for queue in queues for file in self._of("messages", queue).glob("day=*/*.parquet"))
        return sum(pq.read_metadata(file).num_rows for file in files)

    def read(self, engine: Engine, queues: Sequence[str], window: Window) -> None:
        """Make the table `messages` of those of the queues that were live at some time in the window."""
        self._known(engine, queues, window.since)
        engine.open("present", [self._of("live", queue) for queue in queues])
        both = "select * from known union all select * from present"
        engine.define("messages", f"select * from ({both}) as known where {_limit('pushed_at', '<', window.until)}")

    def write(self, engine: Engine, name: str, text: str) -> list[Row]:
        """Write a report, and return its rows, with times in UTC. A crash leaves none, or an incomplete one."""
        path = self.folder / "tables" / name
        engine.replace(path, text)
        rows = pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us").to_pylist()
        return [{name: _utc(value) for name, value in row.items()} for row in rows]

    # -- private -----------------------------------------------------------------------------------------------------

    def _of(self, kind: str, queue: str) -> Path:
        return self.folder / kind / f"queue={_escaped(queue)}"

    def _known(self, engine: Engine, queues: Sequence[str], since: datetime | None) -> None:
        """Make the table `known` of the messages that ended at `since` or later."""
        within = "true"
        if since is not None:
            within = (
                f"cast(day as date) >= date '{since.astimezone(UTC):%Y-%m-%d}' and {_limit('finished_at', '>=', since)}"
            )
        engine.open("known", [self._of("messages", queue) for queue in queues], within)

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


def _limit(column: str, sign: str, time: datetime | None) -> str:
    micros = None if time is None else (time - _EPOCH) // timedelta(microseconds=1)
    return "true" if micros is None else f'"{column}" {sign} timestamp_micros({micros})'


def _utc(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    # A file of Spark has times without a zone.
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
