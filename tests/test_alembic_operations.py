"""Alembic's migrations of queues: what they do online and with --sql, and what autogenerate proposes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import DowngradeOps, UpgradeOps
from alembic.util import CommandError

from tablequeue import Backoff, Rate, aio
from tablequeue.alembic import declare, include_name, operations
from tablequeue.alembic.operations import QueueOperation
from tablequeue.alembic.running import MigrationRunner
from tablequeue.engines import runner
from tablequeue.engines.runner import Runner
from tablequeue.ext import context_of
from tests.async_support import in_loop
from tests.servers import Kind, Place, only
from tests.test_printed_sql import PROGRAMS, Shell, forget_dropped, indexes_of, names_of, use
from tests.test_upgrade import next_version

pytestmark = pytest.mark.quick

Work = Callable[[Any], None]


@contextmanager
def migration_on(connection: sa.Connection) -> Iterator[Any]:
    """One migration, online. Typed as Any, as Alembic's `op` is without our operations."""
    context = MigrationContext.configure(connection)
    with (
        context.begin_transaction(),
        context.begin_transaction(_per_migration=True),
        Operations.context(context) as op,
    ):
        yield op


@contextmanager
def migrating(place: Place) -> Iterator[Any]:
    with place.sa_engine().connect() as connection, migration_on(connection) as op:
        yield op


def sql_of(kind: Kind, work: Work) -> str:
    """Return what a migration writes with --sql."""
    buffer = io.StringIO()
    context = MigrationContext.configure(dialect_name=kind.name, opts={"as_sql": True, "output_buffer": buffer})
    with context.begin_transaction(), Operations.context(context) as op:
        work(op)
    return buffer.getvalue()


def proposals(place: Place, **declared: Any) -> list[Any]:
    """Return what autogenerate proposes, without what it finds in other schemas of the server."""
    metadata = sa.MetaData(schema=place.schema)
    for _ in range(2):  # as an env.py that runs twice in a process
        declare(metadata, **declared)
    with place.sa_engine().connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": include_name})
        found = [diff for diff in compare_metadata(context, metadata) if "_table" not in diff[0]]
        assert all(diff[1] == place.schema for diff in found)
        return [(verb, name, options) for verb, _, name, options in found]


def making(schema: str | None) -> tuple[Work, Work]:
    """Return a migration and its downgrade."""
    emails = {"order": "priority", "dead_letter_to": "failed", "rate": Rate(10), "unique_for": 60}

    def upgrade(op: Any) -> None:
        op.create_queue("failed", schema=schema)
        op.create_queue("emails", schema=schema, **emails)
        op.create_queue("teams", schema=schema, groups=True, payload="bytes", history="none")
        op.create_topic("events", schema=schema, payload="text", keep=3600)
        for number in (1, 2):
            op.create_subscription(f"events/s{number}", schema=schema, number=number, payload="text", keep=3600)

    def downgrade(op: Any) -> None:
        for number in (2, 1):
            op.drop_subscription(f"events/s{number}", schema=schema, number=number, payload="text", keep=3600)
        op.drop_topic("events", schema=schema, payload="text", keep=3600)
        op.drop_queue("teams", schema=schema, groups=True, payload="bytes", history="none")
        op.drop_queue("emails", schema=schema, **emails)
        op.drop_queue("failed", schema=schema)

    return upgrade, downgrade


def test_online(place: Place) -> None:
    upgrade, downgrade = making(place.schema)
    for _ in range(2):  # what is there already stays
        with migrating(place) as op:
            upgrade(op)
    database = place.open()
    assert (database.queues(), database.topics()) == (["emails", "failed", "teams"], ["events"])
    assert database.subscriptions() == ["events/s1", "events/s2"]
    use(database.queue("teams"))
    with migrating(place) as op:
        op.alter_queue("emails", schema=place.schema, lease=300, rate=None)
        op.alter_queue("events/s1", schema=place.schema, max_attempts=7)
    definition = database.queue("emails").definition
    assert (definition.lease, definition.rate, definition.order) == (300, None, "priority")
    assert database.subscription("events/s1").definition.max_attempts == 7
    with migrating(place) as op:
        downgrade(op)
    assert (database.queues(), database.topics(), database.subscriptions()) == ([], [], [])


@only(*PROGRAMS)
def test_the_sql_does_the_same(place: Place, kind: Kind) -> None:
    if place.schema:
        place.execute(f"create schema {place.schema}")
    shell = Shell(place, kind)
    upgrade, downgrade = making(place.schema)
    shell.run(sql_of(kind, upgrade))
    printed = indexes_of(place)
    with migrating(place) as op:
        upgrade(op)  # nothing: the definitions are the same
    shell.run(sql_of(kind, downgrade))
    assert place.open().queues() == place.open().topics() == []
    assert names_of(place) == {"tq__dropped", "tq__identity", "tq__paused"}
    forget_dropped(place)
    with migrating(place) as op:
        upgrade(op)
    assert indexes_of(place) == printed


