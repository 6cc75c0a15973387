"""Limits of a queue with fair groups: of the whole queue, and of each group."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tablequeue import Database, NewMessage, Queue, Rate
from tablequeue.stream import Stream
from tests import checks
from tests.servers import Place
from tests.support import at, claimed, ids_of

MINUTELY = Rate(6, per=60, burst=3)


def fair(db: Database, **options: Any) -> Queue:
    return db.create_queue("work", payload="text", groups="fair", **options)


def push(queue: Queue, groups: str, seconds: float = 0) -> list[int]:
    """Push a message for each letter, in the group of that letter; without one for a dot."""
    messages = [NewMessage(group, group=None if group == "." else group) for group in groups]
    return queue.push_many(messages, now=at(seconds))


def popped(queue: Queue, n: int, seconds: float = 0) -> str:
    """Return the groups of what a pop of `n` gets, sorted."""
    return "".join(sorted(claim.payload for claim in queue.pop_many(n, now=at(seconds))))


def test_places(db: Database) -> None:
    checks.check_concurrency(fair(db, concurrency=3))


def test_a_rate(db: Database) -> None:
    checks.check_rate(fair(db, rate=MINUTELY))


def test_claims_at_once(place: Place, db: Database) -> None:
    fair(db, concurrency=5)
    checks.check_claims_at_once([place.open().queue("work") for _ in range(6)])


def test_the_places_go_round_the_groups(db: Database) -> None:
    queue = fair(db, concurrency=4)
    push(queue, "aaaaaaaabcd")
    claims = queue.pop_many(9, now=at(0))
    assert sorted(claim.payload for claim in claims) == [*"abcd"]
    queue.complete_many(claims[:3], now=at(0))
    assert popped(queue, 9) == "aaa", "what is left of a share goes to others"


def test_the_rate_goes_round_the_groups_and_is_not_spent_on_more(db: Database) -> None:
    queue = fair(db, rate=Rate(6, per=60, burst=6), concurrency=9)
    push(queue, "aaab")
    assert popped(queue, 9) == "aaab"
    push(queue, "cccc")
    assert popped(queue, 9) == "cc", "4 of 6 were spent"


@pytest.mark.parametrize("history", ["keep", "none"])
def test_a_take_counts_for_the_rate_alone(place: Place, db: Database, history: Literal["keep", "none"]) -> None:
    queue = fair(db, rate=MINUTELY, concurrency=2, history=history)
    push(queue, "aabbcc")
    with place.sa_engine().begin() as connection:
        assert len(list(queue.take_many(2, connection, now=at(0)))) == 2
    assert len(queue.pop_many(5, now=at(0))) == 1, "one token is left, and both places"


def test_at_most_once_has_a_rate(db: Database) -> None:
    checks.check_rate(fair(db, rate=MINUTELY, delivery="at_most_once"))


def test_a_stream_obeys(db: Database) -> None:
    queue = fair(db, rate=MINUTELY, concurrency=2)
    push(queue, "aaabbb")
    stream = Stream(queue, "s")
    assert stream.advance(0, 5, now=at(0)) == 1
    assert len(stream.batch(1)[1]) == 2
    assert queue.pop(now=at(1000)) is None, "the stream has both places"
    assert stream.advance(1, 5, now=at(0)) == 2
    assert len(stream.batch(2)[1]) == 1, "the last token"


def test_a_completion_with_a_claim_frees_its_places_for_it(db: Database) -> None:
    queue = fair(db, concurrency=2)
    push(queue, "aabb")
    first = queue.pop_many(5, now=at(0))
    assert len(queue.pop_many(5, completing=first, now=at(0))) == 2


def test_a_transaction_of_the_callers(place: Place, db: Database) -> None:
    queue = fair(db, concurrency=3)
    ids = push(queue, "ab")
    with place.sa_engine().connect() as connection:
        claimed(queue, connection=connection, now=at(0))
        own = queue.push("c", group="c", connection=connection, now=at(0))
        claims = queue.pop_many(5, connection=connection, now=at(0))
        assert {own, *ids} > {*ids_of(claims)}
        assert len(claims) == 2
        assert queue.pop(connection=connection, now=at(0)) is None
        connection.rollback()
    assert popped(queue, 5) == "ab"
