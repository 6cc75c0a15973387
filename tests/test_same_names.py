"""Tables of one name in several schemas, databases and files: a handle means those of the session that opened it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, Queue
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.runner import Runner
from tablequeue.engines.texts import operations_of, sql_text
from tablequeue.errors import BadName, QueueNotFound
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, claimed, counts, design_group, refuses

pytestmark = pytest.mark.quick

Two = tuple[Database, Database]


def url_into(place: Place, name: str) -> sa.URL:
    """A URL whose sessions are in the schema of that name, and which names none to tablequeue."""
    url = sa.make_url(place.url)
    if url.get_backend_name() == "mariadb":
        return url.set(database=name)
    return url.update_query_dict({"options": f"-csearch_path={name}"})


@pytest.fixture
def two(place: Place) -> Iterator[Two]:
    """The queues of two tenants of one server. The second schema is dropped with the test."""
    assert place.schema
    names = (place.schema, f"{place.schema[:20]}_b")
    with place.sa_engine().begin() as connection:
        for name in names:
            connection.exec_driver_sql(f"create schema {name}")
    databases = [tablequeue.connect(url_into(place, name)) for name in names]
    yield databases[0], databases[1]
    for database in databases:
        database.close()
        database.engine.dispose()
    with place.sa_engine().begin() as connection:
        cascade = "" if connection.dialect.name == "mariadb" else " cascade"
        connection.exec_driver_sql(f"drop schema {names[1]}{cascade}")


def everything(queue: Queue, connection: Any, **group: Any) -> None:
    """Use the verbs that callers' transactions have."""
    first, *_ = queue.push_many([1, 2, 3], connection=connection, **group)
    queue.push(4, connection=connection, key="four", **group)
    connection.commit()
    queue.pop(connection=connection).complete(connection=connection)  # type: ignore[union-attr]
    connection.commit()
    message = claimed(queue, connection=connection)
    message.extend(60, connection=connection)
    message.fail("no", retry_in=0, connection=connection)
    connection.commit()
    assert queue.take(connection) is not None
    queue.pause(1, connection=connection)
    queue.resume(connection=connection)
    queue.cancel(first, connection=connection)
    connection.commit()


def total(queue: Queue) -> int:
    return sum(counts(queue).values())


@only("postgresql", "mariadb")
@pytest.mark.parametrize("design", DESIGNS)
def test_a_session_of_another_tenant_reaches_the_queue_of_the_handle(two: Two, design: str) -> None:
    queues = [database.create_queue("emails", **DESIGNS[design]) for database in two]
    first, second = queues
    with two[1].engine.connect() as connection:
        everything(first, connection, **design_group(first, "a"))
    assert total(first) == 4
    assert total(second) == 0


@only("postgresql", "mariadb")
def test_a_handle_that_no_session_of_ours_has_opened(two: Two) -> None:
    """The first session decides: here it is the caller's."""
    for database in two:
        database.create_queue("emails").push(database.engine.url.database)
    late = tablequeue.connect(two[0].engine.url)
    queue = late.queue("emails")
    with two[1].engine.connect() as connection:
        queue.push("here", connection=connection)
        connection.commit()
    assert total(two[0].queue("emails")) == 2
    assert total(two[1].queue("emails")) == 1
    late.close()


@only("postgresql", "mariadb")
def test_sessions_of_ours_that_somebody_else_has_moved(two: Two, place: Place) -> None:
    """The pool of an Engine gives tablequeue sessions that its program used before."""
    for database in two:
        database.create_queue("emails")
    own = two[0].queue("emails")
    moving = "use " if two[0].engine.dialect.name == "mariadb" else "set search_path to "
    other = str(place.schema)[:20] + "_b"
    own.push(1)

    @sa.event.listens_for(two[0].engine, "connect")
    def moved(dbapi: Any, record: Any) -> None:
        with closing(dbapi.cursor()) as cursor:
            cursor.execute(f"{moving}{other}")
        dbapi.commit()

    two[0].close()
    own.push(2)
    assert total(own) == 2
    assert total(two[1].queue("emails")) == 0


