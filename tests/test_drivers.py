"""The driver that a URL selects, and the error for one that tablequeue does not support."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue.engines import ENGINES, driver_missing, engine_class
from tablequeue.errors import BadUrl
from tests.support import refuses

# SQLAlchemy's choices for URLs without a driver that tablequeue does not support.
OTHERS = {
    kind: driver
    for kind in ENGINES
    if (driver := sa.URL.create(kind).get_dialect().driver) not in engine_class(kind).drivers
}


def test_mysqlclient_is_sqlalchemys_own_choice() -> None:
    assert OTHERS["mysql"] == OTHERS["mariadb"] == "mysqldb"


@pytest.mark.parametrize("kind", OTHERS)
def test_a_url_without_a_driver_says_which_to_name(kind: str) -> None:
    """The error is the same whether or not SQLAlchemy's choice is installed."""
    error = refuses(BadUrl, tablequeue.connect, f"{kind}://somebody:secret@127.0.0.1:1/db")
    assert error.cause == (
        f"tablequeue does not speak {kind} through the driver {OTHERS[kind]}, which SQLAlchemy takes for {kind}://."
    )
    assert error.remedy == f"Write {kind}+{engine_class(kind).drivers[0]}:// in the URL."


@pytest.mark.parametrize(
    ("url", "write"),
    [
        ("mysql+mysqldb://host/db", "mysql+pymysql://"),
        ("mariadb+mysqldb://host/db", "mariadb+pymysql://"),
        ("mariadb+mariadbconnector://host/db", "mariadb+pymysql://"),
        ("mysql+aiomysql://host/db", "mysql+pymysql://"),
        ("postgresql+psycopg2://host/db", "postgresql+psycopg://"),
        ("postgresql+asyncpg://host/db", "postgresql+psycopg://"),
        ("postgres://host/db", "postgresql+psycopg://"),
        ("sqlite+aiosqlite:///work.db", "sqlite+pysqlite://"),
    ],
)
def test_a_driver_that_is_not_ours(url: str, write: str) -> None:
    assert write in refuses(BadUrl, tablequeue.connect, url).remedy


def test_a_driver_that_sqlalchemy_does_not_have() -> None:
    assert sa.__version__ in refuses(BadUrl, tablequeue.connect, "mysql+nonsense://host/db").cause


@pytest.mark.parametrize(
    ("url", "module", "remedy"),
    [
        ("postgresql+psycopg://host/db", "psycopg", "pip install 'tablequeue[postgresql]'"),
        ("mysql+pymysql://host/db", "pymysql", "pip install 'tablequeue[mysql]'"),
        ("mssql+pyodbc://host/db", "pyodbc", "Install it, or write mssql+mssqlpython://"),
        ("mssql+pymssql://host/db", "pymssql", "Install it, or write mssql+mssqlpython://"),
    ],
)
def test_a_driver_that_is_not_installed(url: str, module: str, remedy: str) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
import tablequeue
try:
    tablequeue.connect({url!r})
except tablequeue.errors.DriverMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert remedy in done.stdout
    assert module in done.stdout


# Other reasons for a failed import: an older driver, or a bug in tablequeue.
FAILURES = {
    "an older driver": (
        "import psycopg.adapt; del psycopg.adapt.Dumper",
        "DriverMissing: The Python driver for postgresql cannot be used (cannot import name 'Dumper'",
    ),
    "ourselves": (
        "import tablequeue.engines.texts; del tablequeue.engines.texts.quoted_role",
        "ImportError: cannot import name 'quoted_role' from 'tablequeue.engines.texts'",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_another_failure_is_not_told_as_a_missing_driver(failure: str) -> None:
    before, told = FAILURES[failure]
    program = f"{before}\nimport tablequeue\ntablequeue.connect('postgresql+psycopg://127.0.0.1:1/db')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told in done.stderr.splitlines()[-1]


def test_a_sqlalchemy_that_does_not_fit() -> None:
    error = driver_missing("postgresql", ImportError("cannot import name 'X'", name="sqlalchemy.exc"))
    assert sa.__version__ in error.cause
    assert "pip install --upgrade sqlalchemy" in error.remedy


@pytest.mark.parametrize("driver", ["sqlite", "sqlite+aiosqlite"])
def test_an_async_driver_is_ready_when_connect_returns(driver: str, tmp_path: Path) -> None:
    """`AsyncDatabase.engine` imports nothing in the event loop then. Who names no async driver imports nothing."""
    program = (
        "import asyncio, sys; from tablequeue import aio;"
        f"asyncio.run(aio.connect('{driver}:///{tmp_path}/a.db')); print('sqlalchemy.ext.asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == str("+" in driver), done.stderr
