"""One consumer of a worker without its threads: it calls a handler here, and ends its messages by the worker's code."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.util import await_only

from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput, LeaseLost
from tablequeue.model.attempts import error_text
from tablequeue.model.message import Claim, Message
from tablequeue.worker.completer import calls, effective_of, log_failure
from tablequeue.worker.ending import endings, picklable
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import DeadLetter, Done, Finished, Outcome, Retry
from tablequeue.worker.pool import Assignment, Pool, PoolOwner, ThreadPool, TimedOut
from tablequeue.worker.tasks import TaskPool

P = ParamSpec("P")
T = TypeVar("T")

# The exceptions that fail a message, as in a worker. Any other exception ends the test: Ctrl-C, and `pytest.fail()` and
# `pytest.skip()` in a handler.
FAILURES = (Exception, SystemExit, TimedOut)


class Killed(BaseException):
    """Raise it in a handler, or in a function that the handler calls: its consumer is then dead, as after SIGKILL.

    Nothing more is recorded of the message: its lease ends, and it is delivered again. Unlike in a killed process,
    `finally` and `with` blocks still run. No `except Exception` catches it.
    """


@dataclass(frozen=True, repr=False)
class Performed:
    """What one call of a handler did to a message.

    queue     the name of the queue; `id`, `payload` and `attempt` are the values of the message.
    outcome   the outcome that the worker derived from the return value or the exception of the handler; the `error` of
              a `Retry` is the exception itself. None: the consumer was killed.
    state     what the message became, as `Worker.run` counts it: `completed`, `snoozed`, `ready`, `scheduled`, `dead`,
              `cancelled`, or `lost` where delivery is at most once. `unfinished`: this consumer has not finished it. It
              was killed, or had lost its lease; or its handler returned `Finished()` and had not finished it.
    message   the message after the call; None if it was deleted.
    """

    queue: str
    id: int
    payload: Any
    attempt: int
    outcome: Outcome | None
    state: str
    message: Message | None

    @property
    def result(self) -> Any:
        """What the handler returned, or the `result` of its `Done`."""
        return self.outcome.result if isinstance(self.outcome, Done) else None

    @property
    def error(self) -> str:
        """The stored error of the attempt, with the traceback of an exception; empty if there is none."""
        return error_text(self.outcome.error) if isinstance(self.outcome, (Retry, DeadLetter)) else ""

    def __repr__(self) -> str:
        last = self.error.strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        return f"<Performed message {self.id} of {self.queue!r}, attempt {self.attempt}: {self.state}{said}>"


class Drained(list[Performed]):
    """What calls of handlers did, in the order of the calls."""

    @property
    def counts(self) -> Counter[str]:
        """How many messages became what, as `Worker.run` returns it; a message counts at each attempt."""
        return Counter(one.state for one in self)


class Call(NamedTuple):
    """A call of a handler that has to be made."""

    handler: Handler
    assignment: Assignment


Steps = Generator[Call, Sequence[Outcome] | None, T]
"""Work on a database that has calls of handlers made, and is sent their outcomes; None: the consumer was killed."""


def handled(queue: Consumer, handler: Handler, claims: list[Claim]) -> Steps[list[Performed]]:
    """Have the handler called with messages, and end them as a worker does."""
    now = monotonic()
    assignment = Assignment(claims, now, now, began_at=now)
    outcomes = yield Call(handler, assignment)
    became = dict.fromkeys((claim.id for claim in claims), "unfinished")
    if outcomes is None:
        _lose(queue, claims)
        return [_performed(queue, claim, None, "unfinished") for claim in claims]
    if handler.processes:
        outcomes = [picklable(queue.definition, outcome) for outcome in outcomes]
    for call in calls(endings(queue.definition, assignment, outcomes)):
        for ending in effective_of(queue, call, is_retry=False):
            became |= dict.fromkeys((claim.id for claim in ending.claims), ending.becomes)
            if ending.verb == "fail":
                log_failure(queue, ending)
    return [
        _performed(queue, claim, outcome, became[claim.id]) for claim, outcome in zip(claims, outcomes, strict=True)
    ]


def run(steps: Callable[[], Steps[T]]) -> T:
    """Take the steps in this thread, and make the calls in it. Async handlers share an event loop."""
    work, loop = steps(), asyncio.Runner()  # which makes a loop when it first runs something
    try:
        call = next(work)
        while True:
            call = work.send(_called(call, loop))
    except StopIteration as end:
        return end.value
    finally:
        work.close()
        loop.close()


async def run_async(steps: Callable[[], Steps[T]]) -> T:
    """Take the steps in threads, and call async handlers in the event loop of the caller, and others in threads."""
    work = steps()
    sent: Sequence[Outcome] | None = None
    try:
        while True:
            step = await _to_end(_step, work, sent)
            if not isinstance(step, Call):
                return step[0]
            if step.handler.is_async:
                sent = await _Tasks(step.handler).outcomes(step.assignment)
            else:
                sent = await _to_end(_Thread(step.handler).outcomes, step.assignment)
    finally:
        await _to_end(work.close)


# -- private -----------------------------------------------------------------------------------------------------------


class _Thread(ThreadPool):
    """The calling thread as a consumer."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, cast(PoolOwner, None))

    def outcomes(self, assignment: Assignment) -> Sequence[Outcome] | None:
        try:
            return self._call(assignment)
        except Killed:
            return None
        except (asyncio.CancelledError, *FAILURES) as error:
            return self._failed(assignment, error)


