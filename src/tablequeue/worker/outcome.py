"""The outcomes that a handler can return. An exception counts as a Retry with its traceback."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tablequeue.errors import BadInput
from tablequeue.model.pacing import Duration
from tablequeue.verbs.context import seconds


@dataclass(frozen=True, slots=True)
class Done:
    """Complete the message. A handler that returns None means the same.

    result   a JSON value, which is kept if the queue has `results`. A handler may return the value itself.
    """

    result: Any = None


@dataclass(frozen=True, slots=True)
class Retry:
    """Fail the attempt. If any attempts are left, the message is ready again after `after`.

    after   seconds, or a timedelta; None: by the queue's backoff.
    error   a text, or an exception, with its traceback.
    """

    after: Duration | None = None
    error: str | BaseException = ""

    def __post_init__(self) -> None:
        if self.after is not None:
            seconds(self.after, "after")
        _check_error(self.error)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Fail the attempt, and make the message a dead letter at once."""

    error: str | BaseException = ""

    def __post_init__(self) -> None:
        _check_error(self.error)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Release the message until a time (an aware datetime), or for some seconds or a timedelta.

    The attempt does not count. A time that is more than 100 years away fails the attempt.
    """

    until: Duration | datetime

    def __post_init__(self) -> None:
        if not isinstance(self.until, datetime):
            seconds(self.until, "until")
        elif self.until.utcoffset() is None:
            raise BadInput(f"until is {self.until!r}, which does not say its time zone.", "Give an aware datetime.")


@dataclass(frozen=True, slots=True)
class Finished:
    """Do nothing: the handler has finished the message itself, as with `message.complete(connection=...)`."""


Outcome = Done | Retry | DeadLetter | Snooze | Finished
DONE = Done()
OUTCOMES = (Done, Retry, DeadLetter, Snooze, Finished)


def outcome_of(result: Any) -> Outcome:
    """Return the outcome of one message from the value that its handler returned. A value that is not an outcome is a
    result.

    Raises `BadInput` if the value shows a mistake, because completing would lose the message: a coroutine or a
    generator has not run, and an outcome's class is not an outcome.
    """
    if result is None:
        return DONE
    if isinstance(result, OUTCOMES):
        return result
    if inspect.iscoroutine(result):
        result.close()  # or Python would warn later that it was never awaited
        raise BadInput(
            "The handler returned a coroutine that was never awaited: it has not run.",
            "Make the handler itself `async def`, or run the coroutine in it.",
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadInput("The handler is a generator: it has not run.", "Leave `yield` out of it.")
    if isinstance(result, type) and issubclass(result, OUTCOMES):
        raise BadInput(f"The handler returned the class {result.__name__}.", f"Return {result.__name__}().")
    return Done(result)


def outcomes_of(result: Any, n: int) -> Sequence[Outcome]:
    """Return the outcomes of `n` messages from what their handler returned: one outcome for all, or a list of them.

    A tuple that contains an outcome counts as a list. Any other tuple is a value like any other.
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
