"""The stored procedures of topics and subscriptions, called by logins that have no rights on tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database
from tablequeue.engines import procedures
from tablequeue.ext import context_of
from tests.servers import Kind, Place, only
from tests.sessions import engine_of
from tests.test_rights import PASSWORD, roles

pytestmark = only("postgresql")

PUSH = "select tq_events_push(cast(:payload as json), p_group => 'a')"
POP = "select id, payload, token from tq_events__s1_pop(:n)"
COMPLETE = "select tq_events__s1_complete(:ids, :token)"
FAIL = "select tq_events__s1_fail(:id, :token, 'why', :retry_in)"
RELEASE = "select tq_events__s1_release(:ids, :token)"
STATS = "select ready, in_progress, dead, finished from tq_events__s1_stats()"


@contextmanager
def calling(database: Database, role: str | None = None) -> Iterator[Any]:
    """Yield a function that runs a statement as this role, in autocommit, and returns the rows."""
    url = database.engine.url if role is None else database.engine.url.set(username=role, password=PASSWORD)
    engine = sa.create_engine(url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

            def call(text: str, **values: Any) -> list[tuple[Any, ...]]:
                placed = re.sub(r"\btq_events", f"{engine_of(database).prefix}tq_events", text)
                result = connection.execute(sa.text(placed), values)
                return [tuple(row) for row in result] if result.returns_rows else []

            yield call
    finally:
        engine.dispose()


@pytest.mark.parametrize("ordered", [False, True])
def test_a_consumer_of_one_subscription_has_its_verbs(db: Database, ordered: bool) -> None:
    events = db.create_topic("events", groups=True)
    mail = events.subscribe("mail", ordered=ordered, max_attempts=2)
    events.subscribe("audit")
    assert db.install_procedures("events") == ["tq_events_push", "tq_events_push_many"]
    assert "tq_events__s1_pop" in db.install_procedures("events/mail")
    with calling(db) as call:
        call(PUSH, payload="1")
        ((id, payload, token),) = call(POP, n=5)
        assert payload == 1
        assert call(FAIL, id=id, token=token, retry_in=0) == [("ready",)]
        ((again, _, token),) = call(POP, n=5)
        assert again == id
        assert call(RELEASE, ids=[id], token=token) == [(id,)]
        ((_, _, token),) = call(POP, n=5)
        assert call(FAIL, id=id, token=token, retry_in=0) == [("dead",)]
        call("select tq_events_push_many('[2, 3]', p_group => 'b')")
        popped = call(POP, n=1 if ordered else 2)
        assert call(STATS) == [(0, len(popped), 1, 0)]
        ids, token = [row[0] for row in popped], popped[0][2]
        call("select tq_events__s1_extend(:id, :token, 60)", id=ids[0], token=token)
        assert call(COMPLETE, ids=ids, token=token) == [(id,) for id in ids]
    assert [message.payload for message in mail.dead()] == [1]
    assert [message.payload for message in mail.history()] == ([2] if ordered else [3, 2])
    assert [claim.payload for claim in db.subscription("events/audit").pop_many(9)] == [1, 2, 3]


def test_parts_of_a_range_are_finished_apart(db: Database) -> None:
    events = db.create_topic("events")
    mail = events.subscribe("mail")
    db.install_procedures("events/mail")
    ids = events.push_many(range(6))
    with calling(db) as call:
        token = call(POP, n=6)[0][2]
        assert call(COMPLETE, ids=ids[:2], token=token) == [(id,) for id in ids[:2]]
        assert call(RELEASE, ids=ids[2:4], token=token) == [(id,) for id in ids[2:4]]
        apart = call(POP, n=6)
        assert [row[0] for row in apart] == ids[2:4]
        with pytest.raises(sa.exc.DBAPIError, match="lease on"):
            call(COMPLETE, ids=ids[:1], token=token)
        assert call(COMPLETE, ids=ids[4:], token=token) == [(id,) for id in ids[4:]]
        assert call(COMPLETE, ids=ids[2:4], token=apart[0][2]) == [(id,) for id in ids[2:4]]
    assert mail.stats().finished == 6


def test_what_a_dead_consumer_had_comes_again(db: Database) -> None:
    events = db.create_topic("events")
    events.subscribe("mail")
    db.install_procedures("events/mail")
    events.push("x")
    with calling(db) as call:
        assert len(call("select * from tq_events__s1_pop(1, p_lease => 0)")) == 1
        assert [row[1] for row in call(POP, n=1)] == ["x"]


def test_a_pop_in_a_transaction_is_refused(db: Database) -> None:
    events = db.create_topic("events")
    events.subscribe("mail")
    db.install_procedures("events/mail")
    with calling(db) as call:
        call("begin")
        call("create temporary table written (id int)")
        with pytest.raises(sa.exc.DBAPIError, match="cannot be a part of a transaction"):
            call(POP, n=1)


def test_each_role_may_call_its_own_and_touches_no_table(place: Place, kind: Kind, db: Database) -> None:
    events = db.create_topic("events", groups=True)
    events.subscribe("mail")
    events.subscribe("audit")
    for name in ("events", "events/mail", "events/audit"):
        db.install_procedures(name)
    calls = {
        "push": "select tq_events_push('1', p_group => 'a')",
        "pop": "select tq_events__s1_pop()",
        "stats": "select tq_events__s1_stats()",
        "other": "select tq_events__s2_pop()",
        "log": "select * from tq_events",
        "ranges": "select * from tq_events__s1__ranges",
        "sequence": "select tq_events__sequence(true, false)",
        "inner": "select tq_events__s1_move_apart(null)",
    }
    with roles(place, kind) as names:
        engine = engine_of(db)
        for name, kinds in (("events", ["producer"]), ("events/mail", ["consumer", "observer"])):
            table = context_of(db.topic(name)).table if name == "events" else context_of(db.subscription(name)).table
            for statement in engine.split(procedures.grants(engine, table, {one: [names[one]] for one in kinds})):
                place.execute(statement)
        allowed = {one: {what for what in calls if may(db, names[one], calls[what])} for one in names}
    wanted = {"producer": {"push"}, "consumer": {"pop"}, "observer": {"stats"}, "stranger": set()}
    assert {one: what - {"sequence"} for one, what in allowed.items()} == wanted
    events.drop()


def may(database: Database, role: str, statement: str) -> bool:
    with calling(database, role) as call:
        try:
            call(statement)
        except sa.exc.ProgrammingError as error:
            if "permission denied" in str(error):
                return False
            raise
    return True
