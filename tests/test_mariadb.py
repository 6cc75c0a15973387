"""Specific to MariaDB and MySQL: collations, isolation, strictness, packets, ids, leftovers of DDL, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, History, NewMessage, errors
from tests.servers import KINDS, Kind, Place
from tests.support import at, claimed, counts, ids_of, refuses

pymysql = pytest.importorskip("pymysql")

from tablequeue.engines.mysql.connection import adopt, check_version  # noqa: E402 (not without the driver)
from tablequeue.engines.mysql.refusals import translated  # noqa: E402
from tablequeue.ext import context_of  # noqa: E402


@pytest.fixture
def kind() -> Kind:
    return next(kind for kind in KINDS if kind.name == "mariadb")


def with_setting(place: Place, setting: str) -> str:
    """Return the URL, with connections that begin with a SET."""
    return f"{place.url}?init_command={quote(f'set session {setting}')}"


@pytest.fixture
def strange(place: Place) -> Iterator[Database]:
    """A Database whose connections have settings that must not matter."""
    mode = "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', tx_isolation = 'SERIALIZABLE', time_zone = '+09:00'"
    with tablequeue.connect(with_setting(place, mode), schema=place.schema) as database:
        yield database
        database.engine.dispose()


# -- text --------------------------------------------------------------------------------------------------------------

# Equal in some collation.
ALIKE = ["a", "A", "a ", "a  ", "á", "\uff41", "ß", "ss"]


def test_keys_that_a_collation_takes_for_one(db: Database) -> None:
    queue = db.create_queue("work")
    ids = [queue.push(key, key=key) for key in ALIKE]
    assert len(set(ids)) == len(ALIKE)
    assert [queue.push(0, key=key, on_conflict="return") for key in ALIKE] == ids
    assert queue.push_many([NewMessage(0, key=key) for key in ALIKE], on_conflict="return") == ids


def test_groups_that_a_collation_takes_for_one(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    for group in ALIKE:
        queue.push(group, group=group)
    claims = queue.pop_many(100)
    assert sorted(claim.payload for claim in claims) == sorted(ALIKE)
    assert all(claim.group == claim.payload for claim in claims)


def test_the_longest_key_of_the_widest_characters(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    widest = "\U0010ffff" * 255
    id = queue.push(1, group=widest, key=widest)
    assert queue.push(1, group=widest, key=widest, on_conflict="skip") is None
    claim = claimed(queue)
    assert (claim.id, claim.group, claim.key) == (id, widest, widest)


def test_a_character_set_that_cannot_hold_every_message(db: Database, place: Place) -> None:
    queue = db.create_queue("work", payload="text")
    engine = sa.create_engine(f"{place.url}?charset=latin1")
    with engine.connect() as connection:
        assert "latin1" in refuses(errors.BadInput, queue.push, "é", connection=connection).cause
        refuses(errors.BadInput, queue.pop, connection=connection)
    engine.dispose()
    with tablequeue.connect(f"{place.url}?charset=latin1", schema=place.schema) as ours:
        ours.queue("work").push("😀")
        ours.engine.dispose()
    assert claimed(queue).payload == "😀", "on connections of our own it is ours to choose"


def test_json_that_mariadb_takes_for_none(db: Database) -> None:
    queue = db.create_queue("work")
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    for payload, remedy in ((deep, "text queue"), ("\ud800", "bytes queue")):
        assert remedy in refuses(errors.BadPayload, queue.push, payload).remedy
        refuses(errors.BadPayload, queue.push_many, [1, payload])
    assert counts(queue) == {}


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_of_the_server_do_not_matter(strange: Database) -> None:
    queue = strange.create_queue("work", payload="text")
    text = "'\\\"%s :now \\' \n"
    id = queue.push(text, key=text, headers={text: text}, delay=1, now=at(0))
    claim = claimed(queue, now=at(1))
    assert (claim.id, claim.payload, claim.key, claim.headers) == (id, text, text, {text: text})
    assert claim.due_at == claim.popped_at == at(1)
    claim.fail(text, retry_in=0)
    assert [error.error for error in queue.peek()[0].errors] == [text]
    queue.push_many([text] * 3)
    assert [claim.payload for claim in queue.pop_many(4)] == [text] * 4


def test_our_connections_are_read_committed_and_strict(strange: Database) -> None:
    raw: Any = strange.engine.raw_connection()
    held = adopt(raw.dbapi_connection)
    held.cursor.execute("select @@tx_isolation, @@sql_mode, @@time_zone, @@autocommit")
    assert held.cursor.fetchone() == ("READ-COMMITTED", "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", "+00:00", 1)
    raw.invalidate()


def test_nothing_is_truncated_without_strict_mode(db: Database, place: Place) -> None:
    queue = db.create_queue("work", payload="text", groups=True)
    engine = sa.create_engine(with_setting(place, "sql_mode = ''"))
    longest = "é" * 255
    with engine.begin() as connection:
        queue.push("x" * 70_000, group=longest, key=longest, headers={"h": "x" * 70_000}, connection=connection)
        refuses(errors.BadInput, queue.push, "x", group=longest + "x", connection=connection)
    engine.dispose()
    claim = claimed(queue)
    assert (len(claim.payload), claim.group, claim.key, len(claim.headers["h"])) == (70_000, longest, longest, 70_000)


def test_ids_that_are_some_way_apart(place: Place) -> None:
    url = with_setting(place, "auto_increment_increment = 7, session auto_increment_offset = 3")
    with tablequeue.connect(url, schema=place.schema) as database:
        queue = database.create_queue("work", payload="text")
        ids = [queue.push("0"), *queue.push_many(map(str, range(1, 500)))]
        ids += queue.push_many([NewMessage(str(number), key=str(number)) for number in range(500, 520)])
        assert {id % 7 for id in ids} == {3}
        assert {claim.id: claim.payload for claim in queue.pop_many(1000)} == {
            id: str(number) for number, id in enumerate(ids)
        }
        database.engine.dispose()


def test_both_dialects_reach_the_same_queues(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    with tablequeue.connect(place.url.replace("mariadb+", "mysql+"), schema=place.schema) as other:
        other.queue("work").push(1)
        other.engine.dispose()
    assert claimed(queue).payload == 1


@pytest.mark.parametrize(
    ("words", "enough"),
    [
        ("10.6.0-MariaDB", True),
        ("5.5.5-10.11.6-MariaDB-log", True),
        ("10.5.23-MariaDB", False),
        ("8.0.1", True),
        ("8.0.0-dmr", False),
        ("5.7.44-log", False),
        ("9.4.0", True),
    ],
)
def test_versions(words: str, enough: bool) -> None:
    if enough:
        check_version(words)
    else:
        assert "MariaDB 10.6 or MySQL 8.0.1" in refuses(errors.DatabaseError, check_version, words).remedy


# -- a caller's transaction, under REPEATABLE READ ---------------------------------------------------------------------


def test_a_caller_that_finds_too_few_messages_blocks_nobody(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    queue.push(0)
    with place.sa_engine().connect() as connection:
        assert connection.exec_driver_sql("select @@tx_isolation").scalar_one() == "REPEATABLE-READ"
        assert len(queue.pop_many(10, connection=connection)) == 1
        assert queue.pop(connection=connection) is None
        # All of these would wait for the end of this transaction if it had locked the gap after the last one.
        queue.push(1)
        queue.push_many([2, 3])
        claimed(queue).release()
        assert len(queue.pop_many(3, connection=connection)) == 3, "and it sees what was pushed since it began"
        connection.rollback()
    assert counts(queue) == {"ready": 4}


def test_callers_who_push_the_same_new_keys_do_not_lock_each_other_out(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    with place.sa_engine().connect() as one, place.sa_engine().connect() as other:
        queue.push_many([NewMessage(1, key=key) for key in "ac"], connection=one)
        queue.push_many([NewMessage(2, key=key) for key in "bd"], connection=other)
        one.commit()
        other.commit()
    assert len(queue.peek()) == 4


def test_a_large_batch_of_which_some_keys_are_taken(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    taken = queue.push_many([NewMessage(0, key=str(key)) for key in (3, 500, 501, 1999)])
    batch = [NewMessage(key, key=str(key)) for key in range(2000)] + [NewMessage(0, key="7")]
    with place.sa_engine().begin() as connection:
        ids = queue.push_many(batch, on_conflict="skip", connection=connection)
    assert [place for place, id in enumerate(ids) if id is None] == [3, 500, 501, 1999, 2000]
    new = [id for id in ids if id is not None]
    assert sorted(ids_of(queue.peek(3000))) == sorted([*taken, *new])
    found = {message.id: message.payload for message in queue.peek(3000)}
    assert all(found[id] == place for place, id in enumerate(ids) if id is not None)


def test_a_snapshot_that_is_watched(db: Database, place: Place) -> None:
    """innodb_snapshot_isolation, the default from MariaDB 11.6 on: a change since the snapshot is an error."""
    queue = db.create_queue("work", payload="text")
    queue.push_many([*"ab"])
    engine = sa.create_engine(with_setting(place, "innodb_snapshot_isolation = on"))
    with engine.connect() as connection:
        first = claimed(queue, connection=connection)
        other = claimed(queue)
        other.release()
        assert refuses(errors.Conflict, queue.pop, connection=connection).remedy.startswith("Roll back")
        connection.rollback()
        assert claimed(queue, connection=connection).id == first.id
        connection.commit()
    engine.dispose()
    assert counts(queue) == {"ready": 1, "in_progress": 1}


def test_a_lock_that_is_waited_for_too_long(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    queue.push(1)
    claim = claimed(queue)
    engine = sa.create_engine(with_setting(place, "innodb_lock_wait_timeout = 1"))
    with engine.connect() as connection, place.sa_engine().connect() as other:
        other.exec_driver_sql(f"select * from {place.table('work')} where id = {claim.id} for update")  # noqa: S608
        refuses(errors.Locked, claim.complete, connection=connection)
        other.rollback()
        claim.complete(connection=connection)
        connection.commit()
    engine.dispose()
    assert counts(queue) == {"finished": 1}


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_packet_that_is_too_large(db: Database) -> None:
    queue = db.create_queue("work", payload="text")
    for call in (queue.push, lambda text: queue.push_many(["small", text])):
        assert "max_allowed_packet" in refuses(errors.BadPayload, call, "x" * (17 << 20)).remedy
    assert counts(queue) == {}


def test_a_url_without_a_database(place: Place) -> None:
    url = sa.make_url(place.url).set(database="")
    with tablequeue.connect(url) as database:
        assert "schema" in refuses(errors.BadUrl, database.create_queue, "work").remedy
        database.engine.dispose()


@pytest.mark.parametrize("history", ["keep", "none", 3600])
def test_a_schema_is_enough_of_a_name(place: Place, history: History) -> None:
    """Each verb that deletes works on connections without a current database."""
    url = sa.make_url(place.url).set(database="")
    with tablequeue.connect(url, schema=place.schema) as database:
        queue = database.create_queue("work", groups=True, max_attempts=1, history=history)
        queue.push_many([NewMessage("x", group=f"group {number}") for number in range(7)])
        claimed(queue).complete()
        queue.complete_many(queue.pop_many(2))
        with database.engine.begin() as connection:
            queue.take_many(2, connection)
        claimed(queue).fail("why")
        assert queue.purge_dead([message.id for message in queue.dead()]) == 1
        assert queue.purge() == 1
        if queue.definition.keeps_history:
            assert queue.purge_history(0) == 5
        queue.drop()
        database.engine.dispose()


def test_a_transaction_that_may_only_read(db: Database, place: Place) -> None:
    db.create_queue("work").push(1)
    with tablequeue.connect(with_setting(place, "tx_read_only = 1"), schema=place.schema) as database:
        queue = database.queue("work")
        assert len(queue.peek()) == 1
        for call in (queue.pop, lambda: queue.push(2), lambda: queue.push_many([2, 3])):
            refuses(errors.ReadOnly, call)
        database.engine.dispose()


def test_a_user_without_rights(db: Database, place: Place) -> None:
    db.create_queue("work").push(1)
    user = f"u{place.schema}"
    place.execute(f"create user {user} identified by 'Tr0ub4dor'")
    place.execute(f"grant select on {place.schema}.* to {user}")
    url = sa.make_url(place.url).set(username=user, database=place.schema)
    try:
        assert "Tr0ub4dor" not in str(refuses(errors.Unreachable, tablequeue.connect, url.set(password="x")))
        with tablequeue.connect(url.set(password="Tr0ub4dor")) as database:
            queue = database.queue("work")
            assert len(queue.peek()) == 1
            for call in (queue.pop, lambda: queue.push(2), queue.drop, lambda: database.create_queue("other")):
                refuses(errors.NoRights, call)
            database.engine.dispose()
    finally:
        place.execute(f"drop user {user}")
    assert db.queues() == ["work"]


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, errors.DatabaseError),
        (1020, errors.Conflict),
        (1021, errors.Full),
        (1040, errors.Unreachable),
        (1044, errors.NoRights),
        (1045, errors.Unreachable),
        (1114, errors.Full),
        (1146, errors.QueueNotFound),
        (1153, errors.BadPayload),
        (1203, errors.Unreachable),
        (1205, errors.Locked),
        (1213, errors.Conflict),
        (1290, errors.ReadOnly),
        (1366, errors.BadPayload),
        (1406, errors.BadPayload),
        (1412, errors.Conflict),
        (1419, errors.NoRights),
        (1836, errors.ReadOnly),
        (2003, errors.Unreachable),
        (2006, errors.ConnectionLost),
        (2013, errors.ConnectionLost),
        (3819, errors.BadPayload),
        (4031, errors.ConnectionLost),
        (9999, errors.DatabaseError),
    ],
)
def test_numbers_of_errors(number: int, kind: type[Exception]) -> None:
    error = translated(pymysql.OperationalError(number, "The server's words"))
    assert type(error) is kind
    assert "The server's words" in error.cause
    assert error.remedy


def test_the_drivers_errors_where_it_stands_in_for_mysqlclient(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pymysql.install_as_MySQLdb` and an import of `MySQLdb.converters` leave another module as `pymysql.err`."""
    monkeypatch.setattr(pymysql, "err", ModuleType("err"))
    assert isinstance(translated(pymysql.InterfaceError(0, "")), errors.ConnectionLost)


