"""The procedure `wait`: a consumer in any language waits for messages, and holds nothing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tablequeue import Database
from tablequeue.errors import BadInput, TablequeueError
from tests.crowd import PATIENCE
from tests.procedures import PLAIN
from tests.servers import Kind, Place
from tests.sessions import call, made, transaction
from tests.support import refuses
from tests.worker.support import until

# On SQL Server a consumer waits for a notification of the server.
WAITING = [kind for kind in PLAIN if kind.name != "mssql"]
IN_WAIT = {
    "postgresql": "select 1 from pg_stat_activity where wait_event = 'PgSleep'",
    "mariadb": "select 1 from information_schema.processlist where state = 'User sleep'",
}
# What a transaction that is open for longer than a look holds: its snapshot, or its locks.
OPEN = {
    "postgresql": "select 1 from pg_locks where relation = cast('{}' as regclass) and pid <> pg_backend_pid()",
    "mariadb": "select 1 from information_schema.innodb_trx where trx_mysql_thread_id <> connection_id()",
}


@pytest.fixture(params=WAITING, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


@contextmanager
def waiting(place: Place, kind: Kind, db: Database) -> Iterator[Future[list[object]]]:
    """A session that waits, in a pause between two looks."""
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(call, db, "wait", seconds=PATIENCE)
        until(lambda: place.execute(IN_WAIT[kind.name]), "the pause")
        yield answer


def test_it_returns_when_a_message_is_pushed(place: Place, kind: Kind, db: Database) -> None:
    queue = made(db)
    with waiting(place, kind, db) as answer:
        id = queue.push(1)
        answer.result(PATIENCE)
    assert [row[0] for row in call(db, "pop")] == [id]


def test_it_returns_when_a_message_becomes_due_or_its_lease_ends(place: Place, kind: Kind, db: Database) -> None:
    queue = made(db)
    for lease in (None, 0.5):
        id = queue.push(1, delay=0.5 if lease is None else 0)
        assert lease is None or queue.pop(lease=lease)
        call(db, "wait", seconds=PATIENCE)
        [(popped, *_, token)] = call(db, "pop")
        assert popped == id
        call(db, "complete", ids=[id], token=token)


def test_nothing_is_held_while_it_waits(place: Place, kind: Kind, db: Database) -> None:
    queue = made(db, groups=True)
    with waiting(place, kind, db) as answer:
        until(lambda: not place.execute(OPEN[kind.name].format(place.table("work"))), "a pause without locks")
        queue.alter(expires=3600)  # which needs the table, and the procedures, for itself
        queue.push(1, group="a")
        answer.result(PATIENCE)


def test_in_a_transaction_of_the_callers_it_is_refused_at_once(db: Database) -> None:
    made(db)
    with transaction(db) as one:
        one.call("pop")
        refuses(TablequeueError, one.call, "wait", seconds=PATIENCE)
        one.connection.rollback()


@pytest.mark.parametrize("seconds", [-1, 1e12])
def test_a_time_that_is_out_of_range_is_refused(db: Database, seconds: float) -> None:
    made(db)
    refuses(BadInput, call, db, "wait", seconds=seconds)
    call(db, "wait", seconds=0)
