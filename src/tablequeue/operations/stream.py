"""Streams: batches that can be read again and again, until what they became is safe elsewhere.

A stream numbers its batches. `advance(n)` says that batch n is safe: it is completed, with all before it, and the next
one is claimed. So at most one batch is open, and its messages have no lease: they stay the stream's, through any crash,
until it advances or somebody releases it. All of it happens under the lock of the stream's row, which also says which
run of the stream is the last: an older one that wakes up is refused.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from tablequeue.engines.base import Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.streams import StreamRow
from tablequeue.errors import BadInput, QueueNotFound, StreamNotFound, StreamRefused
from tablequeue.operations.claim import promote_after, sweep
from tablequeue.operations.context import Context, Params, count
from tablequeue.operations.push import check_text


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream of a queue.

    epoch       how often it was started.
    batch       the last batch it claimed; `completed` the last one that is completed.
    open        messages of the batch between, which wait for it; `claimed_at` since when.
    """

    stream: str
    epoch: int
    batch: int
    completed: int
    open: int
    claimed_at: datetime | None


def begin(context: Context, stream: str) -> tuple[int, StreamState]:
    """A new run, and its epoch. From now on no older run can act."""
    engine = context.engine
    definition = context.table.definition
    check_text(stream, "stream")
    if definition.delivery == "at_most_once":
        raise BadInput(
            f"The queue {context.table.name!r} delivers at most once, and a stream reads again what was interrupted.",
            "Stream from a queue that delivers at least once.",
        )
    params = {"stream": stream, "now": None}

    def open_stream(cursor: Cursor, table: Table, params: Params) -> StreamRow | None:
        engine.streams.stream_open(cursor, table, params)
        return engine.streams.stream_lock(cursor, table, params)

    # Not in one transaction: where a DDL commits by itself, it would end it.
    context.runner.run(engine.catalogue.create_streams, context.table, params)
    row = context.runner.run(open_stream, context.table, params)
    assert row is not None, "it was just made"
    return row.epoch, _find(context, stream)


def advance(
    context: Context, stream: str, epoch: int, upto: int, n: int, last_id: int | None, now: datetime | None
) -> int:
    """Complete the batches up to `upto`, and claim up to `n` messages for the next one. The last batch there is."""
    if complete(context, stream, epoch, upto, now):
        return upto + 1
    sweep(context, now)
    engine = context.engine
    token = secrets.token_hex(16)
    params = _params(context, stream, now) | {"n": count(n, "n"), "high": last_id, "token": token, "consumer": stream}

    def claim(cursor: Cursor, table: Table, params: Params) -> int:
        row = _locked(engine, cursor, table, params, epoch)
        if row.batch > upto or not engine.streams.stream_claim(cursor, table, params):
            return row.batch
        values = {"batch": upto + 1, "completed": upto, "claim": token, "failures": "{}"}
        engine.streams.stream_set(cursor, table, params | values)
        return upto + 1

    return context.runner.run(claim, context.table, params)


def complete(context: Context, stream: str, epoch: int | None, upto: int, now: datetime | None) -> bool:
    """Complete the batches up to `upto`; its failures become dead letters. Whether a later one is open.

    Without an epoch: for whoever knows that the stream does not run.
    """
    engine = context.engine
    if epoch is None:
        _find(context, stream)
    params = _params(context, stream, now)

    def finish(cursor: Cursor, table: Table, params: Params) -> tuple[bool, int]:
        row = _locked(engine, cursor, table, params, epoch)
        if upto < row.completed:
            raise StreamRefused(
                f"The stream {stream!r} is asked for what follows batch {upto}, and has completed batch "
                f"{row.completed}: the checkpoint is older than the queue, or the messages of a batch were released.",
                "Go on from the latest checkpoint, or use a new one, which begins with what is in the queue now.",
            )
        if upto > row.batch:
            raise StreamRefused(
                f"The stream {stream!r} is asked for what follows batch {upto}, and the last that it claimed is "
                f"{row.batch}: the database is older than the checkpoint.",
                "Use a new checkpoint.",
            )
        if row.token is None or upto < row.batch:
            return row.token is not None, 0
        under = params | {"token": row.token}
        ids = engine.streams.stream_ids(cursor, table, under)
        failures: Mapping[str, str] = json.loads(row.failures)
        for id in map(int, failures):
            error = {"id": id, "error": failures[str(id)], "delay": 0, "max_attempts": 0}
            engine.messages.fail(cursor, table, under | error)
        done = [id for id in ids if str(id) not in failures]
        if done:
            engine.messages.complete(cursor, table, under | {"ids": engine.dump_ids(done)})
        _set(engine, cursor, table, params, upto)
        return False, len(ids)

    is_open, finished = context.runner.run(finish, context.table, params)
    promote_after(context, now, messages=finished)
    return is_open


