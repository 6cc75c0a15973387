"""A worker: handlers of queues, run by consumers that start when messages arrive and retire when they are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, TypeVar

from tablequeue.database import Database
from tablequeue.definition import Duration
from tablequeue.errors import BadInput
from tablequeue.operations.context import count, seconds
from tablequeue.queue import Queue
from tablequeue.worker.balance import TURN, added, share, wanted
from tablequeue.worker.child import Address
from tablequeue.worker.completer import Completer
from tablequeue.worker.drain import Drain
from tablequeue.worker.ending import endings
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.handler import Handler
from tablequeue.worker.heartbeat import Heartbeat
from tablequeue.worker.outcome import Retry
from tablequeue.worker.pool import ThreadPool
from tablequeue.worker.processes import ProcessPool
from tablequeue.worker.schedule import Clock, Schedule
from tablequeue.worker.signals import stopping
from tablequeue.worker.tasks import Loop, TaskPool

logger = logging.getLogger("tablequeue.worker")

F = TypeVar("F", bound=Callable[..., Any])

# Seconds between two looks at the number of consumers, while there is anything to do.
TICK = 0.05
# Seconds that the last completions may take when the worker stops, besides the shutdown time-out.
LAST_WORDS = 10.0


class Worker:
    """Handlers of queues, and how many consumers may run them.

    minimum            consumers that each queue keeps while nothing is there to do.
    maximum            consumers of all queues together, at the most.
    shutdown_timeout   how long handlers have to end after `stop`: seconds, or a timedelta.
    longest_pause      the longest time between two looks at a queue, where wake-ups do not arrive: seconds, or a
                       timedelta; None: as the engine's notifier allows (docs/workers.md).

    It has no connection before `run`, so that a module can define it and be imported anywhere.
    """

    def __init__(
        self,
        *,
        minimum: int = 0,
        maximum: int = 8,
        shutdown_timeout: Duration = 30.0,
        longest_pause: Duration | None = None,
    ) -> None:
        self.minimum = minimum if minimum == 0 else count(minimum, "minimum")
        self.maximum = count(maximum, "maximum")
        self.shutdown_timeout = seconds(shutdown_timeout, "shutdown_timeout")
        self.longest_pause = None if longest_pause is None else seconds(longest_pause, "longest_pause")
        self.handlers: dict[str, Handler] = {}
        self.schedules: list[Schedule] = []
        self.abandoned = False
        """Whether handlers may still run after `run` has returned."""
        self._fetchers: list[Fetcher] = []
        self._stopping = Event()
        self._tick = Event()
        self._balancing = Lock()
        self._running = Lock()
        self._ending = False
        """Whether the number of consumers is not balanced any more."""
        self._refusal: Exception | None = None

    # -- defining --------------------------------------------------------------------------------------------------

    def handler(
        self,
        queue: str,
        *,
        consumers: int | None = None,
        batch: int | None = None,
        timeout: Duration | None = None,
        processes: bool = False,
    ) -> Callable[[F], F]:
        """The function below works at that queue; the options are those of `Handler`. It stays as it is."""

        def decorate(function: F) -> F:
            limit = None if timeout is None else seconds(timeout, "timeout")
            self.add(Handler(queue, function, consumers, batch, limit, processes))
            return function

        return decorate

    def add(self, handler: Handler) -> None:
        if handler.queue in self.handlers:
            raise BadInput(f"The queue {handler.queue!r} has a handler already.", "Give each queue one handler.")
        self.handlers[handler.queue] = handler

    def every(
        self,
        cron: str,
        queue: str,
        payload: Any,
        *,
        zone: str = "UTC",
        name: str | None = None,
        **options: Any,
    ) -> None:
        """Push `payload` to that queue when `cron` says so, once however many workers do; see `Schedule`.

        Without a `name` the queue and the expression are its name: two of the same need names.
        """
        schedule = Schedule(name or f"{queue} {cron} {zone}", queue, cron, payload, zone, options)
        if schedule.name in {other.name for other in self.schedules}:
            raise BadInput(f"There is a schedule {schedule.name!r} already.", "Give each a name of its own.")
        self.schedules.append(schedule)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, database: Database, *, drain: bool = False) -> Mapping[str, int]:
        """Work until `stop`, or SIGTERM, or SIGINT; to `drain`, until nothing is ready in any of the queues.

        Then handlers end, what they have not begun is given back, and the result says how many messages became what:
        `completed`, `snoozed`, or the state that a failure gave them. Handlers that still run after the shutdown
        time-out have failed, and their messages are ready at once for another worker. A second signal ends the
        process at once; so does SIGKILL: what it had in hand comes back when the leases end.

        Raises what the database refuses for good, as `QueueNotFound`, and `HandlerFailed` if the processes of a handler
        cannot start, after it has stopped.
        """
        if not self.handlers and not self.schedules:
            raise BadInput("The worker has no handler.", "Name a queue for it: @worker.handler(queue).")
        if self.minimum * len(self.handlers) > self.maximum:
            raise BadInput(
                f"{len(self.handlers)} queues with at least {self.minimum} consumers are more than {self.maximum}.",
                "Raise the maximum, or lower the minimum.",
            )
        if not self._running.acquire(blocking=False):
            raise BadInput("The worker is at work already.", "Make another one, or stop it first.")
        try:
            return self._run(database, drain)
        finally:
            self._running.release()

    def stop(self) -> None:
        """Have `run` end in good order, or the next one if none is under way. From any thread, a handler's too."""
        self._stopping.set()
        self._tick.set()

    @property
    def consumers(self) -> Mapping[str, int]:
        """How many consumers each queue has at this moment."""
        return dict.fromkeys(self.handlers, 0) | {fetcher.queue.name: fetcher.consumers for fetcher in self._fetchers}

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, database: Database, drain: bool) -> Mapping[str, int]:
        self._refusal = None
        self.abandoned = self._ending = False
        queues = [database.queue(name) for name in self.handlers]  # refused before anything is started
        completer = Completer()
        loop = Loop() if any(handler.is_async for handler in self.handlers.values()) else None
        tide = Drain() if drain else None
        self._fetchers = [self._fetcher(database, queue, completer, loop, tide) for queue in queues]
        heartbeat = Heartbeat(self._fetchers)
        clock = Clock(database, [] if drain else self.schedules)
        poppers = [Thread(target=self._pop, args=(fetcher,), daemon=True) for fetcher in self._fetchers]
        with stopping(self.stop, self._kill):
            for popper in poppers:
                popper.start()
            self._keep_balance(poppers, drain)
            self._wind_up(poppers, completer, heartbeat, clock, loop)
        self._stopping.clear()
        if self._refusal is not None:
            raise self._refusal
        return dict(completer.counts)

    def _fetcher(
        self, database: Database, queue: Queue, completer: Completer, loop: Loop | None, drain: Drain | None
    ) -> Fetcher:
        handler = self.handlers[queue.name]
        maximum = min(handler.consumers or self.maximum, self.maximum)
        minimum = min(self.minimum, maximum)
        fetcher = Fetcher(
            queue, handler, minimum, maximum, self.longest_pause, self._look, completer.put, self._refuse, drain
        )
        if handler.is_async:
            assert loop is not None, "made for the async handlers"
            fetcher.pool = TaskPool(handler, fetcher, loop)
        elif handler.processes:
            fetcher.pool = ProcessPool(handler, fetcher, Address.of(database, queue))
        else:
            fetcher.pool = ThreadPool(handler, fetcher)
        if drain is not None:
            drain.fetchers.append(fetcher)
        return fetcher

    def _pop(self, fetcher: Fetcher) -> None:
        try:
            fetcher.run()
        except Exception as refusal:
            self._refuse(refusal)
        finally:
            self._tick.set()

    def _refuse(self, refusal: Exception) -> None:
        self._refusal = self._refusal or refusal
        self.stop()

    def _look(self) -> None:
        """Something was popped: nobody waits for the next tick to get the first consumer."""
        if any(not fetcher.consumers for fetcher in self._fetchers):
            self._balance()
        self._tick.set()

    def _balance(self) -> None:
        with self._balancing:
            if self._ending:
                return
            want = {fetcher.queue.name: wanted(fetcher.sight()) for fetcher in self._fetchers}
            granted = share(want, self.maximum, int(monotonic() / TURN))
            numbers = added(
                granted, {fetcher.queue.name: fetcher.pool.consumers for fetcher in self._fetchers}, self.maximum
            )
            for fetcher in self._fetchers:
                before, now = fetcher.consumers, numbers[fetcher.queue.name]
                fetcher.set_consumers(now)
                if now != before:
                    logger.debug("%s: %d consumers after %d", fetcher.queue.name, now, before)

    def _keep_balance(self, poppers: list[Thread], drain: bool) -> None:
        """Until `stop`, or until all queues are drained. Asleep while there is nothing to do."""
        for_ever = not poppers and not drain  # there are schedules alone
        while not self._stopping.is_set() and (for_ever or any(popper.is_alive() for popper in poppers)):
            self._balance()
            quiet = all(fetcher.is_quiet() for fetcher in self._fetchers)
            self._tick.wait(None if quiet else TICK)
            self._tick.clear()

    def _wind_up(
        self, poppers: list[Thread], completer: Completer, heartbeat: Heartbeat, clock: Clock, loop: Loop | None
    ) -> None:
        deadline = monotonic() + self.shutdown_timeout
        clock.stop()
        with self._balancing:
            self._ending = True
        for fetcher in self._fetchers:
            fetcher.stop()
        if self._stopping.is_set():
            logger.info("stopping: %d calls are in hand", sum(len(fetcher.running()) for fetcher in self._fetchers))
        for popper in poppers:
            popper.join(max(0, deadline - monotonic()))
        for fetcher in self._fetchers:
            if not fetcher.await_consumers(deadline):
                self._give_up(fetcher, completer)
        completer.close(LAST_WORDS)
        heartbeat.close(LAST_WORDS)
        clock.close(LAST_WORDS)
        for fetcher in self._fetchers:
            fetcher.set_consumers(0)
            fetcher.pool.close(LAST_WORDS)
        if loop is not None:
            loop.close(LAST_WORDS)

    def _give_up(self, fetcher: Fetcher, completer: Completer) -> None:
        """Of handlers that have not ended: their messages have failed."""
        for assignment in fetcher.abandon():
            self.abandoned = True
            logger.error("%s: a handler has not ended within the shutdown time-out.", fetcher.queue.name)
            failed = [Retry(0, "the worker stopped before the handler ended")] * len(assignment.claims)
            completer.put(fetcher, assignment, endings(fetcher.queue.definition, assignment, failed))

    def _kill(self) -> None:
        for fetcher in self._fetchers:
            fetcher.pool.abandon()