@only("postgresql")
def test_a_temporary_table_of_the_name_gets_nothing(db: Database, place: Place) -> None:
    queue = db.create_queue("emails", groups=True)
    with place.sa_engine().connect() as connection:
        for part in ("", "_history", "__turns"):
            connection.exec_driver_sql(
                f"create temporary table tq_emails{part} (like {place.schema}.tq_emails{part} including all)"
            )
        connection.exec_driver_sql(f"create temporary table tq_queues (like {place.schema}.tq_queues)")
        connection.exec_driver_sql("set search_path to pg_temp")
        everything(queue, connection, group="a")
        assert connection.exec_driver_sql("select count(*) from pg_temp.tq_emails").scalar() == 0
    assert total(queue) == 4


@only("postgresql")
def test_the_schema_of_the_catalogue_comes_before_the_first_one(db: Database, place: Place) -> None:
    """A schema that comes earlier in the search path, and has no queues, does not hide those of a later one."""
    db.create_queue("emails")
    with place.sa_engine().begin() as connection:
        connection.exec_driver_sql(f"create schema {place.schema}_b")
    url = sa.make_url(place.url).update_query_dict({"options": f"-csearch_path={place.schema}_b,{place.schema}"})
    with tablequeue.connect(url) as late:
        late.queue("emails").push(1)
        late.create_queue("letters")
        late.engine.dispose()
    assert total(db.queue("emails")) == 1
    assert "letters" in db.queues()
    with place.sa_engine().begin() as connection:
        connection.exec_driver_sql(f"drop schema {place.schema}_b cascade")


@only("postgresql")
def test_every_reserved_word_names_a_schema(place: Place) -> None:
    words = place.execute("select word from pg_get_keywords() where catcode in ('R', 'T')")
    assert len(words) > 90
    for (word,) in words:
        assert PostgreSQL(place.sa_engine().dialect, word).prefix == f'"{word}".'


@only("postgresql", "mariadb")
@pytest.mark.parametrize("word", ["user", "order", "select"])
def test_a_schema_of_a_reserved_word(place: Place, word: str) -> None:
    """All that a queue has is made, and used, there: procedures too."""
    with tablequeue.connect(place.url, schema=word) as database:
        queue = database.create_queue("emails", groups=True, results=True, history=60)
        batches = database.create_queue("batches", batches=True, concurrency=3)
        database.install_procedures("emails")
        database.create_topic("events").subscribe("mail")
        with database.engine.connect() as connection:
            everything(queue, connection, group="a")
        with batches.batch() as batch:
            batch.push(1)
        claimed(batches).complete()
        batches.drop()
        database.engine.dispose()
    mark, cascade = ("`", "") if "mariadb" in place.url else ('"', " cascade")
    place.execute(f"drop schema {mark}{word}{mark}{cascade}")


@only("postgresql", "mariadb")
def test_a_schema_that_a_session_has_of_an_odd_name(place: Place) -> None:
    """`schema=` refuses such names. A search path may have them."""
    name = "Ten ant-12"
    mark, cascade = ("`", "") if "mariadb" in place.url else ('"', " cascade")
    engine = sa.create_engine(place.url, pool_size=1)

    @sa.event.listens_for(engine, "connect")
    def into(dbapi: Any, record: Any) -> None:
        with closing(dbapi.cursor()) as cursor:
            cursor.execute(f"create schema if not exists {mark}{name}{mark}")
            cursor.execute(f"use `{name}`" if mark == "`" else f'set search_path to "{name}"')
        dbapi.commit()

    database = tablequeue.connect(engine)
    queue = database.create_queue("emails", groups=True)
    queue.push_many([1, 2], group="a")
    claimed(queue).complete()
    with engine.connect() as connection:
        everything(queue, connection, group="b")
    database.install_procedures("emails")
    assert total(queue) == 6
    database.close()
    engine.dispose()
    place.execute(f"drop schema {mark}{name}{mark}{cascade}")


