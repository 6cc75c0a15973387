"""The engines, by SQLAlchemy dialect name. To add one: a folder here, and a line in the table."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from tablequeue.engines.base import Engine


class Entry(NamedTuple):
    path: str
    extra: str | None
    """What `pip install tablequeue[...]` must name to have the driver; None: it comes with Python."""


ENGINES = {
    "sqlite": Entry("tablequeue.engines.sqlite.engine:SQLite", None),
    "postgresql": Entry("tablequeue.engines.postgresql.engine:PostgreSQL", "postgresql"),
}


def engine_class(name: str) -> type[Engine]:
    module, _, attribute = ENGINES[name].path.partition(":")
    return getattr(import_module(module), attribute)
