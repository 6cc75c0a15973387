"""Forks of a process that uses a database: every acknowledged message exists, and the database is intact."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, Queue
from tablequeue.engines import pool
from tablequeue.ext import context_of, waiter_of
from tests.forked import Child, method, push_in_process, push_some, pushes, pushing
from tests.servers import Place, only
from tests.support import at, claimed, counts, ids_of, snapshot

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text")


def check_there(queue: Queue, acknowledged: list[int]) -> None:
    """Check that each message exists once."""
    assert len(acknowledged) == len({*acknowledged}), "an id was given twice"
    assert {*acknowledged} <= {*ids_of(snapshot(queue))}, "what was acknowledged is there"


def check_whole(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def path_of(place: Place) -> Path:
    database = sa.make_url(place.url).database
    assert database
    return Path(database)


def look_in_from_outside(place: Place) -> None:
    """Let another program open and close the database. If no process has a lock on it, this deletes the -wal file."""
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('select * from tq_work')"
    subprocess.run([sys.executable, "-c", program, str(path_of(place))], check=True)


def test_children_push_on(place: Place, queue: Queue) -> None:
    ids = [queue.push("of the parent")]
    children = [Child(lambda _: push_some(queue)) for _ in range(4)]
    for child in children:
        child.go_on()
    ids += push_some(queue)
    ids += [id for child in children for id in child.result()]
    check_there(queue, ids)


CLOSES: dict[str, Callable[[Queue], Any]] = {
    "the parent closes": lambda queue: context_of(queue).runner.close(),
    "the parent goes on": lambda queue: queue.push("of the parent"),
    "the parent does nothing": lambda queue: None,
}


@only("sqlite")
@pytest.mark.parametrize("order", CLOSES)
@pytest.mark.parametrize("first", ["parent", "child"])
def test_parent_or_child_closes_first(place: Place, queue: Queue, order: str, first: str) -> None:
    check_whoever_closes_first(place, queue, CLOSES[order], first)


def check_whoever_closes_first(place: Place, queue: Queue, close: Callable[[Queue], Any], first: str) -> None:
    ids = [queue.push("before")]
    child = Child(pushes(queue))
    if first == "child":
        child.until_it_pauses()
    close(queue)
    look_in_from_outside(place)
    if first == "parent":
        child.until_it_pauses()
        look_in_from_outside(place)
    child.go_on()
    ids += child.result()
    look_in_from_outside(place)
    check_there(place.open().queue("work"), ids)
    check_whole(path_of(place))


@only("sqlite")
@pytest.mark.parametrize("ends", ["normally", "at once"])
def test_children_of_a_parent_that_has_ended(place: Place, queue: Queue, ends: str) -> None:
    program = [sys.executable, "-m", "tests.forked", place.url, ends]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        parent.stdout.read()  # until the end of the children, too
    assert parent.returncode == 0
    assert [message.payload for message in queue.peek()] == ["of the parent", *["of a child"] * 3]
    check_whole(path_of(place))


@only("sqlite")
def test_forks_under_load(place: Place, queue: Queue) -> None:
    """Some of the pushing threads hold connections at any moment. They end their calls before a fork."""
    ids: list[int] = []
    with pushing(queue, 4) as theirs:
        for _ in range(6):
            child = Child(lambda _: push_some(queue))
            child.go_on()
            ids += child.result()
    check_there(queue, ids + theirs)
    check_whole(path_of(place))


@only("sqlite")
def test_a_fork_beside_a_consumer_that_waits(place: Place, queue: Queue) -> None:
    with waiter_of(queue) as waiter:
        waiter.wait(0)
        child = Child(lambda _: push_some(queue))
        child.go_on()
        ids = child.result()
        waiter.wait(0)
        ids.append(queue.push("of the parent"))
    check_there(queue, ids)


@only("sqlite")
def test_a_fork_in_the_middle_of_a_transaction(place: Place, db: Database, queue: Queue) -> None:
    """The child must not use the database; the parent's transaction goes on."""
    with db.engine.begin() as connection:
        pushed = queue.push("in it", connection=connection)
        children = [
            Child(lambda _: push_some(queue)),
            Child(lambda _: push_in_process(place.url, "work")),
            Child(lambda _: [queue.push("x", connection=sqlite3.connect(path_of(place)))]),
        ]
        for child in children:
            child.go_on()
        assert [child.result() for child in children] == ["ForkUnsafe"] * 3
    check_there(queue, [pushed, queue.push("after it")])
    check_whole(path_of(place))


@only("sqlite")
@pytest.mark.parametrize("pool", [sa.QueuePool, sa.NullPool, sa.SingletonThreadPool, sa.StaticPool])
def test_a_transaction_of_any_pool_goes_on_in_the_parent(place: Place, queue: Queue, pool: type[sa.Pool]) -> None:
    with tablequeue.connect(sa.create_engine(place.url, poolclass=pool)) as database:
        theirs = database.queue("work")
        with database.engine.begin() as connection:
            pushed = theirs.push("in it", connection=connection)
            child = Child(lambda _: push_some(theirs))
            child.go_on()
            assert child.result() == "ForkUnsafe"
        database.engine.dispose()
    check_there(queue, [pushed])


@only("sqlite")
def test_a_fork_in_the_middle_of_a_call_that_does_not_end(
    place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "FORK_PATIENCE", 0.01)
    held = context_of(queue).runner.pool.connect()
    child = Child(lambda _: push_some(queue))
    child.go_on()
    assert child.result() == "ForkUnsafe"
    context_of(queue).runner.pool.discard(held)
    check_there(queue, [queue.push("of the parent")])


@only("sqlite")
@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_pool_of_processes(place: Place, queue: Queue, start: str) -> None:
    ids = [queue.push("of the parent")]
    with ProcessPoolExecutor(2, mp_context=method(start)) as pool:
        futures = [pool.submit(push_in_process, place.url, "work") for _ in range(4)]
        ids += push_some(queue)
        ids += [id for future in futures for id in future.result()]
    check_there(queue, ids)
    check_whole(path_of(place))


def test_what_a_parent_holds_is_its_own(place: Place, queue: Queue) -> None:
    """A child can use the claim of its parent only by its token. Afterwards each process has its own connections."""
    queue.push("x", now=at(0))
    claim = claimed(queue)
    child = Child(lambda _: queue.complete(claim) or [])  # type: ignore[func-returns-value]
    child.go_on()
    assert child.result() == []
    assert counts(queue) == {"finished": 1}


# -- broken variants ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections stay open over a fork, and the child does not use them."""
    for step in ("close_before_fork", "open_after_fork"):
        monkeypatch.setattr(pool.Pool, step, lambda *_: None)
    monkeypatch.setattr("tablequeue.engines.sqlite.engine.refuse", lambda path: None)
    monkeypatch.setattr("tablequeue.engines.sqlite.connection.refuse", lambda path: None)


@only("sqlite")
@pytest.mark.parametrize("first", ["parent", "child"])
def test_connections_that_stay_open_are_noticed(place: Place, queue: Queue, kept_open: None, first: str) -> None:
    with pytest.raises((AssertionError, tablequeue.TablequeueError)):
        check_whoever_closes_first(place, queue, CLOSES["the parent closes"], first)
