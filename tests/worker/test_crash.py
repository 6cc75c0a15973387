"""Processes of `tablequeue work` that are ended by SIGKILL, by SIGTERM, or by a second signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tablequeue import Queue
from tests.servers import KINDS, Place
from tests.support import at, counts
from tests.worker.support import PATIENCE, until

ROOT = Path(__file__).parents[2]
MESSAGES = 6
CONSUMERS = {
    "threads": ["tests.worker.handlers:announce"],
    "tasks": ["tests.worker.handlers:announce_async"],
    "processes": ["tests.worker.handlers:announce", "--processes"],
}


@pytest.fixture
def queue(place: Place, tmp_path: Path) -> Queue:
    queue = place.open().create_queue("work", payload="text", history="keep")
    queue.push_many([f"{tmp_path}/{n}" for n in range(MESSAGES)])
    return queue


@contextmanager
def worker(place: Place, target: list[str], *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `tablequeue work` in a session of its own, and kill all processes of it after the block."""
    schema = ["--schema", place.schema] if place.schema else []
    command = [sys.executable, "-m", "tablequeue", *schema, "work", *target, "--queue", "work:2", *options]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"TABLEQUEUE_URL": place.url},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the process and all of its children have ended
        process.communicate()


def begun(folder: Path) -> list[str]:
    file = folder / "begun"
    return file.read_text().split() if file.exists() else []


def await_stopping(process: subprocess.Popen[str]) -> None:
    assert process.stderr
    assert any("stopping" in line for line in iter(process.stderr.readline, ""))


def await_both(folder: Path) -> None:
    until(lambda: len(begun(folder)) == 2, "both consumers have begun")


def check_all_end(queue: Queue, folder: Path) -> None:
    """After the leases, every message can be popped, and is finished once."""
    while batch := queue.pop_many(100, now=at(0)):
        queue.complete_many(batch, now=at(0))
    assert counts(queue) == {"finished": MESSAGES}
    assert {message.payload for message in queue.history()} == {f"{folder}/{n}" for n in range(MESSAGES)}


def kill(process: subprocess.Popen[str], queue: Queue, folder: Path) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert counts(queue)["in_progress"] >= 2, "what it held comes back with the end of the leases"


def kill_the_worker_alone(process: subprocess.Popen[str], queue: Queue, folder: Path) -> None:
    """The processes of its consumers end by themselves when the worker is gone."""
    process.kill()
    assert process.wait(PATIENCE) == -signal.SIGKILL
    (folder / "go").touch()

    def gone() -> bool:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone, "nobody is left")


def stop(process: subprocess.Popen[str], queue: Queue, folder: Path) -> None:
    process.terminate()
    await_stopping(process)
    (folder / "go").touch()
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "2 completed\n"), "what was begun is finished"
    assert counts(queue) == {"finished": 2, "ready": MESSAGES - 2}


def stop_late(process: subprocess.Popen[str], queue: Queue, folder: Path) -> None:
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "has not ended within the shutdown time-out" in errors
    assert counts(queue) == {"ready": MESSAGES}, "all are to be had at once"


def stop_twice(process: subprocess.Popen[str], queue: Queue, folder: Path) -> None:
    begun_only = {"in_progress": 2, "ready": MESSAGES - 2}
    process.terminate()
    await_stopping(process)
    until(lambda: counts(queue) == begun_only, "what was not begun is given back")
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    # A task that is cancelled fails its message, if there is time for it before the process ends.
    after = counts(queue)
    assert after["ready"] == begun_only["ready"]
    assert after.get("in_progress", 0) + after.get("scheduled", 0) == begun_only["in_progress"]


DEATHS: dict[str, tuple[Callable[[subprocess.Popen[str], Queue, Path], None], list[str]]] = {
    "SIGKILL": (kill, []),
    "SIGKILL of the worker alone": (kill_the_worker_alone, []),
    "SIGTERM": (stop, []),
    "SIGINT, and handlers that do not end": (stop_late, ["--shutdown-timeout", "0.1"]),
    "SIGTERM twice": (stop_twice, []),
}


# The kind of consumers does not depend on the engine.
KINDS_AND_CONSUMERS = [
    (kind, consumers) for kind in KINDS for consumers in CONSUMERS if kind.name == "sqlite" or consumers == "threads"
]


@pytest.mark.parametrize("death", DEATHS)
@pytest.mark.parametrize(("kind", "consumers"), KINDS_AND_CONSUMERS, ids=lambda one: getattr(one, "name", one))
def test_nothing_is_lost(place: Place, queue: Queue, consumers: str, tmp_path: Path, death: str) -> None:
    die, options = DEATHS[death]
    with worker(place, CONSUMERS[consumers], *options) as process:
        await_both(tmp_path)
        die(process, queue, tmp_path)
    check_all_end(queue, tmp_path)
