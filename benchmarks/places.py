"""The databases of the benchmarks: SQLite in a temporary folder; private PostgreSQL and MariaDB servers with their
defaults."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import mariadb
from tests.servers import mariadb_server, postgresql_bin, private_postgresql

# More than enough for the 200 waiting consumers and 200 producers of crowd.py.
CONNECTIONS = 650


@contextmanager
def sqlite_url() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as folder:
        yield f"sqlite:///{Path(folder, 'bench.db')}"


@contextmanager
def postgresql_url() -> Iterator[str]:
    programs = postgresql_bin()
    if programs is None:
        raise SystemExit("PostgreSQL is not installed. Run `make servers`.")
    with private_postgresql(programs, CONNECTIONS, flushes=True) as url:
        yield url


@contextmanager
def mariadb_url() -> Iterator[str]:
    programs = mariadb.programs()
    if programs is None:
        raise SystemExit("MariaDB is not installed. Run `make servers`.")
    with mariadb_server(*programs, flushes=True) as server:
        yield server.url


PLACES = {"sqlite": sqlite_url, "postgresql": postgresql_url, "mariadb": mariadb_url}
LABELS = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mariadb": "MariaDB"}


def machine() -> str:
    """Return the number of cores, and the versions of Python and the databases."""
    words = [f"{os.cpu_count()} cores", f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    if programs := postgresql_bin():
        words.append(f"PostgreSQL {_version(programs / 'postgres')}")
    if servers := mariadb.programs():
        words.append(f"MariaDB {_version(servers[1])}")
    return ", ".join(words)


def _version(program: str | Path) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else "of an unknown version"
