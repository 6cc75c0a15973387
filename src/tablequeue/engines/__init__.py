"""The engines, by SQLAlchemy dialect name. To add one: a folder here, and a line in the table."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from tablequeue.engines.base import Engine
from tablequeue.errors import DriverMissing


class Entry(NamedTuple):
    path: str
    extra: str | None
    """What `pip install tablequeue[...]` must name to have the driver; None: it comes with Python."""


ENGINES = {
    "sqlite": Entry("tablequeue.engines.sqlite.engine:SQLite", None),
    "postgresql": Entry("tablequeue.engines.postgresql.engine:PostgreSQL", "postgresql"),
    # SQLAlchemy has a dialect for each of the two.
    "mariadb": Entry("tablequeue.engines.mysql.engine:MySQL", "mysql"),
    "mysql": Entry("tablequeue.engines.mysql.engine:MySQL", "mysql"),
    "mssql": Entry("tablequeue.engines.mssql.engine:SQLServer", "mssql"),
}


def engine_class(name: str) -> type[Engine]:
    """The engine of that dialect; `DriverMissing` if its Python driver is not installed."""
    module, _, attribute = ENGINES[name].path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise driver_missing(name, error) from None


def driver_missing(name: str, error: ImportError) -> DriverMissing:
    extra = ENGINES[name].extra
    remedy = f"Install it: pip install 'tablequeue[{extra}]'." if extra else "Install the driver that the URL names."
    return DriverMissing(f"The Python driver for {name} is not installed ({error}).", remedy)
