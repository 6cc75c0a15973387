"""Tasks that are sent in the caller's transaction, and the faults that the check of them finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from celery import group
from sqlalchemy.orm import Session

import tablequeue
from tablequeue.contrib.celery import in_transaction
from tablequeue.contrib.kombu import store
from tablequeue.errors import BadInput, TablequeueError
from tests.contrib.celery.checks import application
from tests.servers import only

SERVERS = only("sqlite", "postgresql", "mariadb", "mssql")


def sent(url: str) -> list[Any]:
    """Return the first arguments of the tasks that wait, in the order in which they come."""
    with tablequeue.connect(url) as db:
        return [json.loads(json.loads(message.payload)["body"])[0][0] for message in db.queue("celery").peek(100)]


def identity(value: Any) -> Any:
    return value


@contextmanager
def ready(url: str) -> Iterator[tuple[Any, sa.Engine]]:
    """Yield a task of an application that has sent one before, so that its queue is there, and an engine."""
    engine = sa.create_engine(url)
    with application(url) as app:
        task = app.task(lazy=False, name="tasks.one")(identity)
        task.delay("before")
        try:
            yield task, engine
        finally:
            engine.dispose()


def send(connection: Any, *calls: Callable[[], Any]) -> None:
    with in_transaction(connection):
        for call in calls:
            call()


def fail() -> None:
    raise ZeroDivisionError


def check_sent_with_the_transaction(url: str) -> None:
    with ready(url) as (task, engine):
        with Session(engine) as session, session.begin():
            session.execute(sa.text("delete from tq_kombu__bindings where id = 'none'"))  # a write of the caller
            send(session, lambda: task.delay("committed"))
            assert sent(url) == ["before"]
        with engine.connect() as connection:
            send(connection, lambda: task.delay("rolled back"))
            connection.rollback()
        with engine.begin() as connection, pytest.raises(ZeroDivisionError):  # caught, and committed
            send(connection, lambda: task.delay("discarded"), fail)
        with engine.begin() as connection:
            send(connection, group(task.s(number) for number in range(3)).delay)
        task.delay("after")
        assert sent(url) == ["before", "committed", 0, 1, 2, "after"]


def check_all_or_none(url: str) -> None:
    """An error of one message that the caller catches before it commits takes the others back."""

    def replace() -> None:
        with tablequeue.connect(url) as db:
            db.queue("other").drop()
            db.create_queue("other")  # which has no order by priority, as those of kombu have

    with ready(url) as (task, engine):
        with engine.begin() as connection, pytest.raises(TablequeueError):
            send(
                connection,
                lambda: task.delay("first"),
                lambda: task.apply_async(["second"], queue="other"),
                replace,
            )
        assert sent(url) == ["before"]


@SERVERS
@pytest.mark.parametrize("check", [check_sent_with_the_transaction, check_all_or_none], ids=lambda one: one.__name__)
def test_promises(url: str, check: Callable[[str], None]) -> None:
    check(url)


@only("sqlite")
def test_two_brokers_are_refused(url: str) -> None:
    with ready(url) as (task, engine), ready(url.replace(".db", "2.db")) as (other, _):
        with engine.begin() as connection, pytest.raises(BadInput, match="2 databases"):
            send(connection, lambda: task.delay("here"), lambda: other.delay("there"))
        assert sent(url) == ["before"]


@only("sqlite")
def test_sent_at_once_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push_in = store.Store.push_in
    monkeypatch.setattr(store.Store, "push_in", lambda self, _, message, names: push_in(self, None, message, names))
    with pytest.raises((AssertionError, TablequeueError)):
        check_sent_with_the_transaction(f"{url}?timeout=1")  # the transaction itself stops the other connection


@only("sqlite")
def test_a_part_of_a_refused_block_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(*given: Any, **options: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr("tablequeue.engines.runner.Runner.whole", nothing)
    with pytest.raises(AssertionError):
        check_all_or_none(url)
