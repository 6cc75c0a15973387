"""MariaDB and MySQL: a transaction is one packet, so that nobody waits for a client between two of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

from tablequeue import ALL, Database, Queue, Rate
from tablequeue.errors import ConnectionLost
from tablequeue.ext import context_of
from tablequeue.verbs import topics
from tablequeue.verbs.context import Context, Params
from tests.crashes import SteppingCursor, Steps, open_stepping, torn
from tests.servers import Kind, Place, only
from tests.support import at, claimed, ids_of
from tests.suspended import elsewhere

pytestmark = only("mariadb")

FAST = Rate(1000, burst=100)
QUEUES: dict[str, dict[str, Any]] = {
    "queue": {},
    "no history": {"history": "none"},
    "groups": {"groups": True},
    "fair": {"groups": "fair"},
    "at most once": {"delivery": "at_most_once"},
    "a rate": {"rate": FAST},
    "places": {"concurrency": 10},
    "both limits": {"concurrency": 10, "rate": FAST},
    "places of groups": {"groups": "fair", "per_group": 5},
    "a rate of groups": {"groups": "fair", "group_rate": FAST},
    "dead letters elsewhere": {"dead_letter_to": "buried", "max_attempts": 1},
    "expiry": {"expires": 60},
}


def live(queue: Queue) -> None:
    """Claim and finish messages in every way."""
    leased = queue.definition.delivery == "at_least_once"
    for number in range(30):
        queue.push("x", group="g" if queue.definition.groups else None, key="k" if number == 0 else None)
    if queue.definition.grouped:
        queue.complete_many(queue.pop_many(3, same_group=True))
    if leased:
        queue.pop_many(2, lease=0)  # a sweep finds them
        queue.pop_many(2, completing=queue.pop_many(2))
        queue.release_many(queue.pop_many(2))
        queue.fail_many(queue.pop_many(2), "why", retry_in=0)
    queue.cancel(ids_of(queue.peek(2)))
    first = queue.pop()
    if first is not None:
        first.complete()
    queue.complete_many(queue.pop_many(3))
    if queue.definition.dead_letter_to is None:
        queue.redrive(ALL)  # else it moves messages from the other queue
    queue.purge()


def live_of_a_topic(queue: Queue) -> None:
    context = context_of(queue)
    assert context.table.topic is not None
    topic = Context.at(context.runner, context.table.topic, context.who)
    queue.pop_many(1, lease=0)
    queue.complete_many(queue.pop_many(2))
    for _ in range(3):
        queue.pop_many(3, completing=queue.pop_many(2))
    topics.bounds(topic)
    topics.trim(topic)


def check(place: Place, name: str, act: Callable[[Queue], None]) -> None:
    """No transaction is open when control is back from the driver."""
    open_ones: list[str] = []

    def reached(number: int, words: str) -> None:
        for raw in context_of(queue).runner.pool._all:
            if raw.dbapi.server_status & SERVER_STATUS_IN_TRANS:
                open_ones.append(f"{number}: {words}")

    steps = Steps(reached)
    database = open_stepping(place, steps)
    queue: Any = database.consumer(name)
    steps.armed = True
    act(queue)
    assert steps.count, "there were steps"
    assert not open_ones


@pytest.mark.parametrize("name", QUEUES)
def test_no_call_leaves_a_transaction_open_between_two_packets(place: Place, db: Database, name: str) -> None:
    db.create_queue("buried", payload="text")
    db.create_queue("work", payload="text", **QUEUES[name])
    check(place, "work", live)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_call_on_a_topic_does(place: Place, db: Database, ordered: bool) -> None:
    topic = db.create_topic("events", payload="text", groups=ordered, keep="consumed")
    topic.subscribe("mail", ordered=ordered)
    topic.push_many(["a"] * 20, group="g" if ordered else None)
    check(place, "events/mail", live_of_a_topic)


@pytest.mark.parametrize("name", ["queue", "a rate", "places of groups"])
def test_a_torn_packet_is_noticed(place: Place, db: Database, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SteppingCursor, "packet", torn)
    with pytest.raises(AssertionError, match=r"select|update|insert|prepare"):
        test_no_call_leaves_a_transaction_open_between_two_packets(place, db, name)


@pytest.mark.parametrize(
    ("options", "push", "operation"),
    [
        ({"unique_for": 60}, {"key": "k"}, "forget_keys"),
        ({"groups": "fair", "group_rate": FAST}, {"group": "g"}, "forget_rates"),
    ],
)
def test_a_sweep_passes_over_keys_and_rates_that_another_has_locked(
    place: Place, db: Database, options: dict[str, Any], push: dict[str, Any], operation: str
) -> None:
    queue = db.create_queue("work", payload="text", **options)
    queue.push("x", now=at(0), **push)
    queue.pop(now=at(1))
    name = f"{place.table('work')}__{'keys' if operation == 'forget_keys' else 'group_rates'}"

    def forgotten() -> Any:
        values: Params = {"n": 9, "now": context_of(queue).time(at(1000))}
        return context_of(queue).run(getattr(context_of(queue).messages, operation), values)

    with place.sa_engine().begin() as another:
        assert another.exec_driver_sql(f"select * from {name} for update").all()  # noqa: S608 (our names)
        assert forgotten() == 0
    assert forgotten() == 1


def test_a_session_that_is_idle_in_a_transaction_is_ended(place: Place, db: Database) -> None:
    """The transaction of a seek is several round trips. Others wait for it until the server ends it, and no longer."""
    topic = db.create_topic("events", payload="text")
    mail = topic.subscribe("mail")
    topic.push("x")
    got: list[Any] = []

    def reached(number: int, words: str) -> None:
        if words == "insert" and not got:
            got.extend(mail.pop_many(1))

    url = sa.make_url(place.url).update_query_dict({"init_command": "set session idle_transaction_timeout = 1"})
    impatient = Place(url.render_as_string(hide_password=False), place.schema, place.opened, place.engines)
    steps = Steps(reached)
    seeking = open_stepping(impatient, steps).subscription("events/mail")
    steps.armed = True
    with suppress(ConnectionLost):
        topics.move(context_of(seeking), 1)
    assert [claim.payload for claim in got] == ["x"]


def test_a_creator_that_is_suspended_is_ended(place: Place, kind: Kind, db: Database) -> None:
    """The creators' lock belongs to the session, and each DDL ends the transaction: so the session is ended."""
    made: list[str] = []

    def reached(number: int, words: str) -> None:
        if words == "create" and not made:
            made.append(db.create_queue("other").name)

    steps = Steps(reached)
    creating = open_stepping(elsewhere(place, kind, ended=True), steps)
    steps.armed = True
    with pytest.raises(ConnectionLost):
        creating.create_queue("work")
    assert made == ["other"]
    assert db.create_queue("work").push("x"), "what it left is in nobody's way"


def test_an_extension_that_ends_the_lease_is_no_loss(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another consumer claims the message as soon as it can. The extension had its effect, and says so."""
    queue = place.open().create_queue("work")
    other = place.open().queue("work")
    other.push(1)
    claim = claimed(queue)
    query, meanwhile = pymysql.connections.Connection.query, list[Any]()

    def query_and_claim(self: Any, sql: Any, *args: Any, **options: Any) -> Any:
        found = query(self, sql, *args, **options)
        if "set lease_until" in str(sql) and not meanwhile:
            meanwhile.append(None)
            meanwhile.append(other.pop())
        return found

    monkeypatch.setattr(pymysql.connections.Connection, "query", query_and_claim)
    claim.extend(0)
    assert meanwhile
