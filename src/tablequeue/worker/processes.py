"""Readers with a process each, for handlers whose work is all Python's, or that may take their process down."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from threading import Lock, local
from typing import Any, NamedTuple

from tablequeue.database import Database, connect
from tablequeue.message import Claim
from tablequeue.queue import Queue
from tablequeue.telemetry import processing
from tablequeue.worker.crew import Begin, Piece, Report, Threads, TimedOut
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import DeadLetter, Outcome, Retry, outcome_of, outcomes_of

# Fresh ones: a fork would take over locks that the threads of the worker hold.
_processes = multiprocessing.get_context("spawn")


class Address(NamedTuple):
    """How a reader's process finds the database: by the arguments of `connect`."""

    url: str
    schema: str | None
    name: str

    @classmethod
    def of(cls, database: Database, queue: Queue) -> Address:
        desk = queue._desk
        return cls(database.engine.url.render_as_string(hide_password=False), desk.engine.schema, desk.who)


class ProcessEnded(Exception):
    """The process of a reader ended in the middle of a handler."""


class Processes(Threads):
    """Threads that hold the messages and their leases, while a process each calls the handler."""

    def __init__(self, handler: Handler, begin: Begin, report: Report, address: Address) -> None:
        super().__init__(handler, begin, report)
        self._address = address
        self._own = local()
        self._lock = Lock()
        self._children: set[Child] = set()

    def abandon(self) -> None:
        with self._lock:
            for child in self._children:
                child.process.kill()

    def _read(self) -> None:
        self._own.child = None
        try:
            super()._read()
        finally:
            self._end_child()

    def _call(self, piece: Piece) -> Sequence[Outcome]:
        child: Child = self._own.child or self._start_child()
        try:
            return child.call(piece.claims, self.handler.timeout)
        except (TimedOut, ProcessEnded):
            self._end_child()
            raise

    def _start_child(self) -> Child:
        child = self._own.child = Child(self.handler, self._address)
        with self._lock:
            self._children.add(child)
        return child

    def _end_child(self) -> None:
        child: Child | None = self._own.child
        if child is not None:
            self._own.child = None
            child.close()
            with self._lock:
                self._children.discard(child)


class Child:
    """One process, and the pipe to it. It ends when the pipe does: also when the worker is killed."""

    def __init__(self, handler: Handler, address: Address) -> None:
        self._pipe, theirs = _processes.Pipe()
        self.process = _processes.Process(target=serve, args=(handler, address, theirs), name=f"reader {handler.queue}")
        self.process.start()
        theirs.close()

    def call(self, claims: Sequence[Claim], timeout: float | None) -> Sequence[Outcome]:
        """The outcomes of the handler. TimedOut kills the process; `ProcessEnded` if it has ended."""
        try:
            self._pipe.send([(claim._row, claim.payload, claim.token) for claim in claims])
            if not self._pipe.poll(timeout):
                self.process.kill()
                raise TimedOut
            answer: Sequence[Outcome] = self._pipe.recv()
            return answer
        except (EOFError, OSError):
            self.process.join()
            raise ProcessEnded(f"the process of the handler ended with exit code {self.process.exitcode}") from None

    def close(self) -> None:
        self._pipe.close()
        self.process.join()
        self.process.close()


def serve(handler: Handler, address: Address, pipe: Connection) -> None:
    """What the process does: call the handler with what comes through the pipe."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and systemd signal the whole group; the worker decides
        signal.signal(number, signal.SIG_IGN)
    with connect(address.url, schema=address.schema, name=address.name) as database:
        queue = database.queue(handler.queue)
        while True:
            try:
                parts: list[tuple[Any, Any, str]] = pipe.recv()
            except EOFError:
                return
            claims = [Claim(queue, *part) for part in parts]
            try:
                with processing(handler.queue, claims):
                    if handler.batch is None:
                        outcomes: Sequence[Outcome] = [outcome_of(handler.function(claims[0]))]
                    else:
                        outcomes = outcomes_of(handler.function(claims), len(claims))
            except BaseException as error:
                outcomes = [Retry(error=error)] * len(claims)
            pipe.send([_plain(outcome) for outcome in outcomes])


def _plain(outcome: Outcome) -> Outcome:
    """With the error in words: not every exception can be sent."""
    if isinstance(outcome, (Retry, DeadLetter)) and isinstance(outcome.error, BaseException):
        return replace(outcome, error="".join(traceback.format_exception(outcome.error)))
    return outcome
