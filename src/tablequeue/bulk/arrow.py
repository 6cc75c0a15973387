"""Messages as Arrow batches, for Spark and for other programs. Nothing here claims a message.

It reads by short statements: no snapshot stays open on a live table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tablequeue.consumer import Consumer
from tablequeue.engines.columns import COLUMNS
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.operation import declaration
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.ext import context_of
from tablequeue.model.message import ID
from tablequeue.topic import Topic
from tablequeue.verbs.context import Context, Params
from tablequeue.verbs.inspect import need_history

# Rows of one short read, and of one batch.
ROWS = 10_000
# Rows of a read by a connection that makes Arrow itself: it costs less for a row, and more for a statement.
ARROW_ROWS = 100_000
# Rows from which such a connection is worth opening. On PostgreSQL 1,000 rows take 24 ms by it and 18 ms without it,
# 3,000 take 29 and 33, 10,000 take 44 and 80; the first one of a process takes 45 ms more, for the catalogue of types.
# With a connection that the last read has left, 10,000 take half of that.
FEW = 2000

TIME = pa.timestamp("us", "UTC")
_TYPES = {
    "offset": pa.int64(),
    "id": pa.int64(),
    "payload": pa.string(),
    "headers": pa.string(),
    "state": pa.string(),
    "attempts": pa.int32(),
    "priority": pa.int32(),
    "group": pa.string(),
    "key": pa.string(),
    "producer": pa.string(),
    "consumer": pa.string(),
    "pushed_at": TIME,
    "due_at": TIME,
    "first_popped_at": TIME,
    "popped_at": TIME,
    "lease_until": TIME,
    "finished_at": TIME,
    "errors": pa.string(),
}
# The columns that the messages of each source do not have.
_ABSENT = {
    "history": {"offset", "lease_until"},
    "queue": {"offset", "finished_at"},
    "stream": {"offset", "state", "consumer", "lease_until", "finished_at"},
    "log": {*_TYPES} - {"offset", "id", "payload", "headers", "group", "producer", "pushed_at"},
}
Source = Literal["history", "queue", "stream", "log"]


class Range(NamedTuple):
    """Ids from `low` to `high`; in the history also the time of the finish, from `since` on and before `until`."""

    low: int
    high: int
    since: datetime | None = None
    until: datetime | None = None


def columns(queue: Consumer | Topic, source: Source) -> pa.Schema:
    """Return the columns of `Message` that a source has, and `offset` of a log. JSON is text."""
    types = dict(_TYPES)
    if queue.definition.payload == "bytes":
        types["payload"] = pa.binary()
    return pa.schema([(name, kind) for name, kind in types.items() if name not in _ABSENT[source]])


def bounds(queue: Consumer, source: Source, within: Range) -> Range | None:
    """Return `within`, narrowed to the ids of existing messages; None if there are none."""
    context = context_of(queue)
    if source == "queue":
        low, high = context.run(context.reads.live_bounds, {})
    else:
        need_history(context)
        operation = context.reads.finished_bounds if _timed(within) else context.reads.history_bounds
        low, high = context.run(operation, _times(context, within))
    if low is None or max(low, within.low) > min(high, within.high):
        return None
    return within._replace(low=max(low, within.low), high=min(high, within.high))


def batches(queue: Consumer, source: Source, within: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, highest id first, in these columns. Messages that are added meanwhile may be
    missing.

    So may messages of a subscription that were finished before the other messages of their claim: their time is not
    final yet.
    """
    context = context_of(queue)
    engine = context.engine
    operation = "live" if source == "queue" else "finished" if _timed(within) else "history"
    params: Params = {"low": within.low, "final": True, **_times(context, within)}

    def read(high: int, n: int) -> Params:
        return params | {"high": high, "n": n}

    arrow = connection_of(context) if within.high - within.low >= FEW else None
    if arrow is None:
        high = within.high
        while rows := context.run(getattr(context.reads, operation), read(high, ROWS)):
            yield batch_of(context, rows, schema)
            high = rows[-1][ID] - 1
        return
    try:
        # By ranges of ids: the last id of a read is not known if it is not among the columns.
        for high in range(within.high, within.low - 1, -ARROW_ROWS):
            least = max(within.low, high - ARROW_ROWS + 1)
            values = read(high, ARROW_ROWS) | {"low": least, "operation": operation}
            with refusals(engine):
                yield from arrow.read(context.run(context.reads.literal, values), schema)
    finally:
        arrow.close()


def stream_batches(queue: Consumer, token: str, ids: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield messages of the open batch of a stream, by id, in these columns: ids in ascending order, without a gap."""
    context = context_of(queue)
    engine = context.engine

    def piece(part: Sequence[int]) -> Params:
        return {"token": token, "ids": engine.dump_ids(part), "low": part[0], "high": part[-1]}

    arrow = connection_of(context) if len(ids) > FEW else None
    size = ROWS if arrow is None else ARROW_ROWS
    pieces = (piece(ids[start : start + size]) for start in range(0, len(ids), size))
    yield from _each(context, engine.streams.stream_rows, arrow, pieces, schema, COLUMNS)


def log_batches(topic: Topic, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a topic at the offsets from `start` on and before `end`, in these columns.

    Each call yields the same messages, except messages that retention has dropped.
    """
    context = context_of(topic)
    arrow = connection_of(context) if end - start > FEW else None
    size = ROWS if arrow is None else ARROW_ROWS
    pieces = (Params(start=low, end=min(low + size, end)) for low in range(start, end, size))
    yield from _each(context, context.engine.topics.topic_rows, arrow, pieces, schema, columns(topic, "log").names)


def connection_of(context: Context) -> Any:
    """Open a connection that returns Arrow batches; None if the engine has none."""
    with refusals(context.engine):
        return context.reads.arrow(context.runner.sa_engine)


@contextmanager
def refusals(engine: Engine) -> Iterator[None]:
    """Raise the errors of such a connection as errors of tablequeue."""
    try:
        yield
    except Exception as error:
        refusal = engine.translate(error)
        if refusal is None:
            raise
        raise refusal from None


def _each(
    context: Context,
    operation: Callable[[Cursor, Table, Params], list[Row]],
    arrow: Any,
    pieces: Iterable[Params],
    schema: pa.Schema,
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield what a read returns for each of its parameters: by `arrow`, which is closed; or by rows, of these names."""
    try:
        for params in pieces:
            if arrow is None:
                yield batch_of(context, context.run(operation, params), schema, names)
            else:
                declared = declaration(operation)
                assert declared is not None, "a read of one text"
                params["operation"] = declared.name
                with refusals(context.engine):
                    yield from arrow.read(context.run(context.reads.literal, params), schema)
    finally:
        if arrow is not None:
            arrow.close()


def batch_of(
    context: Context, rows: Sequence[Row], schema: pa.Schema, names: Sequence[str] = COLUMNS
) -> pa.RecordBatch:
    """Return rows of these names as a batch with these columns."""
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    load_time = context.engine.load_time

    def load(value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if kind == TIME:
            return load_time(value)
        # JSON that the driver has read becomes text again.
        return json.dumps(value) if kind == pa.string() and not isinstance(value, str) else value

    arrays = [
        pa.array([load(value, field.type) for value in values[names.index(field.name)]], field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _timed(within: Range) -> bool:
    return within.since is not None or within.until is not None


def _times(context: Context, within: Range) -> Params:
    first, last = datetime(1, 1, 2, tzinfo=UTC), datetime(9890, 1, 1, tzinfo=UTC)
    if not _timed(within):
        return {}
    return {"since": context.time(within.since or first, "since"), "until": context.time(within.until or last, "until")}
