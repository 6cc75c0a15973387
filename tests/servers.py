"""The databases of the tests: an entry for each engine in KINDS, and private servers."""

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
from tests import embedded, mariadb, mssql
from tests.embedded import embedded_bin

# More connections than the largest crowd of test_concurrency.py needs, and the clients of test_crashes.py.
CONNECTIONS = 600


def _dict_of(cursor: Any, row: Any) -> dict[str, Any]:
    return dict(zip([column[0] for column in cursor.description], row, strict=True))


def _dict_row(cursor: Any) -> Any:
    from psycopg.rows import dict_row

    return dict_row(cursor)


@dataclass(frozen=True)
class Kind:
    """An engine under test, with the facts that tests need."""

    name: str
    url: Callable[[pytest.FixtureRequest], str]
    crowd: int
    """The number of processes in the crowd."""
    side_by_side: bool
    """Whether two transactions can write at the same time."""
    explain: str | None
    """The prefix that shows the plan of a statement; None if there is none."""
    sorts: str
    """Text in a plan, in lower case, if no index serves the order."""
    analyze: str
    """The command that gathers the statistics of a table."""
    dict_rows: Callable[..., Any] | None
    """A row factory of the driver whose rows are not tuples; None if its connections have no row factory."""
    rows_attribute: str = "row_factory"
    """The attribute of a connection for the row factory."""
    server: Callable[[], AbstractContextManager[Server] | None] | None = None
    """Starts a private server that may be killed, or returns None if it is not installed. None if the engine has no
    server."""
    producers_and_consumers: tuple[int, int] = (8, 50)
    """The processes of a large crowd, and the threads in each. Half of all threads are consumers."""
    messages: int = 5
    """The number of messages of each producer in a large crowd."""
    number: Callable[[Any], int] = id
    """Returns the number by which the server identifies a raw connection."""
    blocked: Callable[[sa.Connection], set[int]] | None = None
    """Returns the numbers of the connections that wait for a lock of another one at this moment."""
    patient: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Arguments for the driver's connect, so that no wait times out before the test does."""
    drop_schema: str | None = "drop schema if exists {} cascade"
    """Drops the schema of a test; None if the whole database is deleted with the run."""
    index_of: Callable[[Queue, str], str] = lambda queue, state: f"tq_{queue.name}__{state}"
    """Returns the index that contains the messages in a state."""
    looks: int | None = None
    """The number of statements at the start of an operation that search for messages. The others act on the result."""
    lock: str = "lock table {} in exclusive mode"
    """Makes every producer of a table wait for the end of the transaction."""

    @property
    def needs_server(self) -> bool:
        return self.name != "sqlite"

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
        messages=50,
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
        number=lambda dbapi: dbapi.info.backend_pid,
        blocked=lambda watch: _blocked_backends(watch),
    ),
    mariadb.kind(Kind, lambda: _mariadb_server()),
    *mssql.kinds(Kind),
)
# Engines that are tested only if a server is named; and MySQL's engine, which is that of MariaDB.
ELSEWHERE = {"mysql"} | ({"mssql"} if not mssql.URL else set())


def only(*names: str) -> pytest.MarkDecorator:
    """Mark a test, or a module by `pytestmark`, that only these engines can run, or that is the same on all."""
    return pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in names], ids=lambda kind: kind.name)


def _sqlite_url(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder / 'queues.db'}"


def _blocked_backends(watch: sa.Connection) -> set[int]:
    # From the locks themselves, because pg_stat_activity still shows a wait for a while after its end.
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
    """Run a private MariaDB server, which may be killed and started again."""
    with mariadb.server(install, serve, connections, flushes) as (url, start, kill):
        yield Server(url, start, kill)


