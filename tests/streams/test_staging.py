"""Staged writes of many processes: their rows become messages all at once, or not at all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tablequeue import Database, Queue
from tablequeue.bulk import staging
from tablequeue.bulk.staging import Staged
from tablequeue.engines.engine import Engine
from tablequeue.errors import BadInput, BadPayload, DatabaseError, DuplicateKey, TablequeueError
from tablequeue.ext import context_of
from tests.servers import Kind, Place
from tests.support import refuses, with_parts

pytestmark = pytest.mark.quick


def staged(queue: Queue, write: str, part: int = 0, **columns: Any) -> Staged:
    types = staging.written(queue)
    batch = pa.RecordBatch.from_pydict({name: pa.array(values, types[name]) for name, values in columns.items()})
    return staging.stage(queue, write, uuid.uuid4().hex, part, [batch.slice(0, 1), batch.slice(1)])


@pytest.fixture
def write() -> str:
    return uuid.uuid4().hex


def queue_of(db: Database, **options: Any) -> Queue:
    queue = db.create_queue("work", **{"payload": "text", **options})
    staging.prepare(queue)
    staging.prepare(queue)
    return queue


def rows_of(place: Place, table: str) -> int:
    ((rows,),) = place.execute(f"select count(*) from {table}")  # noqa: S608
    return int(rows)


def check_all_at_once(queue: Queue, other: Queue, write: str) -> None:
    """No message is visible before the end. Then all are, in the order of the parts, except those of attempts that are
    not named."""
    second = staged(queue, write, 1, payload=["c", "d"])
    staged(queue, write, 0, payload=["lost", "attempt"])
    first = staged(queue, write, 0, payload=["a", "b"])
    assert (other.stats().ready, other.pop()) == (0, None)
    assert staging.publish(queue, write, [second, first], producer="spark") == 4
    claims = other.pop_many(10)
    assert [claim.payload for claim in claims] == ["a", "b", "c", "d"]
    assert {message.producer for message in other.peek(10, state="in_progress")} == {"spark"}


def check_once(queue: Queue, other: Queue, write: str) -> None:
    """A repeated batch adds nothing. One before it is of another checkpoint, and refused."""
    for number, added in ((3, True), (3, False), (4, True)):
        each = uuid.uuid4().hex
        one = staged(queue, each, payload=["x"])
        pushed = staging.publish(queue, each, [one], writer="query", batch=number)
        assert (pushed == 1) is added
    one = staged(queue, write, payload=["x"])
    error = refuses(BadInput, staging.publish, queue, write, [one], writer="query", batch=3)
    assert "'query' has written batch 4" in error.cause
    assert other.stats().ready == 2
    assert staging.publish(queue, write, [one], writer="another", batch=3) == 1


def check_keys(queue: Queue, other: Queue, write: str) -> None:
    """A message whose key exists, in the queue or in the same write, refuses the write or is skipped."""
    other.push("there", key="k1")
    one = staged(queue, write, payload=["a", "b", "c", "d"], key=["k1", "k2", None, "k2"])
    error = refuses(DuplicateKey, staging.publish, queue, write, [one])
    assert error.keys == ("k1", "k2")
    assert other.stats().ready == 1
    assert staging.publish(queue, write, [one], on_conflict="skip") == 2
    assert sorted(message.payload for message in other.peek()) == ["b", "c", "there"]


CHECKS = [check_all_at_once, check_once, check_keys]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promises(db: Database, place: Place, write: str, check: Callable[[Queue, Queue, str], None]) -> None:
    queue = queue_of(db)
    check(queue, place.open().queue("work"), write)


def test_keys_of_an_attempt_that_is_not_published_are_free(db: Database, write: str) -> None:
    """A task that is retried stages the same keys again."""
    queue = queue_of(db)
    staged(queue, write, payload=["a", "lost"], key=["k1", "k2"])
    again = staged(queue, write, payload=["a"], key=["k1"])
    queue.push("there", key="k2")
    assert staging.publish(queue, write, [again]) == 1


def test_a_key_or_a_writer_is_what_was_given(db: Database, write: str) -> None:
    queue = queue_of(db)
    names = ["A", "a", "a ", "\u00e4"]
    one = staged(queue, write, payload=names, key=names)
    assert staging.publish(queue, write, [one]) == 4
    assert sorted(message.key or "" for message in queue.peek()) == names
    for name in names:
        each = uuid.uuid4().hex
        assert staging.publish(queue, each, [staged(queue, each, payload=["x"])], writer=name, batch=1) == 1


@pytest.mark.parametrize("name", ["", "w" * 256, "w\0", "\ud800"])
def test_a_name_that_would_be_cut_off_is_refused(db: Database, write: str, name: str) -> None:
    """Truncated names of two writers could be equal, and the writes of the second would add nothing."""
    queue = queue_of(db)
    one = staged(queue, write, payload=["a"])
    refuses(BadInput, staging.publish, queue, write, [one], writer=name)
    if name:
        refuses(BadInput, staging.publish, queue, write, [one], producer=name)
    longest = "\U0001f600" * 255
    assert staging.publish(queue, write, [one], writer=longest, batch=1, producer=longest) == 1
    (message,) = queue.peek()
    assert message.producer == longest


def test_every_option(db: Database, write: str) -> None:
    queue = queue_of(db, payload="json", order="priority")
    due = datetime(2060, 1, 2, 3, 4, 5, 678000, UTC)
    one = staged(
        queue,
        write,
        payload=['{"n": 1.50}', '"é\\u0000"'],
        headers=['{"trace": "é"}', None],
        priority=[7, None],
        key=["k", None],
        due=[due, None],
    )
    staging.publish(queue, write, [one])
    (later,) = queue.peek(state="scheduled")
    assert (later.payload, later.headers, later.priority, later.key, later.due_at) == (
        {"n": 1.5},
        {"trace": "é"},
        7,
        "k",
        due,
    )
    (ready,) = queue.peek()
    assert (ready.payload, ready.headers, ready.priority, ready.key, ready.due_at) == ("é\0", {}, 0, None, None)


def test_bytes_and_groups(db: Database, write: str) -> None:
    queue = queue_of(db, payload="bytes", groups=True)
    one = staged(queue, write, payload=[b"\0\xff", b""], group=["a", "a"])
    staging.publish(queue, write, [one])
    claims = queue.pop_many(2)
    assert [(claim.payload, claim.group) for claim in claims] == [(b"\0\xff", "a")]
    claims[0].complete()
    assert [claim.payload for claim in queue.pop_many(2)] == [b""]


def test_strict_and_due(db: Database, write: str) -> None:
    strict = queue_of(db, strict=True)
    staging.publish(strict, write, [staged(strict, write, payload=["a", "b"])])
    assert [claim.payload for claim in strict.pop_many(2)] == ["a"]
    due = db.create_queue("due", order="due", payload="text")
    staging.prepare(due)
    staging.publish(due, write, [staged(due, write, payload=["now"])])
    assert [claim.payload for claim in due.pop_many(2)] == ["now"]


@pytest.mark.parametrize(
    ("options", "columns", "refusal"),
    [
        ({}, {"payload": ["a", None]}, BadPayload),
        ({}, {"payload": ["a", "b\0c"]}, BadPayload),
        ({}, {"payload": ["a", "b"], "headers": ['{"a": 1}', "[1]"]}, BadPayload),
        ({}, {"payload": ["a"], "key": [""]}, BadInput),
        ({}, {"payload": ["a"], "key": ["k" * 256]}, BadInput),
        ({}, {"payload": ["a"], "key": ["k\0"]}, BadInput),
        ({"groups": True}, {"payload": ["a"]}, BadInput),
        ({"groups": True}, {"payload": ["a"], "group": [None]}, BadInput),
    ],
)
def test_refused_before_anything_is_staged(
    db: Database, write: str, options: dict[str, Any], columns: dict[str, Any], refusal: type[Exception]
) -> None:
    refuses(refusal, lambda: staged(queue_of(db, **options), write, **columns))


@pytest.mark.parametrize("column", [{"payload": ["{"]}, {"payload": ["1"], "headers": ["[1"]}])
def test_what_is_not_json_is_refused(db: Database, write: str, column: dict[str, Any]) -> None:
    queue = queue_of(db, payload="json")

    def push() -> None:
        staging.publish(queue, write, [staged(queue, write, **column)])

    refuses(BadPayload, push)
    assert queue.stats().ready == 0


def test_what_is_missing_is_noticed(db: Database, write: str) -> None:
    queue = queue_of(db)
    one = staged(queue, write, payload=["a", "b"])
    staging.unstage(queue, write)
    error = refuses(DatabaseError, staging.publish, queue, write, [one])
    assert "only 0 of 2 staged messages" in error.cause


def test_an_aborted_write_leaves_nothing(db: Database, place: Place, write: str) -> None:
    queue = queue_of(db)
    staged(queue, write, payload=["a", "b"])
    other = uuid.uuid4().hex
    kept = staged(queue, other, payload=["c"])
    staging.unstage(queue, write)
    table = context_of(queue).engine.words(context_of(queue).table)["staged"]
    assert rows_of(place, table) == 1, "that of another write stays"
    assert staging.publish(queue, other, [kept]) == 1
    assert rows_of(place, table) == 0


@pytest.mark.parametrize(("rows", "size"), [(3, 1 << 24), (10_000, 1)])
def test_what_is_too_much_at_once_is_staged_in_pieces(
    db: Database, write: str, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setattr(staging, "ROWS", rows)
    monkeypatch.setattr(staging, "STAGED_BYTES", size)
    queue = queue_of(db)
    names = [f"m{n}" for n in range(10)]
    assert staging.publish(queue, write, [staged(queue, write, payload=names, key=names)]) == 10
    assert [(claim.payload, claim.key) for claim in queue.pop_many(10)] == [(name, name) for name in names]


def test_an_empty_write(db: Database, write: str) -> None:
    queue = queue_of(db)
    empty = staging.stage(queue, write, uuid.uuid4().hex, 0, [])
    assert (empty.messages, staging.publish(queue, write, [empty])) == (0, 0)


# -- mutants ------------------------------------------------------------------------------------------------------


def publishes_every_attempt(engine: Any) -> Any:
    class Every(engine):
        def render(self, operation: str, *args: Any) -> str:
            text: str = super().render(operation, *args)
            return text.replace(" and attempt ", " or attempt ") if operation.startswith("publish") else text

    return Every


def forgets_the_writer(engine: Any) -> Any:
    class Forgets(type(engine.staging)):  # type: ignore[misc]
        def writer_advance(self, cursor: Any, table: Any, params: Any) -> bool:
            super().writer_advance(cursor, table, params)
            return True

    return with_parts(engine, {"staging": Forgets})


def takes_an_older_batch_for_a_repetition(engine: Any) -> Any:
    class Takes(type(engine.staging)):  # type: ignore[misc]
        def writer_last(self, cursor: Any, table: Any, params: Any) -> int:
            number: int = params["batch"]
            return number

    return with_parts(engine, {"staging": Takes})


def looks_for_no_key(engine: Any) -> Any:
    class Looks(type(engine.staging)):  # type: ignore[misc]
        def staged_taken(self, cursor: Any, table: Any, params: Any) -> list[str]:
            return []

    return with_parts(engine, {"staging": Looks})


MUTANTS = [
    (publishes_every_attempt, check_all_at_once),
    (forgets_the_writer, check_once),
    (takes_an_older_batch_for_a_repetition, check_once),
    (looks_for_no_key, check_keys),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_mutant_is_caught(
    place: Place,
    kind: Kind,
    write: str,
    mutant: Callable[[type[Engine]], type[Engine]],
    check: Callable[[Queue, Queue, str], None],
) -> None:
    queue = queue_of(place.open_with(mutant(kind.engine_class)))
    with pytest.raises((AssertionError, pytest.fail.Exception, TablequeueError)):
        check(queue, place.open().queue("work"), write)


LONE = ['{"a": "\\ud83c"}', '"\\udf89\\ud83c"', '["\\uD83C\\n"]', '"\\\\\\ud83c"', '"\\ud83c\\ud83c\\udf89"']
WHOLE = ['"\\ud83c\\udf89"', '"\\\\ud83c"', '"\\\\\\\\ud83c"', '"\\ud7ff\\ue000"', '"\U0001f389 \\u0000"']


def check_lone_surrogates(db: Database, write: str) -> None:
    """JSON with a lone surrogate is refused, as by `push`; what only looks like one is taken."""
    queue = queue_of(db, payload="json")
    for text in LONE:
        for columns in ({"payload": [text]}, {"payload": ["1"], "headers": [f'{{"h": {text}}}']}):
            assert "lone surrogate" in refuses(BadPayload, staged, queue, write, **columns).cause
    staging.publish(queue, write, [staged(queue, write, payload=WHOLE)])
    assert [message.payload for message in queue.peek()] == [json.loads(text) for text in WHOLE]


def test_lone_surrogates_are_refused(db: Database, write: str) -> None:
    check_lone_surrogates(db, write)


def test_a_mutant_that_takes_lone_surrogates_is_caught(
    db: Database, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "has_lone_surrogate", lambda text: False)
    with pytest.raises((pytest.fail.Exception, AssertionError, TablequeueError)):
        check_lone_surrogates(db, write)
