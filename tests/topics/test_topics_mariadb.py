"""What only MariaDB and MySQL have: holes that are closed by rows, two-phase commits, and guesses of a position."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database
from tablequeue.engines.mysql import topics as mysql_topics
from tablequeue.engines.mysql.connection import MySQLCursor
from tablequeue.engines.mysql.engine import MySQL
from tablequeue.engines.mysql.packets import sent
from tablequeue.engines.mysql.ranges import LOOK
from tablequeue.engines.ranges import PUMPED
from tablequeue.errors import DatabaseError, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs.sweep import sweep
from tablequeue.verbs.topics import trim
from tests.servers import Place, only
from tests.support import at, claimed, counts, ids_of, refuses
from tests.test_mutants import rewritten

pytestmark = only("mariadb")


@contextmanager
def open_transaction(place: Place, isolation: Any = "REPEATABLE READ") -> Iterator[sa.Connection]:
    with place.sa_engine().connect().execution_options(isolation_level=isolation) as connection:
        yield connection


def close_holes(place: Place, topic: Topic) -> None:
    """Close what can be closed, as if all holes had been seen an hour ago."""
    place.execute(f"update {place.table('events')}__holes set seen_at = seen_at - interval 1 hour")  # noqa: S608
    context_of(topic).table.next_close = 0
    context_of(topic).run(MySQL.topics.close_holes, {})


def holes(place: Place) -> list[tuple[int, int]]:
    rows = place.execute(f"select first_id, last_id from {place.table('events')}__holes where first_id > 0")  # noqa: S608
    return [(low, high) for low, high in rows]


def popped(subscription: Subscription) -> list[Any]:
    batch = subscription.pop_many(100)
    subscription.complete_many(batch)
    return [claim.payload for claim in batch]


def test_a_hole_is_closed_when_nobody_fills_it(place: Place, topic: Topic, mail: Subscription) -> None:
    with open_transaction(place) as gone, open_transaction(place) as late:
        topic.push_many([*"abc"], connection=gone)
        topic.push_many([*"de"], connection=late)
        topic.push("f")
        assert popped(mail) == ["f"]
        assert holes(place) == [(1, 5)]
        gone.rollback()
        close_holes(place, topic)
        assert holes(place) == [(1, 5)], "it is one hole, and a transaction may fill a part of it"
        late.commit()
    assert popped(mail) == ["d", "e"]
    assert holes(place) == [(1, 3)]
    close_holes(place, topic)
    assert holes(place) == []
    topic.push("g")
    assert popped(mail) == ["g"]
    assert counts(mail) == {"finished": 4}
    mail.seek("beginning")
    assert popped(mail) == ["f", "d", "e", "g"], "the rows that close a hole are no messages"


@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_offsets_that_another_session_gave_after_a_look(
    place: Place, topic: Topic, mail: Subscription, monkeypatch: pytest.MonkeyPatch, mutated: bool
) -> None:
    """A packet that does not compare the number of changes gives messages a second offset."""
    engine = rewritten(" and last_id = :version", "", "sequence")(MySQL) if mutated else MySQL
    one, other = (context_of(place.open_with(engine).topic("events")) for _ in range(2))

    def forestalled(*values: Any) -> Any:
        found = sent(*values)
        if not late.closed:
            late.commit()
            late.close()
            other.run(MySQL.topics.sequence, {})
        return found

    with open_transaction(place) as late:
        topic.push_many([*"abc"], connection=late)
        topic.push_many([*"def"])
        monkeypatch.setattr(mysql_topics, "sent", forestalled)
        with pytest.raises(DatabaseError, match="Duplicate") if mutated else nullcontext():
            one.run(MySQL.topics.sequence, {})
    assert popped(mail) == [*"abcdef"]


def test_a_young_hole_and_a_wide_one_stay(place: Place, topic: Topic, mail: Subscription) -> None:
    for n in (1, 1001):
        with open_transaction(place) as gone:
            topic.push_many(["a"] * n, connection=gone)
        topic.push("b")
    assert popped(mail) == ["b", "b"]
    context_of(topic).table.next_close = 0
    context_of(topic).run(MySQL.topics.close_holes, {})
    assert len(holes(place)) == 2
    close_holes(place, topic)
    assert [high - low + 1 for low, high in holes(place)] == [1001]


def ended(place: Place, statement: str) -> bool:
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        try:
            connection.exec_driver_sql(statement)
        except sa.exc.DBAPIError:
            return False
        return True


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_a_prepared_transaction_outlives_its_client(place: Place, topic: Topic, mail: Subscription, verb: str) -> None:
    """No hole is closed that a prepared transaction has filled, whoever ends it."""
    xid = f"'{place.schema}'"
    pooled = place.sa_engine().raw_connection()
    connection: Any = pooled.driver_connection
    pooled.detach()
    run = connection.cursor().execute
    run(f"xa start {xid}")
    topic.push_many([*"abc"], connection=connection)
    run(f"xa end {xid}")
    run(f"xa prepare {xid}")
    connection.close()
    topic.push("beside")
    assert popped(mail) == ["beside"]
    close_holes(place, topic)
    assert len(holes(place)) == 1
    while not ended(place, f"xa {verb} {xid}"):
        pass  # until the server has left it alone
    assert popped(mail) == ([*"abc"] if verb == "commit" else [])
    close_holes(place, topic)
    assert holes(place) == []


def test_an_id_that_is_closed_before_its_row_is_there(place: Place, topic: Topic, mail: Subscription) -> None:
    """A push has its id, but waits before it inserts the row; and its id is closed. The push gets another id, or the
    closing gives up: the server decides which of the two comes first.
    """
    table = place.table("events")
    topic.push("first")
    assert popped(mail) == ["first"]
    for _ in range(10):
        with open_transaction(place) as holder, ThreadPoolExecutor(2) as threads:
            holder.exec_driver_sql(f"select id from {table} where id > 0 for update").all()  # noqa: S608  all gaps
            id = next_id(place)
            pushing = threads.submit(topic.push, "x")
            while next_id(place) == id and not pushing.done():
                pass
            closing = threads.submit(place.execute, f"insert into {table} (id, payload) values ({id}, '0')")  # noqa: S608
            holder.rollback()
            closed = closing.exception(60) is None
            assert pushing.result(60) != id or not closed
        # No hole was noted here, so the row that closes the id is handed out like a message.
        assert popped(mail) == (["0", "x"] if closed else ["x"])


def next_id(place: Place) -> int:
    """Return the id that the next message of the log gets."""
    (row,) = place.execute(
        "select auto_increment from information_schema.tables where table_schema = %s and table_name = 'tq_events'",
        (place.schema,),
    )
    return int(row[0])


@pytest.mark.parametrize("n", [1, 7, 100])
def test_a_claim_of_many_runs(place: Place, topic: Topic, mail: Subscription, log: Subscription, n: int) -> None:
    """A claim guesses its position: it is right about it, whatever other consumers and seeks do."""
    chance = random.Random(n)
    expected: list[int] = []
    with open_transaction(place) as late:
        for _ in range(60):
            expected += topic.push_many(["a"] * chance.choice([1, 2]))
            if chance.random() < 0.9:
                (topic.push("lost", connection=late))
        late.rollback()
    others = [place.open().subscription("events/mail") for _ in range(3)]
    got: list[int] = []
    while batch := chance.choice(others).pop_many(n):
        got += ids_of(batch)
        chance.choice(others).complete_many(batch)
    assert got == expected
    for offset, wanted in ((30, expected[29:]), (1, expected), (60, expected[59:])):
        context_of(log).run(
            context_of(log).engine.ranges.seek, {"start": offset, "force": True, "to_end": False, "now": None}
        )
        again: list[int] = []
        while batch := log.pop_many(n):
            again += ids_of(batch)
            log.complete_many(batch)
        assert again == wanted


def test_a_pump_of_more_runs_than_one_look(place: Place, db: Database, ordered: Subscription) -> None:
    topic = db.topic("orders")
    runs = PUMPED + LOOK + 5
    topic.push_many(["a"] * (2 * runs), group="g")
    place.execute(f"delete from {place.table('orders')} where id % 2 = 0".replace("%", "%%"))  # noqa: S608
    got = 0
    while (claim := ordered.pop()) is not None and got < 3:
        claim.complete()
        got += 1
    moved = place.execute(f"select sum(last_offset - first_offset + 1) from {place.table('orders')}__s1__ranges")  # noqa: S608
    assert moved[0][0] >= PUMPED
    while sweep(context_of(ordered), None) > 1:
        pass
    moved = place.execute(f"select sum(last_offset - first_offset + 1) from {place.table('orders')}__s1__ranges")  # noqa: S608
    assert moved[0][0] == runs


def test_a_completion_in_a_callers_transaction_locks_no_claim(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push_many(["a"] * 30)
    first, second = mail.pop_many(1), mail.pop_many(3)
    with open_transaction(place) as connection:
        mail.complete_many(first, connection=connection)
        mail.complete_many(second[:1], connection=connection)
        while batch := mail.pop_many(1):
            mail.complete_many(batch)
        second[1].fail("no", retry_in=0, connection=connection)
        connection.commit()
    assert counts(mail) == {"in_progress": 1, "ready": 1, "finished": 28}


def test_a_completion_with_a_snapshot_from_before_the_claim(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcdefg"])
    with open_transaction(place) as connection:
        connection.exec_driver_sql(f"select count(*) from {place.table('events')}").one()  # noqa: S608
        whole, part, again = mail.pop_many(2), mail.pop_many(2), mail.pop_many(3)
        mail.complete_many(whole, connection=connection)
        mail.complete_many(part[1:], connection=connection)
        again[1].release(connection=connection)
        again[0].extend(100, connection=connection)
        connection.commit()
    assert counts(mail) == {"in_progress": 3, "ready": 1, "finished": 3}


def test_ids_that_are_further_apart(place: Place, topic: Topic, mail: Subscription) -> None:
    """As in servers that replicate each other."""
    with open_transaction(place) as connection:
        connection.exec_driver_sql("set session auto_increment_increment = 3")
        ids = topic.push_many([*"abc"], connection=connection)
        connection.commit()
    assert [ids[1] - ids[0], ids[2] - ids[1]] == [3, 3]
    topic.push("d")
    assert [claim.payload for claim in mail.pop_many(10, now=at(0))] == [*"abcd"]


def closed(place: Place) -> int:
    return int(place.execute(f"select count(*) from {place.table('events')} where pushed_at is null")[0][0])  # noqa: S608


def test_rows_that_close_holes_are_dropped_with_what_is_around_them(db: Database, place: Place) -> None:
    topic = db.create_topic("events", payload="text", keep=60)
    mail = topic.subscribe("mail")
    topic.push("before", now=at(0))
    with open_transaction(place) as gone:
        topic.push_many([*"abc"], connection=gone)
    topic.push("behind", now=at(0))
    with open_transaction(place) as late:
        topic.push("late", connection=late)
        topic.push("last", now=at(1000))
        assert popped(mail) == ["before", "behind", "last"]
        close_holes(place, topic)
        assert closed(place) == 3
        trim(context_of(topic), at(500))
        assert closed(place) == 0, "below what may still come"
        assert len(holes(place)) == 1
        late.commit()
    assert popped(mail) == ["late"]


def test_a_topic_whose_tables_are_being_made_is_not_there_yet(place: Place, topic: Topic, mail: Subscription) -> None:
    """MariaDB commits each statement of a creation: a table is there before its first row."""
    topic.push("x")
    place.execute(f"delete from {place.table('events')}__runs")  # noqa: S608
    refuses(QueueNotFound, mail.pop_many, 3)


def test_a_forced_seek_deletes_nothing_that_was_claimed_since_it_looked(
    place: Place, ordered: Subscription, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds what no consumer has had, and then locks it: between the two a consumer may have claimed it."""
    db.topic("orders").push("x", group="g")
    assert ordered.peek()[0].payload == "x"
    consumer = place.open().subscription(ordered.name)
    sweep(context_of(consumer), None)  # moves it
    claims: list[Claim] = []
    execute = MySQLCursor.execute

    def claims_after_the_look(cursor: Any, query: Any, args: Any = None) -> Any:
        found = execute(cursor, query, args)
        if not claims and re.match(r"select id\s+from \S+ as message[^;]*first_popped_at is null", str(query)):
            claims.append(claimed(consumer))
        return found

    monkeypatch.setattr(MySQLCursor, "execute", claims_after_the_look)
    ordered.seek("end", force=True)
    monkeypatch.undo()
    claims[0].complete()
    assert counts(ordered) == {"finished": 1}
