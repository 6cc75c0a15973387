"""Refusals about URLs, drivers, servers, disks, locks and rights, none of which shows a password."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
import tablequeue.aio
from tablequeue import Database, NewMessage, TablequeueError
from tablequeue.errors import (
    BadInput,
    BadName,
    BadUrl,
    DatabaseError,
    DriverMissing,
    Full,
    Locked,
    ReadOnly,
    Unreachable,
)
from tablequeue.ext import context_of
from tests.servers import Kind, Place, free_port, only
from tests.support import claimed, counts, ids_of, refuses, snapshot

pytestmark = pytest.mark.quick

SECRET = "Tr0ub4dor"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'queues.db'}"


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "work.db", "http://", "sqlite", "postgresql+psycopg://host:port/db", "oracle://host/db", "mongo://host/db"],
)
def test_a_url_that_names_no_database_of_ours(url: str) -> None:
    refuses((BadUrl, DriverMissing), tablequeue.connect, url)  # type: ignore[arg-type]


def test_the_remedy_for_a_common_slip() -> None:
    assert "postgresql" in refuses(BadUrl, tablequeue.connect, "postgres://host/db").remedy


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true"])
def test_sqlite_in_memory(url: str) -> None:
    assert "in-memory" in refuses(BadUrl, tablequeue.connect, url).cause


def test_a_wrong_option_of_a_url(sqlite_url: str) -> None:
    refuses(BadUrl, tablequeue.connect, f"{sqlite_url}?timeout=soon")


def test_a_driver_that_we_do_not_speak_through(sqlite_url: str) -> None:
    sa_engine = sa.create_engine(sqlite_url)
    sa_engine.dialect.driver = "nonsense"
    assert "sqlite+pysqlite" in refuses(BadUrl, tablequeue.connect, sa_engine).remedy


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam, " * 100)
    refuses(BadUrl, tablequeue.connect, f"sqlite:///{file}")
    assert file.read_text() == "Dear Sir or Madam, " * 100


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    refuses(Unreachable, tablequeue.connect, f"sqlite:///{tmp_path}/none/queues.db")


def test_schemas_where_there_are_none(sqlite_url: str) -> None:
    refuses(BadInput, tablequeue.connect, sqlite_url, schema="mine")


@pytest.mark.parametrize("schema", ["Mine", "a-b", "", "a.b", "x" * 49])
def test_schemas_that_cannot_be(place: Place, kind: Kind, schema: str) -> None:
    refuses(BadName if kind.has_schemas else BadInput, tablequeue.connect, place.url, schema=schema)


# -- drivers -----------------------------------------------------------------------------------------------------------


def test_a_driver_that_is_not_installed() -> None:
    program = """
import sys
sys.modules["psycopg"] = None
import tablequeue
try:
    tablequeue.connect("postgresql+psycopg://somebody:Tr0ub4dor@localhost/db")
except tablequeue.errors.DriverMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'tablequeue[postgresql]'" in done.stdout
    assert SECRET not in done.stdout + done.stderr


# -- servers -----------------------------------------------------------------------------------------------------------


def told(error: BaseException) -> str:
    """Return everything that a log would show of the error."""
    return f"{error} {error!r} {error.__dict__}"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://somebody:{SECRET}@127.0.0.1:{{port}}/db",
        f"postgresql+psycopg://somebody@127.0.0.1:{{port}}/db?password={SECRET}",
        f"postgresql+psycopg://somebody:{SECRET}@no-such-host.invalid/db",
    ],
)
def test_a_server_that_does_not_answer(url: str) -> None:
    error = refuses(Unreachable, tablequeue.connect, url.format(port=free_port()))
    assert "127.0.0.1" in error.cause or "no-such-host" in error.cause
    assert SECRET not in told(error)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://somebody:{SECRET}@host:port/db",
        f"postgresql+psycopg://somebody:{SECRET}/x@host/db",
        f"postgresql+nonsense://somebody:{SECRET}@host/db",
        f"nonsense://somebody:{SECRET}@host/db",
        f"://somebody:{SECRET}@host/db",
        f"postgresql+psycopg://somebody:{SECRET}@127.0.0.1:1/db?nonsense=1",
        f"postgresql+psycopg://127.0.0.1:1/db?password={SECRET}&nonsense=1",
        f"postgresql+psycopg://somebody:x@{SECRET}@127.0.0.1:1/db",
        f"postgresql+psycopg://somebody:x@y/{SECRET}@127.0.0.1:1/db",
        f"mariadb+pymysql://somebody:x@{SECRET}@127.0.0.1:1/db",
    ],
)
def test_no_password_in_what_is_said_of_a_url(url: str) -> None:
    assert SECRET not in told(refuses(TablequeueError, tablequeue.connect, url))


