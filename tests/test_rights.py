"""The procedures that each role may call, tested with logins of their own. No role has rights on the tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Delivery, errors
from tablequeue.engines import ENGINES, engine_class, procedures
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tests.procedures import PLAIN
from tests.servers import Kind, Place
from tests.sessions import Session, engine_of

TOKEN = "0" * 32
PASSWORD = f"Tq-{secrets.token_hex(8)}"

# A call of each verb that is allowed with the right to call it, even if it has no effect.
CALLED: dict[str, dict[str, Any]] = {
    "push": {"payload": "1"},
    "push_many": {"messages": "[1, 2]"},
    "push_each": {"messages": '[{"payload": 1}]'},
    "pop": {},
    "take": {},
    "look": {},
    "wait": {"seconds": 0.01},
    "complete": {"ids": [1], "token": TOKEN},
    "fail": {"id": 1, "token": TOKEN, "error": "why"},
    "release": {"ids": [1], "token": TOKEN},
    "extend": {"id": 1, "token": TOKEN},
    "cancel": {"ids": [1]},
    "stats": {},
    "peek": {},
    "history": {},
    "read_history": {},
    "lost": {},
}
# Forbidden to every role: use the tables, and the procedures for internal use.
TABLES = (
    "select * from {queue}",
    "insert into {queue} (payload, pushed_at) values ('1', current_timestamp)",
    "update {queue} set state = 'dead'",
    "delete from {queue}",
    "select * from {queue}_history",
    "delete from {queue}_history",
)
INSIDE = {
    "postgresql": (
        "select {queue}_sweep(0, 1, null)",
        "select * from {queue}_claim(1, 'me', 60, null, null)",
        "select * from {queue}_remove(1, 'me', null, null)",
    ),
    "mariadb": (
        "call {queue}_sweep(0, 1, null, @moved)",
        "call {queue}_find(1, null, @ids)",
        "call {queue}_push_all('[]', 'raise', 'me', null, @ids)",
        "call {queue}_push_one('1', '{{}}', 'raise', 'me', null, @id)",
        "call {queue}_undo(true)",
    ),
    "mssql": (
        "exec {queue}__sweep 0, 1, null",
        "exec {queue}__insert_each N'[]', N'me', null, null",
        "exec {queue}__peek_ready 1, 0",
    ),
}
# How to create a user that has a role, or is one, and how to drop both.
MADE = {
    "postgresql": (
        f"create role {{role}} login password '{PASSWORD}'",  # on this engine a user is a role
    ),
    "mariadb": (
        "create role {role}",
        f"create user {{role}}_user identified by '{PASSWORD}'",
        "grant {role} to {role}_user",
        "set default role {role} for {role}_user",
    ),
    "mssql": (
        f"create login {{role}}_user with password = '{PASSWORD}', check_policy = off",
        "create role {role}",
        "create user {role}_user for login {role}_user",
        "alter role {role} add member {role}_user",
    ),
}
GONE = {
    "postgresql": ("drop owned by {role}", "drop role {role}"),
    "mariadb": ("drop user {role}_user", "drop role {role}"),
    "mssql": ("drop user {role}_user", "drop role {role}", "drop login {role}_user"),
}
# On engines whose users are in no database at first, they have rights in one database only.
IN_NONE = {"mariadb"}


@pytest.fixture(params=PLAIN, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


@contextmanager
def roles(place: Place, kind: Kind) -> Iterator[dict[str, str]]:
    """A role of each kind, and one without any rights."""
    names = {one: f"tq_{one}_{secrets.token_hex(4)}" for one in (*procedures.ROLES, "stranger")}
    for name in names.values():
        for statement in MADE[kind.name]:
            place.execute(statement.format(role=name))
    try:
        yield names
    finally:
        for name in names.values():
            for statement in GONE[kind.name]:
                place.execute(statement.format(role=name))


@contextmanager
def login(database: Database, kind: Kind, role: str) -> Iterator[Session]:
    """Open a session of a user with this role."""
    user = role if kind.name == "postgresql" else f"{role}_user"
    url = database.engine.url.set(username=user, password=PASSWORD)
    engine = sa.create_engine(url.set(database="") if kind.name in IN_NONE else url)
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            yield Session(database, connection)
    finally:
        engine.dispose()


def grant(place: Place, database: Database, names: dict[str, str]) -> None:
    """Run the output of `tablequeue sql grant`."""
    engine = engine_of(database)
    given = {one: [names[one]] for one in procedures.ROLES}
    text = procedures.grants(engine, context_of(database.queue("work")).table, given)
    for statement in engine.split(text):
        place.execute(statement)


def allowed(one: Session, action: str, **params: Any) -> bool:
    """Return whether a verb or a statement is allowed by the rights."""
    try:
        one.call(action, **params) if action in CALLED else one.execute(action)
    except errors.NoRights:
        return False
    except errors.LeaseLost:
        pass
    return True


def rights(database: Database, kind: Kind, names: dict[str, str], verbs: set[str]) -> dict[str, set[str]]:
    """Return the verbs and statements that are allowed to each kind of role."""
    there: dict[str, set[str]] = {}
    inside = [statement for statement in INSIDE[kind.name] if "take" in verbs or "_remove(" not in statement]
    for one, role in names.items():
        with login(database, kind, role) as user:
            there[one] = {verb for verb in verbs if allowed(user, verb, **CALLED[verb])}
            there[one] |= {statement for statement in (*TABLES, *inside) if allowed(user, statement)}
    return there


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_the_rights_of_each_role(place: Place, kind: Kind, db: Database, delivery: Delivery) -> None:
    queue = db.create_queue("work", delivery=delivery)
    verbs = {name.removeprefix("tq_work_") for name in db.install_procedures("work")}
    with roles(place, kind) as names:
        assert rights(db, kind, names, verbs) == {one: set() for one in names}, "nobody has them by themselves"
        grant(place, db, names)
        wanted = {one: verbs & {*procedures.ROLES.get(one, ())} for one in names}
        assert rights(db, kind, names, verbs) == wanted
        db.install_procedures("work")
        assert rights(db, kind, names, verbs) == wanted, "procedures that are replaced keep their rights"
    queue.drop()


# On SQL Server a procedure may use a table because both have the same owner, whatever its SQL says.
@pytest.mark.parametrize(
    "kind", [kind for kind in PLAIN if kind.name != "mssql"], indirect=True, ids=lambda kind: kind.name
)
def test_the_check_notices_procedures_with_the_rights_of_their_caller(
    place: Place, kind: Kind, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = procedures.template
    monkeypatch.setattr(
        procedures, "template", lambda *file: whole(*file).replace("security definer", "security invoker")
    )
    queue = db.create_queue("work")
    verbs = {name.removeprefix("tq_work_") for name in db.install_procedures("work")}
    with roles(place, kind) as names:
        grant(place, db, names)
        assert rights(db, kind, names, verbs) == {one: set() for one in names}
    queue.drop()


def test_the_consumer_is_the_login(place: Place, kind: Kind, db: Database) -> None:
    """It is not the owner, with whose rights the procedures run."""
    queue = db.create_queue("work")
    db.install_procedures("work")
    with roles(place, kind) as names:
        grant(place, db, names)
        with login(db, kind, names["producer"]) as user:
            user.call("push", payload="1")
        with login(db, kind, names["consumer"]) as user:
            user.call("pop")
        (message,) = queue.peek(state="in_progress")
        assert (message.producer or "").startswith(names["producer"])
        assert (message.consumer or "").startswith(names["consumer"])
    queue.drop()


def test_a_temporary_table_does_not_stand_in_for_the_queue(postgresql_url: str) -> None:
    """The functions run with the rights of their owner, so they must not find objects of the caller."""
    plain = Place(postgresql_url, None)
    name = f"plain_{secrets.token_hex(4)}"
    queue = plain.open().create_queue(name)
    plain.open().install_procedures(name)
    try:
        with plain.sa_engine().begin() as connection:
            connection.exec_driver_sql(f"create temporary table tq_{name} (like public.tq_{name})")
            connection.exec_driver_sql(f"select tq_{name}_push('1')")
        assert queue.stats().ready == 1
    finally:
        queue.drop()
        plain.close()


WITH_PROCEDURES = [name for name in ENGINES if engine_class(name).procedure_syntax]


@pytest.mark.parametrize("role", ["", 'a"; drop table x; --', "a`b", "a]b", "a'b", "-a", "a" * 200])
@pytest.mark.parametrize("name", WITH_PROCEDURES)
def test_a_role_that_can_be_none(name: str, role: str) -> None:
    stored = engine_class(name).procedure_syntax
    assert stored is not None
    with pytest.raises(BadInput):
        stored.role(role)


@pytest.mark.parametrize("role", ["web@", "web@a'b", "web@a b", "we`b@%", "@%"])
def test_a_user_of_mariadb_that_can_be_none(role: str) -> None:
    stored = engine_class("mariadb").procedure_syntax
    assert stored is not None
    assert stored.role("web@10.0.0.%") == "`web`@'10.0.0.%'"
    with pytest.raises(BadInput):
        stored.role(role)
