"""The numbers of all queues, in a few statements: they are those of `stats`, on every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tablequeue import Database, Stats
from tablequeue.database import overview_of
from tablequeue.engines.reads import Reads
from tablequeue.ext import context_of
from tablequeue.verbs import overview
from tests.support import at, claimed
from tests.web.support import fill


def shown(stats: Stats) -> Stats:
    """What the page of all queues shows of the numbers of a queue."""
    window = stats.window
    if window is not None:
        activity = replace(window.queue, pushed_slices=None, finished_slices=(), failed=None, failed_slices=None)
        window = replace(window, producers=(), consumers=(), queue=replace(activity, lost=None))
    return replace(
        stats, finished=None, expired=None, open_batches=None, window=window, oldest_age=stats.oldest_age and 0.0
    )


def test_the_overview_has_the_numbers_of_stats(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of queues of which more was pushed or finished than all are read of, and of those of another piece."""
    monkeypatch.setattr(overview, "FIRST", 5)
    monkeypatch.setattr(overview, "AT_ONCE", 3)
    fill(db)
    db.queue("groups").pause()
    busy = db.create_queue("busy", expires=1000)
    busy.push_many(range(9))
    busy.complete_many(busy.pop_many(7))
    look = overview_of(db).look
    for changed in (False, True):
        if changed:
            db.queue("groups").resume()
            busy.push("more")
            claimed(busy).fail("no")
            db.queue("empty").drop()
            db.create_queue("empty").alter(lease=77)
            db.rename("plain", "plainer")
        read, refused = look(300)
        assert refused == []
        assert [stats.queue for _, stats in read] == db.queues()
        for table, stats in read:
            queue = db.queue(stats.queue)
            assert shown(stats) == shown(queue.stats(window=300)), stats.queue
            assert table.definition == queue.definition


def test_the_number_of_statements_does_not_grow_with_the_queues(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    of_many = Reads.of_many

    def counted(reads: Any, cursor: Any, tables: Any, params: Any) -> Any:
        calls.append(params["operation"])
        return of_many(reads, cursor, tables, params)

    if type(db._runner.engine.reads).of_many is not of_many:
        pytest.skip("This engine reads the queues one by one.")
    monkeypatch.setattr(Reads, "of_many", counted)
    look = overview_of(db).look
    for number in (1, 12):
        for each in range(number):
            db.create_queue(f"q{each}").push("x", now=at(0))
        look(300)
        assert calls == ["stats", "paused", "stats_pushed", "stats_finished"]
        calls.clear()


def test_a_broken_queue_does_not_hide_the_others(db: Database) -> None:
    for name in ("a", "b", "c"):
        db.create_queue(name).push(1)
    look = overview_of(db).look
    assert len(look(300).read) == 3
    broken = context_of(db.queue("b"))
    words = broken.engine.words(broken.table)
    with db.engine.begin() as connection:
        connection.exec_driver_sql(f"drop table {words['queue']}")
    read, refused = look(300)
    assert [(stats.queue, stats.ready) for _, stats in read] == [("a", 1), ("c", 1)]
    assert [name for name, _ in refused] == ["b"]
