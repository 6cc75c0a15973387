"""The result backend of Celery: its promises, and the faults that the checks of them find."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from threading import Event, Thread
from typing import Any

import pytest
from celery import states
from celery.exceptions import TimeoutError

from tablequeue.contrib import task_results as store
from tablequeue.contrib.celery import backend, waiting
from tests.contrib.celery.checks import (
    CHECKS,
    application,
    check_a_chord_begins_again,
    check_a_chord_that_fails_has_one_error,
    check_a_chord_waits_for_the_database,
    check_a_part_counts_once,
    check_a_part_that_was_killed_is_counted,
    check_get_is_woken,
    check_other_results_end_no_wait,
    check_parts_that_end_at_once_send_one_callback,
    check_results,
    check_results_expire,
)
from tests.servers import only

EACH, NOTIFYING, ONE = only("sqlite", "postgresql", "mariadb", "mssql"), only("sqlite", "postgresql"), only("sqlite")


@EACH
@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check is not check_get_is_woken], ids=lambda one: one.__name__
)
def test_promises(url: str, check: Callable[[str], None]) -> None:
    check(url)


@NOTIFYING
def test_get_is_woken(url: str) -> None:
    check_get_is_woken(url)


def _each_part_finishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.Store, "claim", lambda *args: True)


def _a_place_is_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "stored", lambda key: key if "-" in key[:30] and ":" not in key else os.urandom(8).hex())


def _no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backend.Backend, "_joined", lambda self, group_id, of=backend.Backend._joined: of(self, group_id)[::-1]
    )


def _apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.Backend, "_returning", lambda self: nullcontext())


def _nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.Store, "abandoned", lambda self: [])


def _sent_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "gathered", lambda url: nullcontext([]))


def _errors_are_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.Backend, "_unpacked", lambda self, body: self.decode(body)[2])


def _every_error_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "TRANSIENT", ())


def _old_parts_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.Store, "open_chord", lambda *args: None)


def _the_last_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    put = store.Store.put
    monkeypatch.setattr(
        store.Store,
        "put",
        lambda self, key, body, expires, success, part=None: put(self, key, body, expires, False, part),
    )


def _forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.Backend, "prepare_expires", lambda *args, **options: None)
    monkeypatch.setattr(store.Store, "expire", lambda self: False)


def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting.Waiting, "_wake", lambda self, number: None)


def _each_look_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = backend.ResultConsumer._deliver

    def counted(self: Any, *given: Any) -> None:
        deliver(self, *given)
        self._deliveries += 1

    monkeypatch.setattr(backend.ResultConsumer, "_deliver", counted)


MUTANTS = [
    (_each_part_finishes, check_a_part_counts_once),
    (_each_part_finishes, check_parts_that_end_at_once_send_one_callback),
    (_a_place_is_no_part, check_a_part_counts_once),
    (_no_order, check_a_part_counts_once),
    (_apart, check_a_part_that_was_killed_is_counted),
    (_nobody_looks, check_a_part_that_was_killed_is_counted),
    (_sent_before_the_end, check_a_part_that_was_killed_is_counted),
    (_errors_are_results, check_a_chord_that_fails_has_one_error),
    (_every_error_is_final, check_a_chord_waits_for_the_database),
    (_old_parts_stay, check_a_chord_begins_again),
    (_the_last_one_counts, check_results),
    (_forever, check_results_expire),
    (_deaf, check_get_is_woken),
    (_each_look_ends_a_wait, check_other_results_end_no_wait),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda value: value.__name__)
@ONE
def test_the_check_finds_the_fault(url: str, monkeypatch: pytest.MonkeyPatch, mutant: Any, check: Any) -> None:
    mutant(monkeypatch)
    monkeypatch.setattr("tests.contrib.celery.checks.PATIENCE", 0.3)
    with pytest.raises((AssertionError, ValueError, TimeoutError)):
        check(url)


@NOTIFYING
def test_a_fork_waits_for_nothing_of_its_parent(url: str) -> None:
    """And for no thread of it: one waits for a result when the process is forked."""
    with application(url) as app:
        result, looked = app.AsyncResult("forked"), Event()
        waits = app.backend.result_consumer._waiting
        wait = waits.wait

        def noted(seconds: float) -> list[bytes]:
            looked.set()
            found: list[bytes] = wait(seconds)
            return found

        waits.wait = noted
        thread = Thread(target=lambda: result.get(timeout=60))
        thread.start()
        assert looked.wait(60)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)  # if it waits for the thread
                app.backend.store_result("new", 2, states.SUCCESS)
                assert app.AsyncResult("new").get(timeout=0) == 2
                app.backend.store_result("forked", 1, states.SUCCESS)
                assert result.get(timeout=0) == 1
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()
        assert result.get(timeout=0) == 1
