"""Ids that were given out and never came, or came late: what a subscription gets, and in which order."""

from __future__ import annotations

import secrets

import pytest

from tablequeue import Database
from tablequeue.ext import context_of
from tests.servers import Kind, Place, only
from tests.support import claimed

pytestmark = only("postgresql")


def test_a_lock_is_the_same_with_the_schema_named_and_without(kind: Kind, postgresql_url: str) -> None:
    plain, named = Place(postgresql_url, None), Place(postgresql_url, "public")
    events = plain.open().create_topic(f"plain_{secrets.token_hex(4)}")
    try:
        name = events.subscribe("mail").name
        tables = [context_of(place.open().subscription(name)).table for place in (plain, named)]
        locks = [table.engine.words(table)["range_lock"] for table in tables]
        tries = [f"select pg_try_advisory_xact_lock({lock})" for lock in locks]
        with plain.sa_engine().begin() as one, plain.sa_engine().begin() as other:
            assert one.exec_driver_sql(tries[0]).scalar_one() is True
            assert other.exec_driver_sql(tries[1]).scalar_one() is False
    finally:
        events.drop()
        plain.close()
        named.close()


@pytest.mark.parametrize("late", [[], [2], [1, 3], [1, 2, 3]])
def test_a_rollback_leaves_a_hole_and_late_commits_fill_it(db: Database, late: list[int]) -> None:
    """Four transactions push one message each; those of `late` commit after the next one was popped."""
    events = db.create_topic("events")
    mail = events.subscribe("mail")
    connections = [db.engine.connect() for _ in range(3)]
    for number, connection in enumerate(connections, 1):
        events.push(number, connection=connection)
    events.push(4)
    assert claimed(mail).payload == 4
    for number, connection in enumerate(connections, 1):
        (connection.commit if number in late else connection.rollback)()
        connection.close()
    assert [claim.payload for claim in mail.pop_many(10)] == late
    events.push(5)
    assert [claim.payload for claim in mail.pop_many(10)] == [5]
    mail.seek("beginning", force=True)
    assert [claim.payload for claim in mail.pop_many(10)] == [4, *late, 5]
