"""Limits of a queue with fair groups: of the whole queue, and of each group."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import islice
from time import monotonic
from typing import Any, Literal

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Database, Definition, NewMessage, Queue, Rate
from tablequeue.bulk.stream import Stream
from tablequeue.errors import BadDefinition, QueueDiffers, TablequeueError
from tablequeue.ext import context_of
from tests import checks
from tests.servers import Place
from tests.support import at, claimed, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("procedures")]

PATIENCE = 30.0
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


# -- limits of each group --------------------------------------------------------------------------------------------


def test_no_more_of_a_group_are_in_progress(db: Database) -> None:
    checks.check_per_group(fair(db, per_group=2))


def test_a_group_without_places_does_not_delay_others(db: Database) -> None:
    queue = fair(db, per_group=2)
    push(queue, "a" * 100)
    assert popped(queue, 9) == "aa"
    push(queue, "b" + "a" * 100 + "ccc")
    assert sorted(popped(queue, 1) + popped(queue, 1)) == ["b", "c"]
    assert popped(queue, 9) == "c"
    assert popped(queue, 9) == ""


def test_a_rate_of_each_group(db: Database) -> None:
    checks.check_group_rate(fair(db, group_rate=MINUTELY))


def test_at_most_once_has_a_rate_of_each_group(db: Database) -> None:
    checks.check_group_rate(fair(db, group_rate=MINUTELY, delivery="at_most_once"))


def test_all_limits_together(db: Database) -> None:
    queue = fair(db, concurrency=5, rate=Rate(10, burst=4), per_group=2, group_rate=Rate(1, per=60, burst=3))
    push(queue, "aaaaabbbb")
    claims = queue.pop_many(9, now=at(0))
    assert sorted(claim.payload for claim in claims) == [*"aabb"]
    queue.complete_many(claims, now=at(0))
    assert popped(queue, 9) == "", "the rate of the queue"
    assert popped(queue, 9, 1) == "ab", "the rate of the groups"
    assert popped(queue, 9, 59) == ""
    assert popped(queue, 9, 61) == "ab", "and of the place in each group"


@pytest.mark.parametrize("history", ["keep", "none"])
def test_a_take_needs_no_place_of_its_group(place: Place, db: Database, history: Literal["keep", "none"]) -> None:
    queue = fair(db, per_group=1, group_rate=MINUTELY, history=history)
    push(queue, "aaaabb")
    assert popped(queue, 5) == "ab"
    with place.sa_engine().begin() as connection:
        assert len(list(queue.take_many(9, connection, now=at(0)))) == 3, "two tokens of each are left"
    assert popped(queue, 5) == ""
    with place.sa_engine().connect() as connection:
        assert queue.take(connection, now=at(10)) is not None
        connection.rollback()
        assert queue.take(connection, now=at(10)) is not None, "a rollback gives the token back"


def test_a_stream_obeys_the_limits_of_groups(db: Database) -> None:
    queue = fair(db, per_group=2, group_rate=MINUTELY)
    push(queue, "aaaaab")
    stream = Stream(queue, "s")
    assert stream.advance(0, 5, now=at(0)) == 1
    assert len(stream.batch(1)[1]) == 3
    assert popped(queue, 5, 19) == "", "the stream has both places"
    assert stream.advance(1, 5, now=at(0)) == 2
    assert len(stream.batch(2)[1]) == 1, "the last token of the group"


def test_a_completion_with_a_claim_frees_the_places_of_groups(db: Database) -> None:
    queue = fair(db, per_group=1)
    push(queue, "aabb")
    first = queue.pop_many(5, now=at(0))
    assert len(first) == 2
    assert sorted(claim.payload for claim in queue.pop_many(5, completing=first, now=at(0))) == ["a", "b"]


def test_groups_of_a_transaction_of_the_callers(place: Place, db: Database) -> None:
    queue = fair(db, per_group=2)
    push(queue, "aaa")
    with place.sa_engine().connect() as connection:
        assert len(queue.pop_many(1, connection=connection, now=at(0))) == 1
        queue.push_many([*"bbb"], group="b", connection=connection, now=at(0))
        claims = queue.pop_many(9, connection=connection, now=at(0))
        assert sorted(claim.payload for claim in claims) == [*"abb"]
        assert not queue.pop_many(9, connection=connection, now=at(0))
        connection.rollback()
    assert popped(queue, 5) == "aa"


def test_a_waiting_consumer_gets_what_its_group_has_room_for(place: Place, db: Database) -> None:
    queue = fair(db, per_group=1)
    queue.push_many([*"aa"], group="a")
    claim = claimed(queue)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: [m.id for m in islice(place.open().queue("work").consume(wait=PATIENCE), 2)])
        other = queue.push("b", group="b")
        claim.complete()
        assert sorted(waiting.result()) == [claim.id + 1, other]


def test_a_waiting_consumer_gets_the_token_of_its_group(db: Database) -> None:
    queue = fair(db, group_rate=Rate(20))
    queue.push_many([*"abcd"], group="a")
    started = monotonic()
    for message in queue.consume(wait=PATIENCE):
        message.complete()
        if message.payload == "d":
            break
    assert monotonic() - started >= 0.15, "three tokens came"


def test_what_a_waiting_consumer_is_told(db: Database) -> None:
    queue = fair(db, per_group=1, group_rate=MINUTELY, lease=5)
    context = context_of(queue)

    def told(seconds: float) -> tuple[float, bool]:
        coming = context.run(context.reads.until_next, {"now": context.time(at(seconds))})
        return round(float(coming.seconds), 6), bool(coming.held)

    push(queue, "aaaaa")
    assert told(0) == (0, False)
    for _ in range(2):
        claimed(queue, now=at(0)).complete(now=at(0))
    last = claimed(queue, now=at(0))
    assert told(0) == (10, True), "the rate"
    assert told(9) == (1, True)
    last.complete(now=at(9))
    assert told(10) == (0, False)
    claimed(queue, lease=15, now=at(10))
    assert told(10) == (15, True), "the lease"
    push(queue, "b")
    assert told(10) == (0, False)


NAMES = ["a", "A", "ä", "\uff41", " a", "a ", "", "0", "x" * 255, "日本" * 100, "a\n", "'", None]


def test_groups_are_compared_exactly(db: Database) -> None:
    queue = fair(db, per_group=1, group_rate=MINUTELY)
    named = [NewMessage(str(number), group=name) for number, name in enumerate(NAMES) if name != ""]
    queue.push_many(named * 2, now=at(0))
    claims = queue.pop_many(99, now=at(0))
    assert sorted(claim.payload for claim in claims) == sorted(message.payload for message in named)
    assert queue.pop(now=at(0)) is None


def test_each_way_out_frees_the_place(db: Database) -> None:
    queue = fair(db, per_group=1, max_attempts=9)
    push(queue, "aaaaaaa")
    claimed(queue, now=at(0)).complete(now=at(0))
    claimed(queue, now=at(0)).release(now=at(0))
    claimed(queue, now=at(0)).fail("no", retry_in=0, now=at(0))
    claimed(queue, now=at(0)).fail("no", retry=False, now=at(0))
    queue.redrive(ALL, now=at(0))
    told = claimed(queue, now=at(0))
    queue.cancel(told.id, now=at(0))
    assert queue.pop(now=at(0)) is None
    told.fail("stopped", now=at(0))
    claimed(queue, lease=5, now=at(0))
    assert queue.pop(now=at(4)) is None
    claimed(queue, now=at(6))
    assert queue.pop(now=at(6)) is None


def test_the_definition_has_the_limits_of_groups(place: Place, db: Database) -> None:
    queue = fair(db, per_group=2, group_rate=Rate(100, per=timedelta(minutes=1), burst=20))
    assert place.open().queue("work").definition == queue.definition
    refuses(QueueDiffers, db.create_queue, "work", groups="fair", payload="text", per_group=3)
    queue.drop()
    tables = {name for name in sa.inspect(place.sa_engine()).get_table_names(schema=place.schema) if "work" in name}
    assert not tables


@pytest.mark.parametrize(
    "options",
    [
        {"per_group": 2},
        {"per_group": 2, "groups": True},
        {"per_group": 2, "strict": True},
        {"per_group": 0, "groups": "fair"},
        {"per_group": True, "groups": "fair"},
        {"per_group": 2, "groups": "fair", "delivery": "at_most_once"},
        {"group_rate": Rate(1)},
        {"group_rate": Rate(1), "groups": True},
        {"group_rate": 5, "groups": "fair"},
        {"group_rate": Rate(0), "groups": "fair"},
    ],
    ids=str,
)
def test_impossible_limits_of_groups(options: dict[str, object]) -> None:
    refuses(BadDefinition, Definition, **options)


def test_limits_of_groups_stay_while_others_are_altered(db: Database) -> None:
    queue = fair(db, per_group=2)
    push(queue, "aaaabbbb")
    refuses(TablequeueError, queue.alter, per_group=3)
    queue.alter(concurrency=3, rate=Rate(100, burst=100))
    claims = queue.pop_many(9)
    assert len(claims) == 3
    queue.alter(concurrency=None, rate=None)
    assert len(queue.pop_many(9)) == 1
    assert queue.pop() is None
