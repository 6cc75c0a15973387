"""Results: what consumers give when they complete messages, kept with the history."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import NoResult, TablequeueError
from tablequeue.model.pacing import Duration
from tablequeue.model.payload import dump_result
from tablequeue.verbs.context import Context, Params, seconds
from tablequeue.verbs.inspect import find
from tablequeue.verbs.refusals import Refusal, check

# Seconds between two looks at a message: the first pause, and the longest, up to which it doubles. The looks find ends
# without a notification: in a caller's transaction, and of messages that did not finish.
PAUSES = (0.02, 0.5)
_ON = "alter the queue, by alter(results=True) or `queue alter --results`."
# The queues that keep no results refuse to keep one, and to wait for one.
KEEPS, WAITS = (
    Ways(
        {
            "subscription or none": Refusal("The {queue} keeps no results.", elsewhere),
            "not results": Refusal("The {queue} keeps no results.", here),
        }
    )
    for elsewhere, here in (
        ("Leave the result out, or create a queue with results=True.", f"Leave the result out; or {_ON}"),
        ("Create a queue with results=True.", f"A{_ON[1:]} It keeps the results of messages that finish later."),
    )
)
_UNFINISHED = ("ready", "scheduled", "blocked", "in_progress")


def dump(context: Context, results: Sequence[Any]) -> list[str | None]:
    """Return the results as JSON. None stays None: the message has no result."""
    if any(result is not None for result in results):
        check(context.table, KEEPS)
    return [None if result is None else dump_result(result) for result in results]


def completing(context: Context, kept: dict[int, str]) -> Callable[[Cursor, Table, Params], list[int]]:
    """Return the operation that completes messages and keeps their results, in one transaction."""

    def complete(cursor: Cursor, table: Table, params: Params) -> list[int]:
        batches = table.plan.way(BATCHES_OF)(context, cursor, table, params) if kept else {}
        completed = context.messages.complete(cursor, table, params)
        rows: list[Params] = [
            {"id": id, "result": kept[id], "batch_id": batches.get(id)} for id in completed if id in kept
        ]
        if rows:
            context.messages.keep_results(cursor, table, {"rows": rows})
        if completed:
            context.messages.notify_results(cursor, table, {})
        return completed

    return complete


def _batches_of(context: Context, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
    return context.engine.batches.batches_of(cursor, table, params)


BATCHES_OF: Ways[Callable[[Context, Cursor, Table, Params], dict[int, Any]]] = Ways(
    {"batches": _batches_of, "": lambda *_: {}}
)
"""The batches of the messages that a transaction completes. It looks them up before it completes."""


def notify_waiters(context: Context) -> None:
    """Notify callers that wait for results, after messages ended without one.

    An error is not raised, because the messages have ended. Waiting callers look by themselves too.
    """
    try:
        context.run(context.messages.notify_results, {})
    except TablequeueError:
        return


class ResultWaiter:
    """Waits for the result of one message. `wake` is what the notifier calls, in its own thread."""

    def __init__(self, context: Context, id: int, wait: Duration, wake: Callable[[], None]) -> None:
        self._context = context
        self._id = id
        self._wait = seconds(wait, "wait")
        self._wake = wake
        self._end = monotonic() + self._wait
        self._pause = PAUSES[0]

    def leave(self) -> None:
        """Stop waiting: completions need not notify any more."""
        if (notifier := self._context.runner.notifier) is not None:
            notifier.leave(self._context.table.waiting_for_results, self._wake)

    def look(self) -> tuple[Any, float | None]:
        """Return the result and None; or None and the seconds until the next look. `NoResult` if there is none."""
        check(self._context.current().table, WAITS)
        notifier = self._context.runner.notifier
        if notifier is not None and self._wait:
            notifier.attend(self._context.table.waiting_for_results, self._wake)
        message = find(self._context, self._id)
        if message is not None and message.state == "finished":
            result = self._context.run(self._context.reads.result, {"id": self._id})
            return None if result is None else json.loads(result), None
        state = None if message is None else message.state
        left = self._end - monotonic()
        if state not in _UNFINISHED or left <= 0:
            raise self._no_result(state)
        self._pause, pause = min(2 * self._pause, PAUSES[1]), self._pause
        return None, min(pause, left)

    def _no_result(self, state: str | None) -> NoResult:
        name = self._context.table.name
        if state is None:
            words = f"The queue {name!r} has no message {self._id}.", "It was deleted, or its push was not committed."
        elif state in _UNFINISHED:
            words = (
                f"Message {self._id} of {name!r} is {state} after {self._wait:g} s.",
                "Wait longer, or see that a consumer works on the queue.",
            )
        else:
            words = f"Message {self._id} of {name!r} is {state}.", "It has no result; find() shows its errors."
        return NoResult(*words, state)


def result(context: Context, id: int, wait: Duration) -> Any:
    woken = Event()
    waiter = ResultWaiter(context, id, wait, woken.set)
    try:
        while (looked := waiter.look())[1] is not None:
            woken.wait(looked[1])
            woken.clear()
        return looked[0]
    finally:
        waiter.leave()
