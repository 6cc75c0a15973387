"""A worker runs the handlers of queues, in consumers that start when messages arrive and retire when none are left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, TypeVar

from tablequeue.consumer import Consumer
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.model.pacing import Duration
from tablequeue.verbs.context import count, seconds
from tablequeue.worker.balance import TURN, desired, share, startable
from tablequeue.worker.cancellations import Cancellations
from tablequeue.worker.child import Address
from tablequeue.worker.completer import Completer
from tablequeue.worker.drain import Drain
from tablequeue.worker.ending import endings
from tablequeue.worker.fetcher import Fetcher, Load
from tablequeue.worker.handler import Handler
from tablequeue.worker.heartbeat import Heartbeat
from tablequeue.worker.outcome import Retry
from tablequeue.worker.pool import ThreadPool
from tablequeue.worker.processes import ProcessPool
from tablequeue.worker.schedule import Schedule, Scheduler
from tablequeue.worker.signals import stop_on_signals
from tablequeue.worker.tasks import Loop, TaskPool

logger = logging.getLogger("tablequeue.worker")

F = TypeVar("F", bound=Callable[..., Any])

# Seconds between two adjustments of the number of consumers, while there is anything to do.
TICK = 0.05
# Seconds that the last completions may take when the worker stops, in addition to the shutdown time-out.
CLOSE_TIMEOUT = 10.0


class Worker:
    """Handlers of queues, and how many consumers may run them.

    minimum            number of consumers that each queue keeps while it is empty.
    maximum            greatest number of consumers of all queues together.
    shutdown_timeout   how long handlers have to end after `stop`: seconds, or a timedelta.
    longest_pause      longest time between two polls of a queue if no wake-up arrives: seconds, or a timedelta;
                       None: as long as the engine's notifier allows (docs/workers.md).

    A worker opens no connection before `run`, so a module that defines one can be imported anywhere.
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
        self._fetching: set[Fetcher] = set()
        """The fetchers that have not ended. A thread is alive for a moment after it has reported its end."""
        self._vital: Sequence[Thread] = ()
        self._stopping = Event()
        self._tick = Event()
        self._running = Lock()
        self._balancing = Lock()
        self._balanced = False
        """Whether the numbers of consumers follow the load; not while the worker shuts down."""
        self._failure: Exception | None = None

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
        """Make the decorated function the handler of that queue. The options are the fields of `Handler`.

        The decorator returns the function unchanged.
        """
        if not isinstance(queue, str):  # of a bare @worker.handler, the function
            raise BadInput(
                f"The queue of a handler is {getattr(queue, '__qualname__', queue)!r}, which is no name.",
                'Give the name of the queue: @worker.handler("emails").',
            )

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
        """Push `payload` to that queue at the times of `cron`, once however many workers run; see `Schedule`.

        The default name consists of the queue, the expression and the zone. Two schedules with the same default name
        need names.
        """
        schedule = Schedule(name or f"{queue} {cron} {zone}", queue, cron, payload, zone, options)
        if schedule.name in {other.name for other in self.schedules}:
            raise BadInput(f"There is a schedule {schedule.name!r} already.", "Give each a name of its own.")
        self.schedules.append(schedule)

    # -- running -----------------------------------------------------------------------------------------------------

    def run(self, database: Database, *, drain: bool = False) -> Mapping[str, int]:
        """Run handlers until `stop`, SIGTERM or SIGINT; with `drain`, until nothing is ready in any of the queues.

        Then running handlers end, and messages that none has begun are released. Returns the number of messages by
        outcome: `completed`, `snoozed`, or the state after a failure. Handlers that still run after the shutdown
        time-out have failed, and their messages are ready at once for another worker. A second signal ends the process
        at once. Then, as after SIGKILL, the messages that it held come back when their leases expire.

        Raises, after it has shut down, an error of the database that a retry cannot solve, such as `QueueNotFound`, and
        `HandlerFailed` if the processes of a handler cannot be started.
        """
        if not isinstance(database, Database):
            raise BadInput(
                f"A worker runs on a Database of tablequeue.connect, and was given {type(database).__name__}.",
                "Give it one, in a thread of its own beside an event loop: its handlers may be async too.",
            )
        if not self.handlers and not self.schedules:
            raise BadInput("The worker has no handler.", "Name a queue for it: @worker.handler(queue).")
        if self.minimum * len(self.handlers) > self.maximum:
            raise BadInput(
                f"{len(self.handlers)} queues with at least {self.minimum} consumers are more than {self.maximum}.",
                "Raise the maximum, or lower the minimum.",
            )
        if not self._running.acquire(blocking=False):
            raise BadInput("The worker is running already.", "Make another one, or stop it first.")
        try:
            return self._run(database, drain)
        finally:
            self._running.release()

    def stop(self) -> None:
        """Shut down gracefully: the `run` that is under way, or else the next one. Any thread may call this."""
        self._stopping.set()
        self._tick.set()

    @property
    def consumers(self) -> Mapping[str, int]:
        """The number of consumers of each queue at this moment."""
        return dict.fromkeys(self.handlers, 0) | {fetcher.queue.name: fetcher.consumers for fetcher in self._fetchers}

    @property
    def loads(self) -> Sequence[Load]:
        """The messages that the worker holds of each queue at this moment."""
        return [fetcher.load() for fetcher in self._fetchers]

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called, or a signal has come, and `run` has not returned."""
        return self._stopping.is_set()

    @property
    def alive(self) -> bool:
        """Whether the threads that finish messages and extend leases are running."""
        return all(thread.is_alive() for thread in self._vital)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, database: Database, drain: bool) -> Mapping[str, int]:
        self._failure = None
        self.abandoned, self._balanced = False, True
        queues = [database.consumer(name) for name in self.handlers]  # raises before anything is started
        completer = Completer()
        loop = Loop() if any(handler.is_async for handler in self.handlers.values()) else None
        shared_drain = Drain() if drain else None
        self._fetchers = [self._fetcher(database, queue, completer, loop, shared_drain) for queue in queues]
        heartbeat = Heartbeat(self._fetchers)
        helpers: list[Heartbeat | Cancellations] = [heartbeat, Cancellations(self._fetchers)]
        self._vital = completer.thread, heartbeat.thread
        scheduler = Scheduler(database, [] if drain else self.schedules)
        threads = [Thread(target=self._fetch, args=(fetcher,), daemon=True) for fetcher in self._fetchers]
        with stop_on_signals(self.stop, self._kill):
            self._fetching = set(self._fetchers)
            self._say_what_runs([] if drain else self.schedules)
            for thread in threads:
                thread.start()
            self._balance_until_over(drain)
            self._shut_down(threads, completer, helpers, scheduler, loop)
        self._stopping.clear()
        if self._failure is not None:
            raise self._failure
        return dict(completer.counts)

    def _say_what_runs(self, schedules: Sequence[Schedule]) -> None:
        running = [f"{each.queue.name} (at most {each.maximum} consumers)" for each in self._fetchers]
        running += [f"{schedule.name} (pushes to {schedule.queue})" for schedule in schedules]
        logger.info("started: %s", ", ".join(running))

    def _fetcher(
        self, database: Database, queue: Consumer, completer: Completer, loop: Loop | None, drain: Drain | None
    ) -> Fetcher:
        handler = self.handlers[queue.name]
        maximum = min(handler.consumers or self.maximum, self.maximum)
        minimum = min(self.minimum, maximum)
        fetcher = Fetcher(
            queue, handler, minimum, maximum, self.longest_pause, self._on_popped, completer.put, self._fail, drain
        )
        if handler.is_async:
            assert loop is not None, "_run makes one for async handlers"
            fetcher.pool = TaskPool(handler, fetcher, loop)
        elif handler.processes:
            fetcher.pool = ProcessPool(handler, fetcher, Address.of(database, queue))
        else:
            fetcher.pool = ThreadPool(handler, fetcher)
        if drain is not None:
            drain.fetchers.append(fetcher)
        return fetcher

    def _fetch(self, fetcher: Fetcher) -> None:
        try:
            fetcher.run()
        except Exception as error:
            self._fail(error)
        finally:
            self._fetching.discard(fetcher)
            self._tick.set()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.stop()

    def _on_popped(self) -> None:
        """Balance at once if a queue has no consumer: its first message does not wait for the next tick."""
        if any(not fetcher.consumers for fetcher in self._fetchers):
            self._balance()
        self._tick.set()

    def _balance(self) -> None:
        with self._balancing:
            if not self._balanced:
                return
            demand = {fetcher.queue.name: desired(fetcher.snapshot()) for fetcher in self._fetchers}
            granted = share(demand, self.maximum, int(monotonic() / TURN))
            alive = {fetcher.queue.name: fetcher.pool.alive for fetcher in self._fetchers}
            numbers = startable(granted, alive, self.maximum)
            for fetcher in self._fetchers:
                before, now = fetcher.consumers, numbers[fetcher.queue.name]
                fetcher.set_consumers(now)
                if now != before:
                    logger.debug("%s: %d consumers after %d", fetcher.queue.name, now, before)

    def _balance_until_over(self, drain: bool) -> None:
        """Adjust the numbers of consumers until `stop`, or until all queues are drained. Sleeps while all are idle."""
        only_schedules = not self._fetchers and not drain
        while not self._stopping.is_set() and (only_schedules or self._fetching):
            self._balance()
            idle = all(fetcher.is_idle() for fetcher in self._fetchers)
            self._tick.wait(None if idle else TICK)
            self._tick.clear()

    def _shut_down(
        self,
        threads: list[Thread],
        completer: Completer,
        helpers: Sequence[Heartbeat | Cancellations],
        scheduler: Scheduler,
        loop: Loop | None,
    ) -> None:
        deadline = monotonic() + self.shutdown_timeout
        scheduler.stop()
        with self._balancing:
            self._balanced = False
        for fetcher in self._fetchers:
            fetcher.stop()
        if self._stopping.is_set():
            logger.info("stopping: %d calls are running", sum(len(fetcher.running()) for fetcher in self._fetchers))
        for thread in threads:
            thread.join(max(0, deadline - monotonic()))
        for fetcher in self._fetchers:
            if not fetcher.await_consumers(deadline):
                self._abandon(fetcher, completer)
        self._vital = ()
        completer.close(CLOSE_TIMEOUT)
        for helper in helpers:
            helper.close(CLOSE_TIMEOUT)
        scheduler.close(CLOSE_TIMEOUT)
        for fetcher in self._fetchers:
            fetcher.set_consumers(0)
            fetcher.pool.close(CLOSE_TIMEOUT)
        if loop is not None:
            loop.close(CLOSE_TIMEOUT)

    def _abandon(self, fetcher: Fetcher, completer: Completer) -> None:
        """Fail the messages of handlers that have not ended."""
        for assignment in fetcher.abandon():
            self.abandoned = True
            logger.error("%s: a handler has not ended within the shutdown time-out.", fetcher.queue.name)
            failed = [Retry(0, "the worker stopped before the handler ended")] * len(assignment.claims)
            completer.put(fetcher, assignment, endings(fetcher.queue.definition, assignment, failed))

    def _kill(self) -> None:
        for fetcher in self._fetchers:
            fetcher.pool.abandon()
