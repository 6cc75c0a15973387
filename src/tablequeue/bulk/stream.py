"""Streams: batches of a queue that can be read again until their results are safe elsewhere. Spark reads by them.

Over 400 lines, because every function here is a step on the same row, under the same lock.

A stream numbers its batches. `advance(n)` says that batch n is safe: it is completed, with all before it, and the next
one is claimed. So at most one batch is open. Its messages have no lease: they stay the stream's, whatever crashes,
until the stream advances or somebody releases them. Each step commits under the lock of the stream's row. The row also
has the epoch of the last run, and an older run that wakes up is refused.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from tablequeue.bulk.failures import Failures, grouped
from tablequeue.consumer import Consumer
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.rows import StreamRow
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, QueueNotFound, StreamNotFound, StreamRefused
from tablequeue.ext import context_of
from tablequeue.verbs.after import ENDED, LEFT, follow
from tablequeue.verbs.context import Context, Params, count
from tablequeue.verbs.push import check_text
from tablequeue.verbs.sweep import sweep


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream of a queue.

    epoch       how often it was started.
    batch       the last batch that it claimed; `completed` is the last one that is completed.
    open        how many messages the open batch has; `claimed_at` is when it was claimed, None if none is open.
    """

    stream: str
    epoch: int
    batch: int
    completed: int
    open: int
    claimed_at: datetime | None


class Stream:
    """A run of the stream `name`. It fences every run before it: they get `StreamRefused` when they go on.

    A batch is claimed without a lease. Its messages stay the stream's, whatever crashes, until the stream advances past
    it, or `release` gives them back.
    """

    def __init__(self, queue: Consumer, name: str) -> None:
        self.queue = queue
        self.name = name
        self.epoch, self.found = _begin(context_of(queue), name)
        """`found`: the state that the previous run left."""
        self.token: str | None = None
        """The token of the open batch that `advance` returned last."""
        self._claimed = _NOTHING
        self._begun: str | None = None

    def advance(
        self, upto: int, n: int, *, token: str | None = None, last_id: int | None = None, now: datetime | None = None
    ) -> int:
        """Complete batch `upto`, which is safe, with all before it, and claim up to `n` messages as the next batch.

        Return the number of the last batch: `upto + 1`, or `upto` if there was nothing to claim. A batch that is open
        already is handed out again, as it is. `last_id` leaves messages with higher ids to later batches. `token` is
        the token of batch `upto`: `StreamRefused` if the batch of this number is another one, as in a copy of the
        database.
        """
        context = context_of(self.queue).current()
        params = _params(context, self.name, now) | {"n": count(n, "n"), "high": last_id, "consumer": self.name}
        claim = partial(self._claim, upto, params, now)
        beside: list[Future[int]] = []
        with ThreadPoolExecutor(1) as thread:

            def meanwhile() -> None:
                if "overlapped" in context.table.plan.met and not beside:  # a completion may be tried again
                    beside.append(thread.submit(claim))

            self.token = self._complete(upto, now, meanwhile, token)
        if self.token is not None:
            return upto + 1
        last = upto + 1 if beside and _result(beside[0]) > upto else claim()
        self.token = self._claimed.token if last > upto else None
        return last

    def complete(self, upto: int, *, now: datetime | None = None) -> None:
        """Complete batch `upto`, which is safe, and all batches before it. Its failed messages become dead letters."""
        self._complete(upto, now)

    def batch(self, number: int, token: str | None = None) -> tuple[str, list[int]]:
        """Return the token and the ids of the open batch, with which its messages are read; `StreamRefused` if the open
        batch is not `number`.

        `token` is the token of the batch, as in `advance`.

        The ids are the same until the stream advances, except that `fail` may have excluded some. A run that was fenced
        after it claimed the batch may still ask: a pipeline that stops fences its queries, and they have to end what
        they have begun. The row of the stream counts the runs that began the batch; the run that claimed it is the
        first.
        """
        context, engine = context_of(self.queue), context_of(self.queue).engine

        def look(cursor: Cursor, table: Table, params: Params) -> tuple[str, list[int]]:
            row = _locked(engine, cursor, table, params, None)
            if row.token is None or row.batch != number:
                raise StreamRefused(
                    f"Batch {number} of the stream {self.name!r} is needed again, and was completed or released "
                    "already.",
                    "Go on from the latest checkpoint, or use a new one.",
                )
            _check_token(self.name, number, row.token, token)
            found = Failures.load(row.failures)
            if row.token not in (self._claimed.token, self._begun):
                _set_failures(engine, cursor, table, params, row, replace(found, begun=found.begun + 1))
            ids = self._claimed.ids_of(engine, cursor, table, params | {"token": row.token})
            return row.token, [id for id in ids if id not in found.excluded]

        found = context.run(look, _params(context, self.name, None))
        self._begun = found[0]
        return found

    def _complete(
        self,
        upto: int,
        now: datetime | None,
        meanwhile: Callable[[], object] = lambda: None,
        token: str | None = None,
    ) -> str | None:
        context = context_of(self.queue).current()
        return _complete(context, self.name, self.epoch, upto, now, self._claimed, meanwhile, token)

    def _claim(self, upto: int, params: Params, now: datetime | None) -> int:
        """Claim the batch after `upto`, and return the number of the last batch.

        The lock of the stream's row comes last: it waits for a completion of batch `upto` under way. If that fails,
        the claim is undone, and refused. The database sees the wait, so it finds deadlocks with others.
        """
        context, engine, token = context_of(self.queue), context_of(self.queue).engine, secrets.token_hex(16)

        def claim(cursor: Cursor, table: Table, params: Params) -> int:
            ids = engine.streams.stream_claim(cursor, table, params)
            if not ids:
                return upto
            row = _locked(engine, cursor, table, params, self.epoch)
            if (row.batch, row.token) != (upto, None):
                raise _NotCompleted(f"Batch {upto} of the stream {self.name!r} is not completed.", "Complete it first.")
            values: Params = {"batch": upto + 1, "completed": upto, "claim": token, "failures": BEGUN}
            engine.streams.stream_set(cursor, table, params | values)
            self._claimed = _Claimed(token, ids)
            return upto + 1

        sweep(context, now)
        return context.run(claim, params | {"token": token})