def ids_of(context: Context, stream: str, batch: int) -> tuple[str, list[int]]:
    """The token and the ids of the open batch; `StreamRefused` if that is not `batch`.

    Also for a run that was superseded since it claimed the batch: a pipeline that is to stop fences its queries, and
    they are to end what they have begun. Who reads changes nothing, and those who read by the token ask no more.
    """
    engine = context.engine

    def look(cursor: Cursor, table: Table, params: Params) -> tuple[str, list[int]]:
        row = _locked(engine, cursor, table, params, None)
        if row.token is None or row.batch != batch:
            raise StreamRefused(
                f"Batch {batch} of the stream {stream!r} is to be read again, and was completed or released already.",
                "Go on from the latest checkpoint, or use a new one.",
            )
        return row.token, engine.streams.stream_ids(cursor, table, params | {"token": row.token})

    return context.runner.run(look, context.table, _params(context, stream, None))


def fail(context: Context, stream: str, errors: Mapping[int, str]) -> None:
    """These messages of the open batch become dead letters when it is completed; saying so twice is once."""
    engine = context.engine

    def note(cursor: Cursor, table: Table, params: Params) -> None:
        row = _locked(engine, cursor, table, params, None)
        there = [] if row.token is None else engine.streams.stream_ids(cursor, table, params | {"token": row.token})
        unknown = errors.keys() - {*there}
        if unknown:
            raise BadInput(
                f"Message {min(unknown)} is not in the open batch of the stream {stream!r}.",
                "Give the ids that the batch was read with.",
            )
        failures = json.loads(row.failures) | {str(id): error for id, error in errors.items()}
        values = {"batch": row.batch, "completed": row.completed, "claim": row.token, "failures": json.dumps(failures)}
        engine.streams.stream_set(cursor, table, params | values)

    _find(context, stream)
    context.runner.run(note, context.table, _params(context, stream, None))


def release(context: Context, stream: str) -> int:
    """Give the messages of the open batch back, unworked; how many. A run of the stream is refused from now on."""
    engine = context.engine

    def give_back(cursor: Cursor, table: Table, params: Params) -> int:
        engine.streams.stream_open(cursor, table, params)
        row = _locked(engine, cursor, table, params, None)
        if row.token is None:
            return 0
        under = params | {"token": row.token, "delay": 0}
        ids = engine.streams.stream_ids(cursor, table, under)
        if ids:
            engine.messages.release(cursor, table, under | {"ids": engine.dump_ids(ids)})
        # The number is not used again: a checkpoint that knows it must be refused, not get other messages.
        _set(engine, cursor, table, params, row.batch)
        return len(ids)

    _find(context, stream)  # or it would be made
    return context.runner.run(give_back, context.table, _params(context, stream, None))


def states(context: Context) -> list[StreamState]:
    engine = context.engine
    try:
        rows = context.runner.run(engine.streams.streams, context.table, {})
    except QueueNotFound:
        return []  # the table is made by the first stream
    load = engine.load_time
    return [
        StreamState(stream, epoch, batch, completed, open, None if claimed_at is None else load(claimed_at))
        for stream, epoch, batch, completed, _, claimed_at, open in rows
    ]


def _find(context: Context, stream: str) -> StreamState:
    known = states(context)
    for state in known:
        if state.stream == stream:
            return state
    names = ", ".join(state.stream for state in known) or "none"
    raise StreamNotFound(
        f"The queue {context.table.name!r} has no stream {stream!r}.", f"Name one of its streams: {names}."
    )


def _locked(engine: Engine, cursor: Cursor, table: Table, params: Params, epoch: int | None) -> StreamRow:
    row = engine.streams.stream_lock(cursor, table, params)
    if row is None:
        raise StreamNotFound(
            f"The queue {table.name!r} has no stream {params['stream']!r} any more.", "Start the stream again."
        )
    if epoch is not None and row.epoch != epoch:
        raise StreamRefused(
            f"Run {epoch} of the stream {params['stream']!r} was superseded by run {row.epoch}.",
            "Let one run of a stream go on at a time; name another stream for another job.",
        )
    return row


def _set(engine: Engine, cursor: Cursor, table: Table, params: Params, completed: int) -> None:
    """All batches up to `completed` are, and none is open."""
    values = {"batch": completed, "completed": completed, "claim": None, "failures": "{}"}
    engine.streams.stream_set(cursor, table, params | values)


def _params(context: Context, stream: str, now: datetime | None) -> Params:
    return {"stream": stream, "now": context.time(now)}
