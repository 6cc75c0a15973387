"""What becomes of a message, as the value that its handler returns. An exception is a Retry with its traceback."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tablequeue.definition import Duration
from tablequeue.errors import BadInput
from tablequeue.operations.context import seconds


@dataclass(frozen=True, slots=True)
class Done:
    """Complete it. A handler that returns nothing says so too."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed: try again `after` some time, if any attempts are left.

    Seconds, or a timedelta; the queue's backoff if not given.
    """

    after: Duration | None = None
    error: str | BaseException = ""

    def __post_init__(self) -> None:
        if self.after is not None:
            seconds(self.after, "after")
        _check_error(self.error)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The attempt failed and no other can help: it becomes a dead letter now."""

    error: str | BaseException = ""

    def __post_init__(self) -> None:
        _check_error(self.error)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: give it back until a time (an aware datetime), or for so many seconds. The attempt does not count.

    At most 100 years: what is farther away fails the attempt.
    """

    until: Duration | datetime

    def __post_init__(self) -> None:
        if not isinstance(self.until, datetime):
            seconds(self.until, "until")
        elif self.until.utcoffset() is None:
            raise BadInput(f"until is {self.until!r}, which does not say its time zone.", "Give an aware datetime.")


@dataclass(frozen=True, slots=True)
class Finished:
    """The handler has finished it itself, as with `message.complete(connection=...)` in a transaction of its own."""


Outcome = Done | Retry | DeadLetter | Snooze | Finished
OUTCOMES = (Done, Retry, DeadLetter, Snooze, Finished)


def outcome_of(result: Any) -> Outcome:
    """What a handler of one message has returned; what is no outcome is done, whatever it is.

    `BadInput` for what shows that the handler did not do what it says: it has not run, or names an outcome and makes
    none. To complete such messages would lose them.
    """
    if isinstance(result, OUTCOMES):
        return result
    if inspect.iscoroutine(result):
        result.close()  # Python would warn, at another place, that nobody has awaited it
        raise BadInput(
            "The handler returned a coroutine that nobody awaits: it has not run.",
            "Make the handler itself `async def`, or wait for the coroutine in it.",
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadInput("The handler is a generator: it has not run.", "Leave `yield` out of it.")
    if isinstance(result, type) and issubclass(result, OUTCOMES):
        raise BadInput(f"The handler returned the class {result.__name__}.", f"Return {result.__name__}().")
    return Done()


def outcomes_of(result: Any, n: int) -> Sequence[Outcome]:
    """What a handler of a batch has returned: one outcome for all, or a list with one for each.

    A tuple with an outcome in it is a list too; another one is a value as any other.
    """
    several = isinstance(result, list) or (
        isinstance(result, tuple) and any(isinstance(one, OUTCOMES) for one in result)
    )
    if not several:
        return [outcome_of(result)] * n
    if len(result) != n:
        raise BadInput(
            f"The handler of a batch of {n} messages returned a list of {len(result)}.",
            "Return one outcome for each message, in their order, or a single one for all.",
        )
    return [outcome_of(one) for one in result]


def _check_error(error: Any) -> None:
    if not isinstance(error, (str, BaseException)):
        raise BadInput(f"error is a {type(error).__name__}.", "Give a string or an exception.")