@only("postgresql", "mariadb")
def test_procedures(place: Place, kind: Kind) -> None:
    with migrating(place) as op:
        op.create_queue("emails", schema=place.schema, groups=True)
        op.install_procedures("emails", schema=place.schema)
    Shell(place, kind).run(sql_of(kind, lambda op: op.install_procedures("emails", schema=place.schema, groups=True)))
    call = "select" if kind.name == "postgresql" else "call"
    assert place.execute(f"{call} {place.schema}.tq_emails_stats(null)")


def check_rollback(place: Place, kind: Kind) -> None:
    with suppress(ZeroDivisionError), migrating(place) as op:
        op.create_queue("emails", schema=place.schema)
        op.create_topic("events", schema=place.schema)
        raise ZeroDivisionError
    database = place.open()
    assert database.queues() == (["emails"] if kind.engine_class.commits_ddl else [])
    use(database.create_queue("emails"))  # the creators' lock is free


def test_an_operation_is_a_part_of_the_migration(place: Place, kind: Kind) -> None:
    check_rollback(place, kind)


def check_own_locks(place: Place) -> None:
    """Each operation ends in a migration that has changed rows of that queue or topic, and of the catalogue."""
    database, schema = place.open(), place.schema
    for name in ("emails", "failed"):
        database.create_queue(name).push("x")
    database.create_topic("events").subscribe("mail")
    database.topic("events").push("x")
    verbs: dict[str, Work] = {
        "create_queue": lambda op: op.create_queue("new", schema=schema, dead_letter_to="failed"),
        "alter_queue": lambda op: op.alter_queue("emails", schema=schema, results=True, concurrency=5),
        "upgrade_queues": lambda op: op.upgrade_queues(schema=schema),
        "install_procedures": lambda op: op.install_procedures("emails", schema=schema),
        "drop_queue": lambda op: op.drop_queue("emails", schema=schema),
        "create_topic": lambda op: op.create_topic("other", schema=schema),
        "create_subscription": lambda op: op.create_subscription("events/sms", schema=schema),
        "drop_subscription": lambda op: op.drop_subscription("events/mail", schema=schema),
        "drop_topic": lambda op: op.drop_topic("events", schema=schema),
    }
    assert {*verbs} == {each.verb for each in _all_of(QueueOperation) if hasattr(Operations, each.verb)}
    if context_of(database.queue("emails")).engine.procedure_syntax is None:
        del verbs["install_procedures"]
    locked = ["emails", "events", "failed"]
    for name, operation in verbs.items():
        with place.sa_engine().connect() as connection, migration_on(connection) as op:
            for each in locked:
                connection.exec_driver_sql(f"delete from {place.table(each)}")  # noqa: S608 (our names)
            catalogue = place.table("queues")
            connection.exec_driver_sql(f"update {catalogue} set definition = definition")  # noqa: S608 (our names)
            operation(op)
        if name.startswith("drop_") and name != "drop_subscription":
            locked.remove("emails" if name == "drop_queue" else "events")
    assert (database.queues(), database.topics()) == (["failed", "new"], ["other"])


def _all_of(kind: type[Any]) -> list[type[Any]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *_all_of(sub)) if "verb" in vars(each)]


def test_no_operation_waits_for_its_own_migration(place: Place) -> None:
    check_own_locks(place)


@only("mariadb")
def test_a_mutant_that_waits_for_its_own_migration(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "end_transaction", lambda *_: None)
    monkeypatch.setattr(runner, "RETRIES", 0)
    with pytest.raises(CommandError):
        check_own_locks(place)


@only("sqlite", "postgresql")
def test_a_mutant_on_connections_of_its_own(place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MigrationRunner, "run", Runner.run)
    with pytest.raises(AssertionError):
        check_rollback(place, kind)