@dataclass
class Place:
    """The database of one test. It opens independent Database objects, and can be sent to other processes."""

    url: str
    schema: str | None
    opened: list[Database] = field(default_factory=list)
    engines: list[sa.Engine] = field(default_factory=list)
    url_file: Path | None = None
    """A file with the URL, for Spark, which is given no password."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Place, (self.url, self.schema))

    def open(self, name: str | None = None) -> Database:
        """Return a Database with connections of its own."""
        database = tablequeue.connect(self.url, schema=self.schema, name=name)
        self.opened.append(database)
        return database

    def open_with(self, engine_class: type[Engine], name: str | None = None) -> Database:
        """Return a Database with this engine class instead of that of the URL, for mutants."""
        sa_engine = self.sa_engine()
        database = Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect, self.schema)), name)
        self.opened.append(database)
        return database

    def sa_engine(self) -> sa.Engine:
        """Return a SQLAlchemy engine, as an application has one."""
        sa_engine = sa.create_engine(self.url)
        self.engines.append(sa_engine)
        return sa_engine

    def execute(self, statement: str, params: Any = None) -> list[Any]:
        """Run one statement in the database's own SQL, and commit. The caller replaces words like `{table}`."""
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
        """Return the table name of a queue."""
        return f"{self.schema}.tq_{queue}" if self.schema else f"tq_{queue}"

    def close(self) -> None:
        for database in self.opened:
            database.close()
            database.engine.dispose()
        for engine in self.engines:
            engine.dispose()


@dataclass(frozen=True)
class VariantKind(Kind):
    """An engine that is changed for the tests, on which tests of the conformance suite with a marker run too."""

    variant: str = ""
    """The name in the marker `variants`, and the suffix of the engine's name."""
    change: Callable[[type[Engine]], type[Engine]] = lambda engine: engine
    designs: frozenset[str] = frozenset()
    """The designs of tests/support.py with which it runs."""

    @classmethod
    def of(
        cls,
        kind: Kind,
        variant: str,
        change: Callable[[type[Engine]], type[Engine]],
        designs: frozenset[str],
    ) -> Kind:
        known = {each.name: getattr(kind, each.name) for each in fields(kind)}
        return cls(**known, variant=variant, change=change, designs=designs)

    @property
    def engine_class(self) -> type[Engine]:
        return self.change(super().engine_class)

    def place(self, url: str, schema: str | None) -> Place:
        return VariantPlace(url, schema, kind=self)


@dataclass
class VariantPlace(Place):
    kind: Kind | None = None

    def open(self, name: str | None = None) -> Database:
        assert self.kind is not None
        return self.open_with(self.kind.engine_class, name)


def postgresql_bin() -> Path | None:
    """Return the folder of PostgreSQL's programs: that on the path, the newest of the distribution, or the embedded.

    TABLEQUEUE_TEST_POSTGRESQL=18 chooses the embedded ones.
    """
    if os.environ.get("TABLEQUEUE_TEST_POSTGRESQL") == embedded.VERSION:
        return embedded_bin()
    on_path = shutil.which("initdb")
    if on_path and shutil.which("pg_ctl"):
        return Path(on_path).resolve().parent
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")]
    newest = max(installed, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0), default=None)
    return newest or embedded_bin()


@dataclass(frozen=True)
class Server:
    """A private database server in a temporary folder. It flushes the disk only with `flushes`, which makes the tests
    on MariaDB take twice as long.
    """

    url: str
    start: Callable[[], None]
    """Starts the server again after `kill`, with the same data and port, and waits until it answers."""
    kill: Callable[[], None]
    """Ends the server at once, like a crash of all its processes. It recovers from its log when it starts again.

    This is not the crash of a machine: data that the server wrote and had not synced survives.
    """


@contextmanager
def private_postgresql(programs: Path, connections: int = 100, flushes: bool = False) -> Iterator[str]:
    """Run a private PostgreSQL server in a temporary folder, and yield its URL."""
    with postgresql_server(programs, connections, flushes) as server:
        yield server.url


@contextmanager
def postgresql_server(programs: Path, connections: int = 100, flushes: bool = False) -> Iterator[Server]:
    """Run a private PostgreSQL server, which may be killed and started again."""
    folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-"))
    as_user: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "check": True}
    if os.getuid() == 0:
        # PostgreSQL refuses to run as root.
        account = _account("postgres")
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


def _account(name: str) -> pwd.struct_passwd:
    """Return the account of the distribution's server, or one that every machine has."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return pwd.getpwnam("nobody")


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
