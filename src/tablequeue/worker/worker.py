"""A worker: handlers of queues, run by readers that start when messages arrive and retire when they are gone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, TypeVar

from tablequeue.database import Database
from tablequeue.definition import Duration
from tablequeue.errors import BadInput
from tablequeue.operations.desk import count, seconds
from tablequeue.queue import Queue
from tablequeue.worker.balance import TURN, added, share, wanted
from tablequeue.worker.child import Address
from tablequeue.worker.crew import Threads
from tablequeue.worker.drain import Drain
from tablequeue.worker.ending import endings
from tablequeue.worker.finisher import Finisher
from tablequeue.worker.handler import Handler
from tablequeue.worker.keeper import Keeper
from tablequeue.worker.line import Line
from tablequeue.worker.outcome import Retry
from tablequeue.worker.processes import Processes
from tablequeue.worker.schedule import Clock, Schedule
from tablequeue.worker.signals import stopping
from tablequeue.worker.tasks import Loop, Tasks

logger = logging.getLogger("tablequeue.worker")

F = TypeVar("F", bound=Callable[..., Any])

# Seconds between two looks at the number of readers, while there is anything to do.
TICK = 0.05
# Seconds that the last completions may take when the worker stops, besides the shutdown time-out.
LAST_WORDS = 10.0


class Worker:
    """Handlers of queues, and how many readers may run them.

    minimum            readers that each queue keeps while nothing is there to do.
    maximum            readers of all queues together, at the most.
    shutdown_timeout   how long handlers have to end after `stop`: seconds, or a timedelta.
    longest_pause      the longest time between two looks at a queue, where wake-ups do not arrive: seconds, or a
                       timedelta; None: as the engine's bell allows (docs/activation.md).

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
        self._lines: list[Line] = []
        self._stopping = Event()
        self._tick = Event()
        self._balancing = Lock()
        self._running = Lock()
        self._ending = False
        """Whether the number of readers is not balanced any more."""
        self._refusal: Exception | None = None

    # -- defining --------------------------------------------------------------------------------------------------

    def handler(
        self,
        queue: str,
        *,
        readers: int | None = None,
        batch: int | None = None,
        timeout: Duration | None = None,
        processes: bool = False,
    ) -> Callable[[F], F]:
        """The function below works at that queue; the options are those of `Handler`. It stays as it is."""

        def decorate(function: F) -> F:
            limit = None if timeout is None else seconds(timeout, "timeout")
            self.add(Handler(queue, function, readers, batch, limit, processes))
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
                f"{len(self.handlers)} queues with at least {self.minimum} readers are more than {self.maximum}.",
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
    def readers(self) -> Mapping[str, int]:
        """How many readers each queue has at this moment."""
        return dict.fromkeys(self.handlers, 0) | {line.queue.name: line.readers for line in self._lines}

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, database: Database, drain: bool) -> Mapping[str, int]:
        self._refusal = None
        self.abandoned = self._ending = False
        queues = [database.queue(name) for name in self.handlers]  # refused before anything is started
        finisher = Finisher()
        loop = Loop() if any(handler.is_async for handler in self.handlers.values()) else None
        tide = Drain() if drain else None
        self._lines = [self._line(database, queue, finisher, loop, tide) for queue in queues]
        keeper = Keeper(self._lines)
        clock = Clock(database, [] if drain else self.schedules)
        poppers = [Thread(target=self._pop, args=(line,), daemon=True) for line in self._lines]
        with stopping(self.stop, self._kill):
            for popper in poppers:
                popper.start()
            self._keep_balance(poppers, drain)
            self._wind_up(poppers, finisher, keeper, clock, loop)
        self._stopping.clear()
        if self._refusal is not None:
            raise self._refusal
        return dict(finisher.counts)

    def _line(
        self, database: Database, queue: Queue, finisher: Finisher, loop: Loop | None, drain: Drain | None
    ) -> Line:
        handler = self.handlers[queue.name]
        maximum = min(handler.readers or self.maximum, self.maximum)
        minimum = min(self.minimum, maximum)
        line = Line(queue, handler, minimum, maximum, self.longest_pause, self._look, finisher.put, self._refuse, drain)
        if handler.is_async:
            assert loop is not None, "made for the async handlers"
            line.crew = Tasks(handler, line, loop)
        elif handler.processes:
            line.crew = Processes(handler, line, Address.of(database, queue))
        else:
            line.crew = Threads(handler, line)
        if drain is not None:
            drain.lines.append(line)
        return line

    def _pop(self, line: Line) -> None:
        try:
            line.run()
        except Exception as refusal:
            self._refuse(refusal)
        finally:
            self._tick.set()

    def _refuse(self, refusal: Exception) -> None:
        self._refusal = self._refusal or refusal
        self.stop()

    def _look(self) -> None:
        """Something was popped: nobody waits for the next tick to get the first reader."""
        if any(not line.readers for line in self._lines):
            self._balance()
        self._tick.set()

    def _balance(self) -> None:
        with self._balancing:
            if self._ending:
                return
            want = {line.queue.name: wanted(line.sight()) for line in self._lines}
            granted = share(want, self.maximum, int(monotonic() / TURN))
            numbers = added(granted, {line.queue.name: line.crew.readers for line in self._lines}, self.maximum)
            for line in self._lines:
                before, now = line.readers, numbers[line.queue.name]
                line.set_readers(now)
                if now != before:
                    logger.debug("%s: %d readers after %d", line.queue.name, now, before)

    def _keep_balance(self, poppers: list[Thread], drain: bool) -> None:
        """Until `stop`, or until all queues are drained. Asleep while there is nothing to do."""
        for_ever = not poppers and not drain  # there are schedules alone
        while not self._stopping.is_set() and (for_ever or any(popper.is_alive() for popper in poppers)):
            self._balance()
            quiet = all(line.is_quiet() for line in self._lines)
            self._tick.wait(None if quiet else TICK)
            self._tick.clear()

    def _wind_up(
        self, poppers: list[Thread], finisher: Finisher, keeper: Keeper, clock: Clock, loop: Loop | None
    ) -> None:
        deadline = monotonic() + self.shutdown_timeout
        clock.stop()
        with self._balancing:
            self._ending = True
        for line in self._lines:
            line.stop()
        if self._stopping.is_set():
            logger.info("stopping: %d calls are in hand", sum(len(line.running()) for line in self._lines))
        for popper in poppers:
            popper.join(max(0, deadline - monotonic()))
        for line in self._lines:
            if not line.await_readers(deadline):
                self._give_up(line, finisher)
        finisher.close(LAST_WORDS)
        keeper.close(LAST_WORDS)
        clock.close(LAST_WORDS)
        for line in self._lines:
            line.set_readers(0)
            line.crew.close(LAST_WORDS)
        if loop is not None:
            loop.close(LAST_WORDS)

    def _give_up(self, line: Line, finisher: Finisher) -> None:
        """Of handlers that have not ended: their messages have failed."""
        for piece in line.abandon():
            self.abandoned = True
            logger.error("%s: a handler has not ended within the shutdown time-out.", line.queue.name)
            failed = [Retry(0, "the worker stopped before the handler ended")] * len(piece.claims)
            finisher.put(line, piece, endings(line.queue.definition, piece, failed))

    def _kill(self) -> None:
        for line in self._lines:
            line.crew.abandon()
