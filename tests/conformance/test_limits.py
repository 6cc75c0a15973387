"""Limits of a queue: how many messages are in progress at once, and how many are claimed in a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic
from typing import Any, Literal

import pytest
import sqlalchemy as sa

from tablequeue import Database, Definition, Rate
from tablequeue.bulk.stream import Stream
from tablequeue.errors import BadDefinition, QueueDiffers
from tablequeue.ext import context_of
from tests import checks
from tests.servers import Kind, Place
from tests.support import DESIGNS, at, claimed, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("procedures", "newer")]

MINUTELY = Rate(6, per=60, burst=3)
PATIENCE = 30.0


def test_no_more_are_in_progress_than_there_are_places(db: Database) -> None:
    checks.check_concurrency(db.create_queue("work", payload="text", concurrency=3))


@pytest.mark.parametrize("order", ["heap", "lifo", "due", "priority"])
def test_the_places_go_in_the_order_of_the_queue(db: Database, order: str) -> None:
    queue = db.create_queue("work", payload="text", concurrency=3, **DESIGNS[order])
    checks.check_concurrency(queue)
    checks.check_order(db.create_queue("other", payload="text", concurrency=1_000, **DESIGNS[order]), seed=1)


def test_groups_share_the_places(db: Database) -> None:
    queue = db.create_queue("work", payload="text", groups=True, concurrency=2)
    for group in "abcd":
        queue.push_many([*"12"], group=group)
    first = queue.pop_many(10)
    assert [claim.group for claim in first] == ["a", "b"]
    first[0].complete()
    assert [claim.group for claim in queue.pop_many(10)] == ["a"]


def test_claims_at_once(place: Place, db: Database) -> None:
    db.create_queue("work", payload="text", concurrency=5)
    checks.check_claims_at_once([place.open().queue("work") for _ in range(6)])


def test_many_places(db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=1_100)
    queue.push_many(["a"] * 1_400)
    assert len(queue.pop_many(1_400)) == 1_100
    queue.alter(concurrency=1_300)
    assert len(queue.pop_many(1_400)) == 200


@pytest.mark.parametrize("number", [2, 300])
def test_a_limit_waits_for_no_transaction_of_an_application(
    db: Database, place: Place, kind: Kind, number: int
) -> None:
    """It counts the messages that were claimed before it, and looks again at each sweep whether they are finished."""
    if not kind.side_by_side:
        pytest.skip("nobody writes beside a transaction")
    queue = db.create_queue("work", payload="text")
    queue.push_many(["a"] * number)
    first, *others = queue.pop_many(number)
    with place.sa_engine().begin() as application:
        first.complete(connection=application)
        queue.alter(concurrency=5)
        context_of(queue).run(context_of(queue).messages.close_slots, {})
    context_of(queue).run(context_of(queue).messages.close_slots, {})
    queue.push_many(["b"] * 9)
    assert len(queue.pop_many(9)) == max(0, 5 - len(others))
    queue.complete_many(others)
    context_of(queue).run(context_of(queue).messages.close_slots, {})
    assert len(queue.pop_many(9)) == min(5, len(others))


def test_a_completion_with_a_claim_frees_its_places_for_it(db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=2)
    ids = queue.push_many([*"abcd"])
    first = queue.pop_many(5)
    assert ids_of(queue.pop_many(5, completing=first)) == ids[2:]


def test_a_rate(db: Database) -> None:
    checks.check_rate(db.create_queue("work", payload="text", rate=MINUTELY))


@pytest.mark.parametrize("order", ["due", "priority"])
def test_a_rate_in_any_order(db: Database, order: str) -> None:
    checks.check_rate(db.create_queue("work", payload="text", rate=MINUTELY, **DESIGNS[order]))


@pytest.mark.parametrize(
    "options", [{"rate": MINUTELY}, {"groups": "fair", "group_rate": MINUTELY}], ids=["queue", "group"]
)
def test_a_rate_after_the_clock_goes_back(db: Database, options: dict[str, Any]) -> None:
    checks.check_rate_after_the_clock_goes_back(db.create_queue("work", payload="text", **options))


def test_a_burst_of_a_group_that_takes_hours_to_come_back(db: Database) -> None:
    queue = db.create_queue("work", payload="text", groups="fair", group_rate=Rate(1, per=60, burst=100))
    queue.push_many(["a"] * 101, group="a", now=at(0))
    assert sum(len(queue.pop_many(200, now=at(0))) for _ in range(3)) == 100
    assert len(queue.pop_many(200, now=at(60))) == 1


def test_a_release_gives_nothing_back(db: Database) -> None:
    queue = db.create_queue("work", payload="text", rate=MINUTELY)
    queue.push_many([*"abcd"], now=at(0))
    queue.release_many(queue.pop_many(3, now=at(0)), now=at(0))
    assert queue.pop(now=at(0)) is None


def test_nothing_is_spent_on_what_is_not_claimed(db: Database) -> None:
    queue = db.create_queue("work", payload="text", rate=MINUTELY, concurrency=2)
    assert queue.pop_many(3, now=at(0)) == []
    queue.push_many([*"abcdef"], now=at(0))
    first = queue.pop_many(3, now=at(0))
    assert len(first) == 2, "by the places"
    queue.complete_many(first, now=at(0))
    assert len(queue.pop_many(3, now=at(0))) == 1, "by the rate"


@pytest.mark.parametrize("history", ["keep", "none"])
def test_a_take_counts_for_the_rate_alone(place: Place, db: Database, history: Literal["keep", "none"]) -> None:
    queue = db.create_queue("work", payload="text", rate=MINUTELY, concurrency=2, history=history)
    queue.push_many([*"abcdef"], now=at(0))
    with place.sa_engine().begin() as connection:
        assert len(list(queue.take_many(2, connection, now=at(0)))) == 2
    assert len(queue.pop_many(5, now=at(0))) == 1, "one token is left, and both places"
    with place.sa_engine().connect() as connection:
        assert queue.take(connection, now=at(10)) is not None
        connection.rollback()
    assert queue.pop(now=at(10)) is not None, "a rollback gives the token back"


def test_at_most_once_has_a_rate(db: Database) -> None:
    checks.check_rate(db.create_queue("work", payload="text", rate=MINUTELY, delivery="at_most_once"))


def test_a_stream_obeys(db: Database) -> None:
    queue = db.create_queue("work", payload="text", rate=MINUTELY, concurrency=2)
    queue.push_many([*"abcdef"], now=at(0))
    stream = Stream(queue, "s")
    assert stream.advance(0, 5, now=at(0)) == 1
    assert len(stream.batch(1)[1]) == 2
    assert queue.pop(now=at(1000)) is None, "the stream has both places"
    assert stream.advance(1, 5, now=at(0)) == 2
    assert len(stream.batch(2)[1]) == 1, "the last token"


def test_a_waiting_consumer_gets_the_place(place: Place, db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=1)
    first, second = queue.push_many([*"ab"])
    claim = claimed(queue)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: next(iter(place.open().queue("work").consume(wait=PATIENCE))))
        claim.complete()
        assert waiting.result().id == second
    assert claim.id == first


def test_a_waiting_consumer_gets_the_token(db: Database) -> None:
    queue = db.create_queue("work", payload="text", rate=Rate(20))
    queue.push_many([*"abcd"])
    started = monotonic()
    for message in queue.consume(wait=PATIENCE):
        message.complete()
        if message.payload == "d":
            break
    assert monotonic() - started >= 0.15, "three tokens came"
    popped = sorted(message.popped_at for message in queue.history(4) if message.popped_at)
    assert popped[3] - popped[0] >= timedelta(seconds=0.15)


def test_a_crash_leaves_no_place_occupied(place: Place, db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=2)
    queue.push_many([*"abcd"])
    with place.sa_engine().connect() as connection:
        assert len(queue.pop_many(2, connection=connection)) == 2
        connection.rollback()
    assert len(queue.pop_many(5)) == 2


def test_the_definition_has_the_limits(place: Place, db: Database) -> None:
    queue = db.create_queue("work", concurrency=20, rate=Rate(100, per=timedelta(minutes=1), burst=20))
    assert place.open().queue("work").definition == queue.definition
    assert queue.definition.rate == Rate(100, 60.0, 20)
    refuses(QueueDiffers, db.create_queue, "work", concurrency=20)
    queue.drop()
    again = db.create_queue("work", concurrency=3)
    again.push("x")
    tables = sa.inspect(place.sa_engine()).get_table_names(schema=place.schema)
    assert f"{context_of(again).table.table_name}__slots" in tables
    assert f"{context_of(again).table.table_name}__rate" not in tables


def test_the_highest_limit(db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=10_000)
    ids = queue.push_many([*"ab"])
    assert ids_of(queue.pop_many(3)) == ids


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"concurrency": 10_001},
        {"concurrency": 1, "delivery": "at_most_once"},
        {"rate": 10},
        {"rate": Rate(0)},
        {"rate": Rate(-1)},
        {"rate": Rate(1, per=0)},
        {"rate": Rate(1, burst=0)},
        {"rate": Rate(2_000_000)},
        {"rate": Rate(1, per=3e9, burst=2)},
        {"rate": Rate(float("nan"))},
    ],
    ids=str,
)
def test_impossible_limits(options: dict[str, object]) -> None:
    refuses(BadDefinition, Definition, **options)


def test_the_time_between_two_is_exact() -> None:
    steps = {Rate(100, per=60, burst=20): 600_000, Rate(3): 333_334, Rate(0.1): 10_000_000, Rate(10, per=0.1): 10_000}
    assert {rate: rate.step for rate in steps} == steps
