"""The input of the reports: the messages of queues, live and ended, and what happened to them.

The reports are texts of SQL, which DuckDB and Spark both run, over the table `messages`. A text writes what both know:
identifiers in double quotes, functions by Spark's names, and times in whole microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tablequeue.bulk import arrow
from tablequeue.consumer import Consumer
from tablequeue.ext import context_of
from tablequeue.model.attempts import load_errors
from tablequeue.model.pacing import LARGEST
from tablequeue.queue import Queue

_ERROR = pa.struct([("attempt", pa.int32()), ("at", arrow.TIME), ("consumer", pa.string()), ("error", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("state", pa.string()),
        ("attempts", pa.int32()),
        ("producer", pa.string()),
        ("consumer", pa.string()),
        ("pushed_at", arrow.TIME),
        ("due_at", arrow.TIME),
        ("first_popped_at", arrow.TIME),
        ("popped_at", arrow.TIME),
        ("finished_at", arrow.TIME),
        ("errors", pa.list_(_ERROR)),
    ]
)
"""The columns of a message without payload and headers; in `messages` its queue comes before them.

`state` is finished, cancelled, expired, lost (delivered at most once, and not completed within its lease), or that of a
live message; `errors` is never null.
"""

ENDS = ("finished", "cancelled", "expired", "dead", "lost")
"""The states in which nothing is to be done any more."""

EVERY = arrow.Range(0, (1 << 63) - 1)

EXPIRED = "lease expired"
"""The error of an attempt whose consumer died, or took longer than its lease."""

LAST = "try_element_at(errors, -1)"
"""The last error of a message."""

FAILURES = """
    select queue, id, state, attempts, place, try_element_at(errors, place) as failure,
        place = cardinality(errors) as last
    from (
        select *, explode(sequence(1, cardinality(errors))) as place from messages where cardinality(errors) > 0
    ) as failed
"""
"""A row for each error of each message, and whether it is the last one."""

REDRIVEN = f"""
    select distinct queue, id from (
        select queue, id, state, attempts, last, failure.attempt,
            lag(failure.attempt) over (partition by queue, id order by place) as before
        from ({FAILURES}) as failures
    ) as tries
    where attempt <= before or last and attempt >= attempts + case
        when state in ('finished', 'in_progress', 'lost') then 0 else 1 end
"""
"""The messages that were redriven at least once: their attempts were counted anew, and their errors were kept."""

# A dead letter ended with its last error, a lost message with its pop.
EVENTS = f"""
    select * from (
        select queue, id, 'pushed' as event, pushed_at as "at", producer as name, cast(null as string) as error
        from messages
        union all
        select queue, id, 'popped', first_popped_at, null, null from messages
        union all
        select queue, id, 'failed', failure."at", failure.consumer, failure.error from ({FAILURES}) as failures
        union all
        select queue, id, state, coalesce(finished_at, case when state = 'dead' then {LAST}."at" end, popped_at),
            consumer, null
        from messages where state in {ENDS}
    ) as events
    where "at" is not null
"""
"""A row for each event: queue, id, event, at, name (of the producer or consumer, if known), error.

`event` is pushed, popped (the first time), failed (an attempt, or its lease), or the end of a message: finished,
cancelled, expired, dead or lost.
"""


def seconds_between(start: str, end: str) -> str:
    return f"(unix_micros({end}) - unix_micros({start})) / 1e6"


def bucket(at: str, every: int) -> str:
    """The beginning of the interval of `every` seconds, counted from 1970, in which a time lies."""
    size = every * 1_000_000
    return f"timestamp_micros(cast(floor(unix_micros({at}) / {size}) * {size} as bigint))"


def live(queue: Consumer) -> pa.Table:
    """Read the live messages of a queue, and its lost messages."""
    found = _read(queue, "queue", EVERY)
    if not isinstance(queue, Queue) or queue.definition.delivery != "at_most_once":
        return found
    lost = {message.id for message in queue.lost(LARGEST)}
    rows = [
        {name: getattr(message, name) for name in SCHEMA.names}
        | {"state": "lost" if message.id in lost else "in_progress", "errors": _plain(message.errors)}
        for message in queue.lost(LARGEST, older_than=0)
    ]
    return pa.concat_tables([found, pa.Table.from_pylist(rows, SCHEMA)])


def ended(queue: Consumer, since: datetime | None) -> pa.Table:
    """Read the messages of a history that have ended, at `since` or later."""
    return _ended(_read(queue, "history", EVERY._replace(since=since)))


def archived(queue: Consumer, files: Sequence[str]) -> pa.Table:
    """Read the messages in the files of archives of a queue."""
    tables = (pq.read_table(file, columns=SCHEMA.names, partitioning=None) for file in files)
    return _ended(pa.concat_tables(_parsed(queue, table) for table in tables))


def _ended(table: pa.Table) -> pa.Table:
    return table.filter(table["finished_at"].is_valid())


def _read(queue: Consumer, source: arrow.Source, within: arrow.Range) -> pa.Table:
    columns = arrow.columns(queue, source)
    schema = pa.schema([columns.field(name) for name in SCHEMA.names if name in columns.names])
    bounds = arrow.bounds(queue, source, within)
    read = pa.Table.from_batches(arrow.batches(queue, source, bounds, schema) if bounds else (), schema)
    return _parsed(queue, read)


def _parsed(queue: Consumer, read: pa.Table) -> pa.Table:
    """Return the messages with the columns of SCHEMA, and their errors from JSON."""
    load_time = context_of(queue).engine.load_time
    errors = [_plain(load_errors(text and json.loads(text), load_time)) for text in read["errors"].to_pylist()]
    known = {name: read[name] for name in read.column_names} | {"errors": pa.array(errors, SCHEMA.field("errors").type)}
    return pa.table([known.get(field.name, pa.nulls(len(read), field.type)) for field in SCHEMA], SCHEMA)


def _plain(errors: Any) -> list[dict[str, Any]]:
    return [{name: getattr(error, name) for name in _ERROR.names} for error in errors]