class _Tasks(TaskPool):
    """The calling task as a consumer."""

    def __init__(self, handler: Handler) -> None:
        Pool.__init__(self, handler, cast(PoolOwner, None))

    async def outcomes(self, assignment: Assignment) -> Sequence[Outcome] | None:
        try:
            return await self._call(assignment)
        except Killed:
            return None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # Ctrl-C, or a time-out of the test
            return self._failed(assignment, error)
        except FAILURES as error:
            return self._failed(assignment, error)


def _called(call: Call, loop: asyncio.Runner) -> Sequence[Outcome] | None:
    if not call.handler.is_async:
        return _Thread(call.handler).outcomes(call.assignment)
    outcomes = _Tasks(call.handler).outcomes(call.assignment)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop.run(outcomes)
    try:
        return await_only(outcomes)  # in `run_sync` of an async connection
    except MissingGreenlet:
        raise BadInput(
            f"The handler of {call.handler.queue!r} is async, and was called in an event loop without await.",
            "Call await aio.perform() or await aio.drain(), after: from tablequeue.testing import aio.",
        ) from None


async def _to_end(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Make a call in a thread. A cancellation waits for its end: the next one would be made beside it."""
    future = asyncio.ensure_future(asyncio.to_thread(call, *args, **options))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def _step(work: Steps[T], sent: Sequence[Outcome] | None) -> Call | tuple[T]:
    try:
        return work.send(sent)
    except StopIteration as end:  # which a future cannot have
        return (end.value,)


def _lose(queue: Consumer, claims: Sequence[Claim]) -> None:
    """End the leases of messages, as if they had expired. What the handler has finished itself stays finished."""
    if queue.definition.delivery == "at_least_once":
        try:
            queue.extend_many(claims, 0)
        except LeaseLost:
            return


def _performed(queue: Consumer, claim: Claim, outcome: Outcome | None, state: str) -> Performed:
    message = queue.find(claim.id)
    if state == "unfinished" and isinstance(outcome, Finished):
        state = _finished_as(message)
    return Performed(queue.name, claim.id, claim.payload, claim.attempt, outcome, state, message)


def _finished_as(message: Message | None) -> str:
    """Return what a message became that its handler has finished."""
    if message is None or message.state == "finished":
        return "completed"
    return "unfinished" if message.state == "in_progress" else message.state
