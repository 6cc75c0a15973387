"""Consumers that are tasks: for async handlers, all in one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from tablequeue.telemetry import processing
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, Pool, TimedOut, Told

logger = logging.getLogger("tablequeue.worker")


class Loop:
    """The event loop of a worker: what its async handlers share, as a session of an HTTP client, belongs to one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = Thread(target=self._run, name="event loop of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Cancel what still runs, and end."""
        self._closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closed:
            self._go_on(self.loop.run_forever)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        while tasks := asyncio.all_tasks(self.loop):
            self._go_on(partial(self.loop.run_until_complete, asyncio.wait(tasks)))
        self._go_on(partial(self.loop.run_until_complete, self.loop.shutdown_asyncgens()))
        self.loop.close()

    @staticmethod
    def _go_on(run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException:  # a SystemExit of any task ends the loop: those of others need it all the same
            logger.exception("a task of a handler would have ended the event loop, which goes on")


class TaskPool(Pool):
    def __init__(self, handler: Handler, told: Told, loop: Loop) -> None:
        super().__init__(handler, told)
        self._loop = loop.loop
        self._assignments: deque[Assignment] = deque()
        self._turns: asyncio.Queue[bool] = asyncio.Queue()
        """For each assignment True; False for who has nothing to do."""
        self._consumers: set[asyncio.Task[None]] = set()
        self._calling: set[asyncio.Task[Any]] = set()
        """The consumers that are in a handler."""

    def _add(self) -> None:
        self._loop.call_soon_threadsafe(self._start)

    def _ask(self) -> None:
        self._loop.call_soon_threadsafe(self._turns.put_nowait, False)

    def give(self, assignment: Assignment) -> None:
        self._assignments.append(assignment)
        self._loop.call_soon_threadsafe(self._turns.put_nowait, True)

    def stop(self) -> list[Assignment]:
        # Not in the loop, which a handler may keep from going on.
        assignments: list[Assignment] = []
        with suppress(IndexError):
            while True:
                assignments.append(self._assignments.popleft())
        return assignments

    def abandon(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [consumer.cancel() for consumer in self._calling])

    def close(self, timeout: float) -> None:
        """What is left ends with the loop."""

    def _start(self) -> None:
        consumer = self._loop.create_task(self._consume(), name=f"consumer of {self.handler.queue}")
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumers.discard)

    async def _consume(self) -> None:
        consumer = asyncio.current_task()
        assert consumer is not None, "it runs in one"
        while not self._goes():
            if await self._turns.get() and self._assignments:  # if none is left, it was taken back
                assignment = self._assignments.popleft()
                if self._told.begin(assignment):
                    self._calling.add(consumer)
                    self._told.end(assignment, await self._outcomes(assignment))
                    self._calling.discard(consumer)
                    await _forget_cancellations(consumer)

    async def _outcomes(self, assignment: Assignment) -> Sequence[Outcome]:
        try:
            return await self._call(assignment)
        except BaseException as error:
            return self.failed(assignment, error)

    async def _call(self, assignment: Assignment) -> Sequence[Outcome]:
        with processing(self.handler.queue, assignment.claims):
            try:
                async with asyncio.timeout(self.handler.timeout) as limit:
                    result = await self.handler.function(self.argument(assignment))
            except TimeoutError as error:
                if limit.expired():
                    raise TimedOut().with_traceback(error.__traceback__) from None
                raise
            if limit.expired():
                raise TimedOut  # the handler has caught the cancellation
        return self.outcomes(assignment, result)


async def _forget_cancellations(consumer: asyncio.Task[Any]) -> None:
    """Those of a handler that has cancelled the task it runs in: it was abandoned, or did so itself."""
    if consumer.cancelling():
        while consumer.cancelling():
            consumer.uncancel()
        with suppress(asyncio.CancelledError):  # of one that has not arrived yet
            await asyncio.sleep(0)
