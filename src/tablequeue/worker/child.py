"""A process that calls a handler, seen from the worker and from within. A pipe is between the two."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from signal import SIG_IGN, SIGINT, SIGTERM, signal
from threading import Lock, Timer
from time import monotonic, sleep
from typing import Any, NamedTuple

from tablequeue.database import Database, connect
from tablequeue.errors import BadInput, HandlerFailed, TablequeueError
from tablequeue.message import PAYLOAD, Claim
from tablequeue.queue import Queue
from tablequeue.telemetry import processing
from tablequeue.worker.ending import plain, words_of
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome, Retry, outcome_of, outcomes_of
from tablequeue.worker.pool import TimedOut

# Fresh ones: a fork would take over locks that the threads of the worker hold.
_processes = multiprocessing.get_context("spawn")
# multiprocessing looks for ended processes at each start: of two that look at once, one misses the exit code.
_looking = Lock()
# Seconds that a process may take to end when it has nothing to do.
END_TIMEOUT = 5.0
# Seconds between two looks whether a process still lives. Its pipe mostly tells, but a process of its own may have it.
LOOK = 1.0


class Address(NamedTuple):
    """How a consumer's process finds the database: by the arguments of `connect`."""

    url: str
    schema: str | None
    name: str

    @classmethod
    def of(cls, database: Database, queue: Queue) -> Address:
        context = queue.context
        return cls(database.engine.url.render_as_string(hide_password=False), context.engine.schema, context.who)


class ProcessEnded(Exception):
    """The process of a consumer ended in the middle of a handler."""


class DiedAtStart(HandlerFailed):
    """The process ended, or was not ready in time; another one may be."""


class Child:
    """One process, and the pipe to it. It ends when the pipe does: also when the worker is killed."""

    def __init__(self, handler: bytes, queue: str, address: Address) -> None:
        self.ready = False
        """Whether it has begun to wait for messages."""
        self.broken = False
        """Whether a call has not been answered: it is not to be used any more."""
        self._queue = queue
        self._pipe, theirs = _processes.Pipe()
        self._process = _processes.Process(
            target=serve, args=(handler, queue, address, theirs), name=f"consumer {queue}"
        )
        with _looking:
            self._process.start()
        theirs.close()

    def await_ready(self, timeout: float) -> None:
        """Wait until it can call the handler. `DiedAtStart`, or the error for which it cannot."""
        try:
            error: TablequeueError | None = self._answer(timeout)
        except TimeoutError:
            self.kill()
            raise DiedAtStart(
                f"A process of the handler of {self._queue!r} was not ready within {timeout:g} s.",
                "Find out what the import of its module waits for.",
            ) from None
        except (EOFError, OSError):
            raise DiedAtStart(
                f"A process of the handler of {self._queue!r} ended with exit code {self._await_exit(LOOK)} before it "
                "was ready.",
                "What it wrote says why; a script that runs a worker needs `if __name__ == '__main__':`.",
            ) from None
        if error is not None:
            raise error
        self.ready = True

    def lives(self) -> bool:
        """Whether it waits for messages: it says nothing unasked, so that only an end is to be read."""
        return not (self.broken or self._pipe.poll() or self._exit_code() is not None)

    def call(self, claims: Sequence[Claim], timeout: float | None) -> Sequence[Outcome]:
        """The outcomes of the handler. `TimedOut` kills the process; `ProcessEnded` if it has ended."""
        self.broken = True
        try:
            # As they are stored: what a payload is made of, the pickler might not bear.
            self._pipe.send([(claim.row, claim.token) for claim in claims])
            outcomes: Sequence[Outcome] = self._answer(timeout)
        except TimeoutError:
            self.kill()
            raise TimedOut from None
        except (EOFError, OSError):
            raise ProcessEnded(f"the process of the handler ended with exit code {self._await_exit(LOOK)}") from None
        self.broken = False
        return outcomes

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """It ends, if it has not; it is killed when that takes too long."""
        self._pipe.close()
        if self._await_exit(END_TIMEOUT) is None:
            self.kill()
            self._await_exit(END_TIMEOUT)

    # -- private -----------------------------------------------------------------------------------------------------

    def _answer(self, timeout: float | None) -> Any:
        """What it says next. `TimeoutError`, or `EOFError` or `OSError` if it has ended."""
        end = float("inf") if timeout is None else monotonic() + timeout
        while not self._pipe.poll(max(0, min(LOOK, end - monotonic()))):
            if self._exit_code() is not None and not self._pipe.poll():
                raise EOFError
            if monotonic() >= end:
                raise TimeoutError
        return self._pipe.recv()

    def _exit_code(self) -> int | None:
        with _looking:
            return self._process.exitcode

    def _await_exit(self, timeout: float) -> int | None:
        """Its exit code; None if it has not ended."""
        end = monotonic() + timeout
        while (code := self._exit_code()) is None and monotonic() < end:
            sleep(0.002)
        return code


def dumped(handler: Handler) -> bytes:
    """What finds the handler in another process: its module and name. `BadInput` if these are not it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself looks
        raise BadInput(
            f"The worker is run by what a process of the handler of {handler.queue!r} imports.",
            "In a script, write `if __name__ == '__main__':` before it.",
        )
    try:
        return bytes(ForkingPickler.dumps(handler))
    except Exception as error:
        words = " ".join(f"{error}".split()).rstrip(".")
        raise BadInput(
            f"The handler of {handler.queue!r} cannot be found by another process: {words}.",
            "Define it in a module, by def, under its own name.",
        ) from None


def serve(handler: bytes, queue: str, address: Address, pipe: Connection) -> None:
    """What the process does: say that it is ready, then call the handler with what comes through the pipe."""
    for number in (SIGINT, SIGTERM):  # a terminal and systemd signal the whole group; the worker decides
        signal(number, SIG_IGN)
    try:
        loaded: Handler = pickle.loads(handler)
        database = connect(address.url, schema=address.schema, name=address.name)
        served = database.queue(queue)
    except TablequeueError as refusal:
        pipe.send(refusal)
        return
    except BaseException as error:
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        pipe.send(
            HandlerFailed(
                f"A process cannot import the handler of {queue!r}: {words}.",
                "Correct its module, or what that needs to be imported in a process of its own.",
            )
        )
        return
    with database, suppress(EOFError, OSError):  # when the worker has ended, or wants no more
        pipe.send(None)
        while True:
            pipe.send(_outcomes(loaded, served, pipe.recv()))
    # Threads that the handler has left would keep the process alive.
    timer = Timer(END_TIMEOUT, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _outcomes(handler: Handler, queue: Queue, parts: Sequence[tuple[Sequence[Any], str]]) -> Sequence[Outcome]:
    try:
        load = queue.context.codec.load
        claims = [Claim(queue, row, load(row[PAYLOAD]), token) for row, token in parts]
        with processing(handler.queue, claims):
            if handler.batch is None:
                outcomes: Sequence[Outcome] = [outcome_of(handler.function(claims[0]))]
            else:
                outcomes = outcomes_of(handler.function(claims), len(claims))
        return [plain(outcome) for outcome in outcomes]
    except BaseException as error:
        return [Retry(error=words_of(error))] * len(parts)
