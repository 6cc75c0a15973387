"""Stored procedures: what they do by themselves, who may call them, and that they go with the queue."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from platform import machine
from time import sleep
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Backoff, Database, Definition, Queue, errors
from tablequeue.engines import ENGINES, engine_class, procedures
from tablequeue.engines.base import Engine
from tablequeue.errors import BadInput, DuplicateKey
from tests.procedures import PROCEDURAL, on_postgresql
from tests.servers import Kind, Place
from tests.support import DESIGNS, claimed, counts, found, ids_of, refuses
from tests.tsql import parse_errors

NAMES = "tq_work_"
LEASE_LOST = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(params=[kind for kind in PROCEDURAL if kind.name == "postgresql"], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


def engine_of(database: Database) -> Engine:
    return database._runner.engine


def call(database: Database, verb: str, _role: str | None = None, **params: Any) -> list[Any]:
    """Call a procedure of the queue "work", as a role; its rows, committed. Errors are tablequeue's own."""
    raw = database.engine.raw_connection()
    try:
        cursor = engine_of(database).join(raw.dbapi_connection)
        table = engine_of(database).table("work", database.queue("work").definition)
        if _role:
            cursor.execute(f"set local role {_role}")
        rows = on_postgresql(cursor, table, verb, params)
        raw.commit()
        return rows
    except Exception as error:
        refusal = engine_of(database).translate(error)
        if refusal is None:
            raise
        raise refusal from error
    finally:
        raw.close()


def test_they_come_and_go_with_the_queue(place: Place, db: Database) -> None:
    queue = db.create_queue("work")
    names = db.install_procedures("work")
    assert names == db.install_procedures("work")
    assert {"tq_work_push", "tq_work_pop", "tq_work_stats"} <= set(names)
    there = "select proname from pg_proc where pronamespace = %(schema)s::regnamespace"
    assert {row[0] for row in place.execute(there, {"schema": place.schema})} >= set(names)
    queue.drop()
    assert place.execute(there, {"schema": place.schema}) == []
    with pytest.raises(errors.QueueNotFound):
        db.install_procedures("work")


def test_without_a_schema_they_are_where_the_connection_is(place: Place) -> None:
    plain = Place(place.url, None)
    database = plain.open()
    name = f"plain_{secrets.token_hex(4)}"
    queue = database.create_queue(name)
    try:
        database.install_procedures(name)
        assert plain.execute(f"select public.tq_{name}_push('1')") == [(1,)]
        assert claimed(queue).payload == 1
    finally:
        queue.drop()
        plain.close()


def test_python_and_sql_share_a_queue(db: Database) -> None:
    queue = db.create_queue("work")
    by_python = queue.push({"from": "python"})
    assert call(db, "push", payload='{"from": "sql"}', headers='{"a": 1}', producer="psql") == [(by_python + 1,)]
    [(id, payload, *_, token)] = call(db, "pop", consumer="psql")
    assert (id, payload) == (by_python, '{"from":"python"}')
    assert call(db, "complete", ids=[id], token=token) == [(id,)]
    message = claimed(queue)
    assert (message.payload, message.headers) == ({"from": "sql"}, {"a": 1})
    assert found(queue, message.id).producer == "psql"
    message.complete()
    [stats] = call(db, "stats")
    assert stats == (0, 0, 0, 0, 0, None, 2)
    assert ids_of(queue.history(5)) == [row[0] for row in call(db, "history", n=5)]


@pytest.mark.parametrize("verb", ["complete", "release", "fail", "extend"])
def test_a_lost_lease_is_an_error(db: Database, verb: str) -> None:
    queue = db.create_queue("work")
    id = queue.push(1)
    [(*_, token)] = call(db, "pop", lease=0)
    claimed(queue)  # the lease of none has expired
    given = {"ids": [id]} if verb in ("complete", "release") else {"id": id}
    refuses(errors.LeaseLost, call, db, verb, **given, token=token)
    assert counts(queue) == {"in_progress": 1}


