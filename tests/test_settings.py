"""Settings of roles and connections that change what a driver reads: the library sets its own, and checks a
caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, Queue
from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.postgresql import connection as postgresql
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tests.servers import Place, only
from tests.support import DESIGNS, at, claimed, counts, design_group, found, refuses

pytestmark = pytest.mark.quick

STYLES = ("SQL, DMY", "German", "Postgres, MDY")


def with_setting(place: Place, name: str, value: str) -> sa.URL:
    words = value.replace(" ", "")
    return sa.make_url(place.url).update_query_dict({"options": f"-c{name}={words}"})


@pytest.fixture
def styled(place: Place, request: pytest.FixtureRequest) -> Iterator[Database]:
    with tablequeue.connect(with_setting(place, "DateStyle", request.param), schema=place.schema) as database:
        yield database
        database.engine.dispose()


@only("postgresql")
@pytest.mark.parametrize("styled", STYLES, indirect=True)
@pytest.mark.parametrize("design", DESIGNS)
def test_times_are_read_whatever_the_role_says(styled: Database, design: str) -> None:
    queue = styled.create_queue("work", **DESIGNS[design])
    group = design_group(queue, "a")
    for _ in range(2):
        queue.push(1, due=at(1), now=at(0), **group)
    message = claimed(queue, now=at(2))
    assert (message.pushed_at, message.popped_at, message.due_at) == (at(0), at(2), at(1))
    message.fail("no", retry_in=0, now=at(3))
    assert found(queue, message.id).errors[0].at == at(3)
    assert queue.stats(window=60).ready >= 1


@only("postgresql")
@pytest.mark.parametrize("style", STYLES)
def test_a_callers_connection_that_cannot_be_read_by_is_refused(db: Database, place: Place, style: str) -> None:
    """It is refused before anything is claimed."""
    queue = db.create_queue("work", order="due")
    queue.push(1)
    engine = sa.create_engine(with_setting(place, "DateStyle", style), poolclass=sa.NullPool)
    with engine.connect() as connection:
        for verb in (
            queue.pop,
            lambda connection: queue.take(connection),
            lambda connection: queue.push(2, connection=connection),
        ):
            error = refuses(BadInput, verb, connection=connection)
            assert "DateStyle" in error.cause
        connection.exec_driver_sql("set datestyle to 'ISO, DMY'")
        assert queue.take(connection) is not None
        connection.commit()
    assert counts(queue) == {"finished": 1}


@only("postgresql")
def test_the_check_notices_an_engine_that_does_not_check(
    db: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "READABLE", {})
    with pytest.raises((pytest.fail.Exception, AssertionError, ValueError)):
        test_a_callers_connection_that_cannot_be_read_by_is_refused(db, place, STYLES[0])


@only("postgresql")
def test_a_session_in_which_ordinary_triggers_do_not_fire(db: Database, place: Place) -> None:
    queue = db.create_queue("work", groups=True)
    engine = sa.create_engine(with_setting(place, "session_replication_role", "replica"), poolclass=sa.NullPool)
    with engine.connect() as connection:
        queue.push_many(["a", "b"], group="g", connection=connection)
        connection.commit()
        first = claimed(queue)
        first.complete(connection=connection)
        connection.commit()
    assert (first.payload, claimed(queue).payload) == ("a", "b")


@only("postgresql")
def test_texts_of_another_encoding(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    queue.push("\N{SNOWMAN}", key="\N{SNOWMAN}")
    with tablequeue.connect(with_setting(place, "client_encoding", "latin1"), schema=place.schema) as database:
        assert claimed(database.queue("work")).key == "\N{SNOWMAN}"
        database.engine.dispose()
    engine = sa.create_engine(with_setting(place, "client_encoding", "latin1"))
    with engine.connect() as connection:
        assert "client_encoding" in refuses(BadInput, queue.push, 1, connection=connection).cause
    engine.dispose()


@only("postgresql")
@pytest.mark.parametrize("time", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_times_that_python_does_not_have(db: Database, place: Place, time: str) -> None:
    """Programs that push by SQL can store them. Claims and reads still work."""
    queue = db.create_queue("work", order="due")
    ids = queue.push_many([*"abc"])
    place.execute(f"update {place.table('work')} set due_at = '{time}' where id = {ids[1]}")  # noqa: S608 (our names)
    assert len(queue.peek()) == 3
    got = [message.id for message in queue.pop_many(5)]
    assert got == ([ids[1], ids[0], ids[2]] if "-" in time[:1] or "BC" in time else [ids[0], ids[2]])


def adopted(proxy: Any) -> Any:
    """A session of the library's own, of PostgreSQL."""
    return PostgreSQL(sa.make_url("postgresql+psycopg://").get_dialect()()).adopt(proxy.driver_connection)


