"""The verbs that end claims, by the outcomes of their handler: pure functions, without a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, NamedTuple

from tablequeue.errors import BadPayload
from tablequeue.model.attempts import error_text
from tablequeue.model.definition import Definition
from tablequeue.model.message import Claim
from tablequeue.model.payload import dump_result
from tablequeue.verbs.context import seconds
from tablequeue.worker.outcome import DeadLetter, Done, Finished, Outcome, Retry, Snooze
from tablequeue.worker.pool import Assignment


class Ending(NamedTuple):
    """How to end claims of an assignment: claims with the same end together, but each failure by itself.

    verb      `complete`, `release` or `fail`.
    becomes   the outcome of the messages, as `Worker.run` counts it; "" is not counted.
    delay     seconds until the messages are ready again, after `release` and `fail`; None: the queue's backoff.
    final     whether the message becomes a dead letter at once.
    result    its result, if the queue keeps results.
    """

    claims: Sequence[Claim]
    assignment: Assignment
    verb: str
    becomes: str
    delay: float | None = 0.0
    error: str = ""
    final: bool = False
    result: Any = None


def endings(definition: Definition, assignment: Assignment, outcomes: Sequence[Outcome]) -> list[Ending]:
    """Return how to end the claims of an assignment, except for claims that the handler has finished itself.

    An impossible outcome, such as a Snooze of 1,000 years, fails the attempt with an error that says why.
    """
    done: list[Claim] = []
    others: list[Ending] = []
    for claim, outcome in zip(assignment.claims, outcomes, strict=True):
        if type(outcome) is Done and (outcome.result is None or not definition.results):
            done.append(claim)
        elif not isinstance(outcome, Finished):
            others.append(_checked_ending(definition, claim, assignment, outcome))
    return [Ending(done, assignment, "complete", "completed"), *others] if done else others


def unbegun_endings(definition: Definition, assignment: Assignment, reason: str) -> list[Ending]:
    """Return how to end the claims of an assignment that no consumer has begun.

    Its messages are ready again, and the attempt does not count. Where delivery is at most once they fail instead.
    """
    if definition.delivery == "at_most_once":
        return [_failure(definition, claim, assignment, reason) for claim in assignment.claims]
    return [Ending(assignment.claims, assignment, "release", "")]


def picklable(definition: Definition, outcome: Outcome) -> Outcome:
    """Return the outcome in a form that another process can load: without exceptions or classes of the handler."""
    match outcome:
        case Retry():
            return Retry(None if outcome.after is None else seconds(outcome.after, "after"), error_text(outcome.error))
        case DeadLetter():
            return DeadLetter(error_text(outcome.error))
        case Snooze():
            until = outcome.until
            return Snooze(until.astimezone(UTC) if isinstance(until, datetime) else seconds(until, "until"))
        case Finished():
            return Finished()
        case Done(result) if definition.results and result is not None:
            try:
                return Done(json.loads(dump_result(result)))
            except BadPayload as error:
                return Retry(error=error_text(error))
    return Done()


# -- private ---------------------------------------------------------------------------------------------------------


def _completed(claim: Claim, assignment: Assignment, result: Any = None) -> Ending:
    return Ending([claim], assignment, "complete", "completed", result=result)


def _checked_ending(definition: Definition, claim: Claim, assignment: Assignment, outcome: Outcome) -> Ending:
    try:
        return _ending(definition, claim, assignment, outcome)
    except Exception as error:
        return _failure(definition, claim, assignment, error)


def _ending(definition: Definition, claim: Claim, assignment: Assignment, outcome: Outcome) -> Ending:
    match outcome:
        case Retry():
            after = None if outcome.after is None else seconds(outcome.after, "after")
            return _failure(definition, claim, assignment, outcome.error, after)
        case DeadLetter():
            return _failure(definition, claim, assignment, outcome.error, final=True)
        case Snooze():
            return _snooze(definition, claim, assignment, outcome)
        case Done() if definition.results:
            dump_result(outcome.result)  # a result that is no JSON fails the attempt
            return _completed(claim, assignment, outcome.result)
    return _completed(claim, assignment)


def _failure(
    definition: Definition,
    claim: Claim,
    assignment: Assignment,
    error: str | BaseException,
    after: float | None = None,
    final: bool = False,
) -> Ending:
    if definition.delivery == "at_most_once":
        becomes = "lost"
    elif final or claim.attempt >= definition.max_attempts:
        becomes = "dead"
    else:
        becomes = "scheduled" if (definition.backoff.base if after is None else after) else "ready"
    return Ending([claim], assignment, "fail", becomes, after, error_text(error), final)


def _snooze(definition: Definition, claim: Claim, assignment: Assignment, outcome: Snooze) -> Ending:
    if definition.delivery == "at_most_once":
        return _failure(definition, claim, assignment, "snoozed, which a message delivered at most once cannot be")
    until = outcome.until
    if isinstance(until, datetime):
        # By the database's clock: its time of the pop, and the seconds that have passed since.
        passed = timedelta(seconds=monotonic() - assignment.popped_at)
        until = max(until - claim.popped_at - passed, timedelta(0))
    return Ending([claim], assignment, "release", "snoozed", seconds(until, "until"))
