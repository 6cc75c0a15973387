"""Where the tests keep their queues: one line for each engine in KINDS, and private servers."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, Queue
from tablequeue.engines import engine_class
from tablequeue.engines.engine import Engine
from tablequeue.engines.runner import Runner
from tablequeue.engines.texts import statements_in
from tests import mariadb, mssql

# What the largest crowd of test_concurrency.py needs of a server, and some.
CONNECTIONS = 450


def _dict_of(cursor: Any, row: Any) -> dict[str, Any]:
    return dict(zip([column[0] for column in cursor.description], row, strict=True))


def _dict_row(cursor: Any) -> Any:
    from psycopg.rows import dict_row

    return dict_row(cursor)


@dataclass(frozen=True)
class Kind:
    """One engine under test, and what the tests must know of it."""

    name: str
    url: Callable[[pytest.FixtureRequest], str]
    crowd: int
    """How many processes the crowd has."""
    side_by_side: bool
    """Whether two transactions can write at the same time."""
    explain: str | None
    """What before a statement shows its plan; None if nothing does."""
    sorts: str
    """What a plan says, in lower case, where no index serves the order."""
    analyze: str
    """What before a table gathers its statistics."""
    dict_rows: Callable[..., Any] | None
    """A row factory of the driver whose rows are no tuples; None if its connections have none."""
    rows_attribute: str = "row_factory"
    """The attribute of a connection that takes it."""
    server: Callable[[], AbstractContextManager[Server] | None] | None = None
    """Gives a server of one's own, to be killed, or None if it is not installed. None: there are no servers."""
    producers_and_consumers: tuple[int, int] = (8, 50)
    """The processes of a large crowd, and the threads in each: half of all are consumers."""
    messages: int = 10
    """How many each producer of a large crowd pushes."""
    waiting: str | None = None
    """Counts the sessions of a server that wait for what another one has locked."""
    number: Callable[[Any], int] = id
    """By which the server knows a raw connection."""
    blocked: Callable[[sa.Connection], set[int]] | None = None
    """The numbers of the connections that wait for what another one has locked, at this moment."""
    patient: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Arguments of the driver's connect with which nobody gives up waiting before a test does."""
    drop_schema: str | None = "drop schema if exists {} cascade"
    """Drops the schema of a test; None where the whole database goes with the run."""
    index_of: Callable[[Queue, str], str] = lambda queue, state: f"tq_{queue.name}__{state}"
    """Which index has the messages of a queue in a state."""
    looks: int | None = None
    """How many statements of an operation look for messages, the first ones; the others act on what was found."""
    lock: str = "lock table {} in exclusive mode"
    """Lets every producer of a table wait for the end of the transaction."""

    @property
    def engine_class(self) -> type[Engine]:
        return engine_class(self.name)

    @property
    def has_schemas(self) -> bool:
        return self.engine_class.has_schemas

    @property
    def heap_is_fifo(self) -> bool:
        """Whether a heap has the texts of a fifo to the letter, as where an index by ids gives both."""
        texts = self.engine_class.ready_index, self.engine_class.order_by
        return self.name != "mssql" and all(by["heap"] == by["fifo"] for by in texts)

    def place(self, url: str, schema: str | None) -> Place:
        return Place(url, schema)


# To test another engine, add an entry.
KINDS = (
    Kind(
        "sqlite",
        lambda request: _sqlite_url(request),
        64,
        False,
        "explain query plan ",
        "temp b-tree",
        "analyze ",
        _dict_of,
        lock="begin immediate",
        producers_and_consumers=(64, 1),
        messages=100,
        patient={"timeout": 300},
    ),
    Kind(
        "postgresql",
        lambda request: request.getfixturevalue("postgresql_url"),
        16,
        True,
        "explain ",
        "sort",
        "analyze ",
        _dict_row,
        server=lambda: _postgresql_server(),
        waiting="select count(*) from pg_stat_activity where wait_event_type = 'Lock'",
        number=lambda dbapi: dbapi.info.backend_pid,
        blocked=lambda watch: _blocked_backends(watch),
    ),
    mariadb.kind(Kind, lambda: _mariadb_server()),
    *mssql.kinds(Kind),
)
# Engines that the tests run on only where a server of theirs is named; and MySQL's, which is MariaDB's.
ELSEWHERE = {"mysql"} | ({"mssql"} if not mssql.URL else set())


def only(*names: str) -> pytest.MarkDecorator:
    """For a test, or as the `pytestmark` of a module, of what these engines alone have, or what is the same on all."""
    return pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in names], ids=lambda kind: kind.name)


def _sqlite_url(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder / 'queues.db'}"


def _blocked_backends(watch: sa.Connection) -> set[int]:
    # Of the locks themselves: pg_stat_activity says for a while after the end that somebody waits.
    rows = watch.exec_driver_sql("select pid from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0")
    return set(rows.scalars())


def _postgresql_server() -> AbstractContextManager[Server] | None:
    programs = postgresql_bin()
    return postgresql_server(programs, CONNECTIONS) if programs else None


def _mariadb_server() -> AbstractContextManager[Server] | None:
    programs = mariadb.programs()
    return mariadb_server(*programs, CONNECTIONS) if programs else None


@contextmanager
def mariadb_server(install: str, serve: str, connections: int = 100, flushes: bool = False) -> Iterator[Server]:
    """A MariaDB server of our own, to be killed and started again."""
    with mariadb.server(install, serve, connections, flushes) as (url, start, kill):
        yield Server(url, start, kill)


