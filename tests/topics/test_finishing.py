"""What consumers do with the messages of a range: all of them at once, in parts, one by one, or not in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Claim, Database, LeaseLost, NewMessage, Unreadable
from tablequeue.topic import Subscription, Topic
from tests.callers import CALLERS, Caller
from tests.servers import Kind, Place
from tests.support import FINISHING, at, at_once, check_fenced, claimed, counts, ids_of, refuses
from tests.topics import checks

pytestmark = pytest.mark.quick


@pytest.fixture(params=CALLERS.values(), ids=tuple(CALLERS))
def caller(request: pytest.FixtureRequest, place: Place, kind: Kind) -> Any:
    yield from request.param(place, kind)


# -- complete --------------------------------------------------------------------------------------------------------


def test_a_whole_range(topic: Topic, mail: Subscription, log: Subscription) -> None:
    topic.push_many([*"abc"])
    batch = mail.pop_many(3)
    mail.complete_many(batch)
    assert counts(mail) == {"finished": 3}
    assert counts(log) == {"ready": 3}
    assert refuses(LeaseLost, mail.complete_many, batch).ids == tuple(ids_of(batch))
    for claim in batch:
        check_fenced(mail, claim)
    assert mail.pop() is None


def test_parts_of_a_range_in_any_order(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcdefg"])
    batch = mail.pop_many(7)
    mail.complete_many(batch[4:6])
    batch[0].complete()
    mail.complete_many([batch[6], batch[2]])
    assert counts(mail) == {"in_progress": 2, "finished": 5}
    mail.complete_many([batch[1], batch[3]])
    assert counts(mail) == {"finished": 7}
    assert mail.pop_many(10, now=at(0)) == []


def test_what_is_completed_twice_is_refused(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcd"])
    batch = mail.pop_many(4)
    batch[1].complete()
    check_fenced(mail, batch[1])
    error = refuses(LeaseLost, mail.complete_many, batch)
    assert error.ids == (batch[1].id,)
    assert "the other 3 were completed" in error.cause
    assert counts(mail) == {"finished": 4}


def test_a_message_given_several_times_is_one(topic: Topic, mail: Subscription) -> None:
    """Three times the second one of three is not all three of them, though the sum is the same."""
    checks.check_a_message_given_several_times_is_one(topic, mail)


def test_messages_of_others_under_a_right_token(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcdef"])
    mine, theirs = mail.pop_many(3), mail.pop_many(2)
    for foreign in (theirs[0].id, theirs[-1].id + 1, 10**6, 0):
        for finish in FINISHING.values():
            assert refuses(LeaseLost, finish, checks.forged(mine[0], foreign)).ids == (foreign,)
    assert counts(mail) == {"in_progress": 5, "ready": 1}
    error = refuses(LeaseLost, mail.complete_many, [*mine, checks.forged(mine[0], theirs[0].id)])
    assert error.ids == (theirs[0].id,)
    assert counts(mail) == {"in_progress": 2, "ready": 1, "finished": 3}
    mail.complete_many(theirs)


def test_a_token_of_another_subscription(topic: Topic, mail: Subscription, log: Subscription) -> None:
    topic.push("x")
    claim = claimed(mail)
    claimed(log)
    refuses(LeaseLost, log.complete, claim)
    assert counts(log) == {"in_progress": 1}


def test_ranges_and_messages_apart_together(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcdefgh"], now=at(0))
    first, second = mail.pop_many(3, now=at(0)), mail.pop_many(3, now=at(0))
    first[0].fail("no", retry_in=1, now=at(0))
    first[1].fail("no", retry_in=1, now=at(0))
    apart = mail.pop_many(10, now=at(2))
    assert ids_of(apart[:2]) == ids_of(first[:2])
    mail.complete_many([first[2], *second, *apart], now=at(2))
    rest = mail.pop_many(10, now=at(3))
    mail.complete_many(rest, now=at(3))
    assert counts(mail) == {"finished": 8}


def test_in_a_transaction_of_the_callers(topic: Topic, mail: Subscription, caller: Caller) -> None:
    topic.push_many([*"abcde"])
    whole, parts = mail.pop_many(2), mail.pop_many(3)
    for end, after in ((caller.rollback, {"in_progress": 5}), (caller.commit, {"finished": 3, "in_progress": 2})):
        mail.complete_many(whole, connection=caller.connection)
        parts[1].complete(connection=caller.connection)
        end()
        assert counts(mail) == after
    parts[0].fail("no", retry_in=0, connection=caller.connection)
    parts[2].release(connection=caller.connection)
    caller.rollback()
    assert counts(mail) == {"finished": 3, "in_progress": 2}
    parts[0].fail("no", retry_in=0, connection=caller.connection)
    parts[2].extend(1000, connection=caller.connection)
    parts[2].release(connection=caller.connection)
    caller.commit()
    assert counts(mail) == {"finished": 3, "ready": 2}
    assert [claim.attempt for claim in [*mail.pop_many(1), *mail.pop_many(1)]] == [2, 1]


# -- pop with completing ---------------------------------------------------------------------------------------------


def test_completing_and_the_next_range(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many(map(str, range(25)))
    batch, got = at_once(mail).pop_many(10), []
    while batch:
        got += ids_of(batch)
        batch = mail.pop_many(10, completing=batch)
    assert got == ids
    assert counts(mail) == {"finished": 25}


def test_completing_a_part_leaves_the_rest(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcd"])
    first, second = mail.pop_many(2)
    third = claimed(mail, completing=first)
    assert third.payload == "c"
    assert claimed(mail, completing=[second, third][1]).payload == "d"
    assert counts(mail) == {"finished": 2, "in_progress": 2}


@pytest.mark.parametrize("now", [None, at(0)])
def test_after_a_lost_lease_nothing_is_claimed(topic: Topic, mail: Subscription, now: Any) -> None:
    checks.check_nothing_is_claimed_after_a_lost_lease(topic, mail)
    batch = mail.pop_many(3, now=now)
    batch[0].release(now=now)
    error = refuses(LeaseLost, mail.pop_many, 3, completing=batch, now=now)
    assert error.ids == (batch[0].id,)


# -- fail ------------------------------------------------------------------------------------------------------------


def test_a_failed_message_comes_back_alone(topic: Topic, mail: Subscription, log: Subscription) -> None:
    checks.check_a_failed_message_comes_back_alone(topic, mail)
    assert counts(log) == {"ready": 3}, "it is no concern of another subscription"


def test_back_off_and_the_dead_letter(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"ab"], headers={"n": 1}, group="g", now=at(0))
    first, second = mail.pop_many(2, now=at(0))
    second.complete(now=at(0))
    assert first.fail("one", now=at(0)) == "scheduled"
    (waiting,) = mail.peek(state="scheduled")
    assert (waiting.due_at, waiting.attempts, waiting.errors[0].error) == (at(10), 1, "one")
    assert mail.pop(now=at(9)) is None
    again = claimed(mail, now=at(10))
    assert (again.id, again.attempt, again.headers, again.group) == (first.id, 2, {"n": 1}, "g")
    assert (first.errors, [error.error for error in again.errors]) == ((), ["one"])
    assert again.pushed_at == at(0)
    assert again.fail(ValueError("two"), now=at(10)) == "scheduled"
    assert mail.pop(now=at(29)) is None
    assert claimed(mail, now=at(30)).fail("three", now=at(30)) == "dead"
    (letter,) = mail.dead()
    assert (letter.id, letter.payload, letter.attempts, letter.first_popped_at) == (first.id, "a", 3, at(0))
    assert [error.attempt for error in letter.errors] == [1, 2, 3]
    assert [error.at for error in letter.errors] == [at(0), at(10), at(30)]
    assert mail.pop(now=at(10_000)) is None


@pytest.mark.parametrize("wait", [5, timedelta(seconds=5)])
def test_a_retry_in(topic: Topic, mail: Subscription, wait: Any) -> None:
    topic.push("x")
    assert claimed(mail, now=at(0)).fail("no", retry_in=wait, now=at(0)) == "scheduled"
    assert mail.pop(now=at(4)) is None
    assert claimed(mail, now=at(5)).fail("no", retry_in=0, now=at(5)) == "ready"
    assert claimed(mail, now=at(5)).attempt == 3


def test_no_retry(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"ab"])
    first, second = mail.pop_many(2)
    assert first.fail("no", retry=False) == "dead"
    assert second.fail("no", retry=False, retry_in=5) == "dead"
    assert [letter.attempts for letter in mail.dead()] == [1, 1]
    assert counts(mail) == {"dead": 2}


def test_one_attempt(topic: Topic) -> None:
    mail = topic.subscribe("mail", max_attempts=1)
    topic.push_many([*"abc"], now=at(0))
    first, *_ = mail.pop_many(3, lease=10, now=at(0))
    assert first.fail("no", retry_in=3, now=at(0)) == "dead"
    assert mail.pop(now=at(10)) is None, "the lease was the only attempt"
    assert [letter.errors[0].error for letter in mail.dead()] == ["no", "lease expired", "lease expired"]


def test_dead_letters(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many([*"abcd"], now=at(0))
    for claim in mail.pop_many(4, now=at(0)):
        claim.fail("no", retry=False, now=at(0))
    assert ids_of(mail.dead()) == ids
    assert mail.purge_dead([ids[1]]) == 1
    assert mail.redrive(lambda letter: letter.payload == "c", now=at(1)) == 1
    claim = claimed(mail, now=at(1))
    assert (claim.id, claim.attempt) == (ids[2], 1), "all attempts are before it"
    claim.complete(now=at(1))
    assert mail.redrive(ALL, now=at(1)) == 2
    assert ids_of(mail.pop_many(5, now=at(2))) == [ids[0], ids[3]]
    assert counts(mail) == {"in_progress": 2, "finished": 1}


def test_the_verbs_of_one_process_are_seen_by_the_pops_of_another(
    place: Place, topic: Topic, mail: Subscription
) -> None:
    """At their next call: also if that process has looked for detached messages and found none."""
    other = place.open().subscription("events/mail")
    topic.push_many([*"abc"])
    first, second, third = mail.pop_many(3)
    assert other.pop() is None
    first.release()
    assert claimed(other).id == first.id
    assert other.pop() is None
    second.fail("no", retry_in=0)
    assert claimed(other).id == second.id
    assert other.pop() is None
    third.fail("no", retry=False)
    assert mail.redrive(ALL) == 1
    assert claimed(other).id == third.id


# -- release ---------------------------------------------------------------------------------------------------------


def test_released_messages_come_back_unworked(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abcd"], now=at(0))
    batch = mail.pop_many(4, now=at(0))
    mail.release_many(batch[:2], now=at(0))
    batch[2].release(delay=20, now=at(0))
    again = mail.pop_many(5, now=at(1))
    assert [(claim.id, claim.attempt) for claim in again] == [(claim.id, 1) for claim in batch[:2]]
    assert mail.pop(now=at(19)) is None
    late = claimed(mail, now=at(20))
    assert (late.id, late.attempt) == (batch[2].id, 1)
    mail.release_many([*again, late], now=at(20))
    assert {claim.attempt for claim in mail.pop_many(5, now=at(21))} == {1}
    batch[3].complete(now=at(21))


# -- leases ----------------------------------------------------------------------------------------------------------


def test_a_slow_consumer_is_fenced(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push("x", now=at(0))
    other = place.open().subscription("events/mail")
    slow = claimed(mail, lease=10, now=at(0))
    quick = claimed(other, lease=10, now=at(10))
    assert (quick.id, quick.attempt) == (slow.id, 2)
    check_fenced(mail, slow)
    quick.complete(now=at(15))
    check_fenced(mail, slow)
    (done,) = mail.history()
    assert (done.id, done.attempts, done.errors[0].error) == (slow.id, 2, "lease expired")


def test_what_is_left_of_a_range_whose_lease_expired(topic: Topic, mail: Subscription) -> None:
    checks.check_what_is_left_of_an_expired_range(topic, mail)


def test_poison(topic: Topic, mail: Subscription) -> None:
    checks.check_poison_is_counted(topic, mail)


def test_a_lease_that_is_over_can_be_completed_until_another_pop(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"ab"], now=at(0))
    batch = mail.pop_many(2, lease=10, now=at(0))
    mail.complete_many(batch, now=at(100))
    assert counts(mail) == {"finished": 2}


def test_extend(topic: Topic, mail: Subscription) -> None:
    """It is the lease of the range: one message extends it for all."""
    topic.push_many([*"abc"], now=at(0))
    batch = mail.pop_many(3, lease=10, now=at(0))
    assert batch[1].extend(20, now=at(5)) == at(25)
    batch[0].complete(now=at(12))
    check_fenced(mail, batch[0])
    assert mail.pop(now=at(24)) is None
    batch[2].fail("no", retry_in=0, now=at(24))
    apart = claimed(mail, lease=10, now=at(24))
    assert apart.extend(100, now=at(24)) == at(124)
    assert claimed(mail, now=at(25)).id == batch[1].id
    apart.complete(now=at(50))
    refuses(LeaseLost, batch[1].extend, 10)


def test_many_expired_ranges(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many(map(str, range(40)), now=at(0))
    for _ in range(40):
        claimed(mail, lease=10, now=at(0))
    got: list[int] = []
    while batch := mail.pop_many(10, now=at(20)):
        got += ids_of(batch)
        mail.complete_many(batch, now=at(20))
    assert sorted(got) == ids
    assert counts(mail) == {"finished": 40}


# -- unreadable ------------------------------------------------------------------------------------------------------


def spoil(place: Place, kind: Kind, id: int, text: str) -> None:
    """Store another payload, like a program that pushes by its own SQL."""
    value = "cast(:payload as json)" if kind.name == "postgresql" else ":payload"
    statement = sa.text(f"update {place.table('events')} set payload = {value} where id = :id")  # noqa: S608 (our names)
    with place.sa_engine().begin() as connection:
        connection.execute(statement, {"payload": text, "id": id})


@pytest.mark.parametrize("ordered", [False, True])
def test_a_payload_that_cannot_be_read(db: Database, place: Place, kind: Kind, ordered: bool) -> None:
    """It becomes a dead letter of each subscription, and its neighbours are delivered in their first attempt."""
    topic = db.create_topic("events", groups=True)
    subscriptions = [topic.subscribe(name, ordered=ordered) for name in ("one", "two")]
    ids = topic.push_many([NewMessage({"n": n}, group=str(n)) for n in range(5)])
    spoil(place, kind, ids[2], "[1e400]")
    for each in subscriptions:
        got: list[Claim] = []
        while batch := each.pop_many(10):
            got += batch
            each.complete_many(batch)
        assert sorted(ids_of(got)) == [id for id in ids if id != ids[2]]
        assert {claim.attempt for claim in got} == {1}
        (letter,) = each.dead()
        assert letter.id == ids[2]
        assert isinstance(letter.payload, Unreadable)
        assert letter.payload.reason == letter.errors[0].error
        assert counts(each) == {"dead": 1, "finished": 4}


def test_there_may_be_nothing_else(db: Database, place: Place, kind: Kind) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail")
    ids = topic.push_many([1, 2, 3])
    for id in ids[:2]:
        spoil(place, kind, id, "[1e400]")
    assert claimed(mail).payload == 3
    assert mail.redrive(ALL) == 2
    assert mail.pop_many(5) == []
    assert counts(mail) == {"dead": 2, "in_progress": 1}


def test_the_history_of_messages_apart_is_purged(topic: Topic, mail: Subscription) -> None:
    topic.push_many(["a", "b"])
    mail.release_many(mail.pop_many(2))
    mail.complete_many(mail.pop_many(2))
    assert mail.purge_history(0, now=at(60)) == 2
    assert mail.purge_history(0, now=at(60)) == 0
