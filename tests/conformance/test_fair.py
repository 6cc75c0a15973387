"""Fair groups: a group is a tenant, and claims take one message of each group in turn. Positions are counted."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tablequeue import Database, NewMessage, Queue
from tablequeue.errors import BadDefinition
from tests.checks import check_a_group_that_was_alone, check_fair_share
from tests.servers import Place
from tests.support import at_once, claimed, ids_of

pytestmark = pytest.mark.quick


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", groups="fair", payload="text")


def push(queue: Queue, groups: str) -> list[int]:
    """Push a message for each letter, in the group of that letter; without one for a dot."""
    return queue.push_many([NewMessage(group, group=None if group == "." else group) for group in groups])


def test_a_large_tenant_does_not_delay_small_ones(queue: Queue) -> None:
    check_fair_share(queue)


def test_a_group_that_was_alone_shares_its_turns(queue: Queue) -> None:
    check_a_group_that_was_alone(queue)


def test_any_number_of_a_group_is_in_progress(queue: Queue) -> None:
    ids = push(queue, "aaaa")
    assert ids_of(queue.pop_many(4)) == ids


def test_messages_without_a_group_are_a_group_of_their_own(queue: Queue) -> None:
    push(queue, "..aab")
    claims = queue.pop_many(3)
    assert sorted(claim.payload for claim in claims) == [".", "a", "b"]
    assert {claim.payload: claim.group for claim in claims} == {".": None, "a": "a", "b": "b"}


def test_the_first_message_of_a_new_group_comes_within_a_round(queue: Queue) -> None:
    push(queue, "a" * 50 + "b" * 50 + "c" * 50)
    for _ in range(7):
        claimed(queue)
    push(queue, "d")
    assert "d" in [claimed(queue).payload for _ in range(4)]


def test_a_transaction_claims_in_turn_beside_what_it_has_claimed(queue: Queue, db: Database) -> None:
    push(queue, "aaabbbccc")
    with db.engine.begin() as connection:
        if db.engine.dialect.name != "mssql":
            assert connection.exec_driver_sql("select 1").scalar() == 1  # an older snapshot
        (first,) = queue.pop_many(1, connection=connection)
        claims = queue.pop_many(3, connection=connection)
        assert sorted(claim.payload for claim in claims) == ["a", "b", "c"]
        assert claims[-1].payload == first.payload, "the group that was served comes last"


def test_pops_that_complete_go_on_in_turn(queue: Queue) -> None:
    push(queue, "a" * 9 + "bbbccc")
    at_once(queue)
    claims = queue.pop_many(3)
    turns = ["".join(sorted(claim.payload for claim in claims))]
    for _ in range(2):
        claims = queue.pop_many(3, completing=claims)
        turns.append("".join(sorted(claim.payload for claim in claims)))
    assert turns == ["abc"] * 3
    assert len(queue.pop_many(10, completing=claims)) == 6


def test_a_message_that_comes_back_is_the_next_of_its_group(queue: Queue) -> None:
    first, *_ = push(queue, "aaabb")
    claims = {claim.payload: claim for claim in queue.pop_many(2)}
    claims["a"].release()
    assert next(claim.id for claim in queue.pop_many(4) if claim.payload == "a") == first


def test_many_consumers_share_fairly(queue: Queue, place: Place) -> None:
    """Each consumer goes its own round: among them, small tenants wait for a round of each at most."""
    push(queue, "a" * 400 + "bcde" * 5)
    consumers = [queue, *(place.open().queue("work") for _ in range(3))]

    def pop(consumer: Queue) -> list[str]:
        return [claimed(consumer).payload for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        popped = Counter(payload for payloads in pool.map(pop, consumers) for payload in payloads)
    assert popped["a"] <= 40 - 20 + 4 * 2, (
        "each consumer gives the large tenant every fifth turn until the rest is done"
    )
    assert sum(popped.values()) == 40


@pytest.mark.parametrize("options", [{"order": "lifo"}, {"strict": True}, {"order": "priority"}])
def test_only_a_fifo_queue_is_fair(db: Database, options: dict[str, object]) -> None:
    with pytest.raises(BadDefinition):
        db.create_queue("other", groups="fair", **options)  # type: ignore[arg-type]


def test_a_topic_is_not_fair(db: Database) -> None:
    with pytest.raises(BadDefinition):
        db.create_topic("events", groups="fair")  # type: ignore[arg-type]