@only("postgresql")
def test_our_sessions_keep_generic_plans_and_others_their_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement changes a connection of ours. A caller's is left as it is, though its calls run the same SQL."""
    shown = "select current_setting('plan_cache_mode')"
    execute, run = postgresql.OwnCursor.execute, []

    def noted(cursor: Any, *args: Any, **options: Any) -> Any:
        run.append(args)
        return execute(cursor, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(postgresql.OwnCursor, "execute", noted)
        own = adopted(place.sa_engine().raw_connection())
    assert len(run) == 1
    assert own.cursor.execute(shown).fetchone() == ("force_generic_plan",)
    queue = place.open().create_queue("work")
    with place.sa_engine().begin() as connection:
        queue.push(1, connection=connection)
        assert connection.exec_driver_sql(shown).scalar() == "auto"


@only("postgresql")
def test_reads_of_an_interval_have_plans_of_their_own(db: Database) -> None:
    """Their values are in the text, so that no plan for other values is used; and none of them is prepared."""
    queue = db.create_queue("work", payload="text")
    queue.push_many(["%s", "%(x)s"])
    prepared = len(db._runner.pool._idle[-1].dbapi._prepared._names)
    assert len(queue.peek()) == 2
    assert len(db._runner.pool._idle[-1].dbapi._prepared._names) == prepared
    claims = queue.pop_many(2)
    assert len(queue.peek(state="in_progress")) == 2
    queue.complete_many(claims)
    assert len(queue.history()) == 2
    assert queue.stats(window=60).finished == 2


@only("sqlite")
def test_texts_that_a_caller_has_as_bytes(db: Database, place: Place) -> None:
    queue: Queue = db.create_queue("work", payload="text")
    queue.push("é")
    path = sa.make_url(place.url).database
    assert path
    with closing(sqlite3.connect(Path(path))) as connection:
        connection.text_factory = bytes
        call: Any = queue.take
        assert "text_factory" in refuses(BadInput, call, connection).cause
        connection.text_factory = str
        message = queue.take(connection)
        assert message is not None
        assert message.payload == "é"
        connection.rollback()


@only("postgresql")
@pytest.mark.parametrize("seconds", [30, 5])
def test_the_server_ends_our_sessions_that_are_away(place: Place, seconds: int) -> None:
    url = with_setting(place, "idle_in_transaction_session_timeout", "5s") if seconds == 5 else place.url
    sa_engine = sa.create_engine(url)
    with closing(sa_engine.raw_connection()) as proxy:
        cursor = adopted(proxy).cursor
        cursor.execute(
            "select current_setting('idle_in_transaction_session_timeout'), current_setting('tcp_user_timeout')"
        )
        assert cursor.fetchone() == (f"{seconds}s", "30000")
    sa_engine.dispose()


@only("postgresql")
@pytest.mark.parametrize("design", ["fifo", "due", "groups", "fair"])
def test_plans_made_when_a_queue_is_nearly_empty_use_indexes(db: Database, design: str) -> None:
    """A session keeps them. A plan that reads the table of one page would read that of a backlog."""
    queue = db.create_queue("work", **DESIGNS[design])
    for _ in range(2):
        queue.push_many([{"n": number} for number in range(4)], **design_group(queue, "a"))
        claims = queue.pop_many(1)
        queue.complete_many(queue.pop_many(1, completing=claims))
    queue.pop_many(1)[0].fail("no", retry_in=0)
    queue.pop_many(1)[0].release()
    plans = context_of(queue).run(_plans, {})
    assert any("Index Scan" in plan for plan in plans)
    assert [plan for plan in plans if "Seq Scan" in plan] == []


def _plans(cursor: Cursor, table: Table, params: Params) -> list[str]:
    """The plans of the statements that this session has prepared for the queue."""
    run = cursor.connection.cursor().execute
    named = f"%{table.engine.words(table)['table']}%"
    found = run("select name, statement, parameter_types from pg_prepared_statements where statement like %s", [named])
    plans = []
    for name, statement, types in found.fetchall():
        if statement.lstrip("(").startswith(("select", "with", "update", "delete", "insert")) and types:
            nulls = ", ".join(["null"] * len(types))
            plan = run(f"explain execute {name} ({nulls})", prepare=False).fetchall()
            plans.append("\n".join([statement, *(line for (line,) in plan)]))
    return plans
