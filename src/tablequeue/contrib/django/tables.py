"""The tables of the queues: `migrate` makes and alters them, `flush` empties them."""

from __future__ import annotations

from typing import Any

from django.db import connections

import tablequeue
from tablequeue.contrib.django import database
from tablequeue.contrib.django.backend import Backend, backends
from tablequeue.database import Database


def make(alias: str) -> None:
    """Make the queues of that database, or give them the options of the settings; upgrade the tables of others.

    Many processes may do it at once. A crash leaves whole queues.
    """
    here = [backend for backend in backends() if backend.database == alias]
    if not here:
        return
    if connections[alias].features.can_rollback_ddl:
        _make(database.database(alias), here)
    else:
        # Each DDL statement commits: it must not commit a transaction of Django's.
        with tablequeue.connect(database.url_of(alias)) as own:
            _make(own, here)


def empty(alias: str) -> None:
    """Delete all messages, dead letters and the history of the queues of that database."""
    there = set(database.database(alias).queues())
    for backend in backends():
        for queue_name in backend.queues if backend.database == alias else ():
            if backend.table_queue(queue_name) in there:
                queue = backend.queue(queue_name)
                queue.purge(in_progress=True)
                queue.purge_dead()
                queue.purge_history(0)


def drop(alias: str) -> None:
    """Drop the queues of that database that are there, with their messages."""
    here = database.database(alias)
    there = set(here.queues())
    for backend in backends():
        for queue_name in backend.queues if backend.database == alias else ():
            if backend.table_queue(queue_name) in there:
                here.queue(backend.table_queue(queue_name)).drop()


def after_migrate(using: str, **kwargs: Any) -> None:
    """Receive `post_migrate`: queues may have been added to the settings, and options changed."""
    if "plan" in kwargs:
        make(using)
    else:
        empty(using)  # it is `flush` that sends the signal, for tests too


def _make(own: Database, here: list[Backend]) -> None:
    own.upgrade()
    for backend in here:
        for queue_name in sorted(backend.queues):
            own.create_queue(backend.table_queue(queue_name), if_exists="alter", **backend.definition())