@pytest.mark.parametrize("where", ["somebody:{}@", "?password={}", "?passwd={}", "?PWD={}", "?odbc_connect=PWD%3D{}"])
def test_no_password_in_a_repr(sqlite_url: str, where: str) -> None:
    path = where.format(SECRET)
    url = f"postgresql+psycopg://{path}host/db" if path.endswith("@") else f"postgresql+psycopg://host/db{path}"
    sa_engine = sa.create_engine(url)
    database = Database(sa_engine, tablequeue.connect(sqlite_url)._runner, None)
    assert "host/db" in repr(database)
    assert SECRET not in repr(database)


def test_a_server_that_hangs_up(tmp_path: Path) -> None:
    """Another program listens on the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import tablequeue; tablequeue.connect('postgresql+psycopg://x:{SECRET}@127.0.0.1:{port}/db')"
        process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
        while process.poll() is None:
            server.settimeout(1)
            try:
                server.accept()[0].close()
            except TimeoutError:
                continue
        assert process.stderr is not None
        with process.stderr as stderr:
            words = stderr.read()
    assert "tablequeue.errors.Unreachable" in words
    assert SECRET not in words.splitlines()[-1]


# -- a full disk -------------------------------------------------------------------------------------------------------


class Disk:
    """A disk whose size a test can change."""

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)
        self.pages = 1 << 30
        sa.event.listen(self.engine, "connect", self._limit)

    def _limit(self, dbapi: Any, record: Any) -> None:
        dbapi.execute(f"pragma max_page_count = {self.pages}")


@pytest.fixture
def disk(sqlite_url: str) -> Iterator[Disk]:
    disk = Disk(sqlite_url)
    yield disk
    disk.engine.dispose()


def test_a_full_disk_loses_nothing_and_the_queue_goes_on(disk: Disk) -> None:
    ours = tablequeue.connect(disk.engine)
    queue = ours.create_queue("work", payload="text")
    ours.close()
    disk.pages = 60
    stored: list[int] = []

    def push_for_ever() -> None:
        while True:
            stored.append(queue.push("x" * 2000))

    assert "again" in refuses(Full, push_for_ever).remedy
    assert stored
    assert ids_of(queue.peek(1000)) == stored
    before = snapshot(queue)
    refuses(Full, queue.push_many, ["y" * 2000] * 1000)
    assert snapshot(queue) == before
    ours.close()
    disk.pages = 1 << 30
    assert queue.push("after") > stored[-1]
    for claim in queue.consume(wait=0):
        claim.complete()
    assert counts(queue) == {"finished": len(stored) + 1}
    ours.close()


@pytest.mark.parametrize("message", ["y" * 2000, NewMessage("y" * 2000, headers={})], ids=["plain", "with options"])
def test_a_full_disk_in_your_transaction_leaves_no_half_batch(disk: Disk, message: Any) -> None:
    ours = tablequeue.connect(disk.engine)
    queue = ours.create_queue("work", payload="text")
    ours.close()
    disk.engine.dispose()
    disk.pages = 60
    with disk.engine.connect() as connection:
        refuses(Full, queue.push_many, [message] * 1000, connection=connection)
        connection.commit()
    assert counts(queue) == {}
    ours.close()


# -- locks and rights --------------------------------------------------------------------------------------------------


def test_another_program_holds_the_database(tmp_path: Path, sqlite_url: str) -> None:
    with tablequeue.connect(f"{sqlite_url}?timeout=0.1") as ours:
        queue = ours.create_queue("work")
        queue.push(1)
        other = sqlite3.connect(tmp_path / "queues.db", isolation_level=None)
        other.execute("begin exclusive")
        for call in (queue.pop, queue.purge, lambda: queue.push(2), lambda: queue.push_many([2, 3])):
            refuses(Locked, call)
        other.execute("rollback")
        other.close()
        assert counts(queue) == {"ready": 1}
        claimed(queue).complete()


def test_a_database_that_is_read_only(tmp_path: Path, sqlite_url: str) -> None:
    with tablequeue.connect(sqlite_url) as writable:
        writable.create_queue("work").push(1)
        with tablequeue.connect(f"sqlite:///file:{tmp_path / 'queues.db'}?mode=ro&uri=true") as database:
            queue = database.queue("work")
            assert database.queues() == ["work"]
            assert len(queue.peek()) == 1
            for call in (queue.pop, queue.purge, queue.drop, lambda: queue.push(2), lambda: queue.push_many([2, 3])):
                refuses(ReadOnly, call)
            refuses(ReadOnly, database.create_queue, "other")
        assert counts(writable.queue("work")) == {"ready": 1}


def test_a_table_that_was_damaged_by_hand(place: Place) -> None:
    """An error of the database without a class of its own is still a TablequeueError."""
    queue = place.open().create_queue("work")
    place.execute(f"alter table {place.table('work')} drop column consumer")
    refuses(DatabaseError, queue.pop)
    refuses(DatabaseError, queue.peek)


@only("postgresql", "mariadb")
def test_a_time_out_of_the_server_is_named_in_the_remedy(place: Place, kind: Kind) -> None:
    place.open().create_queue("work", payload="text")
    url = sa.make_url(place.url)
    user = f"user_{place.schema}"
    if kind.name == "postgresql":
        url, setting = url.update_query_dict({"options": "-c statement_timeout=200"}), "statement_timeout"
        lock, unlock = "lock table {} in access exclusive mode", "rollback"
    else:
        place.execute(f"create user {user}@'%%' with max_statement_time 0.2")
        place.execute(f"grant all on *.* to {user}@'%%'")
        url, setting = url.set(username=user), "max_statement_time"
        lock, unlock = "lock tables {} write", "unlock tables"
    queue = tablequeue.connect(url, schema=place.schema).queue("work")
    with place.sa_engine().connect() as holder:
        holder.exec_driver_sql(lock.format(place.table("work")))
        assert setting in refuses(Locked, queue.push, "x").remedy
        holder.exec_driver_sql(unlock)
    queue.push("x")
    context_of(queue).runner.close()
    context_of(queue).runner.sa_engine.dispose()
    if kind.name == "mariadb":
        place.execute(f"drop user {user}@'%%'")


@only("postgresql", "mariadb")
def test_a_server_without_a_connection_left_says_so(place: Place, kind: Kind) -> None:
    user = f"user_{secrets.token_hex(8)}"
    if kind.name == "postgresql":
        create, drop = f"create role {user} login connection limit 1", f"drop role {user}"
    else:
        create, drop = f"create user {user}@'%%' with max_user_connections 1", f"drop user {user}@'%%'"
    place.execute(create)
    if kind.name == "mariadb":
        place.execute(f"grant all on *.* to {user}@'%%'")
    sa_engine = sa.create_engine(sa.make_url(place.url).set(username=user))
    with sa_engine.connect():
        refusal = refuses(Unreachable, tablequeue.connect, sa_engine.url)
        assert "no connection left" in refusal.cause
        assert "fewer connections" in refusal.remedy
    sa_engine.dispose()
    place.execute(drop)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("FATAL:  sorry, too many clients already", "fewer connections"),
        ('FATAL:  too many connections for role "app"', "fewer connections"),
        ("FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute", "fewer connections"),
        ("FATAL:  no more connections allowed (max_client_conn)", "fewer connections"),
        ("FATAL:  Max client connections reached", "fewer connections"),
        ("FATAL:  the database system is starting up", "Try again"),
        ("FATAL:  the database system is not yet accepting connections", "Try again"),
    ],
)
def test_logins_that_postgresql_or_a_pooler_refuses(words: str, remedy: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    from tablequeue.engines.postgresql.refusals import translated

    error = translated(psycopg.OperationalError(f'connection failed: connection to server at "::1" failed: {words}'))
    assert isinstance(error, Unreachable)
    assert remedy in error.remedy


# -- errors as values --------------------------------------------------------------------------------------------------


def test_an_error_crosses_processes() -> None:
    import pickle

    error = tablequeue.LeaseLost("The lease is lost.", "Extend it.", [1, 2])
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.cause, copy.remedy, copy.ids) == (str(error), error.cause, error.remedy, (1, 2))


@pytest.mark.parametrize("given", [1, None, [1], ["x"]])
def test_what_is_no_claim_is_not_finished(sqlite_url: str, given: Any) -> None:
    queue: Any = tablequeue.connect(sqlite_url).create_queue("work")
    queue.push("x")
    claim = claimed(queue)
    for verb in (queue.complete, queue.fail, queue.release, queue.extend):
        refuses(BadInput, verb, given)
    for verb in (queue.complete_many, queue.fail_many, queue.release_many, queue.extend_many):
        refuses(BadInput, verb, [claim, given])
        refuses(BadInput, verb, given)
    refuses(BadInput, queue.pop, completing=given or 1)
    claim.complete()


def test_what_is_no_claim_is_not_finished_by_asyncio(sqlite_url: str) -> None:
    async def attempt() -> None:
        async with await tablequeue.aio.connect(sqlite_url) as db:
            queue: Any = await db.create_queue("work")
            for verb in ("complete", "fail", "release", "extend"):
                for given in (1, None):
                    with pytest.raises(BadInput):
                        await getattr(queue, verb)(given)
                    with pytest.raises(BadInput):
                        await getattr(queue, f"{verb}_many")([given])

    asyncio.run(attempt())
