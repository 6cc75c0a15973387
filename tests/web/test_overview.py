"""The numbers of all queues, in a few statements: they are those of `stats`, on every engine."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Database, Queue, Stats, connect
from tablequeue.database import overview_of
from tablequeue.engines.reads import Reads
from tablequeue.ext import context_of
from tablequeue.verbs import overview
from tablequeue.worker.schedule import Schedule, push_due
from tests.support import at, claimed
from tests.web.support import fill, serving


def now_of(db: Database) -> datetime:
    db.create_queue("clock")
    return overview_of(db).holders(300)[0]


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


def test_filters_leave_nothing_behind(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Visitors could else fill the memory with the statements for what they look for."""
    monkeypatch.setattr(overview, "MOST_KEPT", 4)
    for name in "abc":
        db.create_queue(name).push(1)
    looking = overview_of(db)
    for wanted in ("a", "b", "c", "ab", "ac", "bc", "abc"):
        read, _ = looking.look(300, wanted.__contains__)
        assert [stats.queue for _, stats in read] == [*wanted]
        assert len(looking._together) <= 4


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


def test_the_workers_are_known_by_what_they_hold_and_finished(db: Database) -> None:
    now = now_of(db)
    for who, queue in (("ada", "letters"), ("ada", "work"), ("bob", "work")):
        context = context_of(db.create_queue(queue, if_exists="alter"))
        context.who = who
        handle = Queue(context)
        handle.push_many([1, 2])
        claimed(handle).complete()
        if who == "ada":
            claimed(handle)
    topic = db.create_topic("events")
    mail = topic.subscribe("mail")
    topic.push_many([1, 2, 3])
    context_of(mail).who = "eve"
    mail.pop_many(2)
    with serving(db) as client:
        text = client.get("/workers").text
        assert [*re.findall(r'<tr data-key="(\w*)">', text)] == ["ada", "bob", "eve"]
        assert "lease is over" not in text
    clock, found = overview_of(db).holders(300)
    shown = {one.who: (dict(one.held), one.finished, one.since is not None) for one in found}
    assert shown == {
        "ada": ({"letters": 1, "work": 1}, 2, True),
        "bob": ({}, 1, False),
        "eve": ({"events/mail": 2}, 0, True),
    }
    for one in found:
        assert now <= one.seen <= clock
        if one.lease_until is not None and one.since is not None:
            assert (one.lease_until - one.since).total_seconds() >= 60


def test_a_schedule_is_shown_and_run_again(db: Database) -> None:
    db.create_queue("letters & more")
    daily = Schedule("daily/a b", "letters & more", "30 6 * * *", {"n": 1}, "Europe/Berlin")
    with serving(db, allow_actions=True) as client:
        assert "No worker has had a schedule yet." in client.get("/schedules").text
        push_due(db, daily)
        text = client.get("/schedules").text
        for words in ("daily/a b", "30 6 * * *", "Europe/Berlin", "letters &amp; more"):
            assert words in text
        _, ((*_, last),) = overview_of(db).schedules()
        assert last is not None
        (path,) = re.findall(r'action="(/schedules/.*?/run)"', text)
        assert db.queue("letters & more").peek() == []
        answer = client.post(path, {"csrf": client.csrf()})
        assert answer.status == 303
        text = client.get(answer.headers["location"] or "").text
        assert "A worker with daily/a b pushes" in text
        assert "is to run now" in text
        push_due(db, daily, entered=True)
        push_due(db, daily, entered=True)
        assert [message.payload for message in db.queue("letters & more").peek()] == [{"n": 1}]
        assert "is to run now" not in client.get("/schedules").text
        assert client.post("/schedules/other/run", {"csrf": client.csrf()}).status == 400
    with serving(db) as client:
        assert client.post(path, {"csrf": client.csrf()}).status == 403
        assert "Run now" not in client.get("/schedules").text


def test_there_are_pages_of_a_database_that_is_not_there(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path / 'none.db'}") as db, serving(db) as client:
        assert [client.get(path).status for path in ("/", "/workers", "/schedules")] == [200, 200, 200]
