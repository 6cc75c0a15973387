"""Topics on SQL Server, with a stand-in for server and driver: what is sent, in which transaction, in which steps.

The arithmetic of sequencing runs on SQLite, whose SQL the statements are, once their hints are removed.
"""

from __future__ import annotations

import json
import re
import sqlite3
from random import Random
from typing import Any

import pytest

from tablequeue import Database, NewMessage
from tablequeue.engines.mssql.engine import SQLServer
from tablequeue.engines.mssql.steps import STEP
from tablequeue.engines.runner import Runner
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tests.mssql_stand_in import Numbered, Server, claims, new_server, refusal, rows

SAME_MESSAGE = refusal(
    2627,
    "Violation of PRIMARY KEY constraint 'pk_tq_events__s1'. Cannot insert duplicate key in object "
    "'dbo.tq_events__s1'. The duplicate key value is (7).",
    "23000",
)


@pytest.fixture
def server() -> Server:
    server = new_server()
    # The texts of application locks have object_id, too.
    server.answers["as there"] = server.answers.pop("object_id")
    server.answers["after_last"] = lambda params: [(1, 1)]
    server.answers["as expired"] = lambda params: [(1, 0, 0)]
    server.answers["as seconds"] = lambda params: [(None,)]
    return server


def topic_on(server: Server) -> Topic:
    sa_engine: Any = server
    return Database(sa_engine, Runner(sa_engine, SQLServer(server.dialect)), "me").create_topic("events", groups=True)


def subscribed(server: Server, **options: Any) -> Subscription:
    topic = topic_on(server)
    entry = context_of(topic).table.entry
    server.answers["select definition"] = lambda params: [(entry, 5)] if params == ("events",) else []
    server.answers["select name, definition"] = lambda params: [("events", entry)]
    return topic.subscribe("mail", **options)


def subscription_on(server: Server, **options: Any) -> Subscription:
    subscription = subscribed(server, **options)
    context_of(subscription).table.next_sweep = context_of(subscription).table.next_purge = float("inf")
    context_of(subscription).table.detached_ready = False
    server.sent.clear()
    return subscription


def kinds(server: Server) -> list[str]:
    """Return what each text that was sent is about."""
    known = {
        r"^(begin|commit) transaction$": r"\1",
        r"exec tq_events__sequence 1": "sequence",
        "insert into tq_events__s1__ranges": "move the position",
        r"@LockTimeout = 0": "lock",
        r"update held\nset finished_at = @now, lease_until": "complete the range",
        r"update held\nset finished_at = @now,\n": "mark",
        r"insert into tq_events__s1 ": "detached",
        r"select given\.id\n": "hold",
        r"delete from message\noutput": "complete apart",
    }
    found = []
    for text, _ in server.sent:
        match = next((match for pattern in known if (match := re.search(pattern, text))), None)
        found.append(match.expand(known[match.re.pattern]) if match else text)
    return found


def test_a_topic_and_its_subscription_are_made_under_the_creators_lock(server: Server) -> None:
    subscribed(server)
    texts = [text for text, _ in server.sent]
    for made in ("create table tq_events ", "create table tq_events__s1 ", "create table tq_events__s1__ranges "):
        (place,) = [place for place, text in enumerate(texts) if made in text]
        begun = max(other for other in range(place) if texts[other] == "begin transaction")
        assert any("N'tablequeue'" in text for text in texts[begun:place])
        assert "commit transaction" not in texts[begun:place]
    (procedure,) = [text for text in texts if "create procedure" in text]
    assert procedure.startswith("create procedure tq_events__sequence"), "the first words of its batch"


def test_a_claim_of_a_range_is_one_batch_in_one_round_trip(server: Server) -> None:
    mail = subscription_on(server)
    server.answers["from @pieces as piece"] = lambda params: sorted(rows(range(1, 4)))
    assert [claim.id for claim in mail.pop_many(3, lease=5)] == [1, 2, 3]
    ((text, params),) = server.sent
    assert params[0] == 3
    assert text.index("exec tq_events__sequence 0") < text.index("begin transaction") < text.index("sp_getapplock")
    assert text.index("sp_getapplock") < text.index("insert into tq_events__s1__ranges")


def test_a_whole_range_is_completed_by_its_number_and_sum(server: Server) -> None:
    mail = subscription_on(server)
    server.answers["set finished_at"] = lambda params: [(1,)]
    mail.complete_many(claims(mail, range(1, 2501)))
    ((_, params),) = server.sent
    assert params[1:] == (2500, sum(range(1, 2501)))


def test_a_part_of_a_range_is_completed_in_steps_in_one_transaction(server: Server) -> None:
    mail = subscription_on(server)
    server.answers[r"select given\.id\n"] = lambda params: [(id,) for id in json.loads(params[0])]
    mail.complete_many(claims(mail, range(1, STEP + 2)))
    assert kinds(server) == [
        "complete the range", "begin", "complete apart", "complete apart", "hold", "mark", "hold", "mark", "commit",
    ]  # fmt: skip


def test_what_is_released_is_set_apart_a_thousand_at_a_time(server: Server) -> None:
    mail = subscription_on(server)
    server.answers[r"select given\.id\n"] = lambda params: [(id,) for id in json.loads(params[0])]
    mail.release_many(claims(mail, range(1, 2502)))
    assert kinds(server) == ["begin", *["hold", "detached", "mark"] * 3, "commit"]
    sizes = [len(json.loads(params[0])) for text, params in server.sent if "insert into tq_events__s1 " in text]
    assert sizes == [1000, 1000, 501]


