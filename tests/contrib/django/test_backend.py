"""The backend of Django's tasks, on each engine that Django has too."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.test.utils import override_settings
from django.utils import timezone

from tablequeue import Backoff
from tablequeue.contrib.django import Backend, database, results
from tablequeue.contrib.django.compat import (
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tablequeue.contrib.django.tables import after_migrate
from tablequeue.contrib.django.testing import run_tasks
from tablequeue.errors import QueueNotFound
from tablequeue.ext import waiter_of
from tests.contrib.django import tasks
from tests.contrib.django.conftest import Site
from tests.contrib.django.tasks import add, chain, forget, later, leave, ran, reporting, strange, third_time
from tests.servers import Place, only
from tests.support import refuses


def backend() -> Backend:
    found: Backend = task_backends["default"]
    return found


def test_an_enqueue_is_a_part_of_the_transaction(site: Site, place: Place) -> None:
    with site.tasks():
        other = place.open().queue("default_default")
        with transaction.atomic(using=site.alias):
            result = add.enqueue(1, 2)
            assert backend().get_result(result.id) == result
            if site_writes_side_by_side(site):
                assert other.peek() == []
        assert [message.payload["args"] for message in other.peek()] == [[1, 2]]
        with transaction.atomic(using=site.alias):
            lost = add.enqueue(3, 4)
            transaction.set_rollback(True, using=site.alias)
        refuses_result(lost.id)
        alone = asyncio.run(enqueue_alone())
        assert alone.kwargs == {"b": 6}
        assert len(other.peek()) == 2


def test_no_enqueue_into_a_transaction_that_will_be_rolled_back(site: Site) -> None:
    with site.tasks(), transaction.atomic(using=site.alias):
        transaction.set_rollback(True, using=site.alias)
        with pytest.raises(TransactionManagementError):
            add.enqueue(1, 2)


async def enqueue_alone() -> Any:
    result = await add.aenqueue(5, b=6)
    await sync_to_async(connections.close_all)()
    return result


def site_writes_side_by_side(site: Site) -> bool:
    return connections[site.alias].vendor != "sqlite"


def refuses_result(id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        backend().get_result(id)


def test_a_result_tells_what_became_of_a_task(site: Site) -> None:
    with site.tasks(retry=True, backoff=Backoff(base=0), max_attempts=3):
        done, tried = add.enqueue(20, b=22), third_time.using(queue_name="mail").enqueue()
        spoken, left, bad = later.enqueue("ä€😀"), leave.enqueue(), strange.enqueue()
        site.work(worker_id="one")
        for result in (done, tried, spoken, left, bad):
            result.refresh()
            assert result == backend().get_result(result.id)
            assert result.enqueued_at <= result.finished_at
            assert result.started_at <= result.last_attempted_at <= result.finished_at
        assert (done.return_value, done.worker_ids, done.errors) == (42, ["one"], [])
        assert (tried.return_value, tried.worker_ids) == (3, ["one"] * 3)
        assert [error.exception_class for error in tried.errors] == [KeyError, KeyError]
        assert "attempt 2, 1 before" in tried.errors[1].traceback
        assert spoken.return_value == "Ä€😀"
        assert (left.status, left.attempts, left.errors[0].exception_class) == ("FAILED", 3, SystemExit)
        assert (bad.status, bad.errors[0].exception_class) == (TaskResultStatus.FAILED, TypeError)
        assert add.get_result(done.id).return_value == 42
        head, token = done.id.rsplit("-", 1)
        for wrong in (f"{head}-{token[::-1]}", f"{head[::-1]}-{token}", "1", f"{head}-", "0" * 64, f"{head}9-{token}"):
            refuses_result(wrong)


@pytest.mark.parametrize("tests", [False, True])
def test_the_progress_of_a_task(site: Site, tests: bool) -> None:
    with site.tasks():
        ran.clear()
        result = reporting.enqueue()
        assert backend().progress(result.id) is None
        if tests:
            with transaction.atomic(site.alias):
                run_tasks()
        else:
            site.work()
        assert ran == [(0.5, {"row": 1})]
        assert backend().progress(result.id) is None
        with pytest.raises(TaskResultDoesNotExist):
            backend().progress("1")


def test_a_task_that_raises_has_failed_unless_it_is_to_be_tried_again(site: Site) -> None:
    with site.tasks():
        result = third_time.enqueue()
        site.work()
        result.refresh()
        assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
        (dead,) = backend().queue("default").dead()
        assert dead.errors[0].error.startswith("builtins.KeyError\nTraceback")


def test_what_a_worker_left_is_tried_again(site: Site) -> None:
    """Also where a task that raises is not: as after a kill, whose lease is over."""
    with site.tasks():
        result = add.enqueue(1, 1)
        claim = backend().queue("default").pop(lease=0)
        assert claim is not None
        site.work()
        result.refresh()
        assert (result.return_value, result.attempts) == (2, 2)
        assert [error.exception_class_path for error in result.errors] == [results.LOST]


def test_priority_and_run_after(site: Site) -> None:
    with site.tasks():
        ran.clear()
        future = timezone.now() + timedelta(days=1)
        scheduled = add.using(run_after=future, priority=100).enqueue(0, 0)
        assert scheduled == backend().get_result(scheduled.id)
        assert backend().get_result(scheduled.id).task.run_after == future
        for priority in (-100, 0, 100, -1, 0):
            add.using(priority=priority).enqueue(priority, len(ran))
        add.using(run_after=timezone.now() - timedelta(days=1), priority=99).enqueue(99, 0)
        site.work(max=1)
        assert [priority for priority, _ in ran] == [100, 99, 0, 0, -1, -100]
        backend().queue("default").reschedule(int(scheduled.id.split("-")[1]), delay=0)
        site.work()
        scheduled.refresh()
        assert scheduled.status == TaskResultStatus.SUCCESSFUL


def test_the_signal_of_the_end_comes_when_the_result_is_stored(site: Site) -> None:
    seen: list[tuple[Any, ...]] = []

    def note(sender: Any, task_result: Any, signal: Any, **kwargs: Any) -> None:
        name = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}[signal]
        seen.append((name, sender, backend().get_result(task_result.id).status, task_result.status))
        if signal is task_finished:
            raise RuntimeError("a receiver fails, and nothing else")

    signals = (task_enqueued, task_started, task_finished)
    with site.tasks(retry=True, max_attempts=2, backoff=Backoff(base=0)):
        for signal in signals:
            signal.connect(note)
        try:
            add.enqueue(1, 2)
            site.work()
            third_time.enqueue()
            site.work()
        finally:
            for signal in signals:
                signal.disconnect(note)
    ready, running, done, failed = TaskResultStatus.values[0], "RUNNING", "SUCCESSFUL", "FAILED"
    assert seen == [
        ("enqueued", Backend, ready, ready),
        ("started", Backend, running, running),
        ("finished", Backend, done, done),
        ("enqueued", Backend, ready, ready),
        ("started", Backend, running, running),
        ("started", Backend, running, running),
        ("finished", Backend, failed, failed),
    ]


def test_messages_that_are_no_task_fail_alone(site: Site) -> None:
    with site.tasks():
        ran.clear()
        queue = backend().queue("default")
        module = tasks.__name__
        bad: list[Any] = [
            None,
            [],
            "x",
            {"task": f"{module}.add"},
            {"task": f"{module}.no_task", "args": [], "kwargs": {}},
            {"task": "os.system", "args": ["true"], "kwargs": {}},
            {"task": "missing.module", "args": [], "kwargs": {}},
            {"task": 5, "args": {}, "kwargs": []},
            {"task": f"{module}.add", "args": 7, "kwargs": {}},
        ]
        ids = queue.push_many(bad)
        queue.push({"task": f"{module}.chain", "args": [1], "kwargs": {}})
        site.work()
        assert [message.id for message in queue.dead()] == ids
        assert ran == [1, 0]


def test_a_message_imports_no_module_of_elsewhere(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger.py").write_text("from tests.contrib.django.tasks import add\n")
    monkeypatch.syspath_prepend(tmp_path)
    with site.tasks():
        queue = backend().queue("default")
        for path in ("stranger.add", "turtledemo.clock.main"):
            queue.push({"task": path, "args": [1, 2], "kwargs": {}})
        site.work()
        for message in queue.dead():
            assert "import it in the `ready` of an app" in message.errors[-1].error
        assert len(queue.dead()) == 2
        assert not {"stranger", "turtledemo", "turtledemo.clock"} & sys.modules.keys()
        import_module("stranger")  # as an app may
        queue.push({"task": "stranger.add", "args": [1, 2], "kwargs": {}})
        site.work()
        assert len(queue.history()) == 1
        del sys.modules["stranger"]


def test_migrate_makes_what_the_settings_say_and_flush_empties_it(site: Site, place: Place) -> None:
    with site.tasks(("default",), max_attempts=2):
        assert place.open().queue("default_default").definition.max_attempts == 2
        queue = backend().queue("default")
        add.enqueue(1, 1)
        leave.enqueue()
        site.work()
        add.enqueue(3, 3)
        assert (len(queue.history()), len(queue.dead()), len(queue.peek())) == (1, 1, 1)
        after_migrate(using=site.alias)  # as after `flush`
        assert (queue.history(), queue.dead(), queue.peek()) == ([], [], [])
    with site.tasks(("default", "new"), max_attempts=7, history=timedelta(days=1)):
        definition = place.open().queue("default_default").definition
        assert (definition.max_attempts, definition.history) == (7, 86400)
        add.using(queue_name="new").enqueue(1, 2)
        call_command("migrate", "tablequeue", "zero", database=site.alias, verbosity=0)
        assert place.open().queues() == []


@only("postgresql")
def test_a_commit_wakes_a_worker(site: Site, place: Place) -> None:
    with site.tasks():
        woken = Event()
        with waiter_of(place_queue(place), on_push=woken.set) as waiter:
            waiter.wait(0.01)
            with transaction.atomic(using=site.alias):
                add.enqueue(1, 2)
            assert woken.wait(30)


def place_queue(place: Place) -> Any:
    return place.open().queue("default_default")


def test_times_without_time_zones(site: Site) -> None:
    with override_settings(USE_TZ=False), site.tasks():
        due = datetime.now() + timedelta(hours=1)
        result = add.using(run_after=due).enqueue(1, 2)
        assert result == backend().get_result(result.id)
        assert backend().get_result(result.id).task.run_after == due
        (message,) = backend().queue("default").peek(state="scheduled")
        assert message.due_at is not None
        assert abs(message.due_at - due.astimezone(UTC)) < timedelta(seconds=1)


@only("sqlite")
def test_a_queue_that_was_not_migrated(site: Site) -> None:
    backend = {"BACKEND": "tablequeue.contrib.django.Backend", "OPTIONS": {"database": site.alias}}
    with override_settings(TASKS={"default": backend}):
        assert "migrate" in refuses(QueueNotFound, add.enqueue, 1, 2).remedy


@only("sqlite")
def test_a_task_of_a_task(site: Site) -> None:
    with site.tasks():
        ran.clear()
        chain.enqueue(3)
        site.work()
        assert ran == [3, 2, 1, 0]
        assert database.url_of(site.alias).drivername == "sqlite"


def test_a_transaction_that_a_task_leaves_open_is_rolled_back_and_the_task_has_failed(site: Site) -> None:
    with site.tasks():
        left = [forget.enqueue(site.alias, how) for how in ("atomic", "autocommit")]
        kept = add.enqueue(1, 2)
        site.work(max=1)
        for result in left:
            result.refresh()
            assert [error.exception_class for error in result.errors] == [TransactionManagementError]
        kept.refresh()
        assert kept.status == TaskResultStatus.SUCCESSFUL
        assert backend().queue("default").stats().ready == 0
        assert backend().queue("default").stats().finished == 1