BEGUN = Failures(begun=1).dump()


class _NotCompleted(StreamRefused):
    """A batch was claimed, and the previous batch is not completed."""


class _Claimed(NamedTuple):
    """The ids of the last claim of a run, which saves two reads of them. An uncommitted claim does not count: its token
    is in no row."""

    token: str
    ids: Sequence[int]

    def ids_of(self, engine: Engine, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return the ids of the messages under a token. Messages that this run claimed may no longer be in progress."""
        return [*self.ids] if params["token"] == self.token else engine.streams.stream_ids(cursor, table, params)


_NOTHING = _Claimed("", ())


def streams(queue: Consumer) -> list[StreamState]:
    """Return the streams of a queue, by name."""
    return _states(context_of(queue))


def fail(queue: Consumer, name: str, errors: Mapping[int, str], *, exclude: bool = False) -> None:
    """Note that messages of the open batch of a stream cannot be processed: by id, why.

    They become dead letters when the batch is completed. Until then they are read again with the batch; with `exclude`
    they are not. Idempotent; the last error wins. If many fail, the end of each error is kept; see
    `tablequeue.bulk.failures`. `BadInput` for a message that is not in the open batch.
    """

    def noted(batch: Batch) -> Failures:
        unknown = errors.keys() - {*batch.ids}
        if unknown:
            raise BadInput(
                f"Message {min(unknown)} is not in the open batch of the stream {name!r}.",
                "Give the ids that the batch was read with.",
            )
        found = batch.failures
        excluded = sorted({*found.excluded, *errors}) if exclude else found.excluded
        return replace(found, errors=grouped(found.by_id() | {**errors}), excluded=excluded)

    change(queue, name, noted)


class Batch(NamedTuple):
    """The open batch of a stream. If no batch is open, it has no ids, and the number of the last batch."""

    number: int
    ids: Sequence[int]
    failures: Failures


def change(queue: Consumer, name: str, note: Callable[[Batch], Failures] = lambda batch: batch.failures) -> Batch:
    """Note something of the open batch of a stream, and return the batch as it is then. `StreamNotFound` without it."""
    context, engine = context_of(queue), context_of(queue).engine

    def changed(cursor: Cursor, table: Table, params: Params) -> Batch:
        row = _locked(engine, cursor, table, params, None)
        ids = [] if row.token is None else engine.streams.stream_ids(cursor, table, params | {"token": row.token})
        batch = Batch(row.batch, ids, Failures.load(row.failures))
        noted = note(batch)
        if noted != batch.failures and row.token is not None:
            _set_failures(engine, cursor, table, params, row, noted)
        return batch._replace(failures=noted)

    _find(context, name)
    return context.run(changed, _params(context, name, None))


def complete(queue: Consumer, name: str, upto: int, token: str | None = None) -> None:
    """Complete the batches of a stream that does not run, and whose checkpoint says that they are safe.

    `token` is the token of batch `upto`, as in `Stream.advance`.
    """
    _find(context_of(queue), name)
    _complete(context_of(queue), name, None, upto, None, token=token)


def release(queue: Consumer, name: str) -> int:
    """Give the messages of an abandoned stream back, and return how many. The attempts do not count.

    A run of the stream, or a later one with the same checkpoint, is refused.
    """
    context, engine = context_of(queue), context_of(queue).engine

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
        _set_completed(engine, cursor, table, params, row.batch)
        return len(ids)

    _find(context, name)  # else it would be made
    released = context.run(give_back, _params(context, name, None))
    follow(context, LEFT, None, None, released)
    return released


# -- private ---------------------------------------------------------------------------------------------------------


def _begin(context: Context, stream: str) -> tuple[int, StreamState]:
    """Begin a new run; return its epoch, and the state that the previous run left. From now on no older run can act."""
    engine = context.engine
    definition = context.table.definition
    check_text(stream, "stream")
    if definition.delivery == "at_most_once":
        raise BadInput(
            f"The queue {context.table.name!r} delivers at most once, and a stream reads again what was interrupted.",
            "Stream from a queue that delivers at least once.",
        )
    if context.table.topic is not None:
        raise BadInput(
            f"{context.table.name!r} is a subscription, and a stream takes messages from a queue.",
            f"In Spark, read the topic {context.table.topic.name!r} with subscription=.",
        )
    params: Params = {"stream": stream, "now": None}

    def open_stream(cursor: Cursor, table: Table, params: Params) -> StreamRow | None:
        engine.streams.stream_open(cursor, table, params)
        return engine.streams.stream_lock(cursor, table, params)

    # Not in one transaction: where DDL commits by itself, it would end it.
    context.run(engine.catalogue.create_streams, params)
    row = context.run(open_stream, params)
    assert row is not None, "it was just made"
    return row.epoch, _find(context, stream)


def _complete(
    context: Context,
    stream: str,
    epoch: int | None,
    upto: int,
    now: datetime | None,
    claimed: _Claimed = _NOTHING,
    meanwhile: Callable[[], object] = lambda: None,
    token: str | None = None,
) -> str | None:
    """Complete the batches up to `upto`; return the token of a later open batch. Without an epoch no run is checked.

    `meanwhile` is called under the lock of the stream's row, if there is something to complete.
    """
    engine = context.engine

    def finish(cursor: Cursor, table: Table, params: Params) -> tuple[str | None, int]:
        row = _locked(engine, cursor, table, params, epoch)
        if upto < row.completed:
            raise StreamRefused(
                f"The stream {stream!r} is asked for the batch after {upto}, and has completed batch "
                f"{row.completed}: the checkpoint is older than the queue, or the messages of a batch were released.",
                "Go on from the latest checkpoint, or use a new one, which begins with the present messages.",
            )
        if upto > row.batch:
            raise StreamRefused(
                f"The stream {stream!r} is asked for the batch after {upto}, and the last that it claimed is "
                f"{row.batch}: the database is older than the checkpoint.",
                "Use a new checkpoint.",
            )
        if row.token is None or upto < row.batch:
            return row.token, 0
        _check_token(stream, upto, row.token, token)
        meanwhile()
        under = params | {"token": row.token}
        ids = claimed.ids_of(engine, cursor, table, under)
        failed = Failures.load(row.failures).by_id()
        by_error: dict[str, dict[int, float]] = defaultdict(dict)
        for id, error in failed.items():
            by_error[error][id] = 0
        for error, delays in by_error.items():
            engine.messages.fail(cursor, table, under | engine.failing(delays) | {"error": error, "max_attempts": 0})
        done = [id for id in ids if id not in failed]
        if done:
            engine.messages.complete_stream(cursor, table, under | {"ids": engine.dump_ids(done)})
        _set_completed(engine, cursor, table, params, upto)
        return None, len(ids)

    left_open, finished = context.run(finish, _params(context, stream, now))
    follow(context, ENDED, now, None, finished)
    return left_open


def _check_token(stream: str, batch: int, there: str, given: str | None) -> None:
    """Refuse to complete or read a batch of the same number, with other messages."""
    if given is not None and given != there:
        raise StreamRefused(
            f"Batch {batch} of the stream {stream!r} is not the one that the checkpoint knows: it is of a copy of the "
            "database, or the database was restored from a backup.",
            "Name the right database, or use a new checkpoint, which begins with the present messages.",
        )


def _result(claim: Future[int]) -> int:
    """Return the last batch after a claim beside a completion; -1 if that had to be tried again."""
    try:
        return claim.result()
    except _NotCompleted:
        return -1


def _states(context: Context) -> list[StreamState]:
    engine = context.engine
    try:
        rows = context.run(engine.streams.streams, {})
    except QueueNotFound:
        return []  # the table is made by the first stream
    return [
        StreamState(
            stream=row.stream,
            epoch=row.epoch,
            batch=row.batch,
            completed=row.completed,
            open=row.open,
            claimed_at=None if row.claimed_at is None else engine.load_time(row.claimed_at),
        )
        for row in rows
    ]


def _find(context: Context, stream: str) -> StreamState:
    known = _states(context)
    for state in known:
        if state.stream == stream:
            return state
    names = ", ".join(state.stream for state in known) or "none"
    raise StreamNotFound(
        f"The queue {context.table.name!r} has no stream {stream!r}.", f"Name one of its streams: {names}."
    )


def _locked(engine: Engine, cursor: Cursor, table: Table, params: Params, epoch: int | None) -> StreamRow:
    """Lock the row of a stream, and return it; `StreamRefused` if `epoch` is given and is not the epoch of the last
    run."""
    row = engine.streams.stream_lock(cursor, table, params)
    if row is None:
        raise StreamNotFound(
            f"The queue {table.name!r} has no stream {params['stream']!r} any more.", "Start the stream again."
        )
    if epoch is not None and row.epoch != epoch:
        raise StreamRefused(
            f"Run {epoch} of the stream {params['stream']!r} was superseded by run {row.epoch}.",
            "Let one run of a stream go on at a time; name another stream for another job. If the query joins a queue "
            "with itself, read a topic instead: Spark runs the stream once for each side.",
        )
    return row


def _set_failures(
    engine: Engine, cursor: Cursor, table: Table, params: Params, row: StreamRow, failures: Failures
) -> None:
    """Note something of the open batch in the row of a stream, which is locked."""
    values: Params = {"batch": row.batch, "completed": row.completed, "claim": row.token, "failures": failures.dump()}
    engine.streams.stream_set(cursor, table, params | values)


def _set_completed(engine: Engine, cursor: Cursor, table: Table, params: Params, completed: int) -> None:
    """Note that all batches up to `completed` are completed, and that none is open."""
    values: Params = {"batch": completed, "completed": completed, "claim": None, "failures": "{}"}
    engine.streams.stream_set(cursor, table, params | values)


def _params(context: Context, stream: str, now: datetime | None) -> Params:
    return {"stream": stream, "now": context.time(now)}


__all__ = ["Batch", "Stream", "StreamState", "change", "complete", "fail", "release", "streams"]
