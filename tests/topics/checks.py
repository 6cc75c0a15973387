"""Checks that topics must pass on every engine, and that the mutants of test_mutants.py must fail."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tablequeue import Claim, Consumer, LeaseLost
from tablequeue.errors import DatabaseError
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tests.servers import Place
from tests.support import at, check_fenced, claimed, counts, ids_of


def check_every_subscription_gets_every_message(topic: Topic) -> None:
    """Also one that is made later; and what one does concerns no other one."""
    first = topic.push("a")
    early = [topic.subscribe("one"), topic.subscribe("two")]
    ids = [first, *topic.push_many([*"bcd"])]
    late = topic.subscribe("three")
    got = [ids_of(each.pop_many(10)) for each in (*early, late)]
    assert got == [ids] * 3, "every subscription gets every message"


def check_one_claim_one_consumer(topic: Topic, consumers: Sequence[Consumer]) -> None:
    """Consumers that pop at the same moment get different messages, and all of them."""
    ids = topic.push_many(["a"] * (3 * len(consumers)))
    with ThreadPoolExecutor(len(consumers)) as threads:
        claims: list[list[Claim]] = list(threads.map(lambda queue: queue.pop_many(3), consumers))
    assert sorted(id for batch in claims for id in ids_of(batch)) == ids, "each message goes to one consumer"


def check_a_message_given_several_times_is_one(topic: Topic, subscription: Consumer) -> None:
    """The sum and the number of the ids are those of the range, but two of its messages are not among them."""
    topic.push_many([*"abc"])
    batch = subscription.pop_many(3)
    subscription.complete_many([batch[1]] * 3)
    assert counts(subscription) == {"in_progress": 2, "finished": 1}, "what was not completed is in progress"
    subscription.complete_many([batch[0], batch[2], batch[0]])
    assert counts(subscription) == {"finished": 3}


def check_nothing_is_claimed_after_a_lost_lease(topic: Topic, subscription: Consumer) -> None:
    """A completion under a lost lease is refused, and the rest of the same call is not done."""
    topic.push("a")
    lost = claimed(subscription)
    lost.fail("no", retry=False)
    topic.push_many([*"bcd"])
    before = counts(subscription)
    try:
        subscription.pop(completing=lost)
    except LeaseLost:
        pass
    else:
        raise AssertionError("a lost claim was completed")
    assert counts(subscription) == before, "nothing is claimed, and nothing finished"


def check_fence(topic: Topic, slow: Consumer, quick: Consumer) -> None:
    """A range whose lease has expired is finished by nobody: neither as a whole, nor in parts."""
    topic.push_many([*"abc"], now=at(0))
    old = slow.pop_many(3, lease=10, now=at(0))
    new = quick.pop_many(3, lease=10, now=at(10))
    assert ids_of(new) == ids_of(old)
    for claim in old:
        check_fenced(slow, claim)
    assert not_held(slow, old) == ids_of(old), "none of them was completed"
    quick.complete_many(new, now=at(15))
    assert counts(slow) == {"finished": 3}


def check_a_failed_message_comes_back_alone(topic: Topic, subscription: Consumer) -> None:
    topic.push_many([*"abc"], now=at(0))
    batch = subscription.pop_many(3, now=at(0))
    assert batch[1].fail("no", retry_in=0, now=at(0)) == "ready", "it is ready at once"
    check_fenced(subscription, batch[1])
    again = subscription.pop_many(3, now=at(1))
    assert [(claim.id, claim.attempt) for claim in again] == [(batch[1].id, 2)], "it comes back alone"
    subscription.complete_many([batch[0], batch[2], *again], now=at(1))
    assert counts(subscription) == {"finished": 3}


def check_what_is_left_of_an_expired_range(topic: Topic, subscription: Consumer) -> None:
    """Only what was not finished comes back, with the attempt counted, and its error."""
    topic.push_many([*"abcdefg"], now=at(0))
    batch = subscription.pop_many(7, lease=10, now=at(0))
    subscription.complete_many([batch[1], batch[5]], now=at(5))
    batch[3].fail("no", retry=False, now=at(5))
    assert subscription.pop(now=at(9)) is None
    rest = [batch[place] for place in (0, 2, 4, 6)]
    again = subscription.pop_many(10, lease=10, now=at(10))
    assert [(claim.id, claim.payload, claim.attempt) for claim in again] == [
        (claim.id, claim.payload, 2) for claim in rest
    ], "only what was not finished comes back"
    for claim in batch:
        check_fenced(subscription, claim)
    assert counts(subscription) == {"in_progress": 4, "dead": 1, "finished": 2}
    (error,) = subscription.peek(state="in_progress")[0].errors
    assert (error.error, error.attempt, error.consumer, error.at) == (
        "lease expired",
        1,
        context_of(subscription).who,
        at(10),
    )
    subscription.complete_many(again, now=at(15))
    assert counts(subscription) == {"dead": 1, "finished": 6}


def check_poison_is_counted(topic: Topic, subscription: Consumer) -> None:
    """A message that kills every consumer is a dead letter after its last attempt; the others are not."""
    topic.push_many([*"ab"], now=at(0))
    attempts = subscription.definition.max_attempts
    for attempt in range(attempts):
        batch = subscription.pop_many(2, lease=10, now=at(10 * attempt))
        assert {claim.attempt for claim in batch} == {attempt + 1}, "an attempt is counted when it begins"
        if attempt == 0:
            poison, other = batch
            other.complete(now=at(1))
    assert subscription.pop(now=at(10 * attempts)) is None, "its attempts are spent"
    (letter,) = subscription.dead()
    assert (letter.id, letter.attempts) == (poison.id, attempts)
    assert [error.error for error in letter.errors] == ["lease expired"] * attempts


def not_held(subscription: Consumer, claims: Sequence[Claim]) -> list[int]:
    """Complete the claims; return the ids of those that were lost."""
    try:
        subscription.complete_many(claims)
    except LeaseLost as error:
        return [*error.ids]
    return []


def forged(claim: Claim, id: int) -> Claim:
    """A claim with a token that is right, on a message for which it was not given."""
    return Claim(claim.queue, (id, *claim.row[1:]), claim.payload, claim.token)


def check_a_token_is_for_its_own_messages(topic: Topic, subscription: Consumer) -> None:
    topic.push_many([*"abcd"])
    mine, theirs = subscription.pop_many(2), subscription.pop_many(2)
    assert not_held(subscription, [forged(mine[0], theirs[0].id)]) == [theirs[0].id], "the token is that of another"
    assert counts(subscription) == {"in_progress": 4}


def check_what_is_completed_twice_is_refused(topic: Topic, subscription: Consumer) -> None:
    topic.push_many([*"abc"])
    batch = subscription.pop_many(3)
    batch[1].complete()
    assert not_held(subscription, batch) == [batch[1].id], "it has left the range"
    assert counts(subscription) == {"finished": 3}


def check_a_claim_from_before_a_seek_is_fenced(topic: Topic, subscription: Subscription) -> None:
    """The same messages are in progress again, under another token."""
    topic.push_many([*"abc"])
    batch = subscription.pop_many(3)
    subscription.complete_many(batch)
    subscription.seek("beginning")
    again = subscription.pop_many(3)
    assert not_held(subscription, batch) == ids_of(batch), "they are held under another token"
    assert counts(subscription) == {"finished": 3, "in_progress": 3}
    subscription.complete_many(again)


def check_a_seek_decides_about_every_message(topic: Topic, subscription: Subscription) -> None:
    """One that no consumer has had comes or is skipped; one apart comes again as a new one, or stays."""
    ids = [topic.push(name, group=name) for name in "abcdef"]
    done, dead, later, soon = subscription.pop_many(4)
    done.complete()
    dead.fail("no", retry=False)
    later.fail("no", retry_in=1000)
    soon.fail("no", retry_in=0)
    apart = {"dead": 1, "scheduled": 1, "ready": 1, "finished": 1}
    subscription.seek("end")
    assert counts(subscription) == apart, "only what waits for a retry, and dead letters, stay"
    subscription.seek("end")
    assert counts(subscription) == apart
    subscription.seek("beginning")
    assert counts(subscription) == {"ready": 6, "finished": 1}, "all of them come, each once"
    again = subscription.pop_many(10)
    assert [(claim.id, claim.attempt) for claim in again] == [(id, 1) for id in ids]
    subscription.complete_many(again)
    assert subscription.pop() is None


def check_a_seek_skips_what_was_moved_to_the_queue(topic: Topic, ordered: Subscription) -> None:
    topic.push_many([*"abc"], group="g")
    claimed(ordered).complete()  # with it, all are moved
    ordered.seek("end")
    assert ordered.lag().messages == 0, "nothing waits"
    assert ordered.pop() is None, "what no consumer has had is skipped"
    id = topic.push("d", group="g")
    assert claimed(ordered).id == id


def check_a_seek_leaves_one_of_each_message(topic: Topic, subscription: Subscription) -> None:
    """A message that waits for a retry, and comes again, has one holder."""
    ids = topic.push_many([*"ab"])
    first = subscription.pop_many(2)
    first[0].fail("no", retry_in=0)
    first[1].complete()
    subscription.seek("beginning")
    held = [*subscription.pop_many(2), *subscription.pop_many(2)]
    assert ids_of(held) == ids, "each has one holder"


def sought_by_an_older_version(subscription: Subscription) -> None:
    """Go to the beginning, and leave the detached messages as they are."""

    def seek(cursor: Any, table: Any, params: Any) -> None:
        table.engine.ranges._lock_claims(cursor, table)
        table.engine.ranges._run(cursor, table, "range_seek", params)

    context_of(subscription).run(seek, {"start": 1, "now": None})


def held_twice(topic: Topic, subscription: Subscription) -> tuple[Claim, list[Claim]]:
    """Claims of one message: apart, and in a range with another one. The lease of the range ends at 20."""
    topic.push_many([*"ab"], now=at(0))
    first = subscription.pop_many(2, now=at(0))
    first[0].fail("no", retry_in=0, now=at(0))
    first[1].complete(now=at(0))
    sought_by_an_older_version(subscription)
    apart = claimed(subscription, now=at(10), lease=1000)
    return apart, subscription.pop_many(2, now=at(10), lease=10)


def check_no_failure_takes_the_lease_of_another_consumer(topic: Topic, subscription: Subscription) -> None:
    apart, batch = held_twice(topic, subscription)
    assert batch[0].id == apart.id
    batch[0].fail("no", retry_in=0, now=at(11))
    assert subscription.pop(now=at(12)) is None, "its consumer holds it"
    assert not_held(subscription, [apart]) == [], "its consumer holds it"


def check_no_expiry_takes_the_lease_of_another_consumer(topic: Topic, subscription: Subscription) -> None:
    apart, batch = held_twice(topic, subscription)
    assert ids_of(subscription.pop_many(10, now=at(30))) == [batch[1].id], "the other one is ready"
    assert not_held(subscription, [apart]) == [], "its consumer holds it"


# -- retention -------------------------------------------------------------------------------------------------------

KEEP = 800


def trimmed(topic: Topic, seconds: float) -> None:
    """Trim often enough at a time: a segment that has ended is dropped by a later call than the one that ended it."""
    for moment in range(3):
        topic.trim(now=at(seconds + moment))


def check_what_is_claimed_is_not_dropped(topic: Topic) -> None:
    """Though it is older than what the topic keeps, and what nobody has claimed is dropped later."""
    mail = topic.subscribe("mail", max_attempts=3)
    topic.push_many(range(10), now=at(0))
    trimmed(topic, KEEP / 4)  # ends the segment
    claims = mail.pop_many(5, now=at(KEEP), lease=10_000)
    trimmed(topic, KEEP + KEEP / 2)
    assert not_held(mail, claims[1:]) == [], "the lease is valid"
    assert claims[0].fail("no", retry_in=0, now=at(2_000)) == "ready"
    trimmed(topic, 2_100)
    again = mail.pop_many(10, now=at(2_200))
    assert [(claim.payload, claim.attempt) for claim in again] == [(0, 2)], "it is not dropped"
    assert mail.pop_many(10, now=at(2_200)) == [], "the others are older than the topic keeps"


# -- late commits, where transactions write side by side -------------------------------------------------------------


def holes(place: Place) -> list[tuple[int, int]]:
    table = place.table("events")
    rows = place.execute(f"select first_id, last_id from {table}__holes order by first_id")  # noqa: S608
    return [(row[0], row[1]) for row in rows]


def check_a_late_commit_comes_late(place: Place, topic: Topic, subscription: Consumer) -> None:
    """Nobody waits for it, and it is not lost."""
    with place.sa_engine().connect() as connection:
        late = topic.push("late", connection=connection)
        early = []
        for _ in range(30):
            early.append(topic.push("early"))
            assert ids_of(subscription.pop_many(10)) == early[-1:], "nobody waits for it"
        connection.commit()
    assert ids_of(subscription.pop_many(10)) == [late], "it is not lost"


def check_holes_are_forgotten(place: Place, topic: Topic, subscription: Consumer) -> None:
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


def check_a_group_has_one_in_progress(topic: Topic, ordered: Consumer) -> None:
    first, second, other = (topic.push("x", group=group) for group in "aab")
    claims = ordered.pop_many(10)
    assert ids_of(claims) == [first, other], "one in progress in a group, and groups side by side"
    assert ordered.pop_many(10) == []
    claims[0].complete()
    assert ids_of(ordered.pop_many(10)) == [second]


def check_a_failed_message_holds_its_group(topic: Topic, ordered: Consumer) -> None:
    head = topic.push("a", group="g", now=at(0))
    claimed(ordered, now=at(0)).fail("no", retry_in=10, now=at(0))
    other = topic.push("b", group="g", now=at(1))
    assert ordered.pop(now=at(9)) is None, "nothing overtakes"
    claim = claimed(ordered, now=at(10))
    assert claim.id == head
    claim.complete(now=at(10))
    assert claimed(ordered, now=at(10)).id == other


# How to let a log have a message without a group.
UNGUARDED = {
    "postgresql": "alter table {log} drop constraint tq_orders__grouped",
    "mssql": "alter table {log} drop constraint ck_tq_orders__grouped",
}


def push_without_a_group(place: Place) -> None:
    """Push a message as a program does that knows nothing of the groups of the topic "orders"."""
    now = "0" if place.sa_engine().dialect.name == "sqlite" else "current_timestamp"
    place.execute(f"insert into {place.table('orders')} (pushed_at, payload) values ({now}, 'alone')")  # noqa: S608


def check_a_message_without_a_group_stops_nobody(place: Place, topic: Topic, ordered: Consumer) -> None:
    unguard = UNGUARDED.get(place.sa_engine().dialect.name, "drop trigger {log}__grouped")
    place.execute(unguard.format(log=place.table("orders")))
    topic.push("a", group="g")
    push_without_a_group(place)
    topic.push("b", group="g")
    push_without_a_group(place)
    got = []
    try:
        while claims := ordered.pop_many(10):
            got += [(claim.group, claim.payload) for claim in claims]
            ordered.complete_many(claims)
    except DatabaseError as error:
        raise AssertionError("it stops the subscription") from error
    assert got == [("g", "a"), (None, "alone"), ("g", "b"), (None, "alone")], "they are a group of their own"


# -- PostgreSQL ------------------------------------------------------------------------------------------------------


def check_a_claim_waits_for_another_one(place: Place, topic: Topic, subscription: Consumer) -> None:
    """Even if the statement of that one has ended, and its commit has not."""
    ids = topic.push_many([*"abcde"])[1:]
    assert claimed(subscription).payload == "a"  # so the others have their offsets
    values = {"n": 2, "token": "0" * 32, "consumer": None, "lease": 60, "now": None, "all_holes": True}
    values |= {"held": None, "number": None, "sum": None}
    with place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        claim, read = (context_of(subscription).table.statement(f"range_claim.{part}") for part in ("claim", "read"))
        connection.exec_driver_sql(claim, values)
        assert [row[0] for row in connection.exec_driver_sql(read, values)] == ids[:2]
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
