"""Batches: messages that are pushed together, with a callback when all of them are finished."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.plan import Ways
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, BatchNotFound, QueueNotFound
from tablequeue.model.batch import BatchProgress, OnDead, check_on_dead
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, checked_claims, checked_id, checked_token
from tablequeue.model.payload import CODECS
from tablequeue.observe import telemetry
from tablequeue.observe.counters import counters
from tablequeue.verbs import batch_ends, catalogue
from tablequeue.verbs.after import CHANGED, ENDED, follow
from tablequeue.verbs.context import Context, count
from tablequeue.verbs.finish import not_held
from tablequeue.verbs.push import NOTHING, Encoded, encode, pushing
from tablequeue.verbs.refusals import Refusal, check
from tablequeue.verbs.results import WAITS

BATCHES = Ways(
    {
        "not batches": Refusal(
            "The {queue} has no batches.", "Alter the queue, by alter(batches=True) or `queue alter --batches`."
        )
    }
)

Callback = tuple[str, Any]
"""The name of a queue of the same database, and the payload that is pushed to it."""


class OpenBatch:
    """The messages of a batch, which are pushed when the block ends. Made by `Queue.batch` and `Queue.batch_of`.

    Until then nothing is in the database, and if the block raises, nothing is pushed.
    """

    def __init__(self, context: Context, now: datetime | None) -> None:
        check(context.current().table, BATCHES)
        self._context = context
        self._now = now
        self._chunks: list[Encoded] = []
        self._id: int | None = None

    @property
    def id(self) -> int:
        """The id of the batch, with which `Database.batch` opens it. It is known when the block has ended."""
        if self._id is None:
            raise BadInput("The batch is not pushed yet, so it has no id.", "Ask for it after the block.")
        return self._id

    def push(self, payload: Any) -> None:
        """Add a message to the batch: a payload, or a `NewMessage` with options of its own.

        `BadPayload` if the payload type of the queue cannot hold it. If a key is taken when the block ends,
        `DuplicateKey`, and nothing is pushed.
        """
        self.push_many([payload])

    def push_many(self, payloads: Iterable[Any]) -> None:
        """Add several messages to the batch, as `push` does."""
        encoded = encode(self._context, payloads, NOTHING, self._now)
        last = self._chunks[-1] if self._chunks else None
        if last is not None and not (last.rows if encoded.payloads else last.payloads):
            last.payloads.extend(encoded.payloads)
            last.rows.extend(encoded.rows)
        elif encoded:
            self._chunks.append(encoded)

    def finish(self, connection: Connection | None = None) -> None:
        """Push the messages: what the end of the block does."""
        context = self._context.current(connection)  # the block may have taken long
        params: Params = {"now": context.time(self._now)}
        self._id = context.run(self._pushed, params, connection)
        counters.add("pushed_messages", context.table.name, self._size)
        follow(context, CHANGED, self._now, connection, self._size)

    @property
    def _size(self) -> int:
        return sum(map(len, self._chunks))

    def _pushed(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Push the messages in a transaction; return the id of the batch."""
        raise NotImplementedError

    def _push_all(self, cursor: Cursor, table: Table, id: int) -> None:
        for chunk in self._chunks:
            params = chunk.params | {"batch_id": id}
            if chunk.rows:
                for row in chunk.rows:
                    row["batch_id"] = id
                pushing(self._context, params, chunk.rows, "raise")(cursor, table, params)
            else:
                self._context.messages.push_many(cursor, table, params | {"payloads": chunk.payloads})


class NewBatch(OpenBatch):
    """A batch that is opened when the block ends."""

    def __init__(
        self,
        context: Context,
        then: Callback | None,
        failed: Callback | None,
        on_dead: OnDead,
        now: datetime | None,
    ) -> None:
        super().__init__(context, now)
        check_on_dead(on_dead)
        self._batch: Params = {
            "on_dead": on_dead,
            "then_push": None if then is None else _dumped(context.runner, "then", then),
            "failed_push": None if failed is None else _dumped(context.runner, "failed", failed),
        }

    def _pushed(self, cursor: Cursor, table: Table, params: Params) -> int:
        context = self._context
        id = context.engine.batches.open_batch(cursor, table, {**params, **self._batch, "pushed": self._size})
        self._push_all(cursor, table, id)
        if not self._chunks:
            batch_ends.settle(context, id, self._now)(cursor, table, {})
        return id


class MoreOfBatch(OpenBatch):
    """More messages of the batch of a message that is in progress, which are pushed when the block ends."""

    def __init__(self, context: Context, message: Claim, now: datetime | None) -> None:
        super().__init__(context, now)
        (self._message,) = checked_claims((message,), Claim)

    def _pushed(self, cursor: Cursor, table: Table, params: Params) -> int:
        batches = self._context.engine.batches
        held: Params = {"id": self._message.id, "token": checked_token(self._message.token)}
        is_held, id = batches.batch_of(cursor, table, held)
        if not is_held:
            raise not_held([self._message.id], 1, "used to add to its batch")
        if id is None:
            raise BadInput(f"Message {self._message.id} is in no batch.", "Push without the batch; or open one.")
        if id not in [batch.id for batch in batches.open_batches(cursor, table, {"after": id - 1, "n": 1})]:
            raise BadInput(f"The batch {id} has ended.", "Open another one: the message was redriven too late.")
        batches.count_batch(cursor, table, {"batch_id": id, "pushed": self._size})
        self._push_all(cursor, table, id)
        return id


