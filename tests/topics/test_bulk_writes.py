"""Writes of many processes into a topic: what they stage becomes visible all at once at the end, or never."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from tablequeue import Database
from tablequeue.bulk import staging
from tablequeue.bulk.staging import Staged
from tablequeue.errors import BadPayload, DatabaseError
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs import topics
from tests.crowd import answer, started
from tests.servers import Place, only
from tests.support import refuses
from tests.topics import work

pytestmark = pytest.mark.quick


@pytest.fixture
def write(topic: Topic) -> str:
    staging.prepare(topic)
    return uuid.uuid4().hex


def staged(topic: Topic, write: str, part: int = 0, producer: str = "spark", **columns: Any) -> Staged:
    types = staging.written(topic)
    batch = pa.RecordBatch.from_pydict({name: pa.array(values, types[name]) for name, values in columns.items()})
    attempt = uuid.uuid4().hex
    return staging.stage(topic, write, attempt, part, [batch.slice(0, 1), batch.slice(1)], producer=producer)


def payloads(subscription: Subscription) -> list[Any]:
    return [message.payload for message in subscription.pop_many(100)]


def log(place: Place) -> list[tuple[Any, ...]]:
    return [*place.execute(f"select payload from {place.table('events')} order by id")]  # noqa: S608 (a name of ours)


def parts(place: Place) -> int:
    ((number,),) = place.execute(f"select count(*) from {place.table('events')}__parts")  # noqa: S608
    return int(number)


def test_no_message_is_seen_before_the_write_is_published(topic: Topic, mail: Subscription, write: str) -> None:
    first = topic.push("before")
    second = staged(topic, write, 1, payload=["c", "d"])
    staged(topic, write, 0, payload=["lost", "attempt"])
    topic.push("meanwhile")
    one = staged(topic, write, 0, payload=["a", "b"])
    assert (mail.stats().ready, mail.lag().messages) == (2, 2)
    assert [message.payload for message in mail.peek(10)] == ["before", "meanwhile"]
    assert [mail.find(first + n) is not None for n in range(8)].count(True) == 2
    assert topics.size(context_of(topic)).messages == 2
    assert payloads(mail) == ["before", "meanwhile"]
    assert mail.pop() is None
    assert staging.publish(topic, write, [second, one], producer="spark") == 4
    topic.push("after")
    found = mail.pop_many(10)
    assert [message.payload for message in found] == ["a", "b", "c", "d", "after"]
    assert {message.producer for message in mail.peek(10, state="in_progress")} > {"spark"}
    mail.complete_many(found)
    assert mail.stats().finished == 5


def test_a_batch_is_written_once(topic: Topic, mail: Subscription, write: str) -> None:
    for number, added in ((3, True), (3, False), (4, True)):
        each = uuid.uuid4().hex
        pushed = staging.publish(topic, each, [staged(topic, each, payload=["x"])], writer="query", batch=number)
        assert (pushed == 1) is added
    assert payloads(mail) == ["x", "x"]


def test_every_column(db: Database, write: str) -> None:
    nasty = "\\N\t\\t\n\r\\\\ é\U0001f600"
    topic = db.create_topic("texts", payload="text", groups=True)
    staging.prepare(topic)
    columns: dict[str, Any] = {
        "payload": [nasty, "", "\\N"],
        "group": [nasty, "b", "\\N"],
        "headers": ['{"a": "\\\\n"}', None, "{}"],
    }
    staging.publish(topic, write, [staged(topic, write, producer=nasty, **columns)], producer=nasty)
    found = topic.subscribe("all").pop_many(10)
    assert [(one.payload, one.group) for one in found] == [(nasty, nasty), ("", "b"), ("\\N", "\\N")]
    assert [one.headers for one in found] == [{"a": "\\n"}, {}, {}]
    raw = db.create_topic("raw", payload="bytes")
    staging.prepare(raw)
    staging.publish(raw, write, [staged(raw, write, payload=[b"\0\xff\\", b""])])
    assert payloads(raw.subscribe("all")) == [b"\0\xff\\", b""]


@pytest.mark.parametrize("columns", [{"payload": ["1", "{"]}, {"payload": ["1"], "headers": ["{1"]}])
def test_what_is_not_json_is_refused(db: Database, write: str, columns: dict[str, Any]) -> None:
    topic = db.create_topic("documents")
    staging.prepare(topic)
    refuses(BadPayload, lambda: staging.publish(topic, write, [staged(topic, write, **columns)]))
    assert payloads(topic.subscribe("all")) == []


def test_what_is_missing_is_noticed(topic: Topic, mail: Subscription, write: str) -> None:
    one, two = staged(topic, write, payload=["a", "b"]), staged(topic, write, 1, payload=["c"])
    staging.unstage(topic, write)
    three = staged(topic, write, 2, payload=["d"])
    error = refuses(DatabaseError, staging.publish, topic, write, [one, two, three])
    assert "only 1 of 4 staged messages" in error.cause
    assert mail.pop() is None


def test_a_killed_task_leaves_nothing_visible(place: Place, topic: Topic, mail: Subscription, write: str) -> None:
    with started(1, work.stage_and_stop, lambda n: (place, write)) as (pipe,):
        answer(pipe)
    other = uuid.uuid4().hex
    kept = staged(topic, other, payload=["kept"])
    topic.push("pushed")
    assert payloads(mail) == ["pushed"]
    staging.unstage(topic, write)
    assert staging.publish(topic, other, [kept]) == 1
    assert payloads(mail) == ["kept"]


POSTGRESQL = only("postgresql")


@POSTGRESQL
def test_an_aborted_write_leaves_no_row(topic: Topic, mail: Subscription, place: Place, write: str) -> None:
    staged(topic, write, payload=["a", "b"])
    old = uuid.uuid4().hex
    staged(topic, old, payload=["c", "d"])
    table = f"{place.table('events')}__parts"
    place.execute(f"update {table} set staged_at = now() - interval '25 hours' where write_id = '{old}'")  # noqa: S608
    young = staged(topic, young_write := uuid.uuid4().hex, payload=["e"])
    assert len(log(place)) == 5
    staging.unstage(topic, write)
    assert (log(place), parts(place)) == ([("e",)], 1)
    staging.publish(topic, young_write, [young])
    assert parts(place) == 0
    topic.push("f")
    assert payloads(mail) == ["e", "f"]


@POSTGRESQL
def test_a_task_that_copies_is_left_out_and_a_late_one_fails(
    topic: Topic, mail: Subscription, place: Place, write: str
) -> None:
    """A copy of a task whose write was published meanwhile, as of a speculative one."""
    statements = context_of(topic).table
    given: Any = {"write": write, "attempt": "slow", "part": 0, "place": 0, "n": 2, "now": None}
    with place.sa_engine().begin() as slow:
        reserved = slow.exec_driver_sql(statements.statement("topic_stage_reserve"), given).fetchall()
    given["ids"] = [first for first, _ in reserved]
    one = staged(topic, write, payload=["a", "b"])
    copied = statements.statement("topic_stage_copied")
    with place.sa_engine().connect() as slow:
        assert len(slow.exec_driver_sql(copied, given).fetchall()) == 1
        assert staging.publish(topic, write, [one]) == 2
        assert parts(place) == 1, "it is locked"
        values = ", ".join(f"({first + n}, now(), 'slow')" for first, _ in reserved for n in range(2))
        slow.exec_driver_sql(f"insert into {place.table('events')} (id, pushed_at, payload) values {values}")  # noqa: S608
        slow.commit()
        assert payloads(mail) == ["a", "b"]
        assert parts(place) == 1
        staging.unstage(topic, write)
        assert (parts(place), len(log(place))) == (0, 2)
        assert slow.exec_driver_sql(copied, given).fetchall() == []


@POSTGRESQL
def test_what_came_before_the_publication_comes_before_it(
    db: Database, topic: Topic, mail: Subscription, write: str
) -> None:
    one = staged(topic, write, payload=["a", "b"])
    with db.engine.begin() as late:
        topic.push("late", connection=late)
        topic.push("first")
    staging.publish(topic, write, [one])
    topic.push("last")
    assert payloads(mail) == ["late", "first", "a", "b", "last"]


@POSTGRESQL
def test_ids_that_others_get_meanwhile(topic: Topic, mail: Subscription, place: Place, write: str) -> None:
    """They are in a hole between the ids of the write, and come when they are committed."""
    table = place.table("events")
    with place.sa_engine().connect() as connection:
        early = topic.push("early", connection=connection)
        one = staged(topic, write, payload=["a", "b", "c"])
        topic.push("late", connection=connection)
        two = staged(topic, write, 1, payload=["d"])
        assert payloads(mail) == []
        assert staging.publish(topic, write, [one, two]) == 4
        assert payloads(mail) == ["a", "b", "c", "d"]
        connection.commit()
    assert payloads(mail) == ["early", "late"]
    runs = place.execute(f"select first_offset, first_id, last_id from {table}__runs order by 1")  # noqa: S608
    assert [last - first + 1 for _, first, last in runs] == [1, 1, 2, 1, 1, 1]
    assert early == 1


@POSTGRESQL
@pytest.mark.parametrize("mutated", [False, True], ids=["the functions", "the mutant"])
def test_a_task_reads_no_log_that_was_empty_at_its_first_call(topic: Topic, place: Place, mutated: bool) -> None:
    """A session keeps the plans of that call, and one for an empty log would read all of it."""
    log = place.table("events")
    if mutated:
        place.execute(f"alter function {log}__sequence(boolean, boolean) reset enable_seqscan")
        place.execute(f"alter function {log}__sequence_all(boolean) reset enable_seqscan")
    reserve = sa.text(f"select count(*) from {log}__reserve(1, 'write', 'attempt', 0, 0)")  # noqa: S608
    whole_reads = sa.text(f"select seq_scan from pg_stat_xact_user_tables where relid = cast('{log}' as regclass)")  # noqa: S608
    with place.sa_engine().connect() as connection:
        connection.execute(reserve)
        connection.commit()
        topic.push_many(["x"] * 5000)
        connection.execute(reserve)
        assert (connection.execute(whole_reads).scalar_one() > 0) is mutated


@POSTGRESQL
def test_retention_spares_a_write_under_way(db: Database) -> None:
    """For a day: what a killed write has left does not hold back a segment for longer."""
    topic = db.create_topic("kept", payload="text", keep=60)
    staging.prepare(topic)
    write, killed = uuid.uuid4().hex, uuid.uuid4().hex
    topic.push("old")
    one = staged(topic, write, payload=["a", "b"])
    now = datetime.now(UTC)

    def trimmed(hours: float) -> int:
        return sum(topic.trim(now=now + timedelta(hours=hours, seconds=n)) for n in range(3))

    assert trimmed(1) == 0
    assert staging.publish(topic, write, [one]) == 2
    assert payloads(topic.subscribe("all")) == ["old", "a", "b"]
    assert trimmed(2) == 1
    lost = staged(topic, killed, payload=["c"])
    assert (trimmed(3), trimmed(25)) == (0, 1)
    refuses(DatabaseError, staging.publish, topic, killed, [lost])
