"""Writers to one SQLite database take turns. One that is suspended in its turn blocks the others only for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import tablequeue
from tablequeue import Queue
from tablequeue.engines.sqlite import connection
from tablequeue.engines.sqlite.turn import Turn, TurnNotHad
from tablequeue.errors import Locked
from tests.crowd import PATIENCE
from tests.support import counts, refuses

# Takes the turn, and also SQLite's lock if it writes.
HOLD = """
import os, sys, sqlite3
from tablequeue.engines.sqlite.turn import Turn
path, writes = sys.argv[1:]
database = sqlite3.connect(path, isolation_level=None)
def work():
    if writes == "True":
        database.execute("begin immediate")
    print("held", flush=True)
    sys.stdin.readline()
    if writes == "True":
        database.execute("commit")
Turn(path).within(60, work)
"""


@contextmanager
def stopped(path: Path, writes: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that is suspended in its turn, and continues after the block."""
    program = [sys.executable, "-c", HOLD, str(path), str(writes)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            yield process
        finally:
            os.kill(process.pid, signal.SIGCONT)
            process.stdin.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queues.db"


@pytest.fixture
def queue(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(connection, "PATIENCE", 0.05)
    with tablequeue.connect(f"sqlite:///{path}?timeout=0.05") as database:
        yield database.create_queue("work")


def test_a_writer_that_is_stopped_is_named(queue: Queue, path: Path) -> None:
    with stopped(path, writes=True) as process:
        error = refuses(Locked, queue.push, "x")
        assert f"{process.pid}, which is stopped," in error.cause
    # Until it has continued, and its turn is over.
    with tablequeue.connect(f"sqlite:///{path}") as database:
        database.queue("work").push("y")
    assert counts(queue) == {"ready": 1}
    queue.push("z")


def test_a_process_suspended_before_its_write_blocks_nobody(queue: Queue, path: Path) -> None:
    with stopped(path, writes=False):
        queue.push("x")
        message = queue.pop()
        assert message is not None
        message.complete()
    queue.push("y")
    assert counts(queue) == {"finished": 1, "ready": 1}


def test_a_turn_that_was_given_up_is_passed_on(path: Path) -> None:
    """A call that gave up still gets the lock later, and must not keep it."""
    first, impatient, last = (Turn(f"{path}") for _ in range(3))

    def give_up() -> None:
        with pytest.raises(TurnNotHad):
            impatient.within(0.01, lambda: None)

    first.within(PATIENCE, give_up)
    assert last.within(PATIENCE, lambda: "had") == "had"
    assert impatient.within(PATIENCE, lambda: "had too") == "had too"
    for turn in (first, impatient, last):
        turn.close()


def test_turns_are_one_after_the_other(path: Path) -> None:
    inside: list[int] = []

    def work(number: int) -> None:
        inside.append(number)
        assert inside == [number]
        inside.remove(number)

    def take_turns(number: int) -> None:
        turn = Turn(f"{path}")
        for _ in range(200):
            turn.within(PATIENCE, lambda: work(number))
        turn.close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(take_turns, range(8)))


def test_an_error_of_the_work_is_raised_and_gives_the_turn_back(path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        for _ in range(2):  # at once, and after waiting
            turn, other = Turn(f"{path}"), Turn(f"{path}")
            refused = other.within(PATIENCE, lambda turn=turn: threads.submit(turn.within, PATIENCE, lambda: 1 / 0))  # type: ignore[misc]
            assert isinstance(refused.exception(PATIENCE), ZeroDivisionError)
            with pytest.raises(ZeroDivisionError):
                turn.within(PATIENCE, lambda: 1 / 0)
            assert other.within(PATIENCE, lambda: "had") == "had"
            turn.close()
            other.close()
