"""Payloads that were stored by SQL and cannot be decoded: each message fails alone, and remains visible."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Message, NewMessage, Queue, Unreadable
from tablequeue.engines.texts import Row
from tablequeue.errors import BadPayload
from tablequeue.ext import context_of
from tablequeue.model.payload import DEEPEST
from tablequeue.verbs import unreadable
from tablequeue.verbs.context import Context
from tests.servers import Kind, Place
from tests.support import claimed, counts, design_group, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.designs("claims")]

# MariaDB allows 31 levels.
UNREADABLE: dict[str, str] = {
    "a number too large for a float": "[1e400]",
    "a number of 5,000 digits": "1" + "0" * 5000,
    "nested too deeply": "[" * 20_000 + "]" * 20_000,
}


@pytest.fixture
def options(design: str) -> dict[str, Any]:
    from tests.support import DESIGNS

    return {**DESIGNS[design], "max_attempts": 3}


def spoil(place: Place, kind: Kind, id: int, text: str) -> None:
    """Store another payload, like a program that pushes by its own SQL."""
    value = "cast(:payload as json)" if kind.name == "postgresql" else ":payload"
    statement = sa.text(f"update {place.table('work')} set payload = {value} where id = :id")  # noqa: S608 (our names)
    try:
        with place.sa_engine().begin() as connection:
            connection.execute(statement, {"payload": text, "id": id})
    except sa.exc.DBAPIError:
        pytest.skip("the database itself does not take it")


def push(queue: Queue, number: int) -> list[int]:
    return [queue.push({"n": n}, **design_group(queue, f"g{n}")) for n in range(number)]


@pytest.mark.parametrize("name", UNREADABLE)
def test_its_neighbours_are_delivered(queue: Queue, place: Place, kind: Kind, name: str) -> None:
    ids = push(queue, 5)
    spoil(place, kind, ids[2], UNREADABLE[name])
    got: list[int] = []
    while batch := queue.pop_many(10):
        got += ids_of(batch)
        queue.complete_many(batch)
    assert sorted(got) == [id for id in ids if id != ids[2]], "in one attempt each"
    assert {message.attempts for message in queue.history()} == {1}
    (letter,) = queue.dead()
    assert letter.id == ids[2]
    assert isinstance(letter.payload, Unreadable)
    assert letter.payload.data == UNREADABLE[name].encode()
    assert letter.payload.reason == letter.errors[0].error


@pytest.mark.parametrize("design", ["fifo"])
def test_the_check_notices_an_engine_that_decodes_all_or_nothing(
    queue: Queue, place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(context: Context, token: str, rows: Sequence[Row], *_: Any) -> list[tuple[Row, Any]]:
        return [(row, context.codec.load(row[1])) for row in rows]

    monkeypatch.setattr(unreadable, "readable", together)
    with pytest.raises(BadPayload):
        test_its_neighbours_are_delivered(queue, place, kind, "a number too large for a float")


def test_there_may_be_nothing_else(queue: Queue, place: Place, kind: Kind) -> None:
    """A pop continues with the next message, and does not return None."""
    for id in push(queue, 3)[:-1]:
        spoil(place, kind, id, "[1e400]")
    if queue.definition.arrangement in ("lifo", "fair"):
        assert claimed(queue).payload == {"n": 2}
        assert queue.pop() is None
    else:
        assert claimed(queue).payload == {"n": 2}
    assert counts(queue)["dead"] == 2


@pytest.mark.needs("many_in_progress")
def test_it_is_seen_wherever_one_looks(queue: Queue, place: Place, kind: Kind) -> None:
    id, other = push(queue, 2)
    spoil(place, kind, id, "[1e400]")
    shown: list[Message] = [found(queue, id), queue.peek()[0]]
    while queue.pop():
        pass
    shown += [found(queue, id), queue.dead()[0]]
    assert {str(message.payload) for message in shown} == {"[1e400]"}
    assert queue.redrive(lambda message: isinstance(message.payload, Unreadable)) == 1
    assert counts(queue) == {"ready": 1, "in_progress": 1}
    assert queue.pop() is None
    assert queue.purge_dead(lambda message: message.id == id) == 1
    assert ids_of(queue.peek(state="in_progress")) == [other]


TAKEN: dict[str, Callable[[Queue, Any], list[Any]]] = {
    "take": lambda queue, connection: queue.take_many(5, connection),
    "pop": lambda queue, connection: queue.pop_many(5, connection=connection),
}


@pytest.mark.needs("many_in_progress")
@pytest.mark.parametrize("history", ["keep", "none"])
@pytest.mark.parametrize("verb", TAKEN)
def test_in_a_transaction_of_the_callers(
    db: Database, place: Place, kind: Kind, options: dict[str, Any], verb: str, history: str
) -> None:
    queue = db.create_queue("work", **options | {"history": history})
    headers = {"trace": "é"}
    ids = queue.push_many([NewMessage(n, key=f"k{n}", headers=headers) for n in range(3)])
    first = claimed(queue)
    first.fail("before", retry_in=0)
    spoil(place, kind, first.id, "[1e400]")
    with db.engine.connect() as connection:
        assert sorted(ids_of(TAKEN[verb](queue, connection))) == sorted({*ids} - {first.id})
        connection.rollback()
        assert counts(queue) == {"ready": 3}
        assert len(TAKEN[verb](queue, connection)) == 2
        connection.commit()
    (letter,) = queue.dead()
    assert (letter.id, letter.key, letter.headers, letter.attempts) == (first.id, f"k{first.payload}", headers, 2)
    assert [error.error for error in letter.errors][:-1] == ["before"]
    assert letter.errors[-1].error == letter.payload.reason
    assert counts(queue) == {"dead": 1} | (
        {"in_progress": 2} if verb == "pop" else {"finished": 2} if history == "keep" else {}
    )


def test_delivered_at_most_once_it_is_lost_alone(db: Database, place: Place, kind: Kind) -> None:
    queue = db.create_queue("work", delivery="at_most_once")
    ids = push(queue, 3)
    spoil(place, kind, ids[1], "[1e400]")
    assert ids_of(queue.pop_many(5)) == [ids[0], ids[2]]
    lost = {message.id: message for message in queue.lost(older_than=0)}
    assert lost[ids[1]].errors[0].error == lost[ids[1]].payload.reason


def test_headers_that_cannot_be_read_are_left_out(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    queue.push(1, headers={"a": 1})
    place.execute(f"update {place.table('work')} set headers = '[1e400]'")  # noqa: S608 (a name of this test's own)
    assert [message.headers for message in queue.peek()] == [{}]
    assert claimed(queue).headers == {}


# -- what push refuses -------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def on_a_stack_of(depth: int, call: Callable[[], Any]) -> Any:
    return call() if depth == 0 else on_a_stack_of(depth - 1, call)


@pytest.fixture
def work(db: Database, kind: Kind) -> Queue:
    if kind.name == "mariadb":
        pytest.skip("MariaDB itself takes 31 levels")
    return db.create_queue("work")


@pytest.mark.parametrize("stack", [0, sys.getrecursionlimit() // 2])
def test_what_is_too_deep_does_not_depend_on_the_stack(work: Queue, stack: int) -> None:
    deepest = nested(DEEPEST)
    on_a_stack_of(stack, lambda: work.push(deepest))
    assert on_a_stack_of(stack, lambda: claimed(work)).payload == deepest
    for payload in (nested(DEEPEST + 1), {"a": nested(DEEPEST)}, nested(100_000)):
        error = on_a_stack_of(stack, lambda payload=payload: refuses(BadPayload, work.push, payload))  # type: ignore[misc]
        assert str(DEEPEST) in error.cause
    refuses(BadPayload, work.push, 1, headers={"a": nested(DEEPEST)})
    assert counts(work) == {"in_progress": 1}


KEYS: dict[str, Any] = {
    "a number": {1: 2},
    "two that would be one": {1: "one", "1": "uno"},
    "none": [{"a": {None: 1}}],
    "a boolean": {"x": [{True: 1}]},
    "a fraction": {1.5: 1},
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_no_text_are_refused(db: Database, name: str) -> None:
    queue = db.create_queue("work")
    for push in (queue.push, lambda payload: queue.push_many([0, payload])):
        assert "no text" in refuses(BadPayload, push, KEYS[name]).cause
    refuses(BadPayload, queue.push, 0, headers={"a": KEYS[name]})
    assert counts(queue) == {}


@pytest.mark.parametrize("payload", [{"1": 2, "true": 3}, ["1", "-2"], {"a": "{1"}, [[], {}], {"null": None}])
def test_what_looks_like_them_is_taken(db: Database, payload: Any) -> None:
    queue = db.create_queue("work")
    queue.push(payload)
    assert claimed(queue).payload == payload == json.loads(json.dumps(payload))


def test_tuples_come_back_as_lists(db: Database) -> None:
    """JSON has only arrays; see docs/delivery.md."""
    queue = db.create_queue("work")
    queue.push((1, {"a": (2, 3)}))
    assert claimed(queue).payload == [1, {"a": [2, 3]}]


@pytest.mark.parametrize(("stored", "read"), [("text", "bytes"), ("bytes", "text"), ("bytes", "json")])
def test_a_payload_of_another_type_is_a_dead_letter(db: Database, place: Place, stored: Any, read: str) -> None:
    """Somebody has changed the entry of the catalogue."""
    queue = db.create_queue("work", payload=stored)
    queue.push({"text": "x", "bytes": b"x"}[stored])
    changed = context_of(queue).table.entry.replace(f'"payload": "{stored}"', f'"payload": "{read}"')
    assert changed != context_of(queue).table.entry
    place.execute(f"update {place.table('queues')} set definition = '{changed}'")  # noqa: S608 (words of ours)
    queue = db.queue("work")
    assert queue.pop() is None
    (letter,) = queue.dead()
    assert isinstance(letter.payload, Unreadable)
