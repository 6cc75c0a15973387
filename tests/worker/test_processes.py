"""Consumers in processes of their own: they start, end and crash without harm to messages."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Backoff, Database, Delivery, Queue
from tablequeue.errors import BadInput, HandlerFailed
from tablequeue.model import pacing
from tablequeue.model.payload import DEEPEST
from tablequeue.worker import Handler, Worker, child, processes
from tests.servers import Place, only
from tests.support import counts, found, refuses
from tests.worker import reluctant
from tests.worker.support import PATIENCE, until, working

# The kind of consumers does not depend on the engine.
pytestmark = only("sqlite")

Trouble = Callable[[str], None]


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", lease=2, backoff=Backoff(base=500, cap=500))


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trouble:
    monkeypatch.setattr(pacing, "BACKOFF", (0.001, 0.01))
    monkeypatch.setenv(reluctant.FOLDER, str(tmp_path))
    return lambda word: monkeypatch.setenv(reluctant.TROUBLE, word)


def of(function: Any = reluctant.handle, **options: Any) -> Worker:
    worker = Worker(minimum=options.pop("minimum", 0), maximum=2, shutdown_timeout=PATIENCE)
    worker.add(Handler("work", function, processes=True, **options))
    return worker


def nobody_is_left() -> bool:
    return not multiprocessing.active_children()


def check_untouched(queue: Queue, n: int = 3) -> None:
    assert counts(queue) == {"ready": n}
    assert {(message.attempts, message.errors) for message in queue.peek()} == {(0, ())}
    assert nobody_is_left()


def test_the_start_does_not_count_as_time_of_the_handler(
    db: Database, queue: Queue, trouble: Trouble, tmp_path: Path
) -> None:
    """The message that waits for the start is held, for longer than its lease."""
    trouble("wait")
    id = queue.push("x")
    with working(of(timeout=0.2), db, drain=True):
        until((tmp_path / "importing").exists, "a process starts")
        popped_at = found(queue, id).popped_at
        assert popped_at
        late = popped_at + timedelta(seconds=2 * queue.definition.lease)
        until(lambda: (found(queue, id).lease_until or popped_at) > late, "the lease goes on")
        (tmp_path / "go").touch()
        until(lambda: counts(queue) == {"finished": 1}, "it is handled")
    assert [(message.attempts, message.errors) for message in queue.history()] == [(1, ())]


REFUSALS = {
    "no module": "ModuleNotFoundError: No module named 'no_such_module'.",
    "raise": "ValueError: of the module.",
    "exit": "SystemExit: 3.",
    "die": "ended with exit code 9 before it was ready.",
    "wait": "was not ready within 0.2 s.",
}


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("word", REFUSALS)
def test_a_process_that_cannot_start_ends_the_worker(
    db: Database, trouble: Trouble, word: str, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble(word)
    if word == "wait":
        monkeypatch.setattr(processes, "START_TIMEOUT", 0.2)
    queue = db.create_queue("work", delivery=delivery)
    queue.push_many([*"abc"])
    assert REFUSALS[word] in refuses(HandlerFailed, of().run, db, drain=True).cause
    check_untouched(queue)


def test_one_that_dies_at_the_start_is_replaced(db: Database, queue: Queue, trouble: Trouble) -> None:
    trouble("die once")
    queue.push_many([*"abc"])
    assert of().run(db, drain=True) == {"completed": 3}
    assert {message.attempts for message in queue.history()} == {1}


def test_stop_does_not_wait_for_a_start(db: Database, queue: Queue, trouble: Trouble, tmp_path: Path) -> None:
    trouble("wait")
    queue.push_many([*"abc"])
    worker = of()
    with working(worker, db):
        until((tmp_path / "importing").exists, "a process starts")
    assert not worker.abandoned
    check_untouched(queue)


def test_one_that_dies_with_nothing_to_do_costs_no_message(
    db: Database, queue: Queue, trouble: Trouble, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    with working(of(minimum=1, consumers=1), db):
        queue.push("a")
        until(lambda: counts(queue) == {"finished": 1}, "the process has nothing to do")
        first = int(called.read_text())
        os.kill(first, signal.SIGKILL)
        until(lambda: first not in [each.pid for each in multiprocessing.active_children()], "it is gone")
        queue.push("b")
        until(lambda: counts(queue) == {"finished": 2}, "another process has the next message")
    assert len({*called.read_text().split()}) == 2
    assert {(message.attempts, message.errors) for message in queue.history()} == {(1, ())}


@pytest.mark.parametrize(("word", "code"), [("kill", -9), ("leave a process", 7), ("close all", 0)])
def test_one_that_dies_in_the_middle_costs_its_message_alone(
    db: Database, queue: Queue, trouble: Trouble, word: str, code: int
) -> None:
    id = queue.push(word)
    queue.push_many([*"ab"])
    assert of(consumers=1).run(db, drain=True) == {"completed": 2, "scheduled": 1}
    assert [one.error for one in found(queue, id).errors] == [f"the process of the handler ended with exit code {code}"]
    assert nobody_is_left()


def test_threads_that_a_handler_leaves_keep_no_process_alive(
    db: Database, queue: Queue, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble("thread")
    monkeypatch.setattr(child, "END_TIMEOUT", 0.1)
    queue.push("x")
    assert of().run(db, drain=True) == {"completed": 1}
    assert nobody_is_left()


def test_what_cannot_be_sent_between_processes(db: Database, queue: Queue, trouble: Trouble) -> None:
    deep: Any = []
    for _ in range(DEEPEST - 1):
        deep = [deep]
    queue.push(deep)
    odd = queue.push("odd")
    assert of().run(db, drain=True) == {"completed": 1, "scheduled": 1}
    assert "ValueError: odd" in found(queue, odd).errors[0].error
    assert [message.payload for message in queue.history()] == [deep]


def test_a_handler_that_another_process_would_not_find(db: Database, queue: Queue) -> None:
    queue.push_many([*"abc"])
    refuses(BadInput, of(reluctant.hidden).run, db, drain=True)
    check_untouched(queue)


def test_a_script_that_runs_its_worker_when_it_is_imported(place: Place, queue: Queue, tmp_path: Path) -> None:
    queue.push_many([*"abc"])
    script = tmp_path / "script.py"
    script.write_text(f"""
import tablequeue
from tablequeue.worker import Worker

worker = Worker(maximum=1)

@worker.handler("work", processes=True)
def handle(message): ...

worker.run(tablequeue.connect({place.url!r}), drain=True)
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert "`if __name__ == '__main__':`" in done.stderr
    assert "before it was ready" in done.stderr.strip().rpartition("\n")[2]
    check_untouched(queue)