def test_two_that_set_the_same_message_apart_at_once_try_again(server: Server) -> None:
    """After a forced seek two ranges may have it."""
    mail = subscription_on(server)
    server.answers[r"select given\.id\n"] = lambda params: [(7,)]
    answers = iter([SAME_MESSAGE, []])
    server.answers["insert into tq_events__s1 "] = lambda params: next(answers)
    claims(mail, range(7, 8))[0].fail("why")
    assert kinds(server).count("detached") == 2


def test_a_sweep_sequences_before_its_transaction_begins(server: Server) -> None:
    """The lock of the whole topic must not last as long as the transaction of one subscription."""
    mail = subscription_on(server)
    context_of(mail).table.next_sweep = 0
    assert mail.pop() is None
    sent = kinds(server)
    assert [sent[0], sent[2], sent[4]] == ["sequence", "begin", "commit"]
    assert "as expired" in sent[1]
    assert "from tq_events__s1__ranges with (index (tq_events__s1__lease), rowlock, readpast" in sent[3]


@pytest.mark.parametrize("free", [True, False])
def test_one_session_pumps_at_a_time(server: Server, free: bool) -> None:
    mail = subscription_on(server, ordered=True)
    server.answers["as granted"] = lambda params: [(int(free),)]
    context_of(mail).table.next_sweep = 0
    assert mail.pop() is None
    sent = kinds(server)
    assert sent[:3] == ["sequence", "begin", "lock"]
    assert sent[3:5] == (["move the position", "commit"] if free else ["commit", sent[4]])
    (pump,) = [text for text, _ in server.sent if "insert into tq_events__s1 " in text] or [""]
    assert ("into tq_events__s1__turns (group_key)" in pump) is free


def test_a_large_push_is_made_of_steps_and_its_ids_are_aligned(server: Server) -> None:
    topic = topic_on(server)
    server.sent.clear()
    server.answers["insert into tq_events "] = Numbered(
        lambda params: len(json.loads(params[0])), lambda ids: [(id,) for id in reversed(ids)]
    )
    assert topic.push_many(range(2500), group="a") == [*range(1, 2501)]
    messages = [NewMessage(n, group=f"g{n % 2}") for n in range(1500)]
    assert topic.push_many(messages) == [*range(2501, 4001)]
    given = [json.loads(params[0]) for text, params in server.sent if "insert into tq_events " in text]
    assert [len(step) for step in given] == [1000, 1000, 500, 1000, 500]
    assert given[-1][-1] == {
        "headers": None, "priority": 0, "group": "g1", "key": None, "due": None, "delay": None, "expires": None,
        "payload": "1499",
    }  # fmt: skip


# -- the arithmetic of sequencing --------------------------------------------------------------------------------------

TABLES = """
    create table tq_events (id integer primary key);
    create table tq_events__runs (first_offset integer primary key, first_id integer, last_id integer);
    insert into tq_events__runs values (0, 0, 0);
    create table tq_events__holes (first_id integer primary key, last_id integer, seen_at integer);
    create table islands (low integer primary key, high integer, first_id integer, last_id integer, seen_at integer);
"""


def sequencing() -> list[str]:
    """Return the statements of the procedure that change tables, in SQLite's SQL."""
    engine = SQLServer(new_server().dialect)
    text = engine.split(engine.render("create_topic", engine.table("events", topic_on(new_server()).definition)))[-1]
    text = text[text.index("insert into @islands") : text.rindex("commit transaction")]
    text = re.sub(r" with \([^)]*\)|if @all_holes = 0\n.*?;\n|top \(100000\) ", "", text, flags=re.DOTALL)
    text = text.replace("@islands", "islands")
    return [statement for statement in re.sub("@", ":", text).split(";\n") if statement.strip()]


def offsets(database: sqlite3.Connection) -> dict[int, int]:
    found = database.execute("select * from tq_events__runs where first_offset > 0")
    return {offset + id - low: id for offset, low, high in found for id in range(low, high + 1)}


@pytest.mark.parametrize("seed", range(20))
def test_each_committed_message_has_one_offset_for_good(seed: int) -> None:
    """Transactions of several messages commit in any order, are rolled back, or roll back to a savepoint."""
    random, statements = Random(seed), sequencing()
    database = sqlite3.connect(":memory:")
    database.executescript(TABLES)
    flight: list[range] = []
    committed: set[int] = set()
    known: dict[int, int] = {}
    end = 1
    for moment in range(200):
        match random.randrange(4):
            case 0 | 1:
                flight.append(range(end, end + random.randint(1, 5)))
                end = flight[-1].stop
            case 2 if flight:
                ids = flight.pop(random.randrange(len(flight)))
                kept = {id for id in ids if random.random() < 0.8} if random.random() < 0.8 else set()
                database.executemany("insert into tq_events values (?)", [(id,) for id in kept])
                committed |= kept
            case _:
                database.execute("delete from islands")
                ((next_offset, last),) = database.execute(
                    "select max(first_offset + last_id - first_id) + 1, max(last_id) from tq_events__runs"
                )
                values = {"next": next_offset, "last": last, "upto": end, "recent": 0, "now": moment}
                for statement in statements:
                    database.execute(statement, values)
                found = offsets(database)
                assert [*found] == [*range(1, len(found) + 1)]
                assert sorted(found.values()) == sorted(committed)
                assert known.items() <= found.items()
                known = found
                ((last,),) = database.execute("select max(last_id) from tq_events__runs")
                holes = database.execute("select first_id, last_id from tq_events__holes").fetchall()
                missing = [id for low, high in holes for id in range(low, high + 1)]
                assert missing == [id for id in range(1, last + 1) if id not in committed]
