"""Calls that get no answer: of a server that is suspended, and of a packet whose statement was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database
from tablequeue.engines import silence
from tablequeue.engines.mysql import answers
from tablequeue.errors import ConnectionLost, QueueNotFound, TablequeueError, Unreachable
from tablequeue.worker import Worker
from tests.servers import Kind, Place, only
from tests.support import counts, refuses
from tests.suspended import relayed
from tests.worker.support import PATIENCE, until, working

servers = only("postgresql", "mariadb")
mariadb = only("mariadb")
SLEEP = {"postgresql": "select pg_sleep({})", "mariadb": "select sleep({})"}
# The number of statements of a worker that are ended: the administrator sees few of those of MariaDB in time.
ENDED = 5
# What ends the statements of other sessions on queues, or the sessions themselves.
SESSIONS = {
    "postgresql": "select {}(pid) from pg_stat_activity where pid <> pg_backend_pid() and query like '%%tq_%%'",
    "mariadb": "select concat('{} ', id) from information_schema.processlist "
    "where id <> connection_id() and info like '%%tq_%%'",
}
ENDS = {
    "postgresql": ("pg_cancel_backend", "pg_terminate_backend"),
    "mariadb": ("kill query", "kill"),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask earlier than in use, and give up earlier."""
    for module in (silence, answers):
        monkeypatch.setattr(module, "PAUSES", (0.05, 0.2))
    monkeypatch.setattr(silence, "LIMIT", 0.5)


def run(database: Database, statements: Sequence[str]) -> Any:
    """Run statements on a connection of the library: on MariaDB as a packet."""

    def operation(cursor: Any, table: Any, params: Any) -> Any:
        if hasattr(cursor, "packet"):
            return cursor.packet(statements, None)
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()

    return database._runner.run(operation, database._runner.engine.shared, {})


# -- a packet that is cut off ------------------------------------------------------------------------------------------


def cut_off(database: Database, place: Place, patience: float = PATIENCE) -> Future[Any]:
    """Run packets until one is cut off, because a statement of it is killed when it is just done.

    The future is of that packet, and not done if it does not end in time.
    """
    place.execute(f"create table if not exists {place.schema}.cut_off (id int)")
    # Mostly the kill comes in a commit, which it does not end.
    insert = f"insert into {place.schema}.cut_off values (1)"  # noqa: S608
    packet = ["select 'cut off'", *[insert] * 100, "select 'the end'"]
    look = "select id from information_schema.processlist where id <> connection_id() and info like '%%cut off%%'"
    threads = ThreadPoolExecutor(1)
    with administrator(place) as asked:
        while True:
            future = threads.submit(run, database, packet)
            killed: list[int] = []
            while not future.done() and not killed:
                for session in (killed := asked(look)):
                    asked(f"kill query {session}")
            wait([future], patience)
            if not future.done() or answers.CUT_OFF in str(future.exception()):
                threads.shutdown(wait=False)
                return future


@mariadb
def test_a_packet_of_which_a_statement_is_killed_is_refused(place: Place, quick: None) -> None:
    database = place.open()
    queue = database.create_queue("work")
    assert isinstance(cut_off(database, place).exception(), ConnectionLost)
    assert queue.push("x"), "on another connection"


@mariadb
def test_a_packet_that_takes_long_is_answered(place: Place, quick: None) -> None:
    """A ping follows it, and its answer is not taken for that of the next call."""
    database = place.open()
    queue = database.create_queue("work")
    (before,) = database._runner.pool._idle
    packet = ["begin", "select sleep(0.3)", "select 2", "commit"]
    for _ in range(3):
        assert run(database, packet) == [((0,),), ((2,),)]
        assert queue.push("x")
    refuses(QueueNotFound, run, database, [*packet[:2], "select 1 from nowhere", *packet[2:]])
    assert run(database, packet) == [((0,),), ((2,),)]
    assert [*database._runner.pool._idle] == [before], "it stays as it is"


# -- a server that answers nothing -------------------------------------------------------------------------------------


