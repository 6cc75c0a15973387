"""The engines, by SQLAlchemy dialect name. To add one: a folder here, and a line in the table."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import sqlalchemy as sa

from tablequeue.engines.engine import Engine
from tablequeue.errors import BadUrl, DriverMissing


class Entry(NamedTuple):
    path: str
    extra: str | None
    """The extra that installs the driver, as in `pip install tablequeue[...]`; None: it comes with Python."""


ENGINES = {
    "sqlite": Entry("tablequeue.engines.sqlite.engine:SQLite", None),
    "postgresql": Entry("tablequeue.engines.postgresql.engine:PostgreSQL", "postgresql"),
    # SQLAlchemy has a dialect for each of the two.
    "mariadb": Entry("tablequeue.engines.mysql.engine:MySQL", "mysql"),
    "mysql": Entry("tablequeue.engines.mysql.engine:MySQL", "mysql"),
    "mssql": Entry("tablequeue.engines.mssql.engine:SQLServer", "mssql"),
}


def check_kind(kind: str) -> None:
    """Refuse a database that has no engine."""
    if kind not in ENGINES:
        remedy = "Write postgresql+psycopg://." if kind == "postgres" else f"Use one of: {', '.join(ENGINES)}."
        raise BadUrl(f"tablequeue has no engine for {kind}.", remedy)


def engine_class(name: str) -> type[Engine]:
    """Return the engine of a dialect. Raise `DriverMissing` if its Python driver is not installed."""
    module, _, attribute = ENGINES[name].path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ImportError as error:
        raise driver_missing(name, error) from None


def driver_missing(name: str, error: ImportError) -> DriverMissing:
    """Return the reason why an engine or a driver cannot be imported. Reraise the error if the fault is ours."""
    package = (error.name or "").partition(".")[0]
    if package == "tablequeue":
        raise error
    if package == "sqlalchemy":
        return DriverMissing(
            f"SQLAlchemy {sa.__version__} is not one that tablequeue can use ({error}).",
            "Install 2.0 or 2.1: pip install --upgrade sqlalchemy.",
        )
    extra = ENGINES[name].extra
    if not isinstance(error, ModuleNotFoundError):
        remedy = f"Install another version of it: pip install --upgrade 'tablequeue[{extra}]'."
        return DriverMissing(f"The Python driver for {name} cannot be used ({error}).", remedy)
    remedy = f"Install it: pip install 'tablequeue[{extra}]'." if extra else "Install the driver that the URL names."
    return DriverMissing(f"The Python driver for {name} is not installed ({error}).", remedy)
