"""A real worker of Celery on the transport; what is killed more often is in crashes.py."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contrib.kombu.crashes import PATIENCE, children, done, until, worker


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("celery")
    given = {"BROKER": f"tablequeue+sqlite:///{folder}/work.db", "NOTES": str(folder / "notes")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        yield folder / "notes"


@pytest.fixture(scope="module")
def app(notes: Path) -> Any:
    from tests.contrib.kombu.app import app

    app.conf.broker_url = os.environ["BROKER"]
    yield app
    app.close()


@pytest.fixture(scope="module")
def running(app: Any) -> Iterator[subprocess.Popen[bytes]]:
    with worker("prefork", "-E", "-c", "2") as running:
        until(lambda: app.control.ping(timeout=0.5), "the worker answers")
        yield running


def ran(notes: Path, wanted: Callable[[Counter[str]], bool]) -> Counter[str]:
    until(lambda: wanted(done(notes)), "the tasks have run")
    return done(notes)


def test_tasks_run_and_are_tried_again(app: Any, running: Any, notes: Path) -> None:
    app.send_task("work", (1,))
    app.send_task("again", (2,))
    assert ran(notes, lambda counts: {"1", "2"} <= counts.keys())["2"] == 1


def test_workers_are_inspected_and_controlled(app: Any, running: Any, notes: Path) -> None:
    inspect = app.control.inspect(timeout=PATIENCE, limit=1)
    ((name, queues),) = inspect.active_queues().items()
    assert [queue["name"] for queue in queues] == ["celery"]
    app.control.revoke("revoked", reply=True, timeout=PATIENCE, limit=1)  # before a worker can begin it
    app.send_task("work", (3,), task_id="revoked")
    app.send_task("work", (4,))
    assert "3" not in ran(notes, lambda counts: "4" in counts)
    assert name in inspect.stats()


def test_events_arrive(app: Any, running: Any, notes: Path) -> None:
    with app.connection_for_read() as connection:
        types: list[str] = []
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: types.append(event["type"])})
        with receiver.consumer_context(wakeup=False) as (receiving, _, _):
            app.send_task("work", (5,))
            while "task-succeeded" not in types:
                receiving.drain_events(timeout=PATIENCE)


def test_a_task_with_an_eta_is_in_no_worker(app: Any, running: Any) -> None:
    task = app.send_task("work", (6,), countdown=3600)
    inspect = app.control.inspect(timeout=PATIENCE, limit=1)
    assert [*inspect.scheduled().values()] == [[]]
    assert [*inspect.reserved().values()] == [[]]
    with app.connection_for_read() as connection:
        (message,) = connection.default_channel.store.queue("celery").peek(state="scheduled")
    assert task.id in message.payload


def test_a_killed_child_loses_no_task(app: Any, running: subprocess.Popen[bytes], notes: Path) -> None:
    app.send_task("work", (7, 1.0))
    inspect = app.control.inspect(timeout=PATIENCE, limit=1)
    until(lambda: any(inspect.active().values()), "the task runs")
    ((held,),) = inspect.active().values()
    os.kill(held["worker_pid"], signal.SIGKILL)
    assert ran(notes, lambda counts: "7" in counts)["7"] == 1


def test_a_dead_letter_says_why_it_was_rejected(app: Any, running: Any) -> None:
    app.send_task("refuse", ("no such customer",))
    app.send_task("nobody.has.it")
    with app.connection_for_read() as connection:
        queue = connection.default_channel.store.queue("celery")
        until(lambda: len(queue.dead()) == 2, "both are dead letters")
        errors = {message.errors[-1].error for message in queue.dead()}
    assert {error.partition(":")[0] for error in errors} == {"rejected"}
    assert any("no such customer" in error for error in errors), errors
    assert any("nobody.has.it" in error for error in errors), errors


def test_a_warm_shutdown_leaves_nothing_held(app: Any, running: subprocess.Popen[bytes], notes: Path) -> None:
    app.send_task("work", (8, 0.3))
    until(lambda: len(children(running.pid)) == 2, "the pool is complete")
    os.kill(running.pid, signal.SIGTERM)
    assert running.wait(PATIENCE) == 0
    with app.connection_for_read() as connection:
        stats = connection.default_channel.store.queue("celery").stats()
    assert stats.in_progress == 0
    assert "8" in done(notes) or stats.ready == 1