@servers
def test_a_server_that_answers_nobody(place: Place, kind: Kind, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "PATIENCE", 0.2)
    monkeypatch.setattr(answers, "CONNECT_TIMEOUT", 1.0)
    with relayed(place) as (relay, behind), ThreadPoolExecutor(1) as threads:
        options = {"connect_timeout": "2"} if kind.name == "postgresql" else {}
        url = sa.make_url(behind.url).update_query_dict(options)
        database = Place(url.render_as_string(hide_password=False), place.schema).open()
        queue = database.create_queue("work", payload="text")
        relay.stop_after(0)
        refuses(ConnectionLost, threads.submit(queue.push, "x").result, PATIENCE)
        refuses(Unreachable, threads.submit(queue.push, "y").result, PATIENCE)
        relay.release()
        queue.push("z")
        assert "z" in [message.payload for message in queue.peek()]
        database.close()


def check_long_statement(place: Place, kind: Kind) -> None:
    """A statement may take longer than a server may answer nobody: it answers others."""
    run(place.open(), [SLEEP[kind.name].format(2 * silence.LIMIT)])


@servers
def test_a_statement_that_takes_long_is_waited_for(place: Place, kind: Kind, quick: None) -> None:
    check_long_statement(place, kind)


@servers
@pytest.mark.parametrize("fault", ["nobody asks", "no time is long enough"])
def test_the_checks_notice(place: Place, kind: Kind, quick: None, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "nobody asks":
        monkeypatch.setattr(silence.Silence, "question", lambda self: None)
        with relayed(place) as (relay, behind), ThreadPoolExecutor(1) as threads:
            queue = behind.open().create_queue("work", payload="text")
            relay.stop_after(0)
            future = threads.submit(queue.push, "x")
            with pytest.raises(TimeoutError):
                future.result(4 * silence.LIMIT)
            relay.release()
            future.result(PATIENCE)
    else:
        monkeypatch.setattr(silence.Watch, "answers", lambda self: False)
        refuses(ConnectionLost, check_long_statement, place, kind)


@mariadb
def test_the_check_notices_a_packet_that_nothing_follows(
    place: Place, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PING", b"")
    database = place.open()
    database.create_queue("work")
    future = cut_off(database, place, 2)
    assert not future.done()
    with administrator(place) as asked:
        for raw in database._runner.pool._all:
            asked(f"kill {raw.dbapi.thread_id()}")
    assert isinstance(future.exception(PATIENCE), ConnectionLost)


# -- workers -----------------------------------------------------------------------------------------------------------


def check_goes_on(place: Place, disturb: Callable[[], None]) -> None:
    """A worker whose statements are ended handles what is pushed afterwards."""
    database = place.open()
    # A claim that has committed before its answer was lost comes back when its lease ends.
    queue = database.create_queue("work", payload="text", lease=2, max_attempts=100)
    handled = Event()

    def handle(message: Claim) -> None:
        if message.payload == "last":
            handled.set()

    worker = Worker(maximum=2)
    worker.handler("work")(handle)
    with working(worker, database):
        disturb()
        until(lambda: pushed(place, "last"), "it is pushed")
        assert handled.wait(PATIENCE)
        until(lambda: set(counts(queue)) == {"finished"}, "all are finished")


def pushed(place: Place, payload: str) -> bool:
    try:
        place.open().queue("work").push(payload)
    except TablequeueError:
        return False
    return True


@contextmanager
def administrator(place: Place) -> Iterator[Callable[[str], list[Any]]]:
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def asked(statement: str) -> list[Any]:
            try:
                result = connection.exec_driver_sql(statement)
                return [row[0] for row in result] if result.returns_rows else []
            except sa.exc.DBAPIError:
                return []  # the session is gone

        yield asked


@servers
@pytest.mark.parametrize("sessions", [False, True], ids=["statements", "sessions"])
def test_a_worker_whose_statements_are_ended_goes_on(place: Place, kind: Kind, sessions: bool) -> None:
    end = ENDS[kind.name][sessions]
    with administrator(place) as asked:

        def disturb() -> None:
            ended = 0
            while ended < ENDED:
                pushed(place, "x")
                for found in asked(SESSIONS[kind.name].format(end)):
                    ended += 1
                    if kind.name == "mariadb":
                        asked(found)

        check_goes_on(place, disturb)