def test_of_a_batch_those_that_are_held_are_completed(db: Database) -> None:
    queue = db.create_queue("work")
    ids = queue.push_many([1, 2, 3])
    token = call(db, "pop", n=3)[0][-1]
    assert call(db, "complete", ids=ids[:1], token=token) == [(ids[0],)]
    assert sorted(call(db, "complete", ids=ids, token=token)) == [(ids[1],), (ids[2],)]
    assert call(db, "complete", ids=[], token=token) == []


BACKOFFS = [
    Backoff(base=10, jitter=0),
    Backoff(base=10, factor=3, cap=50, jitter=0),
    Backoff(base=7, factor=1, jitter=0),
    Backoff(base=0, jitter=0),
    Backoff(base=10, factor=0.5, jitter=0),
    Backoff(base=1, factor=1e300, cap=100, jitter=0),
    Backoff(base=500, cap=100, jitter=0),
]


@pytest.mark.parametrize("backoff", BACKOFFS, ids=str)
def test_the_backoff_is_that_of_python(place: Place, db: Database, backoff: Backoff) -> None:
    queue = db.create_queue("work", backoff=backoff, max_attempts=2_000_000)
    id = queue.push(1)
    for attempts in (1, 2, 3, 4, 1_500_000):
        [(*_, token)] = call(db, "pop", lease=3_000_000)
        place.execute(f"update {place.table('work')} set attempts = {attempts}")  # noqa: S608 (a checked name)
        call(db, "fail", id=id, token=token, now="2040-01-01T00:00:00Z")
        due_at = found(queue, id).due_at
        assert due_at is not None
        wait = due_at.timestamp() - 2_208_988_800
        assert wait == pytest.approx(backoff.seconds(attempts), abs=1e-5)
        queue.purge()
        id = queue.push(1)


def test_the_jitter_takes_at_most_its_share(db: Database) -> None:
    queue = db.create_queue("work", backoff=Backoff(base=100, jitter=0.5))
    ids = queue.push_many(range(20))
    token = call(db, "pop", n=20)[0][-1]
    waits = set()
    for id in ids:
        call(db, "fail", id=id, token=token, now="2040-01-01T00:00:00Z")
        due_at = found(queue, id or 0).due_at
        assert due_at is not None
        waits.add(due_at.timestamp() - 2_208_988_800)
    assert 50 <= min(waits) < max(waits) <= 100
    assert len(waits) == 20


def test_what_is_due_or_abandoned_is_swept_on_a_busy_queue(place: Place, db: Database) -> None:
    """A session that never finds too little sweeps once a second all the same."""
    queue = db.create_queue("work")
    abandoned = queue.push("abandoned")
    queue.push_many(range(3))
    with db.engine.connect() as connection:
        connection.exec_driver_sql(f"select id from {place.table('work')}_pop(p_lease => 0)")  # noqa: S608
        sleep(1.1)
        first = connection.exec_driver_sql(f"select id from {place.table('work')}_pop()").scalar()  # noqa: S608
    assert first == abandoned


