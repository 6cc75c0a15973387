"""How the claim on a message is to end, as its handler's outcome says. Pure: no database here."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import NamedTuple

from tablequeue.definition import Definition
from tablequeue.message import Claim
from tablequeue.operations.context import seconds
from tablequeue.worker.outcome import DeadLetter, Done, Finished, Outcome, Retry, Snooze
from tablequeue.worker.pool import Assignment


class Ending(NamedTuple):
    """One call for one claim, or its share of a call for many.

    verb      `complete`, `release` or `fail`.
    becomes   what the message is afterwards, as `Worker.run` counts it.
    delay     seconds until it is ready again, of one that is.
    final     whether it is a failure after which nothing is tried again.
    """

    claim: Claim
    assignment: Assignment
    verb: str
    becomes: str
    delay: float = 0.0
    error: str = ""
    final: bool = False


def endings(definition: Definition, assignment: Assignment, outcomes: Sequence[Outcome]) -> Iterator[Ending]:
    """How each claim of the assignment is to end; nothing for those that the handler has finished itself.

    An outcome that cannot be, as a Snooze of 1,000 years, is a failure of the attempt that says why.
    """
    for claim, outcome in zip(assignment.claims, outcomes, strict=True):
        if isinstance(outcome, Finished):
            continue
        try:
            yield _ending(definition, claim, assignment, outcome)
        except Exception as error:
            yield _failure(definition, claim, assignment, error)


def given_back(definition: Definition, assignment: Assignment, why: str) -> Iterator[Ending]:
    """Of messages that no consumer has begun: they are ready again, and the attempt does not count.

    Where delivery is at most once they cannot be: they have failed.
    """
    for claim in assignment.claims:
        if definition.delivery == "at_most_once":
            yield _failure(definition, claim, assignment, why)
        else:
            yield Ending(claim, assignment, "release", "")


def plain(outcome: Outcome) -> Outcome:
    """The outcome as it can be sent to another process: without exceptions, nor classes of the handler's module."""
    match outcome:
        case Retry():
            return Retry(None if outcome.after is None else seconds(outcome.after, "after"), words_of(outcome.error))
        case DeadLetter():
            return DeadLetter(words_of(outcome.error))
        case Snooze():
            until = outcome.until
            return Snooze(until.astimezone(UTC) if isinstance(until, datetime) else seconds(until, "until"))
        case Finished():
            return Finished()
    return Done()


def words_of(error: str | BaseException) -> str:
    """What is kept of an error: of an exception its traceback, or its class if that cannot be shown."""
    if isinstance(error, str):
        return str.__str__(error)
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # it runs code of the exception
        return f"{type(error).__name__}, which cannot be shown"


# -- private ---------------------------------------------------------------------------------------------------------


def _ending(definition: Definition, claim: Claim, assignment: Assignment, outcome: Outcome) -> Ending:
    match outcome:
        case Retry():
            after = None if outcome.after is None else seconds(outcome.after, "after")
            return _failure(definition, claim, assignment, outcome.error, after)
        case DeadLetter():
            return _failure(definition, claim, assignment, outcome.error, final=True)
        case Snooze():
            return _snooze(definition, claim, assignment, outcome)
    return Ending(claim, assignment, "complete", "completed")


def _failure(
    definition: Definition,
    claim: Claim,
    assignment: Assignment,
    error: str | BaseException,
    after: float | None = None,
    final: bool = False,
) -> Ending:
    delay = definition.backoff.seconds(claim.attempts) if after is None else after
    if definition.delivery == "at_most_once":
        becomes = "lost"
    elif final or claim.attempts >= definition.max_attempts:
        becomes = "dead"
    else:
        becomes = "scheduled" if delay else "ready"
    return Ending(claim, assignment, "fail", becomes, delay, words_of(error), final)


def _snooze(definition: Definition, claim: Claim, assignment: Assignment, outcome: Snooze) -> Ending:
    if definition.delivery == "at_most_once":
        return _failure(definition, claim, assignment, "snoozed, which a message delivered at most once cannot be")
    until = outcome.until
    if isinstance(until, datetime):
        # By the database's clock: that of the pop, and what has passed since by ours.
        passed = timedelta(seconds=monotonic() - assignment.popped)
        until = max(until - claim.popped_at - passed, timedelta(0))
    return Ending(claim, assignment, "release", "snoozed", seconds(until, "until"))
