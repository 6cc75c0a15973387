"""A connection of Airflow as a database of queues, and what the triggers of its queues have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger

import tablequeue
from tablequeue.errors import BadInput, BadUrl
from tablequeue.model.definition import Definition

DEFAULT = "tablequeue_default"


class QueueTrigger(BaseTrigger):
    """A trigger about one queue: Airflow makes it anew, from what it serializes, in each triggerer."""

    def __init__(self, queue_name: str, tablequeue_conn_id: str = DEFAULT) -> None:
        super().__init__()
        self.queue_name = queue_name
        self.tablequeue_conn_id = tablequeue_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"queue_name": self.queue_name, "tablequeue_conn_id": self.tablequeue_conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs


class Hook(BaseHook):
    """Opens the database that a connection of the type `tablequeue` names.

    The connection's extra field `drivername` is the driver, as in a URL of SQLAlchemy: `postgresql+psycopg`. Its schema
    is the database, or the path of a SQLite file. Further extra fields are parameters of the URL.
    """

    conn_name_attr = "tablequeue_conn_id"
    default_conn_name = DEFAULT
    conn_type = "tablequeue"
    hook_name = "tablequeue"

    def __init__(self, tablequeue_conn_id: str = DEFAULT, **options: Any) -> None:
        super().__init__(**options)
        self.tablequeue_conn_id = tablequeue_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the labels of the form in Airflow's pages."""
        return {
            "relabeling": {"schema": "Database"},
            "placeholders": {"extra": '{"drivername": "postgresql+psycopg"}'},
        }

    @contextmanager
    def database(self) -> Iterator[tablequeue.Database]:
        """Connect for a `with` block, and close the connections at its end."""
        database = tablequeue.connect(url_of(self.get_connection(self.tablequeue_conn_id)))
        try:
            yield database
        finally:
            database.close()
            database.engine.dispose()

    def test_connection(self) -> tuple[bool, str]:
        """Connect, and return whether that succeeds, and the text for the user."""
        try:
            with self.database() as database:
                return True, f"The database answers, and has {len(database.queues())} queues."
        except Exception as error:
            return False, str(error)


def check_delivery(name: str, definition: Definition) -> None:
    """`BadInput` if a message of the queue cannot be released: the death of a triggerer or a worker would lose it."""
    if definition.delivery == "at_most_once":
        raise BadInput(f"The queue {name!r} delivers at most once.", "Watch a queue that delivers at least once.")


def url_of(connection: Any) -> sa.URL:
    """Return the URL of a connection of Airflow; `BadUrl` if it names no driver."""
    query = dict(connection.extra_dejson)
    drivername = query.pop("drivername", None)
    if not isinstance(drivername, str):
        raise BadUrl(
            f"The connection {connection.conn_id!r} names no driver.",
            'Set its extra to {"drivername": "postgresql+psycopg"}, or to another driver.',
        )
    return sa.URL.create(
        drivername,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host or None,
        port=connection.port,
        database=connection.schema or None,
        query={name: str(value) for name, value in query.items()},
    )