@dataclass
class Place:
    """A database of one test: opens independent Database objects, and can be sent to other processes."""

    url: str
    schema: str | None
    opened: list[Database] = field(default_factory=list)
    engines: list[sa.Engine] = field(default_factory=list)

    def __reduce__(self) -> tuple[object, ...]:
        return (Place, (self.url, self.schema))

    def open(self, name: str | None = None) -> Database:
        """A Database with connections of its own."""
        database = tablequeue.connect(self.url, schema=self.schema, name=name)
        self.opened.append(database)
        return database

    def open_with(self, engine_class: type[Engine], name: str | None = None) -> Database:
        """A Database on that engine class instead of the one of the URL: for mutants."""
        sa_engine = self.sa_engine()
        database = Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect, self.schema)), name)
        self.opened.append(database)
        return database

    def sa_engine(self) -> sa.Engine:
        """A SQLAlchemy engine as an application has one."""
        sa_engine = sa.create_engine(self.url)
        self.engines.append(sa_engine)
        return sa_engine

    def execute(self, statement: str, params: Any = None) -> list[Any]:
        """Run one statement in the database's own SQL, committed; `{table}` words are the caller's affair."""
        with self.sa_engine().begin() as connection:
            result = connection.exec_driver_sql(statement, params)
            return list(result) if result.returns_rows else []

    def run_script(self, script: str) -> None:
        """Run statements, in one transaction. The lines of a function's or a trigger's body are indented."""
        with self.sa_engine().begin() as connection:
            if self.schema and connection.dialect.name == "mariadb":
                connection.exec_driver_sql(f"create schema {self.schema}")
                connection.exec_driver_sql(f"use {self.schema}")
            for statement in statements_in(script):
                if statement not in ("BEGIN TRANSACTION", "COMMIT"):
                    connection.exec_driver_sql(statement)

    def table(self, queue: str) -> str:
        """The name of a queue's table."""
        return f"{self.schema}.tq_{queue}" if self.schema else f"tq_{queue}"

    def close(self) -> None:
        for database in self.opened:
            database.close()
            database.engine.dispose()
        for engine in self.engines:
            engine.dispose()


@dataclass(frozen=True)
class VariantKind(Kind):
    """An engine that is changed for the tests, so that some files of the conformance suite run over it too."""

    variant: str = ""
    """What it is called beside the engine's name."""
    change: Callable[[type[Engine]], type[Engine]] = lambda engine: engine
    files: frozenset[str] = frozenset()
    """The files of the conformance suite, without `.py`."""
    designs: frozenset[str] = frozenset()
    """The designs of tests/support.py; all of them in the file about the order."""

    @classmethod
    def of(
        cls,
        kind: Kind,
        variant: str,
        change: Callable[[type[Engine]], type[Engine]],
        files: frozenset[str],
        designs: frozenset[str],
    ) -> Kind:
        known = {each.name: getattr(kind, each.name) for each in fields(kind)}
        return cls(**known, variant=variant, change=change, files=files, designs=designs)

    @property
    def engine_class(self) -> type[Engine]:
        return self.change(super().engine_class)

    def place(self, url: str, schema: str | None) -> Place:
        return VariantPlace(url, schema, kind=self)

    def fits(self, file: str, design: str | None) -> bool:
        return file in self.files and (file == "test_order" or design is None or design in self.designs)


@dataclass
class VariantPlace(Place):
    kind: Kind | None = None

    def open(self, name: str | None = None) -> Database:
        assert self.kind is not None
        return self.open_with(self.kind.engine_class, name)


def postgresql_bin() -> Path | None:
    """The folder of PostgreSQL's programs: on the path, or the newest where distributions put them."""
    on_path = shutil.which("initdb")
    if on_path and shutil.which("pg_ctl"):
        return Path(on_path).resolve().parent
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")]
    return max(installed, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), default=None)


@dataclass(frozen=True)
class Server:
    """A database server of our own in a temporary folder.

    It flushes the disk only with `flushes`: with it the tests on MariaDB take twice as long.
    """

    url: str
    start: Callable[[], None]
    """Start it again after `kill`, on the same data and the same port; it answers when this returns."""
    kill: Callable[[], None]
    """End it at once, as a crash of all of its processes does; it recovers from its log when it starts again.

    That is not the crash of a machine: what the server wrote and had not synced survives.
    """


@contextmanager
def private_postgresql(programs: Path, connections: int = 100, flushes: bool = False) -> Iterator[str]:
    """A PostgreSQL server of our own in a temporary folder; yields its URL."""
    with postgresql_server(programs, connections, flushes) as server:
        yield server.url


@contextmanager
def postgresql_server(programs: Path, connections: int = 100, flushes: bool = False) -> Iterator[Server]:
    """A PostgreSQL server of our own, to be killed and started again."""
    folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-"))
    as_user: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "check": True}
    if os.getuid() == 0:
        # PostgreSQL refuses to run as root.
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data, port = folder / "data", free_port()
    control = [str(programs / "pg_ctl"), "-w", "-D", str(data)]
    options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c max_connections={connections}"
    options += " -c max_prepared_transactions=20" + ("" if flushes else " -c fsync=off")

    def start() -> None:
        subprocess.run([*control, "-l", str(folder / "log"), "-o", options, "start"], **as_user)

    def kill() -> None:
        subprocess.run([*control, "-m", "immediate", "stop"], **as_user)

    try:
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initdb, **as_user)
        start()
        try:
            yield Server(f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres", start, kill)
        finally:
            if (data / "postmaster.pid").exists():
                kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
