"""Checks that topics must pass on every engine, and that the mutants of test_mutants.py must fail."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tablequeue import Claim, LeaseLost, Queue
from tablequeue.topic import Subscription, Topic
from tests.servers import Place
from tests.support import at, check_fenced, claimed, counts, ids_of


def check_every_subscription_gets_every_message(topic: Topic) -> None:
    """Also one that is made later; and what one does concerns no other one."""
    first = topic.push("a")
    early = [topic.subscribe("one"), topic.subscribe("two")]
    ids = [first, *topic.push_many("bcd")]
    late = topic.subscribe("three")
    got = [ids_of(each.pop_many(10)) for each in (*early, late)]
    assert got == [ids] * 3, "every subscription gets every message"


def check_one_claim_one_consumer(topic: Topic, consumers: Sequence[Queue]) -> None:
    """Consumers that pop at the same moment get different messages, and all of them."""
    ids = topic.push_many("a" * (3 * len(consumers)))
    with ThreadPoolExecutor(len(consumers)) as threads:
        claims: list[list[Claim]] = list(threads.map(lambda queue: queue.pop_many(3), consumers))
    assert sorted(id for batch in claims for id in ids_of(batch)) == ids, "each message goes to one consumer"


def check_a_message_given_several_times_is_one(topic: Topic, subscription: Queue) -> None:
    """The sum and the number of the ids are those of the range, but two of its messages are not among them."""
    topic.push_many("abc")
    batch = subscription.pop_many(3)
    subscription.complete_many([batch[1]] * 3)
    assert counts(subscription) == {"in_progress": 2, "finished": 1}, "what was not completed is in progress"
    subscription.complete_many([batch[0], batch[2], batch[0]])
    assert counts(subscription) == {"finished": 3}


def check_nothing_is_claimed_after_a_lost_lease(topic: Topic, subscription: Queue) -> None:
    """A completion under a lost lease is refused, and the rest of the same call is not done."""
    topic.push("a")
    lost = claimed(subscription)
    lost.fail("no", retry=False)
    topic.push_many("bcd")
    before = counts(subscription)
    try:
        subscription.pop(completing=lost)
    except LeaseLost:
        pass
    else:
        raise AssertionError("a lost claim was completed")
    assert counts(subscription) == before, "nothing is claimed, and nothing finished"


def check_fence(topic: Topic, slow: Queue, quick: Queue) -> None:
    """A range whose lease has expired is finished by nobody: neither as a whole, nor in parts."""
    topic.push_many("abc", now=at(0))
    old = slow.pop_many(3, lease=10, now=at(0))
    new = quick.pop_many(3, lease=10, now=at(10))
    assert ids_of(new) == ids_of(old)
    for claim in old:
        check_fenced(slow, claim)
    assert not_held(slow, old) == ids_of(old), "none of them was completed"
    quick.complete_many(new, now=at(15))
    assert counts(slow) == {"finished": 3}


def check_a_failed_message_comes_back_alone(topic: Topic, subscription: Queue) -> None:
    topic.push_many("abc", now=at(0))
    batch = subscription.pop_many(3, now=at(0))
    assert batch[1].fail("no", retry_in=0, now=at(0)) == "ready", "it is ready at once"
    check_fenced(subscription, batch[1])
    again = subscription.pop_many(3, now=at(1))
    assert [(claim.id, claim.attempts) for claim in again] == [(batch[1].id, 2)], "it comes back alone"
    subscription.complete_many([batch[0], batch[2], *again], now=at(1))
    assert counts(subscription) == {"finished": 3}


def check_what_is_left_of_an_expired_range(topic: Topic, subscription: Queue) -> None:
    """Only what was not finished comes back, with the attempt counted, and its error."""
    topic.push_many("abcdefg", now=at(0))
    batch = subscription.pop_many(7, lease=10, now=at(0))
    subscription.complete_many([batch[1], batch[5]], now=at(5))
    batch[3].fail("no", retry=False, now=at(5))
    assert subscription.pop(now=at(9)) is None
    rest = [batch[place] for place in (0, 2, 4, 6)]
    again = subscription.pop_many(10, lease=10, now=at(10))
    assert [(claim.id, claim.payload, claim.attempts) for claim in again] == [
        (claim.id, claim.payload, 2) for claim in rest
    ], "only what was not finished comes back"
    for claim in batch:
        check_fenced(subscription, claim)
    assert counts(subscription) == {"in_progress": 4, "dead": 1, "finished": 2}
    (error,) = subscription.peek(state="in_progress")[0].errors
    assert (error.error, error.attempt, error.consumer, error.at) == (
        "lease expired",
        1,
        subscription.context.who,
        at(10),
    )
    subscription.complete_many(again, now=at(15))
    assert counts(subscription) == {"dead": 1, "finished": 6}


def check_poison_is_counted(topic: Topic, subscription: Queue) -> None:
    """A message that kills every consumer is a dead letter after its last attempt; the others are not."""
    topic.push_many("ab", now=at(0))
    attempts = subscription.definition.max_attempts
    for attempt in range(attempts):
        batch = subscription.pop_many(2, lease=10, now=at(10 * attempt))
        assert {claim.attempts for claim in batch} == {attempt + 1}, "an attempt is counted when it begins"
        if attempt == 0:
            poison, other = batch
            other.complete(now=at(1))
    assert subscription.pop(now=at(10 * attempts)) is None, "its attempts are spent"
    (letter,) = subscription.dead()
    assert (letter.id, letter.attempts) == (poison.id, attempts)
    assert [error.error for error in letter.errors] == ["lease expired"] * attempts


def not_held(subscription: Queue, claims: Sequence[Claim]) -> list[int]:
    """Complete the claims; return the ids of those that were lost."""
    try:
        subscription.complete_many(claims)
    except LeaseLost as error:
        return [*error.ids]
    return []


def forged(claim: Claim, id: int) -> Claim:
    """A claim with a token that is right, on a message for which it was not given."""
    return Claim(claim.queue, (id, *claim.row[1:]), claim.payload, claim.token)


def check_a_token_is_for_its_own_messages(topic: Topic, subscription: Queue) -> None:
    topic.push_many("abcd")
    mine, theirs = subscription.pop_many(2), subscription.pop_many(2)
    assert not_held(subscription, [forged(mine[0], theirs[0].id)]) == [theirs[0].id], "the token is that of another"
    assert counts(subscription) == {"in_progress": 4}


def check_what_is_completed_twice_is_refused(topic: Topic, subscription: Queue) -> None:
    topic.push_many("abc")
    batch = subscription.pop_many(3)
    batch[1].complete()
    assert not_held(subscription, batch) == [batch[1].id], "it has left the range"
    assert counts(subscription) == {"finished": 3}


def check_a_claim_from_before_a_seek_is_fenced(topic: Topic, subscription: Subscription) -> None:
    """The same messages are in progress again, under another token."""
    topic.push_many("abc")
    batch = subscription.pop_many(3)
    subscription.complete_many(batch)
    subscription.seek("beginning")
    again = subscription.pop_many(3)
    assert not_held(subscription, batch) == ids_of(batch), "they are held under another token"
    assert counts(subscription) == {"finished": 3, "in_progress": 3}
    subscription.complete_many(again)


# -- late commits, where transactions write side by side -------------------------------------------------------------


def holes(place: Place) -> list[tuple[int, int]]:
    table = place.table("events")
    rows = place.execute(f"select first_id, last_id from {table}__holes order by first_id")  # noqa: S608
    return [(row[0], row[1]) for row in rows]


def check_a_late_commit_comes_late(place: Place, topic: Topic, subscription: Queue) -> None:
    """Nobody waits for it, and it is not lost."""
    with place.sa_engine().connect() as connection:
        late = topic.push("late", connection=connection)
        early = []
        for _ in range(30):
            early.append(topic.push("early"))
            assert ids_of(subscription.pop_many(10)) == early[-1:], "nobody waits for it"
        connection.commit()
    assert ids_of(subscription.pop_many(10)) == [late], "it is not lost"


def check_holes_are_forgotten(place: Place, topic: Topic, subscription: Queue) -> None:
    """Not before, for then the message would be lost."""
    engine = place.sa_engine()
    with engine.connect() as one, engine.connect() as other:
        late = topic.push("late", connection=one)
        topic.push("never", connection=other)
        for _ in range(3):
            topic.push("x")
            subscription.pop_many(10)
        assert holes(place) == [(late, late + 1)]
        other.rollback()
        for _ in range(3):
            assert subscription.pop_many(10) == []
        one.commit()
        assert ids_of(subscription.pop_many(10)) == [late], "it is not lost"
    for _ in range(3):
        topic.push("x")
        subscription.pop_many(10)
    assert holes(place) == [], "nobody can fill them"


def check_a_start_by_time_passes_nothing(place: Place, topic: Topic) -> None:
    """The message in the middle of the log has a time that is older than that of all others."""
    watch = topic.subscribe("watch")
    with place.sa_engine().connect() as connection:
        old = topic.push("old", now=at(0), connection=connection)
        before = [topic.push("x", now=at(10 + n)) for n in range(8)]
        watch.pop_many(100)
        connection.commit()
    assert ids_of(watch.pop_many(100)) == [old]
    after = [topic.push("x", now=at(20 + n)) for n in range(8)]
    for seconds, expected in ((0, [*before, old, *after]), (12, [*before[2:], old, *after]), (22, after[2:])):
        new = topic.subscribe(f"from_{seconds}", start=at(seconds))
        assert ids_of(new.pop_many(100)) == expected, f"all that was pushed from {seconds} on"


# -- ordered subscriptions -------------------------------------------------------------------------------------------


def check_a_group_has_one_in_progress(topic: Topic, ordered: Queue) -> None:
    first, second, other = (topic.push("x", group=group) for group in "aab")
    claims = ordered.pop_many(10)
    assert ids_of(claims) == [first, other], "one in progress in a group, and groups side by side"
    assert ordered.pop_many(10) == []
    claims[0].complete()
    assert ids_of(ordered.pop_many(10)) == [second]


def check_a_failed_message_holds_its_group(topic: Topic, ordered: Queue) -> None:
    head = topic.push("a", group="g", now=at(0))
    claimed(ordered, now=at(0)).fail("no", retry_in=10, now=at(0))
    other = topic.push("b", group="g", now=at(1))
    assert ordered.pop(now=at(9)) is None, "nothing overtakes"
    claim = claimed(ordered, now=at(10))
    assert claim.id == head
    claim.complete(now=at(10))
    assert claimed(ordered, now=at(10)).id == other


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def check_a_claim_waits_for_another_one(place: Place, topic: Topic, subscription: Queue) -> None:
    """Even if the statement of that one has ended, and its commit has not."""
    ids = topic.push_many("abcde")[1:]
    assert claimed(subscription).payload == "a"  # so the others have their offsets
    values = {"n": 2, "token": "0" * 32, "consumer": None, "lease": 60, "now": None, "all_holes": True}
    values |= {"held": None, "number": None, "sum": None}
    with place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        statement = subscription.context.table.statement("range_claim")
        assert [row[0] for row in connection.exec_driver_sql(statement, values)] == ids[:2]
        other = threads.submit(subscription.pop_many, 2)
        await_a_wait_or(place, other)
        connection.commit()
        assert ids_of(other.result(60)) == ids[2:], "each message goes to one consumer"


def await_a_wait_or(place: Place, call: Future[Any]) -> None:
    """Wait until a session of the server waits for another one, or the call has ended."""
    waits = (
        "select 1 from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0"
    )
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
        while not call.done() and not watch.exec_driver_sql(waits).all():
            pass
