"""The numbers of a queue beyond its counts: what they cost, and where they become estimates."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import asdict
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Queue
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tablequeue.verbs import stats as numbers
from tablequeue.verbs.stats import times
from tests.servers import Kind, Place, only
from tests.support import at, claimed, refuses, rewritten

FINISHED = 5000


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text", max_attempts=2)


def finish(queue: Queue, number: int, second: float = 0) -> None:
    queue.push_many(["x"] * number, now=at(second))
    queue.complete_many(queue.pop_many(number, now=at(second)), now=at(second))


# -- what is counted ---------------------------------------------------------------------------------------------------


def test_without_a_window_there_are_counts_alone(queue: Queue) -> None:
    queue.push("x")
    stats = queue.stats()
    assert (stats.ready, stats.window, stats.lost) == (1, None, None)


def test_a_queue_without_a_history_has_no_window(db: Database) -> None:
    assert db.create_queue("work", history="none").stats(window=60).window is None


def test_an_empty_queue_has_a_window_of_nothing(queue: Queue) -> None:
    window = queue.stats(window=60).window
    assert window is not None
    assert (window.queue.pushed, window.queue.finished, window.queue.wait_time) == (0, 0, None)
    assert (window.exact, window.producers, window.consumers) == (True, (), ())


def test_what_is_taken_counts_too(queue: Queue, db: Database) -> None:
    queue.push("x", now=at(0))
    with db.engine.begin() as connection:
        queue.take(connection, now=at(5))
    window = queue.stats(window=60, now=at(10)).window
    assert window is not None
    assert window.queue.finished == 1
    assert window.queue.wait_time is not None
    assert (window.queue.wait_time.p99, window.queue.run_time) == (5, times([0]))


def test_dead_letters_are_not_finished(queue: Queue) -> None:
    queue.push("x", now=at(0))
    for _ in range(2):
        claimed(queue, now=at(1)).fail("no", retry_in=0, now=at(2))
    stats = queue.stats(window=60, now=at(3))
    assert stats.window is not None
    assert (stats.dead, stats.window.queue.pushed, stats.window.queue.finished) == (1, 1, 0)


@pytest.mark.parametrize("wrong", [0, 0.5, -1, "x", True, float("nan"), 1e12], ids=repr)
def test_a_window_that_cannot_be(queue: Queue, wrong: Any) -> None:
    refuses(BadInput, queue.stats, window=wrong)


# -- estimates ---------------------------------------------------------------------------------------------------------


def test_of_very_many_the_last_are_counted(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "FIRST", 10)
    monkeypatch.setattr(numbers, "MOST", 40)
    for second in (0, 5, 10):
        finish(queue, 30, second)
    window = queue.stats(window=60, now=at(15)).window
    assert window is not None
    assert not window.exact
    assert (window.queue.pushed, window.queue.finished) == (40, 40)
    # They cover the last 10 seconds, and the rates refer to that time.
    assert (window.queue.push_rate, window.queue.completion_rate) == (4, 4)


def test_the_number_of_very_many_finished_ones_is_an_estimate(place: Place, kind: Kind) -> None:
    few = rewritten(kind.engine_class, stats_history=lambda text: text.replace("100000", "100"))
    queue = place.open_with(few).create_queue("work", payload="text")
    finish(queue, 99)
    assert queue.stats().finished == 99, "counted"
    assert isinstance(queue.stats().finished, int)
    finish(queue, 301)
    place.execute(f"{kind.analyze}{place.table('work')}_history")
    assert queue.stats().finished == pytest.approx(400, rel=0.2)


def test_what_is_no_exact_number_is_named(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "COUNTED", 30)
    monkeypatch.setattr(numbers, "MOST", 20)
    finish(queue, 19)
    assert queue.stats(window=60, now=at(1)).estimated == ()
    finish(queue, 10)
    assert queue.stats(window=60, now=at(1)).estimated == ("window",)
    finish(queue, 1)
    assert queue.stats(window=60, now=at(1)).estimated == ("finished", "window")
    assert queue.stats().estimated == ("finished",)
    assert queue.stats(window=60, now=at(1000)).estimated == ("finished",)


def test_a_bulk_push_of_this_moment_has_a_rate(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "FIRST", 10)
    monkeypatch.setattr(numbers, "MOST", 20)
    queue.push_many(["x"] * 30, now=at(0))
    window = queue.stats(window=60, now=at(0)).window
    assert window is not None
    assert window.queue.push_rate == 20 / 0.001


def test_percentiles_are_those_of_sql(place: Any, kind: Kind) -> None:
    durations = [0.5, 3.0, 1.0, 8.0, 2.0]
    found = times(durations)
    assert found is not None
    assert asdict(found) == pytest.approx({"p50": 2.0, "p95": 7.0, "p99": 7.8})
    if kind.name == "postgresql":
        [(percentiles,)] = place.execute(
            "select percentile_cont(array[0.5, 0.95, 0.99]) within group (order by x) "
            "from unnest(array[0.5, 3.0, 1.0, 8.0, 2.0]) as x"
        )
        assert [found.p50, found.p95, found.p99] == pytest.approx(percentiles)


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_window_is_a_range_of_the_index(db: Database, kind: Kind, queue: Queue) -> None:
    if kind.explain is None:
        pytest.skip("A plan is not asked for by a word before the statement.")
    for second in range(50):
        finish(queue, 100, second)
    finish(queue, 5, 1000)
    table = context_of(queue).table
    words = table.engine.words(table)
    plans = {}
    with db.engine.begin() as connection:
        connection.exec_driver_sql(kind.analyze + words["history"])
        for operation in ("stats_finished", "stats_failed", "stats_lost", "stats_pushed"):
            params = {"n": 100, "live": 100, "age": 60.0, "now": context_of(queue).time(at(1000))}
            statement = kind.explain + table.statement(operation)
            plans[operation] = str(list(connection.exec_driver_sql(statement, params))).lower()
    assert "tq_work__finished" in plans["stats_finished"]
    assert not re.search(kind.sorts, plans["stats_finished"])
    assert "tq_work__finished" in plans["stats_failed"]
    assert "tq_work__finished" in plans["stats_lost"]
    if kind.name == "postgresql":
        assert plans["stats_pushed"].count("backward using") == 2


@only("sqlite")
def test_it_costs_the_same_whatever_waits_and_was_finished(place: Place, kind: Kind) -> None:
    """Measured in steps of SQLite's virtual machine, which are the same on every computer."""
    few = rewritten(kind.engine_class, stats_history=lambda text: text.replace("100000", "1000"))
    queue = place.open_with(few).create_queue("work", payload="text")
    table = context_of(queue).table
    params = {"n": 100, "live": 100, "age": 60.0, "now": context_of(queue).time(at(1_000_000))}

    def steps() -> int:
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        connection = sqlite3.connect(str(sa.make_url(place.url).database))
        connection.set_progress_handler(step, 1)
        for operation in ("stats_history", "stats_finished", "stats_failed", "stats_pushed", "stats_lost"):
            connection.execute(table.statement(operation), params).fetchall()
        connection.close()
        return count

    counts = []
    for _ in range(2):
        finish(queue, FINISHED)
        queue.push_many(["x"] * FINISHED, now=at(1))
        counts.append(steps())
    assert counts[1] == pytest.approx(counts[0], rel=0.1)
