"""A process that calls a handler: `Child` is its side in the worker, `serve` runs in the process. A pipe joins them."""

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

from tablequeue.consumer import Consumer
from tablequeue.database import Database, connect
from tablequeue.errors import BadInput, HandlerFailed, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.attempts import error_text
from tablequeue.model.message import PAYLOAD, Claim
from tablequeue.observe.telemetry import processing
from tablequeue.worker.ending import picklable
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome, Retry
from tablequeue.worker.pool import TimedOut

# Spawned, not forked: a fork would inherit locks that the threads of the worker hold.
_processes = multiprocessing.get_context("spawn")
# multiprocessing reaps ended processes at each start. If two threads reap at once, one of them misses the exit code.
_reaping = Lock()
# Seconds that an idle process may take to end.
END_TIMEOUT = 5.0
# Seconds between two checks whether a process is alive. Mostly the end of its pipe shows it, but a process that the
# handler has started may keep the pipe open.
CHECK_INTERVAL = 1.0
# Seconds that the exit code of a process may take to be known after the end of its pipe.
EXIT_TIMEOUT = 1.0


class Address(NamedTuple):
    """The arguments with which the process of a consumer calls `connect`."""

    url: str
    schema: str | None
    name: str

    @classmethod
    def of(cls, database: Database, queue: Consumer) -> Address:
        context = context_of(queue)
        return cls(database.engine.url.render_as_string(hide_password=False), context.engine.schema, context.who)


class ProcessEnded(Exception):
    """The process of a consumer ended in the middle of a handler."""


class DiedAtStart(HandlerFailed):
    """The process ended before it was ready, or was not ready in time. Another start may succeed."""


class Child:
    """One process, and the pipe to it. The process ends when its pipe ends, so also when the worker is killed."""

    def __init__(self, handler: bytes, queue: str, address: Address) -> None:
        self.ready = False
        """Whether the process has begun to wait for messages."""
        self.broken = False
        """Whether a call was not answered. Such a process is not used any more."""
        self._queue = queue
        self._pipe, theirs = _processes.Pipe()
        self._process = _processes.Process(
            target=serve, args=(handler, queue, address, theirs), name=f"consumer {queue}"
        )
        with _reaping:
            self._process.start()
        theirs.close()

    def await_ready(self, timeout: float) -> None:
        """Wait until the process can call the handler. Raises `DiedAtStart`, or the error that it reports."""
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
                f"A process of the handler of {self._queue!r} ended with exit code {self._await_exit(EXIT_TIMEOUT)} "
                "before it was ready.",
                "Its output says why; a script that runs a worker needs `if __name__ == '__main__':`.",
            ) from None
        if error is not None:
            raise error
        self.ready = True

    def is_usable(self) -> bool:
        """Whether the process waits for messages. It sends nothing unasked, so a readable pipe means that it ended."""
        return not (self.broken or self._pipe.poll() or self._exit_code() is not None)

    def call(self, claims: Sequence[Claim], timeout: float | None) -> Sequence[Outcome]:
        """Call the handler, and return its outcomes.

        Raises `TimedOut` after killing the process, or `ProcessEnded` if it has ended.
        """
        self.broken = True
        try:
            # The stored rows: pickle may not support the decoded payload.
            self._pipe.send([(claim.row, claim.token) for claim in claims])
            outcomes: Sequence[Outcome] = self._answer(timeout)
        except TimeoutError:
            self.kill()
            raise TimedOut from None
        except (EOFError, OSError):
            raise ProcessEnded(
                f"the process of the handler ended with exit code {self._await_exit(EXIT_TIMEOUT)}"
            ) from None
        self.broken = False
        return outcomes

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Let the process end, and kill it if that takes too long."""
        self._pipe.close()
        if self._await_exit(END_TIMEOUT) is None:
            self.kill()
            self._await_exit(END_TIMEOUT)

    # -- private -----------------------------------------------------------------------------------------------------

    def _answer(self, timeout: float | None) -> Any:
        """Return what the process sends next. Raises `TimeoutError`, or `EOFError` or `OSError` if it has ended."""
        end = float("inf") if timeout is None else monotonic() + timeout
        while not self._pipe.poll(max(0, min(CHECK_INTERVAL, end - monotonic()))):
            if self._exit_code() is not None and not self._pipe.poll():
                raise EOFError
            if monotonic() >= end:
                raise TimeoutError
        return self._pipe.recv()

    def _exit_code(self) -> int | None:
        with _reaping:
            return self._process.exitcode

    def _await_exit(self, timeout: float) -> int | None:
        """Return the exit code; None if the process has not ended in time."""
        end = monotonic() + timeout
        while (code := self._exit_code()) is None and monotonic() < end:
            sleep(0.002)
        return code


def pickled(handler: Handler) -> bytes:
    """Pickle the handler, by its module and name. Raises `BadInput` if another process cannot find it by these."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself checks
        raise BadInput(
            f"A process of the handler of {handler.queue!r} runs the worker again when it imports the script.",
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
    """Run in the process: report that it is ready, then call the handler for the messages that the pipe brings."""
    for number in (SIGINT, SIGTERM):  # a terminal and systemd signal the whole group, but the worker decides
        signal(number, SIG_IGN)
    try:
        loaded: Handler = pickle.loads(handler)
        database = connect(address.url, schema=address.schema, name=address.name)
        served = database.consumer(queue)
    except TablequeueError as refusal:
        pipe.send(refusal)
        return
    except BaseException as error:
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        pipe.send(
            HandlerFailed(
                f"A process cannot import the handler of {queue!r}: {words}.",
                "Correct its module, so that a new process can import it.",
            )
        )
        return
    with database, suppress(EOFError, OSError):  # the worker has ended, or has closed the pipe
        pipe.send(None)
        while True:
            pipe.send(_outcomes(loaded, served, pipe.recv()))
    # Threads that the handler has started would keep the process alive.
    timer = Timer(END_TIMEOUT, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _outcomes(handler: Handler, queue: Consumer, parts: Sequence[tuple[Sequence[Any], str]]) -> Sequence[Outcome]:
    try:
        load = context_of(queue).codec.load
        claims = [Claim(queue, row, load(row[PAYLOAD]), token) for row, token in parts]
        with processing(handler.queue, claims):
            outcomes = handler.outcomes(handler.call(claims), len(claims))
        return [picklable(queue.definition, outcome) for outcome in outcomes]
    except BaseException as error:
        return [Retry(error=error_text(error))] * len(parts)
