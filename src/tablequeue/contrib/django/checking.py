"""System checks of a backend: errors in its settings and its database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from django.apps import apps
from django.core import checks
from django.db import connections

from tablequeue.contrib.django.database import DRIVERS
from tablequeue.errors import TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.names import check_name

APP = "tablequeue.contrib.django"


class Checked(Protocol):
    """The settings of a backend that are checked."""

    alias: str
    options: Mapping[str, Any]
    queues: Collection[str]
    database: str
    retry: bool

    def definition(self) -> dict[str, Any]: ...
    def table_queue(self, queue_name: str) -> str: ...


def messages(backend: Checked, others: Sequence[Checked], options: Collection[str]) -> Iterator[checks.CheckMessage]:
    """Yield the errors and warnings of one of the backends. It does not query the database.

    options   the allowed keys of OPTIONS.
    """
    where = f"TASKS[{backend.alias!r}]"
    if not apps.is_installed(APP):
        yield checks.Error(f"{where} needs its app.", f"Insert {APP!r} in INSTALLED_APPS.", id="tablequeue.E001")
    for name in sorted(backend.options.keys() - options):
        remedy = f"OPTIONS may have: {', '.join(options)}."
        yield checks.Error(f"{where} has an unknown option {name!r}.", remedy, id="tablequeue.E002")
    try:
        if not Definition(**backend.definition()).keeps_history:
            yield checks.Error(
                f"{where} keeps no history.", "Give a time for which results are kept.", id="tablequeue.E003"
            )
        for queue_name in backend.queues:
            check_name(backend.table_queue(queue_name))
    except TablequeueError as error:
        yield checks.Error(f"{where}: {error.cause}", error.remedy, id="tablequeue.E003")
    if not isinstance(backend.retry, bool):
        yield checks.Error(f"{where} has retry={backend.retry!r}.", "Give True or False.", id="tablequeue.E003")
    if not backend.queues:
        yield checks.Error(
            f"{where} names no queue.", "Name each in QUEUES: it has a table of its own.", id="tablequeue.E004"
        )
    yield from _same_table(backend, others)
    yield from _database(backend, where)


def _same_table(backend: Checked, others: Sequence[Checked]) -> Iterator[checks.CheckMessage]:
    taken = {
        other.table_queue(name): other.alias
        for other in others
        if other.alias != backend.alias and other.database == backend.database
        for name in other.queues
    }
    for name in sorted(backend.queues):
        if (other_alias := taken.get(backend.table_queue(name))) is not None:
            yield checks.Error(
                f"TASKS[{backend.alias!r}] and TASKS[{other_alias!r}] have the same table queue "
                f"{backend.table_queue(name)!r}.",
                "Change a name in QUEUES, or the alias.",
                id="tablequeue.E005",
            )


def _database(backend: Checked, where: str) -> Iterator[checks.CheckMessage]:
    if backend.database not in connections:
        yield checks.Error(
            f"{where} names the database {backend.database!r}.", "Name one of DATABASES.", id="tablequeue.E006"
        )
        return
    connection = connections[backend.database]
    if connection.vendor not in DRIVERS:
        yield checks.Error(
            f"{where}: tablequeue has no engine for {connection.vendor}.",
            f"Use one of: {', '.join(DRIVERS)}.",
            id="tablequeue.E006",
        )
    mode = connection.settings_dict["OPTIONS"].get("transaction_mode") or ""
    if connection.vendor == "sqlite" and mode.upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield checks.Warning(
            f"{where}: transactions of the database {backend.database!r} begin as DEFERRED. One that reads and then "
            "enqueues fails with `database is locked` if a worker has written meanwhile.",
            'Set OPTIONS: {"transaction_mode": "IMMEDIATE"} in DATABASES.',
            id="tablequeue.W001",
        )
