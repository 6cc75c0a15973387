"""take: a destructive read in the caller's transaction. A commit finishes the message, and a rollback puts it back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tablequeue import Claim, Database, Queue
from tablequeue.errors import BadInput
from tests.callers import CALLERS, Caller
from tests.checks import check_a_taken_message_is_gone
from tests.servers import Kind, Place
from tests.support import at, at_once, claimed, counts, design_group, ids_of, refuses, snapshot

pytestmark = [pytest.mark.quick, pytest.mark.designs("claims"), pytest.mark.variants("procedures")]


def taken(queue: Queue, connection: Any, **options: Any) -> Claim:
    message = queue.take(connection, **options)
    assert message is not None, "a message must be ready"
    return message


def push_five(queue: Queue) -> None:
    """Push five messages, each in a group of its own if there are groups."""
    for group in "abcde":
        queue.push(f"payload {group}", **design_group(queue, group))


# The five messages in the order of each design. A strict queue delivers one at a time.
ORDERS = {"lifo": "edcba", "strict": "a"}


def test_a_taken_message_is_gone(queue: Queue, db: Database) -> None:
    with db.engine.connect() as connection:
        check_a_taken_message_is_gone(queue, connection, **design_group(queue, "a"))


def test_a_commit_finishes_and_a_rollback_puts_back(queue: Queue, place: Place, kind: Kind) -> None:
    with contextmanager(CALLERS["connection"])(place, kind) as caller:
        check_commit_and_rollback(queue, caller)


@pytest.mark.parametrize("design", ["fifo"])
@pytest.mark.parametrize("form", [form for form in CALLERS if form != "connection"])
def test_so_they_do_in_each_form_of_a_transaction(queue: Queue, place: Place, kind: Kind, form: str) -> None:
    with contextmanager(CALLERS[form])(place, kind) as caller:
        check_commit_and_rollback(queue, caller)


def check_commit_and_rollback(queue: Queue, caller: Caller) -> None:
    queue.push("x", headers={"a": 1}, key="k", **design_group(queue, "a"), now=at(0))
    before = snapshot(queue)
    for end in (caller.rollback, caller.commit):
        message = taken(queue, caller.connection, now=at(5))
        assert (message.payload, message.headers, message.key, message.attempt) == ("x", {"a": 1}, "k", 1)
        assert (message.pushed_at, message.popped_at, message.lease_until) == (at(0), at(5), None)
        assert snapshot(queue) == before, "nobody sees it before the commit"
        end()
    (finished,) = queue.history()
    assert (finished.id, finished.state, finished.attempts, finished.key) == (message.id, "finished", 1, "k")
    assert (finished.popped_at, finished.first_popped_at, finished.finished_at) == (at(5), at(5), at(5))
    assert counts(queue) == {"finished": 1}
    assert queue.pop() is None


def test_many_are_taken_in_order_and_put_back_in_order(queue: Queue, design: str, db: Database) -> None:
    push_five(at_once(queue))
    order = [f"payload {letter}" for letter in ORDERS.get(design, "abcde")]
    any_order = design in ("heap", "fair")  # any of the groups is first
    before = snapshot(queue)
    with db.engine.connect() as connection:
        for _ in range(2):
            payloads = [message.payload for message in queue.take_many(10, connection)]
            assert (sorted(payloads) if any_order else payloads) == order
            connection.rollback()
            assert snapshot(queue) == before
        first = taken(queue, connection)
        assert first.payload == order[0] or any_order
        connection.commit()
        assert ids_of(queue.history()) == [first.id]
        rest = [message.payload for message in queue.take_many(10, connection)]
        assert first.payload not in rest
        left = [payload for payload in order if payload != first.payload] or ["payload b"]
        assert (sorted(rest) if any_order else rest) == left
        connection.rollback()


@pytest.mark.parametrize("design", ["lifo", "priority"])
def test_a_server_takes_in_each_order(queue: Queue, design: str, db: Database) -> None:
    test_many_are_taken_in_order_and_put_back_in_order(queue, design, db)


def test_what_was_put_back_counts_no_attempt(queue: Queue, db: Database, design: str) -> None:
    queue.push("x", **design_group(queue, "a"))
    with db.engine.connect() as connection:
        for _ in range(queue.definition.max_attempts + 1):
            assert taken(queue, connection).attempt == 1
            connection.rollback()
    assert counts(queue) == {"ready": 1}


@pytest.mark.needs("plain_push")
def test_the_errors_of_earlier_attempts_stay(queue: Queue, db: Database) -> None:
    queue.push("x")
    claimed(queue).fail("why", retry_in=0)
    with db.engine.begin() as connection:
        assert taken(queue, connection).attempt == 2
    (message,) = queue.history()
    assert [error.error for error in message.errors] == ["why"]


def test_others_do_not_get_it_meanwhile(queue: Queue, db: Database, place: Place, kind: Kind) -> None:
    """Other consumers skip it. If the engine allows only one writer, they wait for the end of the transaction."""
    push_five(queue)
    other = place.open().queue("work")
    with db.engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        first = taken(queue, connection)
        popping = thread.submit(other.pop_many, 10)
        if kind.side_by_side:
            popping.result(60)
            queue.push("next", **design_group(queue, "a"))
            assert len(other.pop_many(10)) == (0 if queue.definition.grouped else 1), "it holds up its group"
        connection.commit()
    others = popping.result(60)
    assert first.id not in ids_of(others)
    # In a strict queue the next message is available only after the commit.
    assert len(others) == (4 if not queue.definition.strict else 0 if kind.side_by_side else 1)


def test_due_and_abandoned_messages_are_taken_too(queue: Queue, db: Database) -> None:
    queue.push("abandoned", **design_group(queue, "a"), now=at(0))
    claimed(queue, lease=10, now=at(0))
    queue.push("due", delay=15, **design_group(queue, "b"), now=at(0))
    with db.engine.connect() as connection:
        assert queue.take(connection, now=at(9)) is None
        message = taken(queue, connection, now=at(10))
        assert (message.payload, message.attempt) == ("abandoned", 2)
        connection.commit()
        assert taken(queue, connection, now=at(15)).payload == "due"
        connection.commit()
    assert counts(queue) == {"finished": 2}


@pytest.mark.needs("many_in_progress")
def test_a_dead_letter_is_not_taken(queue: Queue, db: Database) -> None:
    """A message without attempts left becomes a dead letter in the transaction of the take that finds it."""
    queue.push("x", now=at(0))
    for time in range(queue.definition.max_attempts):
        claimed(queue, lease=1, now=at(time))
    with db.engine.begin() as connection:
        assert queue.take(connection, now=at(100)) is None
    assert counts(queue) == {"dead": 1}


def test_without_a_history_nothing_is_left(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options | {"history": "none"})
    push_five(queue)
    with db.engine.connect() as connection:
        number = len(queue.take_many(10, connection))
        connection.rollback()
        assert queue.stats().finished is None
        for _ in range(5):
            assert queue.take(connection) is not None
            connection.commit()
        assert queue.take(connection) is None
    assert number == (1 if queue.definition.strict else 5)
    assert snapshot(queue) == []


def test_a_retention_does_not_get_in_the_way(db: Database, options: dict[str, Any]) -> None:
    """Claims shorten the history, but not beside a transaction that may hold the database."""
    queue = db.create_queue("work", **options | {"history": 60})
    push_five(queue)
    with db.engine.begin() as connection:
        queue.take(connection)
    with db.engine.begin() as connection:
        queue.pop(connection=connection)
    assert counts(queue)["finished"] == 1


@pytest.mark.parametrize("size", [1, 1500])
def test_take_with_its_effects(db: Database, caller: Caller, size: int) -> None:
    """Exactly once: the message and the pushes of its work are committed together."""
    queue, following = (db.create_queue(name, payload="text") for name in ("work", "following"))
    queue.push_many(map(str, range(size)))
    for end, expected in ((caller.rollback, {}), (caller.commit, {"ready": size})):
        messages = queue.take_many(size, caller.connection)
        following.push_many([message.payload for message in messages], connection=caller.connection)
        end()
        assert counts(following) == expected
    assert counts(queue) == {"finished": size}


@pytest.mark.needs("plain_push")
def test_there_is_no_claim_to_finish(queue: Queue, db: Database) -> None:
    queue.push("x")
    with db.engine.begin() as connection:
        message = taken(queue, connection)
    before = snapshot(queue)
    for verb in (message.complete, message.fail, message.release, message.extend):
        assert "Commit" in refuses(BadInput, verb).remedy
    assert snapshot(queue) == before


@pytest.mark.needs("plain_push")
def test_without_a_transaction_it_is_refused(queue: Queue) -> None:
    queue.push("x")
    before = snapshot(queue)
    assert "pop()" in refuses(BadInput, queue.take, None).remedy
    refuses(BadInput, queue.take_many, 3, None)
    refuses(BadInput, queue.take, "sqlite://")
    assert snapshot(queue) == before


def test_take_many_wants_a_number(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push(1)
    with db.engine.connect() as connection:
        for n in (0, -1, 1.5, "1"):
            refuses(BadInput, queue.take_many, n, connection)
    assert counts(queue) == {"ready": 1}