# -- DDL ---------------------------------------------------------------------------------------------------------------


def test_what_a_crash_in_create_left_is_made_anew(db: Database, place: Place) -> None:
    db.create_queue("work", payload="json", groups=True)
    place.execute(f"delete from {place.table('queues')}")  # noqa: S608 (a name of this test's own)
    assert db.queues() == []
    queue = db.create_queue("work", payload="bytes", groups=True)
    queue.push(b"\xff", group="a")
    assert claimed(queue).payload == b"\xff"


def test_what_a_crash_in_drop_left_is_dropped_by_the_next_create(db: Database, place: Place) -> None:
    kept = db.create_queue("kept", payload="text")
    kept.push("precious")
    old = db.create_queue("work", groups=True, results=True)
    table = context_of(old).table.table_name
    before = tables_of(place)
    # As after a crash between the entry in the catalogue and the tables.
    place.execute(f"insert into {place.table('_dropped')} values ('{table}'), ('tq_kept')")  # noqa: S608
    place.execute(f"delete from {place.table('queues')} where name = 'work'")  # noqa: S608
    assert tables_of(place) == before
    db.create_queue("work", payload="bytes")
    left = {each for each in before if each == table or each.startswith((f"{table}__", f"{table}_history"))}
    assert left
    assert not left & tables_of(place)
    assert claimed(kept).payload == "precious", "what the catalogue has is no leftover"


def tables_of(place: Place) -> set[str]:
    query = "select table_name from information_schema.tables where table_schema = %s"
    return {name for (name,) in place.execute(query, (place.schema,))}


def test_a_queue_of_the_name_of_a_history_is_no_leftover(db: Database, place: Place) -> None:
    db.create_queue("y", payload="text").push("precious")
    place.execute(f"delete from {place.table('queues')}")  # noqa: S608 (a name of this test's own)
    place.execute(f"rename table {place.table('y')} to {place.table('x_history')}")
    refuses(errors.QueueDiffers, db.create_queue, "x")
    assert place.execute(f"select payload from {place.table('x_history')}") == [("precious",)]  # noqa: S608
