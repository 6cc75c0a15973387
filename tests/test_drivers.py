"""Which driver a URL means, and what is said of one that tablequeue does not speak through."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue.engines import ENGINES, engine_class
from tablequeue.errors import BadUrl
from tests.support import refuses

# What SQLAlchemy takes for a URL that names no driver, where that is none of ours.
OTHERS = {
    kind: driver
    for kind in ENGINES
    if (driver := sa.URL.create(kind).get_dialect().driver) not in engine_class(kind).drivers
}


def test_mysqlclient_is_sqlalchemys_own_choice() -> None:
    assert OTHERS["mysql"] == OTHERS["mariadb"] == "mysqldb"


@pytest.mark.parametrize("kind", OTHERS)
def test_a_url_without_a_driver_says_which_to_name(kind: str) -> None:
    """Whether or not SQLAlchemy's choice is installed."""
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