@only("postgresql")
def test_a_schema_that_cannot_be_written_is_refused(place: Place) -> None:
    engine = sa.create_engine(place.url)

    @sa.event.listens_for(engine, "connect")
    def into(dbapi: Any, record: Any) -> None:
        dbapi.execute("""create schema if not exists "it's:a" """)
        dbapi.execute("""set search_path to "it's:a" """)
        dbapi.commit()

    error = refuses(BadName, tablequeue.connect, engine)
    assert "it's:a" in error.cause
    assert "schema=" in error.remedy
    engine.dispose()
    place.execute("""drop schema "it's:a" """)


@only("sqlite")
@pytest.mark.parametrize("design", DESIGNS)
def test_temporary_tables_and_attached_files_get_nothing(
    db: Database, place: Place, tmp_path: Path, design: str
) -> None:
    queue = db.create_queue("emails", **DESIGNS[design])
    with tablequeue.connect(f"sqlite:///{tmp_path}/other.db") as other:
        others = other.create_queue("emails", **DESIGNS[design])
    with place.sa_engine().connect() as connection:
        connection.exec_driver_sql(f"attach '{tmp_path}/other.db' as other")
        for part in ("", "_history"):
            hidden = f"tq_emails{part}"
            connection.exec_driver_sql(f"create temporary table {hidden} as select * from main.{hidden}")  # noqa: S608
        connection.commit()
        everything(queue, connection, **design_group(queue, "a"))
        assert connection.exec_driver_sql("select count(*) from temp.tq_emails").scalar() == 0
        queue.drop()
        with pytest.raises(QueueNotFound):
            queue.push(1, connection=connection, **design_group(queue, "a"))
    assert total(others) == 0


@only("sqlite", "postgresql", "mariadb")
def test_a_subscription_begins_at_the_end_of_the_log_of_its_own_topic(db: Database, place: Place) -> None:
    """SQLite knows the end by the name of the table, which has no schema there."""
    topic = db.create_topic("events")
    topic.push_many(range(5))
    with place.sa_engine().begin() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("create temporary table t (id integer primary key autoincrement)")
    late = topic.subscribe("late", start="end")
    assert late.lag().messages == 0
    topic.push(5)
    assert [message.payload for message in late.pop_many(10)] == [5]


@only("sqlite")
def test_no_text_looks_for_a_table_by_its_name_with_the_schema(kind: Kind) -> None:
    for name in operations_of(kind.name):
        for word in re.findall(r"= '{(\w+)}'", sql_text(kind.name, name)):
            assert word in ("table", "log_name", "state", "moved_dead", "pushed_ready"), f"{name} compares with {word}"


class Unsettled:
    """Names no schema, so that each session decides."""

    def settle(self, place: str | None) -> None: ...

    def settle_by(self, cursor: Any) -> None: ...


@only("postgresql", "mariadb")
def test_the_check_notices_an_engine_that_leaves_it_to_the_session(two: Two, kind: Kind) -> None:
    url = two[0].engine.url
    for database in two:
        database.create_queue("emails")
    sa_engine = sa.create_engine(url)
    mutant = type("Mutant", (Unsettled, kind.engine_class), {})
    broken = Database(sa_engine, Runner(sa_engine, mutant(sa_engine.dialect)), None)
    with two[1].engine.connect() as connection:
        broken.queue("emails").push(1, connection=connection)
        connection.commit()
    assert [total(database.queue("emails")) for database in two] == [0, 1]
    broken.close()
    sa_engine.dispose()


@only("sqlite")
def test_the_check_notices_statements_that_name_no_file(place: Place, kind: Kind, tmp_path: Path) -> None:
    db = place.open_with(type("Mutant", (Unsettled, kind.engine_class), {}))
    with pytest.raises((AssertionError, tablequeue.TablequeueError)):
        test_temporary_tables_and_attached_files_get_nothing(db, place, tmp_path, "fifo")