class Batch:
    """A batch that was pushed. Made by `Database.batch`."""

    def __init__(self, context: Context, id: int) -> None:
        self.id = id
        self._context = context

    def __repr__(self) -> str:
        return f"<Batch {self.id} of {self.queue!r}>"

    @property
    def queue(self) -> str:
        """The name of the queue of its messages."""
        return self._context.table.name

    def progress(self) -> BatchProgress:
        """Return the progress of the batch: one read, which counts the remaining messages."""
        context = self._context.current()
        row = context.run(context.engine.batches.batch_progress, {"id": self.id})
        if row is None:
            raise _not_found(self.id)
        return batch_ends.progress_of(context, row)

    def results(self, n: int = 1000, *, after: int = 0) -> dict[int, Any]:
        """Return the results of up to `n` messages of the batch with ids above `after`, by id, lowest id first.

        For a queue with `results`; else `BadInput`. A message is missing if it is not finished, was completed without a
        result, or is no longer in the history. To read all results, give the last id as the next `after`.
        `BatchNotFound` if the batch has been forgotten with the history.
        """
        context = self._context.current()
        check(context.table, WAITS)
        params: Params = {"id": self.id, "after": checked_id(after), "n": count(n, "n")}
        rows = context.run(context.engine.batches.batch_results, params)
        if not rows and not context.run(context.engine.batches.find_batch, {"id": self.id}):
            raise _not_found(self.id)
        return {id: json.loads(result) for id, result in rows.items()}

    def cancel(self, *, now: datetime | None = None) -> int:
        """Cancel the messages: waiting ones and dead letters leave the queue; consumers of the others are told to stop.

        The batch ends when the last message is finished, and then pushes its callback, with the number of cancelled
        messages in its header. Returns how many were cancelled or told to stop. It takes bounded transactions: a crash
        leaves some messages cancelled, and another call goes on. `now` as in `Consumer`.
        """
        context = self._context.current()
        cancelled = batch_ends.cancel(context, self.id, dead=True, now=now)
        context.table.ending.add(self.id)
        follow(context, ENDED, now, None, cancelled or 1)
        return cancelled


def of_queue(context: Context, n: int, after: int) -> list[Batch]:
    """Return up to `n` open batches of the queue with ids above `after`, lowest id first."""
    check(context.table, BATCHES)
    params: Params = {"after": _checked_id(after), "n": count(n, "n")}
    return [Batch(context, each.id) for each in context.run(context.engine.batches.open_batches, params)]


def progress_of_open(context: Context, n: int, after: int) -> dict[Batch, BatchProgress]:
    """Return up to `n` open batches of the queue with ids above `after`, by id, each with its progress: one read."""
    check(context.table, BATCHES)
    params: Params = {"after": _checked_id(after), "n": count(n, "n")}
    rows = context.run(context.engine.batches.batches_progress, params)
    return {Batch(context, id): batch_ends.progress_of(context, row) for id, row in rows}


def find(runner: Runner, id: int, who: str) -> Batch:
    """Return the batch of that id; `BatchNotFound` if there is none."""
    engine = runner.engine
    params: Params = {"id": _checked_id(id)}
    try:
        table = runner.run(engine.batches.find_batch, engine.shared, params)
    except QueueNotFound:  # no queue of the database has batches
        table = None
    name = None if table is None else catalogue.name_in(catalogue.rows(runner), table)
    if name is None:
        missing = catalogue.missing_database(runner, f"batch {id}")
        raise _not_found(id) if missing is None else BatchNotFound(missing.cause, missing.remedy)
    return Batch(Context.at(runner, catalogue.find(runner, name, "queue"), who), id)


# -- private -----------------------------------------------------------------------------------------------------------


def _checked_id(id: int) -> int:
    return checked_id(id, "batch", "queue.batch() or the header of the callback has")


def _not_found(id: int) -> BatchNotFound:
    return BatchNotFound(f"There is no batch {id}.", "Give the id of a batch that is open, or ended a short time ago.")


def _dumped(runner: Runner, what: str, callback: Callback) -> str:
    """Return a callback as JSON, with the context of the current span; refuse one that could not be pushed."""
    match callback:
        case (str(name), payload):
            table = catalogue.find(runner, name, "queue")
        case _:
            raise BadInput(f"{what} is {callback!r}.", "Give the name of a queue, and a payload.")
    definition = table.definition
    if definition.needs_groups:
        raise BadInput(f"{what} names {name!r}, which has groups.", "Name a queue without groups, or with fair ones.")
    dumped = CODECS[definition.payload].dump(payload)
    text = b64encode(dumped).decode() if isinstance(dumped, bytes) else dumped
    return json.dumps({"table": table.table_name, "payload": text, "headers": telemetry.carried({})})
