"""Consumers that are tasks, for async handlers: all run in one event loop, in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from time import monotonic
from typing import Any

from tablequeue.errors import Cancelled
from tablequeue.model.attempts import error_text
from tablequeue.observe.telemetry import processing
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, Pool, PoolOwner, TimedOut

logger = logging.getLogger("tablequeue.worker")

# Seconds that consumers may keep the loop from its other tasks, if their handlers never wait.
TURN = 0.005


class Loop:
    """The event loop of a worker. Objects that handlers share, such as an HTTP session, are bound to one loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = Thread(target=self._run, name="event loop of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Cancel all tasks that still run, and end the loop."""
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(_log_unnoticed)
        while not self._closed:
            self._log_errors(self.loop.run_forever)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        while tasks := asyncio.all_tasks(self.loop):
            self._log_errors(partial(self.loop.run_until_complete, asyncio.wait(tasks)))
        self._log_errors(partial(self.loop.run_until_complete, self.loop.shutdown_asyncgens()))
        self.loop.close()

    @staticmethod
    def _log_errors(run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException as error:  # a SystemExit of one task would end the loop, which other tasks need
            logger.error("a task of a handler would have ended the event loop, which goes on\n%s", error_text(error))


def _log_unnoticed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio reports of an error that no code awaits, in a task of a handler; a long report is cut."""
    error = context.get("exception")
    logger.error("%s\n%s", context["message"], "" if error is None else error_text(error))


class TaskPool(Pool):
    def __init__(self, handler: Handler, owner: PoolOwner, loop: Loop) -> None:
        super().__init__(handler, owner)
        self._loop = loop.loop
        self._sleeping: deque[asyncio.Future[None]] = deque()
        """The futures that wake idle consumers."""
        self._turned_at = 0.0
        """When the loop last ran its other tasks, as far as the consumers know."""
        self._consumers: set[asyncio.Task[None]] = set()
        self._calling: dict[Assignment, asyncio.Task[Any]] = {}
        """The consumers that run a handler. Only the loop's thread changes it."""

    def abandon(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [consumer.cancel() for consumer in self._calling.values()])

    def interrupt(self, assignment: Assignment) -> None:
        def cancel() -> None:
            if assignment in self._calling and not assignment.interrupted:
                assignment.interrupted = True
                self._calling[assignment].cancel()

        self._loop.call_soon_threadsafe(cancel)

    def close(self, timeout: float) -> None:
        """Do nothing: the remaining tasks end with the loop."""

    # -- private -----------------------------------------------------------------------------------------------------

    def _start_consumer(self) -> None:
        self._loop.call_soon_threadsafe(self._start_task)

    @property
    def _idle(self) -> int:
        return len(self._sleeping)

    def _wake(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._wake_tasks, number)

    def _wake_tasks(self, number: int) -> None:
        for _ in range(min(number, len(self._sleeping))):
            wakeup = self._sleeping.popleft()
            if not wakeup.done():
                wakeup.set_result(None)

    def _start_task(self) -> None:
        consumer = self._loop.create_task(self._consume(), name=f"consumer of {self.handler.queue}")
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumers.discard)

    async def _consume(self) -> None:
        consumer = asyncio.current_task()
        assert consumer is not None, "it runs in a task"
        self._owner.consumer_busy()
        while (assignment := await self._next()) is not None:
            if self._owner.begin(assignment):
                self._calling[assignment] = consumer
                self._owner.end(assignment, await self._outcomes(assignment))
                del self._calling[assignment]
                if consumer.cancelling():
                    await _forget_cancellations(consumer)

    async def _next(self) -> Assignment | None:
        """Return the next assignment, as soon as there is one; None if the calling consumer has to end."""
        if monotonic() > self._turned_at + TURN:  # handlers that never wait leave the loop no time for them
            await asyncio.sleep(0)
            self._turned_at = monotonic()
        retires = self._retires()
        if not retires and (assignment := self._take()) is not None:
            return assignment
        self._owner.consumer_idle()
        while not retires:
            await self._sleep()
            retires = self._retires()
            if not retires and (assignment := self._take()) is not None:
                self._owner.consumer_busy()
                return assignment
        return None

    async def _sleep(self) -> None:
        wakeup = self._loop.create_future()
        self._sleeping.append(wakeup)
        if self._assignments:
            self._sleeping.remove(wakeup)
        else:
            await wakeup

    async def _outcomes(self, assignment: Assignment) -> Sequence[Outcome]:
        try:
            return await self._call(assignment)
        except asyncio.CancelledError as error:
            told = len(assignment.cancelled) == len(assignment.claims)
            return self._failed(assignment, Cancelled() if told else error)
        except BaseException as error:
            return self._failed(assignment, error)

    async def _call(self, assignment: Assignment) -> Sequence[Outcome]:
        claims = assignment.claims
        if self.handler.timeout is None and not self._recording:
            return self.handler.outcomes(await self.handler.call_async(claims), len(claims))
        with processing(self.handler.queue, claims):
            try:
                async with asyncio.timeout(self.handler.timeout) as limit:
                    result = await self.handler.call_async(claims)
            except TimeoutError as error:
                if limit.expired():
                    raise TimedOut().with_traceback(error.__traceback__) from None
                raise
            if limit.expired():
                raise TimedOut  # the handler has caught the cancellation
        return self.handler.outcomes(result, len(claims))


async def _forget_cancellations(consumer: asyncio.Task[Any]) -> None:
    """Undo cancellations of the consumer's task, by `abandon` or by the handler itself."""
    while consumer.cancelling():
        consumer.uncancel()
    with suppress(asyncio.CancelledError):  # a cancellation may arrive later
        await asyncio.sleep(0)
