"""What async queues and subscriptions have in common: `AsyncConsumer`, and `AsyncClaim`, a popped message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial, wraps
from inspect import Signature, signature
from time import monotonic
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from tablequeue.aio.verbs import AsyncVerbs, same
from tablequeue.aio.wait import AsyncWaiter
from tablequeue.consumer import Consumer
from tablequeue.errors import Empty, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.attempts import AttemptError
from tablequeue.model.connection import Connection
from tablequeue.model.definition import Definition
from tablequeue.model.message import Claim, checked_claims
from tablequeue.model.pacing import Duration, in_seconds
from tablequeue.observe import telemetry
from tablequeue.verbs import finish
from tablequeue.verbs.claim import SameGroup, check_prefetch
from tablequeue.verbs.context import seconds
from tablequeue.verbs.wait import INFINITE

T = TypeVar("T")
P = ParamSpec("P")
OwnConsumer = TypeVar("OwnConsumer", bound=Consumer)


def _finish(verb: Callable[Concatenate[Claim, P], T]) -> Callable[Concatenate[AsyncClaim, P], Coroutine[Any, Any, T]]:
    """Make a verb of `AsyncClaim` of the verb of `Claim` with that name."""

    @wraps(verb)
    async def awaited(self: AsyncClaim, /, *args: P.args, **options: P.kwargs) -> T:
        queue = self.queue
        run = queue._threads.run_to_end  # noqa: SLF001  (a claim is a part of its queue)
        return await queue._call(run, partial(verb, self.claim), *args, **options)  # noqa: SLF001

    return awaited


def _cancelled(message: Claim) -> bool:
    """Whether the message was cancelled while it was in progress; see `Claim.cancelled`."""
    return message.cancelled


def _claims(messages: Iterable[AsyncClaim]) -> list[Claim]:
    return [message.claim for message in checked_claims(messages, AsyncClaim)]


class AsyncClaim:
    """A popped message, with the attributes of `Claim` and its verbs, which are awaited.

    They act only while the claim is held; afterwards they change nothing and raise `LeaseLost`. `AsyncConsumer`
    explains `connection=`, and `Consumer` explains `now=`.
    """

    __slots__ = ("claim", "queue")

    id: int
    payload: Any
    headers: dict[str, Any]
    attempt: int
    token: str
    pushed_at: datetime
    popped_at: datetime
    lease_until: datetime | None
    due_at: datetime | None
    priority: int
    group: str | None
    key: str | None
    errors: tuple[AttemptError, ...]

    def __init__(self, queue: AsyncConsumer[Any], claim: Claim) -> None:
        self.queue = queue
        self.claim = claim

    @classmethod
    def of(cls, queue: AsyncConsumer[Any], id: int, token: str, attempt: int = 0) -> Self:
        """Make a claim from its id and token alone, to finish it; see `Claim.of`."""
        return cls(queue, Claim.of(queue._own, id, token, attempt))  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        if name in AsyncClaim.__annotations__:
            return getattr(self.claim, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Async{repr(self.claim)[1:]}"

    complete = _finish(Claim.complete)
    fail = _finish(Claim.fail)
    release = _finish(Claim.release)
    extend = _finish(Claim.extend)
    progress = _finish(Claim.progress)
    cancelled = _finish(_cancelled)
    raise_if_cancelled = _finish(Claim.raise_if_cancelled)


def _claim(message: AsyncClaim) -> Claim:
    (claim,) = _claims((message,))
    return claim


def _of_claim(
    verb: Callable[Concatenate[Any, Claim, P], T],
) -> Callable[Concatenate[Any, AsyncClaim, P], Coroutine[Any, Any, T]]:
    """Make a verb of `AsyncConsumer`, about one claim, of the verb of `Consumer` with that name."""
    return _finishing(verb, _claim)


def _of_claims(
    verb: Callable[Concatenate[Any, Iterable[Claim], P], T],
) -> Callable[Concatenate[Any, Iterable[AsyncClaim], P], Coroutine[Any, Any, T]]:
    """Make a verb of `AsyncConsumer`, about several claims, of the verb of `Consumer` with that name."""
    return _finishing(verb, _claims)


def _finishing(verb: Callable[..., Any], own: Callable[[Any], Any]) -> Any:
    """Make a verb about what `own` returns for its first argument."""

    @wraps(verb)
    async def awaited(self: Any, /, claims: Any, *args: Any, **options: Any) -> Any:
        run, finish = self._threads.run_to_end, getattr(self._own, verb.__name__)
        return await self._call(run, finish, own(claims), *args, **options)

    finishing: Any = awaited
    finishing.__signature__ = _shown(verb)
    return finishing


def _shown(verb: Callable[..., Any]) -> Signature:
    """Return the signature of the async verb for help(): it takes an `AsyncClaim`."""
    sync = signature(verb)
    own, claims, *options = sync.parameters.values()
    claims = claims.replace(annotation=claims.annotation.replace("Claim", "AsyncClaim"))
    return sync.replace(parameters=[own, claims, *options])


class AsyncConsumer(AsyncVerbs[OwnConsumer]):
    """`Consumer` for asyncio: every verb does what its namesake there does. Made by `AsyncDatabase.consumer`.

    `connection=` takes a SQLAlchemy AsyncConnection, AsyncSession or async_scoped_session: the verb then acts inside
    that transaction and never commits it. `now=` and durations mean the same as in `Consumer`.

    A task may be cancelled at every `await`. A call that is in the database by then goes on, and takes effect. What a
    pop claims is given back. `complete`, `fail`, `release`, and what a pop completes, are done even if they still
    waited for a thread.
    """

    @property
    def name(self) -> str:
        return self._own.name

    @property
    def definition(self) -> Definition:
        return self._own.definition

    @property
    def table(self) -> str:
        """The name of its table, which it keeps when it is renamed, and which no other queue ever gets."""
        return self._own.table

    # -- consuming -------------------------------------------------------------------------------------------------

    async def pop(
        self, *, lease: Duration | None = None, completing: AsyncClaim | None = None, now: datetime | None = None
    ) -> AsyncClaim | None:
        """Claim the next message under a lease; None if no message is ready.

        lease        seconds, or a timedelta; the lease of the definition if not given.
        completing   the previous message, to complete; see `Consumer.pop`.
        """
        done = () if completing is None else (completing,)
        claims = await self._pop(1, lease, False, done, None, now)
        return claims[0] if claims else None

    async def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        same_group: SameGroup = False,
        completing: Iterable[AsyncClaim] = (),
        now: datetime | None = None,
    ) -> list[AsyncClaim]:
        """Claim up to `n` messages in one round trip, in the queue's order; an empty list if none is ready.

        lease        seconds, or a timedelta; the lease of the definition if not given.
        same_group   all of them from one group, which is closed until all are finished; see `Consumer.pop_many`.
        completing   the previous batch, to complete; see `Consumer.pop_many`.
        """
        return await self._pop(n, lease, same_group, completing, None, now)

    complete = _of_claim(Consumer.complete)
    complete_many = _of_claims(Consumer.complete_many)
    fail = _of_claim(Consumer.fail)
    fail_many = _of_claims(Consumer.fail_many)
    release = _of_claim(Consumer.release)
    release_many = _of_claims(Consumer.release_many)
    extend = _of_claim(Consumer.extend)
    extend_many = _of_claims(Consumer.extend_many)
    report_progress = _of_claim(Consumer.report_progress)
    is_cancelled = _of_claim(Consumer.is_cancelled)
    extend_held = same(Consumer.extend_held)

    @asynccontextmanager
    async def receive(self, *, wait: Duration = 0, lease: Duration | None = None) -> AsyncIterator[AsyncClaim]:
        """Pop one message for an `async with` block; complete it when the block ends, fail it when the block raises.

        Waits up to `wait` (seconds, or a timedelta) for a message, then raises `Empty`. An exception fails the message
        with its traceback and goes on to the caller; a cancellation (or KeyboardInterrupt, SystemExit) releases it
        (where delivery is at most once it fails it too).
        """
        with waiter_of(self) as waiter:
            batch = await self._next(waiter, 1, lease, wait)
        # No await from here to the block: a cancellation would strand the message.
        if not batch:
            raise Empty(
                f"No message became ready in {self.name!r} within {in_seconds(wait)} s.", "Wait longer, or push one."
            )
        (message,) = batch
        try:
            with telemetry.processing(self.name, (message,)):
                yield message
        except Exception as error:
            await message.fail(error)
            raise
        except BaseException as interrupt:
            await self._threads.run_to_end(partial(finish.abandon, context_of(self._own), (message.claim,), interrupt))
            raise
        await message.complete()

    async def consume(
        self, *, wait: Duration | None = None, lease: Duration | None = None, prefetch: int = 1
    ) -> AsyncIterator[AsyncClaim]:
        """Iterate over messages as they become ready. Finish each of them by `complete`, `fail` or `release`.

        Ends after `wait` (seconds, or a timedelta) without a message; None: never. Claims `prefetch` messages at a
        time. When the iteration is closed, messages not yet handed over are released: at once in `contextlib.aclosing`,
        else when the event loop comes to it.
        """
        check_prefetch(context_of(self._own), prefetch)
        with waiter_of(self) as waiter:
            while batch := await self._next(waiter, prefetch, lease, wait):
                handed = 0
                try:
                    for message in batch:
                        handed += 1
                        yield message
                finally:
                    if handed < len(batch):
                        await self.release_many(batch[handed:])

    # -- looking ---------------------------------------------------------------------------------------------------

    peek = same(Consumer.peek)
    find = same(Consumer.find)
    progress = same(Consumer.progress)
    stats = same(Consumer.stats)
    history = same(Consumer.history)
    history_bounds = same(Consumer.history_bounds)

    # -- changing --------------------------------------------------------------------------------------------------

    cancel = same(Consumer.cancel)  # it calls a function that chooses in the thread
    reschedule = same(Consumer.reschedule)

    # -- controlling -----------------------------------------------------------------------------------------------

    alter = same(Consumer.alter)
    pause = same(Consumer.pause)
    resume = same(Consumer.resume)

    # -- keeping ---------------------------------------------------------------------------------------------------

    dead = same(Consumer.dead)
    redrive = same(Consumer.redrive)
    purge_dead = same(Consumer.purge_dead)
    purge_history = same(Consumer.purge_history)
    purge = same(Consumer.purge)
    drop = same(Consumer.drop)

    # -- private ---------------------------------------------------------------------------------------------------

    async def _pop(
        self,
        n: int,
        lease: Duration | None,
        same_group: SameGroup,
        completing: Iterable[AsyncClaim],
        connection: Connection | None,
        now: datetime | None,
    ) -> list[AsyncClaim]:
        done = _claims(completing)
        run = partial(self._threads.run_or_undo, undo=self._put_back, to_end=bool(done))
        pop: Callable[..., list[Claim]] = self._own.pop_many
        options: dict[str, Any] = {"lease": lease, "same_group": same_group, "completing": done, "now": now}
        return [AsyncClaim(self, claim) for claim in await self._call(run, pop, n, connection=connection, **options)]

    async def _next(
        self, waiter: AsyncWaiter, n: int, lease: Duration | None, wait: Duration | None
    ) -> list[AsyncClaim]:
        """Pop up to `n` messages as soon as there are any; none after `wait`."""
        limit = INFINITE if wait is None else seconds(wait, "wait")
        idle_since = monotonic()
        while not (batch := await self.pop_many(n, lease=lease)):
            left = limit - (monotonic() - idle_since)
            if left <= 0:
                return []
            await waiter.wait(left)
        waiter.found()
        return batch

    def _put_back(self, popped: Future[list[Claim]]) -> None:
        try:
            finish.abandon(context_of(self._own), popped.result(), asyncio.CancelledError())
        except TablequeueError:
            # No task is left to raise it in. The pop failed, or the release did, and the lease ends by itself.
            return


__all__ = ["AsyncClaim", "AsyncConsumer"]


def waiter_of(queue: AsyncConsumer[Any]) -> AsyncWaiter:
    """Return an `AsyncWaiter`, which waits for messages between the pops of a loop of your own.

    Make it in the event loop that waits, and use it in a `with` block. It occupies no thread while it sleeps.
    """
    return AsyncWaiter(queue._own, queue._threads)  # noqa: SLF001 -- as context_of
