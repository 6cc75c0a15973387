"""The errors of a message: the first and the last ones are kept, each of them shortened, whoever notes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Backoff, Claim, Database, Message, Queue, Rate
from tablequeue.ext import context_of
from tablequeue.model.attempts import ERROR_ENDS, LONGEST_ERROR
from tests import checks
from tests.servers import Kind, Place
from tests.support import at, claimed, design_group, found

pytestmark = [pytest.mark.quick, pytest.mark.variants("procedures")]

NUMBERS = [1, 2, 3, *range(7, 14)]


@pytest.fixture
def options(design: str) -> dict[str, Any]:
    from tests.support import DESIGNS

    return DESIGNS[design] | {"payload": "text", "max_attempts": 99, "backoff": Backoff(base=0)}


def failed(queue: Queue, times: int = 12) -> int:
    """Push a message, and fail it so many times."""
    id = queue.push("x", **design_group(queue, "g"))
    for number in range(1, times + 1):
        claimed(queue).fail(f"error {number}")
    return id


def numbers(message: Message | Claim) -> list[int]:
    return [error.number for error in message.errors]


def test_the_first_and_the_last_ones_are_kept(queue: Queue) -> None:
    checks.check_errors(queue)


@pytest.mark.parametrize("design", ["fifo"])
def test_the_ends_of_a_long_one_are_kept(queue: Queue) -> None:
    id = queue.push("x")
    claimed(queue).fail("a" * 5_000 + "b" * 3_000_000 + "\N{SNAKE}" * 5_000)
    claimed(queue).fail("c" * LONGEST_ERROR)
    try:
        raise ValueError("d" * 3_000_000)
    except ValueError as error:
        claimed(queue).fail(error)
    cut, whole, of_exception = [error.error for error in found(queue, id).errors]
    left_out = 3_000_000 + 10_000 - 2 * ERROR_ENDS
    ends = "a" * ERROR_ENDS, "\N{SNAKE}" * ERROR_ENDS
    assert cut == f"{ends[0]}\n[... {left_out} characters left out ...]\n{ends[1]}"
    assert whole == "c" * LONGEST_ERROR
    assert of_exception.startswith("Traceback")
    assert of_exception.endswith("d\n")
    assert len(of_exception) <= LONGEST_ERROR


@pytest.mark.parametrize("design", ["fifo"])
def test_a_row_with_too_many_is_shortened_by_the_next_one(queue: Queue, place: Place, kind: Kind) -> None:
    """Such rows are of schema version 5, where errors have no numbers."""
    id = failed(queue, 1)
    (error,) = found(queue, id).errors
    at = context_of(queue).engine.dump_time(error.at)
    record = {"at": at if isinstance(at, int) else str(at), "consumer": None}
    stored = json.dumps([{"attempt": n, "error": f"error {n}", **record} for n in range(1, 41)])
    value = "cast(:errors as jsonb)" if kind.name == "postgresql" else ":errors"
    with place.sa_engine().begin() as connection:
        update = sa.text(f"update {place.table('work')} set errors = {value} where id = :id")  # noqa: S608 (our names)
        connection.execute(update, {"errors": stored, "id": id})
    assert numbers(found(queue, id)) == [*range(1, 41)]
    claimed(queue).fail("error 41")
    kept = found(queue, id).errors
    assert [error.number for error in kept] == [1, 2, 3, *range(35, 42)]
    assert [error.error for error in kept] == [f"error {error.number}" for error in kept]


@pytest.mark.parametrize("design", ["fifo"])
def test_they_are_counted_on_in_the_queue_for_dead_letters(db: Database, options: dict[str, Any]) -> None:
    letters = db.create_queue("letters", **options)
    queue = db.create_queue("work", **options | {"max_attempts": 13}, dead_letter_to="letters")
    failed(queue, times=13)
    (letter,) = letters.peek()
    assert numbers(letter) == NUMBERS
    claimed(letters).fail("error 14")
    (letter,) = letters.peek()
    assert numbers(letter) == [1, 2, 3, *range(8, 15)]
    assert letter.errors[-1].error == "error 14"


def test_a_claim_has_them(queue: Queue) -> None:
    id = failed(queue)
    claim = claimed(queue)
    assert claim.errors == found(queue, id).errors
    assert numbers(claim) == [1, 2, 3, *range(6, 13)]
    claim.fail("error 13")
    other = queue.push("y", **design_group(queue, "h"))
    of = {claim.id: claim.errors for claim in queue.pop_many(2) + queue.pop_many(1)}
    assert of.get(other, ()) == ()
    assert of[id] == found(queue, id).errors


@pytest.mark.needs("many_in_progress")
def test_a_message_that_is_taken_has_them(queue: Queue, db: Database) -> None:
    failed(queue, 2)
    with db.engine.begin() as connection:
        (taken,) = queue.take_many(1, connection)
    assert [error.error for error in taken.errors] == ["error 1", "error 2"]


@pytest.mark.parametrize(
    "limit", [{"concurrency": 3}, {"rate": Rate(1_000, per=1, burst=1_000)}], ids=["concurrency", "rate"]
)
@pytest.mark.parametrize("design", ["fifo"])
def test_a_claim_under_a_limit_has_them(db: Database, options: dict[str, Any], limit: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, **limit)
    failed(queue, 2)
    assert [error.error for error in claimed(queue).errors] == ["error 1", "error 2"]


@pytest.mark.parametrize("design", ["fifo"])
def test_the_claim_of_a_dead_letter_has_those_of_its_queue(db: Database, options: dict[str, Any]) -> None:
    letters = db.create_queue("letters", **options, delivery="at_most_once")
    queue = db.create_queue("work", **options | {"max_attempts": 2}, dead_letter_to="letters")
    failed(queue, times=2)
    claim = claimed(letters)
    assert claim.attempt == 1
    assert [(error.attempt, error.error) for error in claim.errors] == [(1, "error 1"), (2, "error 2")]


@pytest.mark.parametrize("design", ["fifo"])
def test_a_message_that_ends_as_cancelled_keeps_them(queue: Queue) -> None:
    id = failed(queue)
    claim = claimed(queue)
    queue.cancel([id])
    assert claim.fail("error 13") == "cancelled"
    (message,) = queue.history()
    assert numbers(message) == NUMBERS
    assert message.errors[-1].error == "error 13"


@pytest.mark.parametrize("design", ["fifo"])
def test_a_message_whose_lease_expires_ends_as_cancelled_with_them(queue: Queue) -> None:
    id = failed(queue)
    claimed(queue, now=at(0))
    queue.cancel([id])
    assert queue.pop(now=at(1_000)) is None
    (message,) = queue.history()
    assert numbers(message) == NUMBERS
    assert message.errors[-1].error == "lease expired"


@pytest.mark.parametrize("design", ["fifo"])
def test_a_message_that_expires_without_a_history_keeps_them(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, history="none", expires=3_000)
    failed(queue)
    assert queue.pop(now=at(0)) is None
    (letter,) = queue.dead()
    assert numbers(letter) == NUMBERS
    assert letter.errors[-1].error == "expired"