def test_groups_are_arranged_by_pop_and_complete(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    for group in ("a", "a", "b"):
        call(db, "push", payload="1", group=group)
    assert counts(queue) == {"blocked": 3}
    popped = call(db, "pop", n=5)
    assert [row[0] for row in popped] == [1, 3]
    call(db, "complete", ids=[1], token=popped[0][-1])
    assert ids_of(queue.peek()) == [2]


def test_a_key_is_taken_once(db: Database) -> None:
    queue = db.create_queue("work")
    [(id,)] = call(db, "push", payload="1", key="k")
    refusal = refuses(DuplicateKey, call, db, "push", payload="2", key="k")
    assert "has the key k" in refusal.cause
    assert call(db, "push", payload="2", key="k", on_conflict="skip") == [(None,)]
    assert call(db, "push", payload="2", key="k", on_conflict="return") == [(id,)]
    refuses(DuplicateKey, call, db, "push_each", messages='[{"payload": 1}, {"payload": 2, "key": "k"}]')
    assert counts(queue) == {"ready": 1}
    batch = '[{"payload": 1, "key": "n"}, {"payload": 2, "key": "k"}, {"payload": 3, "key": "n"}, {"payload": 4}]'
    rows = [row[0] for row in call(db, "push_each", messages=batch, on_conflict="return")]
    assert (rows[1], rows[2]) == (id, rows[0])
    assert [message.payload for message in queue.peek()] == [1, 1, 4]


REFUSALS: list[tuple[str, str, dict[str, Any]]] = [
    ("fifo", "push", {"delay": 1, "due": "2040-01-01T00:00:00Z"}),
    ("fifo", "push", {"delay": -1}),
    ("fifo", "push", {"delay": "NaN"}),
    ("fifo", "push", {"priority": 1}),
    ("fifo", "push", {"group": "a"}),
    ("groups", "push", {}),
    ("groups", "push", {"group": ""}),
    ("fifo", "push", {"key": "k" * 256}),
    ("fifo", "push", {"on_conflict": "explode"}),
    ("fifo", "pop", {"n": 0}),
    ("fifo", "pop", {"lease": -1}),
    ("fifo", "take", {"n": None}),
    ("fifo", "release", {"ids": [1], "token": LEASE_LOST, "delay": -1}),
    ("fifo", "fail", {"id": 1, "token": LEASE_LOST, "retry_in": 1e10}),
    ("fifo", "extend", {"id": 1, "token": LEASE_LOST, "seconds": -1}),
    ("fifo", "peek", {"state": "lost"}),
]


@pytest.mark.parametrize(("design", "verb", "params"), REFUSALS)
def test_what_python_refuses_is_refused(db: Database, design: str, verb: str, params: dict[str, Any]) -> None:
    queue = db.create_queue("work", **DESIGNS[design])
    given = {"payload": "1", **params} if verb == "push" else params
    refuses(BadInput, call, db, verb, **given)
    assert counts(queue) == {}


# -- rights ----------------------------------------------------------------------------------------------------------

CALLED: dict[str, dict[str, Any]] = {
    "push": {"payload": "1"},
    "push_many": {"messages": "[1, 2]"},
    "push_each": {"messages": '[{"payload": 1}]'},
    "pop": {},
    "take": {},
    "complete": {"ids": [1], "token": LEASE_LOST},
    "fail": {"id": 1, "token": LEASE_LOST},
    "release": {"ids": [1], "token": LEASE_LOST},
    "extend": {"id": 1, "token": LEASE_LOST},
    "stats": {},
    "peek": {},
    "history": {},
    "lost": {},
}
# What nobody may do.
DIRECT = (
    "select * from {queue}",
    "insert into {queue} (payload, pushed_at) values ('1', now())",
    "update {queue} set state = 'dead'",
    "delete from {queue}",
    "select * from {queue}_history",
    "delete from {queue}_history",
    "select {queue}_sweep(0, null)",
    "select * from {queue}_claim(1, 'me', 60, null, null)",
    "select * from {queue}_remove(1, 'me', null, null)",
)


@contextmanager
def roles(place: Place) -> Iterator[dict[str, str]]:
    """A role of each kind, and one of none."""
    names = {kind: f"tq_{kind}_{secrets.token_hex(4)}" for kind in (*procedures.ROLES, "stranger")}
    for name in names.values():
        place.execute(f"create role {name}")
    try:
        yield names
    finally:
        for name in names.values():
            place.execute(f"drop owned by {name}")
            place.execute(f"drop role {name}")


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_the_rights_of_each_role(place: Place, db: Database, delivery: str) -> None:
    queue = db.create_queue("work", delivery=delivery)
    there = {name.removeprefix(NAMES) for name in db.install_procedures("work")}
    with roles(place) as names:
        given = {kind: [names[kind]] for kind in procedures.ROLES}
        text = procedures.grants(engine_of(db), "work", queue.definition, given)
        for statement in engine_of(db).split(text):
            place.execute(statement)
        for kind, role in names.items():
            for verb in there:
                allowed = verb in procedures.ROLES.get(kind, ())
                assert may(db, role, verb) is allowed, f"{kind}: {verb}"
            for statement in DIRECT:
                assert not may_execute(place, role, statement), f"{kind}: {statement}"
    queue.drop()


def may(database: Database, role: str, verb: str) -> bool:
    try:
        call(database, verb, role, **CALLED[verb])
    except errors.NoRights:
        return False
    except errors.LeaseLost:
        pass
    return True


def may_execute(place: Place, role: str, statement: str) -> bool:
    with place.sa_engine().connect() as connection:
        connection.exec_driver_sql(f"set local role {role}")
        try:
            connection.exec_driver_sql(statement.format(queue=place.table("work")))
        except sa.exc.ProgrammingError as error:
            if "permission denied" not in str(error):
                raise
            return False
    return True


def test_a_temporary_table_does_not_stand_in_for_the_queue(place: Place, db: Database) -> None:
    """The functions run with their owner's rights: what they find must not be the caller's."""
    plain = Place(place.url, None)
    name = f"plain_{secrets.token_hex(4)}"
    queue = plain.open().create_queue(name)
    plain.open().install_procedures(name)
    try:
        with plain.sa_engine().begin() as connection:
            connection.exec_driver_sql(f"create temporary table tq_{name} (like public.tq_{name})")
            connection.exec_driver_sql(f"select tq_{name}_push('1')")
        assert counts(queue) == {"ready": 1}
    finally:
        queue.drop()
        plain.close()


# -- texts -----------------------------------------------------------------------------------------------------------

WITH_PROCEDURES = [name for name in ENGINES if engine_class(name).stored]


@pytest.mark.parametrize("name", WITH_PROCEDURES)
def test_there_is_a_template_for_each_verb(name: str) -> None:
    missing = {*procedures.VERBS, "grant", "drop"} - set(procedures.templates(name))
    # On SQL Server a history is a table, so that no procedure can be called so; and push_each is not there yet.
    assert missing == ({"history", "push_each", "lost"} if name == "mssql" else {"read_history"})
    for file in procedures.templates(name):
        text = procedures.template(name, file)
        assert file in ("grant", "grant_schema", "drop") or text.startswith("-- {queue}_")
        assert max(map(len, text.splitlines())) <= 120
        assert text.count("-- [end]") == len(re.findall(r"-- \[(?!end)", text))


@pytest.mark.skipif(sys.platform != "linux" or machine() != "x86_64", reason="The parser is for Linux on x86-64.")
@pytest.mark.parametrize("design", [*DESIGNS, "at_most_once", "no_history", "retention", "bytes"])
def test_sql_server_s_parser_takes_them(design: str) -> None:
    more: dict[str, dict[str, Any]] = {
        "at_most_once": {"delivery": "at_most_once"},
        "no_history": {"history": "none"},
        "retention": {"history": 60, "strict": True},
        "bytes": {"payload": "bytes"},
    }
    definition = Definition(**{**DESIGNS, **more}[design])
    engine = engine_class("mssql")(sa.make_url("mssql+mssqlpython://").get_dialect()(), "shop")
    roles = {kind: ["web", "CORP\\ada"] for kind in procedures.ROLES}
    parts = (procedures.procedures(engine, "work", definition), procedures.dropping(engine, "work", definition))
    for text in (*parts, procedures.grants(engine, "work", definition, roles)):
        for batch in engine.split(text):
            assert parse_errors(batch) == [], batch
            made = re.search(r"create or alter procedure (\S+)", batch)
            assert made is None or (made[1].startswith("shop.tq_work_") and batch.count("create or alter") == 1)
            # A variable is declared once, and before it is used.
            declared = re.findall(
                r"(?:declare |, |\n    )(@\w+) (?=bigint|int|bit|float|uniq|nvar|var|date|table)", batch
            )
            assert len(declared) == len(set(declared)), batch
            if made:
                assert {*re.findall(r"(?<!@)@\w+", batch)} - {"@key", "@value"} <= set(declared), batch


@pytest.mark.parametrize("role", ["", 'a"; drop table x; --', "a`b", "a]b", "a'b", "-a", "a" * 200])
def test_a_role_that_can_be_none(role: str) -> None:
    for name in WITH_PROCEDURES:
        stored = engine_class(name).stored
        assert stored is not None
        with pytest.raises(BadInput):
            stored.role(role)


def test_sqlite_has_none(tmp_path: Any) -> None:
    database = Place(f"sqlite:///{tmp_path / 'work.db'}", None).open()
    queue: Queue = database.create_queue("work")
    refuses(BadInput, database.install_procedures, "work")
    queue.drop()
