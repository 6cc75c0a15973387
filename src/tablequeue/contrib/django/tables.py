"""The tables of the queues: `migrate` makes and alters them, `flush` empties them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

import tablequeue
from tablequeue import ALL
from tablequeue.contrib.django import database
from tablequeue.contrib.django.backend import Backend, backends
from tablequeue.database import Database
from tablequeue.ext import context_of
from tablequeue.verbs import progress


def make(alias: str) -> None:
    """Make the queues of that database, or give them the options of the settings; upgrade the tables of all queues.

    Many processes may do it at once. A crash leaves whole queues.
    """
    if here := _backends(alias):
        with _changing(alias) as changed:
            changed.upgrade()
            for backend in here:
                for queue_name in sorted(backend.queues):
                    name = backend.table_queue(queue_name)
                    queue = changed.create_queue(name, if_exists="alter", **backend.definition())
                    progress.make(context_of(queue))  # a task reports in its own transaction, where no DDL may be


def drop(alias: str) -> None:
    """Drop the existing queues of that database, with their messages."""
    with _changing(alias) as changed:
        for name in sorted(_names(alias).intersection(changed.queues())):
            changed.queue(name).drop()


def empty(alias: str) -> None:
    """Delete all messages, dead letters and the history of the queues of that database."""
    emptied = database.database(alias)
    for name in sorted(_names(alias).intersection(emptied.queues())):
        queue = emptied.queue(name)
        queue.purge(in_progress=True)
        queue.purge_dead(ALL)
        queue.purge_history(0)


def after_migrate(using: str, **kwargs: Any) -> None:
    """Receive `post_migrate`: queues may have been added to the settings, and options changed."""
    if "plan" not in kwargs:
        empty(using)  # it is `flush` that sends the signal, for tests too
    elif any(app.label == "tablequeue" for app in kwargs["apps"].get_app_configs()):
        make(using)  # not after `migrate tablequeue zero`, which drops them


@contextmanager
def _changing(alias: str) -> Iterator[Database]:
    """Return the queues on Django's connection, if tables can be changed in its transaction; else on a separate one. If
    each DDL statement commits, it must not commit a transaction of Django.
    """
    if connections[alias].features.can_rollback_ddl:
        yield database.database(alias)
    else:
        with tablequeue.connect(database.url_of(alias)) as own:
            yield own


def _backends(alias: str) -> list[Backend]:
    return [backend for backend in backends() if backend.database == alias]


def _names(alias: str) -> set[str]:
    return {backend.table_queue(name) for backend in _backends(alias) for name in backend.queues}
