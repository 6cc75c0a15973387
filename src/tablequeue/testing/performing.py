"""Run handlers in the thread of the test: one message, or all that are ready."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tablequeue.consumer import Consumer
from tablequeue.database import Database, connect
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tablequeue.model.definition import Order, PayloadType
from tablequeue.queue import Queue
from tablequeue.testing.consuming import Drained, Performed, Steps, handled, run
from tablequeue.testing.databases import temporary_database
from tablequeue.verbs.context import count
from tablequeue.worker import Handler, Worker
from tablequeue.worker.schedule import push_due

# How many messages a drain handles: more means that handlers push or snooze for ever.
MOST = 10_000
# The error of the attempts before the one that `perform` runs.
EARLIER = "an earlier attempt"


def perform(
    handler: Handler | Callable[[Any], Any],
    payload: Any,
    *,
    queue: Consumer | None = None,
    attempt: int = 1,
    group: str | None = None,
    key: str | None = None,
    priority: int | None = None,
    headers: Mapping[str, Any] | None = None,
) -> Performed:
    """Give a handler one message, as a worker would, and return what became of it.

    handler   a function, or a `Handler`, which also has a time-out, and says whether messages come in batches:
              `work.handlers["emails"]`. An async one runs in an event loop of its own; in a test with an event loop,
              use `await tablequeue.testing.aio.perform(...)`, or call this in `run_sync` of an async connection.
    queue     the queue whose options count: the type of its payload, attempts, backoff, results and so on. Its limits
              and its groups do not, and other messages in it are neither seen nor changed: the message is in a queue
              of its own, with a name of its own, in the same database, which is dropped afterwards. None: in a database
              of its own, with the default options.
    attempt   the number of this attempt, from 1: attempts before it have failed.
    group, key, priority, headers   what the message has besides its payload.

    The call is the same as in a worker: an exception fails the attempt and is in `Performed.error`; time-outs, retries,
    dead letters, results and `Finished` are as in `Worker`. It runs in this thread, also for a handler with
    `processes`. Ctrl-C and `pytest.fail()` end it. Messages that the handler pushes are pushed: see `assert_pushed`.

    `BadInput` if the queue cannot have such a message.
    """
    return run(lambda: performing(handler, payload, queue, attempt, group, key, priority, headers))


def drain(work: Worker | Handler, database: Database) -> Drained:
    """Run the handlers for all ready messages, and for the messages that they push; return what became of each.

    work       a `Worker`, with its schedules, which first push the messages that are due; or one `Handler`.
    database   the database of the queues, made by `tablequeue.connect` or `in_transaction`.

    One message, or one batch, after the other, in this thread, as in `perform`. What is to be tried later stays in its
    queue: a test moves the clock, and drains again. A schedule begins at the first call that knows it, and is due at
    times after that.

    `QueueNotFound` if a queue is missing. `AssertionError` after 10,000 messages: then handlers push, or snooze, for
    ever.
    """
    return run(lambda: draining(work, database))


def performing(
    handler: Handler | Callable[[Any], Any],
    payload: Any,
    queue: Consumer | None,
    attempt: int,
    group: str | None,
    key: str | None,
    priority: int | None,
    headers: Mapping[str, Any] | None,
) -> Steps[Performed]:
    """The steps of `perform`."""
    _check_queue(queue)
    with _own_queue(queue, payload, group is not None, priority is not None) as own:
        most = own.definition.max_attempts if own.definition.delivery == "at_least_once" else 1
        if count(attempt, "attempt") > most:
            raise BadInput(
                f"attempt is {attempt}, and a message of the queue has {most}.", "Give fewer, or give another queue."
            )
        options = {"group": group, "key": key, "priority": priority, "headers": headers}
        own.push(payload, **{name: value for name, value in options.items() if value is not None})  # type: ignore[call-overload]
        for _ in range(attempt - 1):
            own.fail_many(own.pop_many(1), EARLIER, retry_in=0)
        of = handler if isinstance(handler, Handler) else Handler(queue.name if queue else "perform", handler)
        (performed,) = yield from handled(own, of, own.pop_many(1))
        return replace(performed, queue=of.queue)


def draining(work: Worker | Handler, database: Database) -> Steps[Drained]:
    """The steps of `drain`."""
    if not isinstance(database, Database):
        raise BadInput(
            f"drain works on a Database of tablequeue.connect, and was given {type(database).__name__}.",
            "Give it one, also in a test of asyncio, as the fixture tablequeue_database is.",
        )
    handlers, schedules = ([work], []) if isinstance(work, Handler) else ([*work.handlers.values()], work.schedules)
    if not handlers and not schedules:
        raise BadInput("The worker has no handler.", "Name a queue for it: @worker.handler(queue).")
    queues = [database.consumer(handler.queue) for handler in handlers]
    for schedule in schedules:
        push_due(database, schedule)
    drained, before = Drained(), -1
    while len(drained) > before:  # the handlers of one queue may push to another
        before = len(drained)
        for queue, handler in zip(queues, handlers, strict=True):
            yield from _emptied(queue, handler, drained)
    return drained


# -- private -----------------------------------------------------------------------------------------------------------


def _emptied(queue: Consumer, handler: Handler, drained: Drained) -> Steps[None]:
    """Handle the ready messages of a queue."""
    while claims := queue.pop_many(handler.batch or 1):
        drained += yield from handled(queue, handler, claims)
        if len(drained) > MOST:
            raise AssertionError(
                f"drain has handled {len(drained):,} messages, the last of {queue.name!r}, and there are more: a "
                "handler pushes, retries or snoozes without an end."
            )


def _check_queue(queue: Any) -> None:
    if queue is not None and not isinstance(queue, Consumer):
        raise BadInput(
            f"perform takes the options of a Queue, and was given {type(queue).__name__}.",
            "Give it the queue of tablequeue.connect, also in a test of asyncio: db.queue(name).",
        )


@contextmanager
def _own_queue(queue: Consumer | None, payload: Any, grouped: bool, ranked: bool) -> Iterator[Queue]:
    """Make a queue for one message, with the options of another one that have a meaning for it."""
    if queue is None:
        order: Order = "priority" if ranked else "fifo"
        held: PayloadType = "bytes" if isinstance(payload, bytes) else "json"
        with temporary_database() as url, connect(url) as database:
            try:
                yield database.create_queue("perform", order=order, groups=grouped, payload=held, results=True)
            finally:
                database.engine.dispose()
        return
    context, definition = context_of(queue), queue.definition
    database = Database(context.runner.sa_engine, context.runner, context.who)
    own = database.create_queue(
        f"{queue.name.replace('/', ' ')[:200]}, performed {secrets.token_hex(4)}",
        order=definition.order,
        groups=grouped and definition.takes_groups,
        payload=definition.payload,
        lease=definition.lease,
        max_attempts=definition.max_attempts,
        backoff=definition.backoff,
        history=definition.history,
        delivery=definition.delivery,
        dead_letter_to=definition.dead_letter_to,
        results=definition.results,
        batches=definition.batches,
    )
    try:
        yield own
    finally:
        own.drop()
