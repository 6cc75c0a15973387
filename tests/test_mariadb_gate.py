"""A few threads of a process at a time claim from a queue on MariaDB or MySQL. The others wait in the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import Pipe
from signal import SIGKILL
from threading import Barrier
from typing import Any, ClassVar

import pytest

from tablequeue import Database, errors
from tablequeue.verbs.sweep import promote
from tests.servers import KINDS, Kind, Place
from tests.support import claimed, refuses

pytest.importorskip("pymysql")

from tablequeue.engines.mysql import gate
from tablequeue.engines.mysql.engine import MySQL
from tablequeue.engines.mysql.gate import _gate, at_once
from tablequeue.engines.mysql.messages import CLAIMS, PROMOTIONS, MySQLMessages
from tablequeue.engines.operation import Effect, operation
from tablequeue.ext import context_of


@pytest.fixture
def kind() -> Kind:
    return next(kind for kind in KINDS if kind.name == "mariadb")


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_threads_at_once(place: Place, most: int) -> None:
    together = Barrier(most, timeout=60)
    inside: list[None] = []
    seen: list[int] = []

    class Staying(MySQLMessages):
        @operation(Effect.WRITE)
        @at_once(most)
        def stay(self, cursor: Any, table: Any, params: Any) -> None:
            inside.append(None)
            seen.append(len(inside))
            together.wait()
            inside.pop()

    class Gated(MySQL):
        messages: ClassVar[Staying] = Staying()

    queue = place.open_with(Gated).create_queue("work")
    context = context_of(queue)
    engine = context.engine
    assert isinstance(engine, Gated)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: context.runner.run(engine.messages.stay, context.table, {}), range(8)))
    assert max(seen) == most


def test_a_refusal_leaves_the_gate(db: Database, place: Place) -> None:
    queue = db.create_queue("work", groups=True)
    place.execute(f"drop table {place.table('work__turns')}")
    for _ in range(PROMOTIONS + 1):
        refuses(errors.QueueNotFound, promote, context_of(queue), None)


def test_a_transaction_of_the_callers_has_no_gate(db: Database, place: Place) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push_many([*"ab"])
    with place.sa_engine().begin() as connection, claims_are_held_up(db, "work"):
        assert claimed(queue, connection=connection).payload == "a"
    assert claimed(queue).payload == "b"


def test_nobody_waits_for_ever_for_threads_that_are_cut_off(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "PATIENCE", 0.01)
    queue = db.create_queue("work", payload="text")
    queue.push("a")
    with claims_are_held_up(db, "work"):
        assert claimed(queue).payload == "a"
        assert queue.pop() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_other_threads_claim(db: Database) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push_many([*"ab"])
    ours, theirs = Pipe()
    with claims_are_held_up(db, "work"):
        child = os.fork()
        if child == 0:
            try:
                theirs.send(claimed(queue).payload)
            finally:
                os._exit(0)
        try:
            assert ours.poll(60), "the child waits for threads that it does not have"
            assert ours.recv() == "a"
        finally:
            os.kill(child, SIGKILL)
            os.waitpid(child, 0)
    assert claimed(queue).payload == "b"


@contextmanager
def claims_are_held_up(db: Database, queue: str) -> Iterator[None]:
    """Hold all the claims that may run at once, as if other threads had them."""
    raw: Any = db.engine.raw_connection()
    server = (raw.dbapi_connection.host_info, raw.dbapi_connection.db)
    raw.close()
    permits = _gate("claim", *server, db._runner.engine.schema, queue, CLAIMS)
    for _ in range(CLAIMS):
        assert permits.acquire(timeout=60)
    yield
    assert not permits.acquire(blocking=False)
    permits.release(CLAIMS)
