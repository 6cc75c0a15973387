"""`connection=`: every verb inside the caller's transaction, with every kind of connection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session

from tablequeue import LeaseLost, Queue
from tablequeue.errors import BadInput, BadPayload
from tests.callers import Caller
from tests.servers import Kind, Place, only
from tests.support import at, claimed, counts, found, ids_of, refuses, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def design() -> str:
    """In a transaction these verbs do not depend on the order. Those that do are in test_take.py and test_groups.py."""
    return "fifo"


@pytest.mark.parametrize("size", [1, 1500])
def test_a_push_is_seen_after_the_commit(queue: Queue, caller: Caller, size: int) -> None:
    ids = queue.push_many(map(str, range(size)), connection=caller.connection)
    ids.append(queue.push("last", headers={"a": 1}, connection=caller.connection))
    assert counts(queue) == {}
    caller.commit()
    assert ids_of(queue.pop_many(size + 1)) == ids


@only("sqlite")
def test_another_thread_may_be_importing_sessions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = place.open().create_queue("work")
    monkeypatch.setitem(sys.modules, "sqlalchemy.orm", ModuleType("sqlalchemy.orm"))  # nothing is in it yet
    with place.sa_engine().connect() as connection:
        queue.push("a", connection=connection)
        connection.commit()
    assert counts(queue) == {"ready": 1}


@pytest.mark.parametrize("size", [1, 1500])
def test_a_push_that_is_rolled_back_never_was(queue: Queue, caller: Caller, size: int) -> None:
    queue.push_many(map(str, range(size)), connection=caller.connection)
    queue.push("last", connection=caller.connection)
    caller.rollback()
    assert counts(queue) == {}
    kept = queue.push("kept", connection=caller.connection)
    caller.commit()
    assert ids_of(queue.peek()) == [kept]


def test_a_pop_that_is_rolled_back_gives_the_message_back(queue: Queue, caller: Caller) -> None:
    ids = queue.push_many([*"abc"])
    claims = queue.pop_many(3, connection=caller.connection)
    assert ids_of(claims) == ids
    assert counts(queue) == {"ready": 3}
    caller.rollback()
    assert {message.attempts for message in queue.peek()} == {0}
    refuses(LeaseLost, claims[0].complete)
    assert sorted(ids_of(queue.pop_many(3))) == ids


def test_a_pop_that_is_rolled_back_keeps_the_order(queue: Queue, caller: Caller) -> None:
    first, _ = queue.push_many([*"ab"])
    assert claimed(queue, connection=caller.connection).id == first
    caller.rollback()
    assert claimed(queue).id == first


def test_a_pop_that_is_committed(queue: Queue, caller: Caller) -> None:
    queue.push("x")
    claim = claimed(queue, connection=caller.connection)
    assert claim.payload == "x"
    caller.commit()
    assert counts(queue) == {"in_progress": 1}
    claim.complete()


VERBS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "complete": (lambda claim, connection: claim.complete(connection=connection), {"finished": 1}),
    "fail": (lambda claim, connection: claim.fail("why", connection=connection), {"scheduled": 1}),
    "release": (lambda claim, connection: claim.release(connection=connection), {"ready": 1}),
    "extend": (lambda claim, connection: claim.extend(600, connection=connection), {"in_progress": 1}),
}


@pytest.mark.parametrize("verb", VERBS)
def test_finishing_belongs_to_the_transaction(queue: Queue, caller: Caller, verb: str) -> None:
    finish, after = VERBS[verb]
    queue.push("x")
    claim = claimed(queue)
    before = snapshot(queue)
    finish(claim, caller.connection)
    assert snapshot(queue) == before
    caller.rollback()
    assert snapshot(queue) == before
    finish(claim, caller.connection)
    caller.commit()
    assert counts(queue) == after
    assert snapshot(queue) != before


def test_a_batch_belongs_to_the_transaction(queue: Queue, caller: Caller) -> None:
    queue.push_many([*"abcd"])
    claims = queue.pop_many(4)
    queue.complete_many(claims[:2], connection=caller.connection)
    queue.release_many(claims[2:], connection=caller.connection)
    caller.rollback()
    assert counts(queue) == {"in_progress": 4}
    queue.complete_many(claims[:2], connection=caller.connection)
    queue.release_many(claims[2:], connection=caller.connection)
    caller.commit()
    assert counts(queue) == {"finished": 2, "ready": 2}


def test_pop_work_push_and_complete_in_one_transaction(queue: Queue, caller: Caller, place: Place) -> None:
    following = place.open().create_queue("following", payload="text")
    queue.push("x")
    for end, expected in ((caller.rollback, {}), (caller.commit, {"ready": 1})):
        claim = claimed(queue, connection=caller.connection)
        following.push(claim.payload + "!", connection=caller.connection)
        claim.complete(connection=caller.connection)
        end()
        assert counts(following) == expected
    assert counts(queue) == {"finished": 1}


def test_a_lost_lease_leaves_the_transaction_usable(queue: Queue, caller: Caller) -> None:
    queue.push("x", now=at(0))
    old = claimed(queue, lease=1, now=at(0))
    new = claimed(queue, now=at(1))
    pushed = queue.push("y", connection=caller.connection)
    refuses(LeaseLost, old.complete, connection=caller.connection)
    refuses(LeaseLost, old.fail, connection=caller.connection)
    refuses(BadPayload, queue.push, 1, connection=caller.connection)
    caller.commit()
    assert found(queue, pushed).state == "ready"
    new.complete()


def test_the_callers_settings_stay_as_they_were(queue: Queue, kind: Kind, place: Place) -> None:
    if kind.dict_rows is None:
        pytest.skip("The driver's rows are what they are.")
    proxy = place.sa_engine().raw_connection()
    raw: Any = proxy.dbapi_connection
    setattr(raw, kind.rows_attribute, kind.dict_rows)
    queue.push("x", connection=raw)
    claimed(queue, connection=raw).complete(connection=raw)
    cursor = raw.cursor()
    cursor.execute("select 1 as one")
    assert cursor.fetchone() == {"one": 1}
    assert getattr(raw, kind.rows_attribute) is kind.dict_rows
    raw.rollback()
    proxy.close()
    assert counts(queue) == {}


@pytest.mark.parametrize("wrong", [1, "sqlite://", object()], ids=["a number", "a URL", "an object"])
def test_what_is_no_connection(queue: Queue, wrong: Any) -> None:
    refuses(BadInput, queue.push, "x", connection=wrong)
    refuses(BadInput, queue.pop, connection=wrong)
    assert counts(queue) == {}


def test_an_engine_is_no_connection(queue: Queue, place: Place) -> None:
    refuses(BadInput, queue.push, "x", connection=place.sa_engine())


@pytest.mark.parametrize("verb", ["push", "push_many", "pop", "take", "complete_many", "cancel", "pause"])
@pytest.mark.parametrize("state", ["closed", "unbound", "failed"])
def test_what_gives_no_connection(queue: Queue, place: Place, state: str, verb: str) -> None:
    queue.push("a")
    claim = claimed(queue)
    before = counts(queue)
    calls: dict[str, Callable[[Any], Any]] = {
        "push": lambda wrong: queue.push("b", connection=wrong),
        "push_many": lambda wrong: queue.push_many([*"bc"], connection=wrong),
        "pop": lambda wrong: queue.pop(connection=wrong),
        "take": queue.take,
        "complete_many": lambda wrong: queue.complete_many([claim], connection=wrong),
        "cancel": lambda wrong: queue.cancel(lambda message: True, connection=wrong),
        "pause": lambda wrong: queue.pause(connection=wrong),
    }
    with ExitStack() as stack:
        if state == "closed":
            wrong: Any = place.sa_engine().connect()
            wrong.close()
        elif state == "unbound":
            wrong = stack.enter_context(Session())
        else:
            wrong = stack.enter_context(place.sa_engine().connect())
            wrong.begin()
            wrong.invalidate()  # its transaction is over, and not rolled back
        refuses(BadInput, calls[verb], wrong)
    assert counts(queue) == before