def test_what_autogenerate_proposes(place: Place) -> None:
    queues = {"emails": {"dead_letter_to": "failed", "labels": {"team": "a"}}, "failed": {"lease": 30}}
    declared: Any = {
        "subscriptions": {"events/mail": {"ordered": True}, "events/sms": {"lease": 5}},
        "queues": queues,
        "topics": {"events": {"groups": True, "payload": "text"}},
    }
    labelled = {"dead_letter_to": "failed", "labels": {"team": "a"}}
    assert proposals(place, **declared) == [
        ("create_queue", "failed", {"lease": 30}),
        ("create_queue", "emails", labelled),
        ("create_topic", "events", {"payload": "text", "groups": True}),
        ("create_subscription", "events/mail", {"ordered": True, "payload": "text"}),
        ("create_subscription", "events/sms", {"lease": 5, "payload": "text", "number": 2}),
    ]
    with migrating(place) as op:
        for verb, name, options in proposals(place, **declared):
            getattr(op, verb)(name, schema=place.schema, **options)
    place.open().create_queue("of_another_program")
    assert proposals(place, **declared) == []
    declared["queues"] = {"emails": {"backoff": Backoff(cap=60)}, "failed": {"lease": 31, "batches": True}}
    declared["subscriptions"]["events/audit"] = {}
    assert proposals(place, **declared) == [
        ("alter_queue", "emails", {"backoff": Backoff(cap=60), "dead_letter_to": None}),
        ("alter_queue", "failed", {"lease": 31, "batches": True}),
        ("create_subscription", "events/audit", {"payload": "text", "number": 3}),
    ]
    for wrong, words in {
        "queues": ({"failed": {"order": "lifo"}}, "move the messages"),
        "topics": ({"events": {"keep": 60}}, "payload, groups, keep of the topic 'events'"),
        "subscriptions": ({"events/sms": {"ordered": True}}, "Subscribe anew"),
    }.items():
        with pytest.raises(CommandError, match=words[1]):
            proposals(place, **{wrong: words[0]})
    with pytest.raises(CommandError, match="'events' is a topic, not a queue"):
        proposals(place, queues={"events": {}})


def test_tables_of_an_older_version(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ["emails", "orders"]
    for name in there:
        place.open().create_queue(name)
    next_version(monkeypatch)
    upgrade: Any = ("upgrade_queues", "", {})
    assert proposals(place, queues={"other": {}}) == [upgrade, ("create_queue", "other", {})]
    metadata = sa.MetaData()
    declare(metadata, queues={"other": {}}, schema=place.schema)
    with place.sa_engine().connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": include_name})
        proposed = produce_migrations(context, metadata)
    assert "op.upgrade_queues(" in render_python_code(proposed.upgrade_ops or UpgradeOps())
    assert "    pass  # " in render_python_code(proposed.downgrade_ops or DowngradeOps())
    with migrating(place) as op:
        op.upgrade_queues(schema=place.schema)
    assert proposals(place, queues={"other": {}}) == [("create_queue", "other", {})]
    for name in there:
        assert place.open().queue(name)


@only("sqlite")
@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda op: op.alter_queue("emails", lease=3), "depends on its tables"),
        (lambda op: op.upgrade_queues(), "depends on its tables"),
        (lambda op: op.create_subscription("events/mail", start="end"), "no option 'start'"),
        (lambda op: op.create_queue("emails", lifo=True), "no option 'lifo'"),
        (lambda op: op.create_queue("emails", order="lofi"), "order is 'lofi'"),
        (lambda op: op.install_procedures("emails"), "no stored procedures"),
    ],
)
def test_what_is_refused_with_sql(kind: Kind, work: Work, words: str) -> None:
    with pytest.raises(CommandError, match=words):
        sql_of(kind, work)


@only("sqlite")
def test_what_is_refused_online(place: Place) -> None:
    place.open().create_topic("events")
    refused: dict[str, Work] = {
        "unexpected keyword argument 'lifo'": lambda op: op.create_queue("emails", lifo=True),
        "no queue 'emails'": lambda op: op.drop_queue("emails"),
        "sqlite has no schemas": lambda op: op.create_queue("emails", schema="mail"),
        "'events' is a topic": lambda op: op.install_procedures("events"),
    }
    for words, work in refused.items():
        with pytest.raises(CommandError, match=words), migrating(place) as op:
            work(op)
    engine = place.sa_engine()
    engine.dialect.driver = "pysqlcipher"
    driver = pytest.raises(CommandError, match="through the driver pysqlcipher")
    with engine.connect() as connection, migration_on(connection) as op, driver:
        op.create_queue("emails")
    with pytest.raises(CommandError, match="name"):
        declare(sa.MetaData(), queues={"": {}})


@only("sqlite", "postgresql", "mariadb")  # SQL Server has no async driver
@in_loop
async def test_on_an_async_driver(place: Place) -> None:
    def migrate(connection: sa.Connection) -> None:
        with migration_on(connection) as op:
            making(place.schema)[0](op)

    async with await aio.connect(place.url, schema=place.schema) as database:
        async with database.engine.connect() as connection:
            await connection.run_sync(migrate)
        assert await database.subscriptions() == ["events/s1", "events/s2"]
