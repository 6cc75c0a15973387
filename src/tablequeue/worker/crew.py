"""The readers of a queue: each takes one piece of work after the other, calls the handler, and reports."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread, Timer, get_ident
from time import monotonic, sleep
from typing import Any

from tablequeue.message import Claim
from tablequeue.telemetry import processing
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome, Retry, outcome_of, outcomes_of


class TimedOut(BaseException):
    """Raised in a handler when its time is over. No Exception: a handler that goes on after any error is not to."""

    def __str__(self) -> str:
        return "the handler took longer than its time-out"


@dataclass(eq=False, slots=True)
class Piece:
    """What one call of a handler works at. Times are of this process's monotonic clock."""

    claims: list[Claim]
    popped: float = field(default_factory=monotonic)
    held: float = field(default_factory=monotonic)
    """When its leases were last had or extended."""
    began: float | None = None
    """When a reader took it; None while it waits for one."""


Report = Callable[[Piece, Sequence[Outcome]], None]
Begin = Callable[[Piece], None]


class Crew(ABC):
    """Readers that are added and retire one by one. `begin` and `report` are called by the readers."""

    def __init__(self, handler: Handler, begin: Begin, report: Report) -> None:
        self.handler = handler
        self._begin = begin
        self._report = report

    @abstractmethod
    def add(self) -> None:
        """One reader more."""

    @abstractmethod
    def retire(self) -> None:
        """One reader less, when it has done what it has."""

    @abstractmethod
    def give(self, piece: Piece) -> None:
        """A piece of work for the reader that is free next."""

    @abstractmethod
    def take_back(self) -> list[Piece]:
        """The pieces that no reader has begun; they are not begun any more."""

    @abstractmethod
    def abandon(self) -> None:
        """End the calls that run, as far as that is possible."""

    def argument(self, piece: Piece) -> Any:
        """What the handler is called with."""
        return piece.claims[0] if self.handler.batch is None else piece.claims

    def outcomes(self, piece: Piece, result: Any) -> Sequence[Outcome]:
        """What the handler has said of each message."""
        if self.handler.batch is None:
            return [outcome_of(result)]
        return outcomes_of(result, len(piece.claims))

    @staticmethod
    def failed(piece: Piece, error: str | BaseException) -> Sequence[Outcome]:
        return [Retry(error=error)] * len(piece.claims)


class Threads(Crew):
    """Readers that are threads."""

    def __init__(self, handler: Handler, begin: Begin, report: Report) -> None:
        super().__init__(handler, begin, report)
        self._pieces: SimpleQueue[Piece | None] = SimpleQueue()

    def add(self) -> None:
        Thread(target=self._read, name=f"reader of {self.handler.queue}", daemon=True).start()

    def retire(self) -> None:
        self._pieces.put(None)

    def give(self, piece: Piece) -> None:
        self._pieces.put(piece)

    def take_back(self) -> list[Piece]:
        pieces: list[Piece] = []
        retiring = 0
        while True:
            try:
                piece = self._pieces.get_nowait()
            except Empty:
                break
            if piece is None:
                retiring += 1
            else:
                pieces.append(piece)
        for _ in range(retiring):
            self.retire()
        return pieces

    def abandon(self) -> None:
        """A thread cannot be ended."""

    def _read(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._begin(piece)
            try:
                outcomes = self._call(piece)
            except BaseException as error:  # a SystemExit of a handler is a failure of the message, not of the reader
                outcomes = self.failed(piece, error)
            self._report(piece, outcomes)

    def _call(self, piece: Piece) -> Sequence[Outcome]:
        seconds = self.handler.timeout
        with processing(self.handler.queue, piece.claims), nullcontext() if seconds is None else TimeLimit(seconds):
            result = self.handler.function(self.argument(piece))
        return self.outcomes(piece, result)


class TimeLimit:
    """Raises TimedOut in the thread of the block when its time is over: there, or nowhere."""

    def __init__(self, seconds: float) -> None:
        self._thread = get_ident()
        self._lock = Lock()
        self._ended = self._raised = False
        self._timer = Timer(seconds, self._interrupt)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: object, *exc: object) -> None:
        with self._lock:
            self._ended = True
        self._timer.cancel()
        while self._raised and kind is not TimedOut:
            sleep(0.001)  # it was raised and is on its way: it must not arrive later than here

    def _interrupt(self) -> None:
        with self._lock:
            if not self._ended:
                self._raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(TimedOut))
