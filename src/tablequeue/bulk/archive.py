"""The archive: finished messages move from the history of a queue to Parquet files, or to a table of Delta or Iceberg.

They move in batches; each is a file, or a commit of the table. The next batch is written only when no message of the
last batch is in the history any more. So after any crash, a message that is both in the history and in the archive is
in the last batch, and each run begins with that batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from tablequeue.bulk import folder
from tablequeue.bulk.arrow import Range, batch_of, bounds, columns
from tablequeue.bulk.folder import MOVE_AWAY
from tablequeue.bulk.identity import identity_of
from tablequeue.bulk.tables import need
from tablequeue.consumer import Consumer
from tablequeue.engines.columns import COLUMNS
from tablequeue.errors import ArchiveRefused, BadInput
from tablequeue.ext import context_of
from tablequeue.model.message import ID
from tablequeue.model.pacing import Duration
from tablequeue.verbs.context import Context, Params, seconds
from tablequeue.verbs.inspect import BATCH, need_history

Format = Literal["parquet", "delta", "iceberg"]
Watch = Callable[[float], None]

# Messages of one batch, and bytes of them in memory: a batch is full when it has either.
FILE_ROWS, FILE_BYTES = 100_000, 64 << 20
# Messages and bytes of one read and one deletion. The first read is small, because nothing is known of the sizes yet.
FIRST_ROWS, READ_BYTES = 16, 8 << 20

_FIRST = datetime(1, 1, 2, tzinfo=UTC)
_LAST_ID = (1 << 63) - 1


class Batch(Protocol):
    """A batch of an archive. `path` names it in error messages."""

    @property
    def number(self) -> int: ...

    @property
    def path(self) -> str | Path: ...

    def messages(self, schema: pa.Schema) -> pa.Table:
        """Read it back, from the disk. `ArchiveRefused` if it cannot be read as it was written."""


class Archive(Protocol):
    """The batches of an archive, for one run. Their numbers begin at 1."""

    def last(self) -> Batch | None:
        """Return the batch with the highest number."""

    def add(self, number: int, messages: pa.Table) -> None:
        """Add a batch: all of it, or nothing. `BadInput` if another program has added one since `last`."""


def archive(
    queue: Consumer,
    to: str | Path,
    older_than: Duration,
    *,
    format: Format = "parquet",
    warehouse: str | Path | None = None,
    now: datetime | None = None,
    watch: Watch = lambda share: None,
) -> int:
    """Move the messages that left the queue `older_than` ago or earlier to a lake; return how many.

    to           a folder for this queue alone, which is made if it is not there; of Iceberg the table, as
                 `namespace.table`, in the catalogue that the sink `ToIceberg` uses;
    older_than   seconds, or a timedelta;
    format       `parquet`: files in the folder; `delta`: a Delta table in it; or `iceberg`;
    warehouse    the folder in which an Iceberg table is made, if it is not there;
    watch        called after each batch with the fraction that is done, from 0 to 1. An exception of it ends the run.

    It moves finished, cancelled and expired messages, with all their columns and their results. Messages that were
    delivered at most once and not completed stay, as do dead letters. A message is deleted from the history after its
    file is on the disk and was read back and compared.

    After a crash at any point each message is in the archive once, or still in the history, or both, if it is in the
    last batch. So archive again: the next run begins with that batch. A thousand messages are deleted at a time, and no
    consumer waits.

    Raises `BadInput` for a queue without history, a subscription, a retention that is shorter, and a place that has
    something else or is being written to; `DriverMissing` without the package of the format; `ArchiveRefused` if a
    batch differs from what is here; OSError if the disk refuses.
    """
    context = context_of(queue)
    context.look()  # whether there are results, and a retention: the queue may have been open for long
    age = _age(context, older_than)
    engine = context.engine
    clock = engine.load_time(context.run(engine.checks.read_clock, {"now": context.time(now)}))
    until = clock - min(timedelta(seconds=age), clock - _FIRST)
    with _opened(queue, to, format, warehouse) as files:
        number, total = _settle(queue, files)  # the batch that a killed run has left
        there = bounds(queue, "history", Range(0, _LAST_ID, until=until + timedelta(microseconds=1)))
        start, end = (there.low, there.high) if there else (1, 0)
        whole = end - start + 1
        while (last := _write(queue, files, number + 1, Range(start, end, until=until))) is not None:
            number, deleted = _settle(queue, files)
            total += deleted
            start = last + 1
            watch(1 - (end - last) / whole)
    return total


def schema(queue: Consumer) -> pa.Schema:
    """Return the columns of an archive: the columns of the history, and the result as JSON."""
    return columns(queue, "history").append(pa.field("result", pa.string()))


def files_in(lake: Path, queue: Consumer) -> list[str]:
    """Return the files of the archives of a queue, in the folders of a lake and in the catalogue of Iceberg."""
    context, whose = context_of(queue), identity_of(queue)
    found = [str(path) for path in folder.files_in(lake, whose)]
    if any((each / "_delta_log").is_dir() for each in lake.iterdir()):
        need("deltalake", "delta")
        from tablequeue.bulk import delta

        found += delta.files_in(lake, whose)
    database, schema = context.runner.sa_engine, context.engine.schema
    if sa.inspect(database).has_table("iceberg_tables", schema):
        need("pyiceberg", "iceberg")
        from tablequeue.bulk import iceberg

        found += iceberg.files_of(database, schema, whose)
    return found


def _opened(
    queue: Consumer, to: str | Path, format: Format, warehouse: str | Path | None
) -> AbstractContextManager[Archive]:
    """Open an archive, or make it."""
    context, whose, kinds = context_of(queue), identity_of(queue), schema(queue)
    if warehouse is not None and format != "iceberg":
        raise BadInput("A warehouse is given, which only Iceberg has.", "Leave it out, or choose the format iceberg.")
    if format == "parquet":
        return folder.opened(Path(to), whose)
    if format == "delta":
        need("deltalake", "delta")
        from tablequeue.bulk.delta import DeltaArchive

        return nullcontext(DeltaArchive(str(to), whose, kinds))
    if format == "iceberg":
        need("pyiceberg", "iceberg")
        from tablequeue.bulk.iceberg import IcebergArchive

        made_in = None if warehouse is None else str(warehouse)
        return nullcontext(IcebergArchive(context.runner.sa_engine, context.engine, str(to), made_in, whose, kinds))
    raise BadInput(f"An archive has no format {format!r}.", "Choose parquet, delta or iceberg.")


def _age(context: Context, older_than: Duration) -> float:
    definition, name = context.table.definition, context.table.name
    if definition.kind != "queue":
        raise BadInput(
            f"{name!r} is a subscription, whose messages are in the log of its topic.",
            "Leave them to the retention of the topic, or read the topic by Spark.",
        )
    need_history(context)
    age = seconds(older_than, "older_than")
    if definition.retention is not None and definition.retention <= age:
        raise BadInput(
            f"The queue {name!r} deletes messages {definition.retention:g} seconds after they finished, so none is "
            f"{age:g} seconds old.",
            "Alter the queue to history='keep': then the archive alone deletes its messages.",
        )
    return age


def _write(queue: Consumer, files: Archive, number: int, within: Range) -> int | None:
    """Write the next batch, lowest id first. Return its highest id; None if there is nothing to write."""
    pages: list[pa.RecordBatch] = []
    rows = size = 0
    for page in _pages(queue, within):
        pages.append(page)
        rows, size = rows + page.num_rows, size + page.nbytes
        if rows >= FILE_ROWS or size >= FILE_BYTES:
            break
    if not pages:
        return None
    files.add(number, pa.Table.from_batches(pages))
    last: int = pages[-1]["id"][-1].as_py()
    return last


def _pages(queue: Consumer, within: Range) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the history that finished up to `until`, lowest id first, a bounded number at a time."""
    context = context_of(queue)
    names, kinds = [*COLUMNS, "result"], schema(queue)
    low, n = within.low, FIRST_ROWS
    params: Params = {"high": within.high, "until": context.time(within.until, "until")}
    while rows := context.run(context.reads.archivable, params | {"low": low, "n": n}):
        page = batch_of(context, rows, kinds, names)
        yield page
        low = rows[-1][ID] + 1
        n = max(1, min(BATCH, 4 * n, READ_BYTES * len(rows) // page.nbytes))


def _settle(queue: Consumer, files: Archive) -> tuple[int, int]:
    """Compare the last batch with the history, and delete its messages there. Return its number, and the number of
    these messages."""
    last = files.last()
    if last is None:
        return 0, 0
    context, deleted = context_of(queue), 0
    there = last.messages(schema(queue))
    _check(there.num_rows > 0 and there.schema.equals(schema(queue)), queue, last)
    ids = there["id"].combine_chunks()
    within = Range(pc.min(ids).as_py(), pc.max(ids).as_py(), until=pc.max(there["finished_at"]).as_py())
    for page in _pages(queue, within):
        places = pc.index_in(page["id"], ids)
        here = pa.Table.from_batches([page]).filter(places.is_valid())
        _check(here.equals(there.take(places.drop_null())), queue, last)
        if here.num_rows:
            params: Params = {"ids": context.engine.dump_ids(here["id"].to_pylist())}
            deleted += context.run(context.messages.purge_history_ids, params)
    return last.number, deleted


def _check(same: bool, queue: Consumer, batch: Batch) -> None:
    """Refuse to delete messages of which a batch has something else than the history."""
    if not same:
        raise ArchiveRefused(
            f"{batch.path} has other contents than the history of {queue.name!r} for messages of the same ids.",
            "They were not deleted. Name another place, if the database was restored from a backup. Otherwise the "
            f"archive was changed. {MOVE_AWAY}",
        )
