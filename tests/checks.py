"""Checks that real engines must pass, and that the mutants of test_mutants.py must fail."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Backoff, Claim, Consumer, Database, LeaseLost, NewMessage, Queue, Rate
from tablequeue.engines.runner import Runner
from tablequeue.engines.walks import WHOLE
from tablequeue.errors import NoResult, QueueNotFound, TablequeueError
from tablequeue.ext import context_of
from tablequeue.observe.counters import counters
from tablequeue.verbs import catalogue
from tablequeue.verbs.claim import leased
from tablequeue.verbs.context import Context
from tablequeue.verbs.sweep import promote
from tests.servers import Kind, Place
from tests.support import at, at_once, check_fenced, claimed, design_group, found, ids_of, snapshot

PATIENCE = 30.0


def check_one_claim_one_consumer(consumers: Sequence[Queue]) -> None:
    """Consumers that pop at the same moment get different messages."""
    ids = consumers[0].push_many(["a"] * (len(consumers) - 1))
    with ThreadPoolExecutor(len(consumers)) as threads:
        claims: list[Claim | None] = list(threads.map(lambda queue: queue.pop(), consumers))
    popped = [claim.id for claim in claims if claim is not None]
    assert sorted(popped) == ids, "each message goes to one consumer"


def check_pause(queue: Queue) -> None:
    """A paused queue hands out nothing, and a resumed one does."""
    queue.push("a")
    queue.pause()
    assert queue.pop() is None, "the queue is paused"
    queue.resume()
    assert queue.pop() is not None


def check_concurrency(queue: Queue) -> None:
    """A queue with three places never has more in progress, and each way to finish a message frees its place."""
    queue.push_many([*"abcdefghij"], now=at(0))
    one, two, three = queue.pop_many(5, now=at(0))
    assert queue.pop(now=at(0)) is None, "a message has no place"
    one.complete(now=at(1))
    queue.release(two, now=at(1))
    assert len(queue.pop_many(5, now=at(1))) == 2, "two places are free"
    three.fail("why", retry=False, now=at(2))
    assert len(queue.pop_many(5, lease=5, now=at(2))) == 1, "a place is free"
    assert not queue.pop_many(5, now=at(6.9)), "no lease has expired"
    assert len(queue.pop_many(5, now=at(7))) == 1, "an expired lease frees its place"
    assert queue.stats(now=at(7)).in_progress == 3


def check_claims_at_once(consumers: Sequence[Queue]) -> None:
    """Consumers that pop at the same moment get no more messages than there are places."""
    places = consumers[0].definition.concurrency
    consumers[0].push_many(["a"] * 100)
    for _ in range(5):
        with ThreadPoolExecutor(len(consumers)) as threads:
            claims = [claim for some in threads.map(lambda queue: queue.pop_many(2), consumers) for claim in some]
        claims += consumers[0].pop_many(100)
        assert len(claims) == places, "as many in progress as there are places"
        consumers[0].complete_many(claims)


def await_a_wait(place: Place, kind: Kind) -> None:
    """Wait until a session of this server waits for another one."""
    assert kind.blocked
    deadline = monotonic() + PATIENCE
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
        while not kind.blocked(watch):
            assert monotonic() < deadline, "nobody waits"


def claimed_after_a_wait(queue: Queue, connection: sa.Connection, await_a_wait: Callable[[], None]) -> int:
    """Fill both places of a queue in a transaction, for whose end another claim waits. Return what that one claims.

    It has looked for free places before. Those are filled by now.
    """
    queue.push_many([*"abcdef"])
    with ThreadPoolExecutor(1) as threads:
        assert len(queue.pop_many(2, connection=connection)) == 2
        other = threads.submit(queue.pop_many, 2)
        await_a_wait()
        connection.commit()
        return len(other.result())


def hold_promotion(queue: Queue, id: int, connection: sa.Connection) -> None:
    """Let the promotion of a message, of the group `another`, wait for the end of a transaction on the connection.

    It passes over messages that are locked, so it waits for a place of a head, or in a trigger.
    """
    words = context_of(queue).engine.words(context_of(queue).table)
    table = words["queue"]
    if connection.dialect.name == "mariadb":
        connection.exec_driver_sql(f"insert into {words['heads']} (group_key, id) values ('another', {id})")  # noqa: S608
        return
    for statement in (
        f"create function {table}__hold() returns trigger language plpgsql as "
        f"$$ begin perform pg_advisory_xact_lock(hashtext('{table}')); return new; end $$",
        f"create trigger hold before update on {table} for each row "
        f"when (new.state = 'ready' and new.id = {id}) execute function {table}__hold()",
    ):
        connection.exec_driver_sql(statement)
    connection.commit()
    connection.exec_driver_sql(f"select pg_advisory_xact_lock(hashtext('{table}'))")


@contextmanager
def promoting_late(
    queue: Queue, callers: sa.Engine, await_a_wait: Callable[[], None]
) -> Iterator[tuple[list[int], int]]:
    """Let a promotion wait with its look at a group, of which it has seen one message, until the end of the block.

    Yield the ids of two messages that were pushed before, and are committed by now, and that of the one that it saw.
    """
    with callers.connect() as late, callers.connect() as other, ThreadPoolExecutor(1) as threads:
        with callers.begin() as connection:
            first = queue.push("a", group="another", connection=connection)
        hold_promotion(queue, first, other)
        ids = queue.push_many(["x", "y"], group="g", connection=late)
        with callers.begin() as connection:
            later = queue.push("z", group="g", connection=connection)
        promotion = threads.submit(promote, context_of(queue), None)
        await_a_wait()
        late.commit()
        yield ids, later
        other.rollback()
        promotion.result()


def ready_beside_a_run(queue: Queue, callers: sa.Engine, await_a_wait: Callable[[], None]) -> int:
    """Let a promotion wait with its look at a group, in which a run begins. Return what another claim gets then.

    The run begins with messages that were pushed before, and whose commit comes later. Its first one is completed.
    """
    with promoting_late(queue, callers, await_a_wait) as (ids, later):
        promote(context_of(queue), None)
        run = queue.pop_many(2, same_group=True)
        assert ids_of(run) == ids
        run[0].complete()
    got = [claim for claim in queue.pop_many(3) if claim.group == "g"]
    assert ids_of(got) in ([], [later])
    return len(got)


def ready_beside_a_head(queue: Queue, callers: sa.Engine, await_a_wait: Callable[[], None]) -> int:
    """Let a promotion wait with its look at a group, which gets a head. Return how many of the group are ready then."""
    with promoting_late(queue, callers, await_a_wait):
        promote(context_of(queue), None)
    return len([claim for claim in queue.pop_many(3) if claim.group == "g"])


def check_rate(queue: Queue) -> None:
    """A queue with a rate of 6 a minute, and 3 at once, delivers no more, however much is asked for."""
    queue.push_many(["a"] * 20, now=at(0))
    asked = (0, 0, 9.999, 10, 10, 25, 29, 30, 1000, 1000, 1010)
    assert [len(queue.pop_many(5, now=at(seconds))) for seconds in asked] == [3, 0, 0, 1, 0, 1, 0, 1, 3, 0, 1]


def check_rate_after_the_clock_goes_back(queue: Queue) -> None:
    """A clock that is more than a minute behind forgets what was spent of a rate of 6 a minute, and 3 at once."""
    group = "a" if queue.definition.group_rate else None
    queue.push_many(["a"] * 8, group=group, now=at(0))
    assert len(queue.pop_many(2, now=at(3600))) == 2
    assert queue.pop_many(8, now=at(3600 - 59)) == []
    assert len([*queue.pop_many(8, now=at(0)), *queue.pop_many(8, now=at(0))]) == 3, (
        "a claim before its sweep gets none"
    )
    assert len(queue.pop_many(8, now=at(10))) == 1


def check_per_group(queue: Queue) -> None:
    """A fair queue with two places in each group never has more of a group in progress."""
    queue.push_many([*"aaaaa"], group="a", now=at(0))
    queue.push("b", group="b", now=at(0))
    queue.push_many([*"ccccc"], now=at(0))
    first = queue.pop_many(9, now=at(0))
    assert sorted(claim.payload for claim in first) == [*"aabcc"], "two of each group at most"
    one, two = (claim for claim in first if claim.group == "a")
    assert queue.pop(now=at(0)) is None, "no group has a place"
    one.complete(now=at(1))
    assert [claim.group for claim in queue.pop_many(9, lease=5, now=at(1))] == ["a"], "one place is free"
    queue.release(two, now=at(1))
    assert len(queue.pop_many(9, lease=5, now=at(1))) == 1
    assert not queue.pop_many(9, now=at(5.9)), "no lease has expired"
    assert len(queue.pop_many(9, now=at(6))) == 2, "an expired lease frees its place"


def check_group_rate(queue: Queue) -> None:
    """A fair queue with a rate of 6 a minute for each group, and 3 at once, delivers no more of a group."""
    queue.push_many(["a"] * 20, group="a", now=at(0))
    queue.push_many(["b"] * 4, group="b", now=at(0))
    queue.push_many(["c"] * 4, now=at(0))
    asked = (0, 0, 9.999, 10, 10, 25, 29, 30, 1000, 1000, 1010)
    popped = []
    for seconds in asked:
        claims = queue.pop_many(99, now=at(seconds))
        queue.complete_many(claims, now=at(seconds))
        popped.append("".join(sorted(claim.payload for claim in claims)))
    assert popped == ["aaabbbccc", "", "", "abc", "", "a", "", "a", "aaa", "", "a"]


def check_altered_places(queue: Queue) -> None:
    """Messages in progress count for a limit that comes or changes, and none is claimed while they are too many."""
    queue.push_many(["a"] * 60)
    held = queue.pop_many(10)
    queue.alter(concurrency=12)
    held += queue.pop_many(60)
    assert len(held) == 12, "two more have a place"
    queue.alter(concurrency=5)
    for step in (1, -1, 1, -1, 1, -1, 1):
        held.pop(min(step, 0)).complete()
        assert queue.pop_many(60) == [], "more are in progress than have a place"
    held.pop(2).complete()
    held += queue.pop_many(60)
    assert len(held) == 5, "one has a place"
    queue.alter(concurrency=8)
    held += queue.pop_many(60)
    assert len(held) == 8, "three more have a place"
    queue.alter(concurrency=None)
    assert len(queue.pop_many(20)) == 20, "there is no limit"
    queue.alter(concurrency=20)
    assert queue.pop() is None, "28 are in progress"
    queue.complete_many(held)
    assert queue.pop() is None, "20 are in progress"


def check_late_claims_count(queue: Queue, late: Queue) -> None:
    """A message counts that a consumer claims which does not know of the limit yet; and then no longer."""
    queue.push_many(["a"] * 20, now=at(0))
    assert late.pop(now=at(0))
    queue.alter(concurrency=5)
    claims = late.pop_many(3, now=at(1))
    assert len(queue.pop_many(20, now=at(1))) == 1, "four are in progress"
    late.complete_many(claims, now=at(1))
    assert len(queue.pop_many(20, now=at(1))) == 3, "two are in progress"
    assert not queue.pop_many(20, now=at(1))


def check_altered_rate(queue: Queue) -> None:
    """What was spent of a rate stays spent."""
    queue.push_many(["a"] * 20)
    assert len(queue.pop_many(20)) == 3
    queue.alter(rate=Rate(2, per=3600, burst=5))
    assert len(queue.pop_many(20)) == 2, "of five, three are spent"
    queue.alter(rate=None)
    assert len(queue.pop_many(5)) == 5, "there is no limit"
    queue.alter(rate=Rate(1, per=7200, burst=2))
    assert queue.pop() is None, "the burst is spent"
    queue.alter(rate=Rate(1000, burst=10))
    assert len(queue.pop_many(20)) in range(8, 11), "of ten, two are spent at most"


def check_fence_after_reclaim(slow: Queue, fast: Queue) -> None:
    """A consumer whose lease has expired cannot change the message that another consumer has now."""
    slow.push("x", now=at(0))
    old = claimed(slow, lease=10, now=at(0))
    new = claimed(fast, lease=10, now=at(10))
    assert new.id == old.id
    check_fenced(slow, old)
    new.complete(now=at(15))
    check_fenced(slow, old)


def check_nothing_is_claimed_after_a_lost_lease(queue: Queue) -> None:
    """A completion under a lost lease is refused, and the rest of the same call is not done."""
    queue.push("a")
    lost = claimed(at_once(queue))
    queue.fail(lost, retry=False)
    queue.push("b")
    before = snapshot(queue)
    try:
        queue.pop(completing=lost)
    except LeaseLost:
        pass
    else:
        raise AssertionError("a lost claim was completed")
    assert snapshot(queue) == before, "nothing is claimed, and nothing finished"


def check_poison_is_counted_at_claim(queue: Queue) -> None:
    """A message that kills every consumer is a dead letter after max_attempts claims."""
    id = queue.push("x", now=at(0))
    attempts = queue.definition.max_attempts
    for attempt in range(attempts):
        assert claimed(queue, lease=10, now=at(10 * attempt)).attempt == attempt + 1
    assert queue.pop(now=at(10 * attempts)) is None, "its attempts are spent"
    (letter,) = queue.dead()
    assert (letter.id, letter.attempts) == (id, attempts)
    assert [error.error for error in letter.errors] == ["lease expired"] * attempts
    assert [error.attempt for error in letter.errors] == list(range(1, attempts + 1))


def check_a_failed_head_holds_the_others(queue: Queue) -> None:
    """In a strict queue no message overtakes one that waits for its retry, not even one that is pushed in the
    meantime."""
    head = queue.push("a", now=at(0))
    claimed(queue, now=at(0)).fail("no", retry_in=10, now=at(0))
    other = queue.push("b", now=at(1))
    assert queue.pop(now=at(9)) is None, "nothing overtakes"
    claim = claimed(queue, now=at(10))
    assert claim.id == head
    claim.complete(now=at(10))
    assert claimed(queue, now=at(10)).id == other


def check_one_in_progress_per_group(queue: Queue) -> None:
    """While a message of a group is in progress, other messages of that group are not delivered, but those of other
    groups are."""
    first, second, other = (queue.push("x", group=group) for group in "aab")
    claim = claimed(queue)
    assert claim.id == first
    assert ids_of(queue.pop_many(10)) == [other], "one in progress per group"
    claim.complete()
    assert ids_of(queue.pop_many(10)) == [second]


def check_runs(queue: Queue) -> None:
    """A run has up to n messages of one group in order. The group is closed until all of them are finished, and those
    that are to be tried again come before those behind them."""
    first, other, second, third, last = (queue.push("x", group=group, now=at(0)) for group in "abaaa")
    late = queue.push("x", group="a", delay=1000, now=at(0))
    run = queue.pop_many(3, same_group=True, lease=50, now=at(10))
    assert ids_of(run) == [first, second, third], "n of one group, in order"
    assert ids_of(queue.pop_many(10, same_group=True, now=at(10))) == [other]
    assert run[1].fail("no", retry_in=0, now=at(11)) == "blocked"
    assert queue.pop_many(10, now=at(11)) == [], "closed after a failure"
    run[0].release(now=at(12))
    assert queue.pop_many(10, now=at(12)) == [], "closed after a release"
    run[2].complete(now=at(13))
    run = queue.pop_many(10, same_group=True, lease=50, now=at(14))
    assert ids_of(run) == [first, second, last], f"in order, and without what is due later ({late})"
    queue.extend_many(run[1:], 100, now=at(14))
    assert queue.pop_many(10, now=at(64)) == [], "closed after a lease is over"
    queue.complete_many(run[1:], now=at(64))
    assert ids_of(queue.pop_many(10, same_group=True, now=at(65))) == [first]


def check_open_runs(queue: Queue) -> None:
    """An open run closes only what is behind its messages: the first of those that wait is claimed, beside later ones
    in progress, and none behind one in progress."""
    ids = [queue.push("x", group="a", now=at(0)) for _ in "abcd"]

    def claims(time: float, n: int = 10) -> list[Claim]:
        return queue.pop_many(n, same_group="open", lease=50, now=at(time))

    run = claims(0, 3)
    assert ids_of(run) == ids[:3]
    run[1].release(now=at(1))
    assert claims(1) == [], "behind one in progress"
    run[0].release(now=at(2))
    both = claims(2)
    assert ids_of(both) == ids[:2], "beside a later one, and up to that"
    run[2].release(now=at(3))
    assert claims(3) == [], "behind both"
    queue.complete_many(both, now=at(4))
    assert ids_of(claims(4)) == ids[2:]


def check_open_runs_take_turns(queue: Queue) -> None:
    """A group that was claimed from comes after another one with something ready."""
    for group in "aabb":
        queue.push(group, group=group)
    turns = []
    for _ in range(4):
        (claim,) = queue.pop_many(1, same_group="open")
        claim.complete()
        turns.append(claim.group)
    assert turns == ["a", "b", "a", "b"]


def check_no_run_has_what_is_over(queue: Queue) -> None:
    """Messages whose time is over are passed over, even before a sweep has moved them to the history."""
    before = datetime(2020, 1, 1, tzinfo=UTC)
    first = queue.push("x", group="a", now=before)
    queue.push("x", group="a", expires=5, now=before)
    third = queue.push("x", group="a", now=before)
    context_of(queue).table.next_sweep = math.inf
    assert ids_of(queue.pop_many(2, same_group=True)) == [first, third]


def check_a_group_that_was_alone(queue: Queue) -> None:
    """A group that was alone in many claims shares its turns at once when another one has a message."""
    queue.push_many([NewMessage("a", group="a") for _ in range(12)])
    first = [claimed(at_once(queue)) for _ in range(5)]
    first[1].release()
    queue.push("b", group="b")
    assert "b" in [claimed(queue).payload for _ in range(2)]
    rest = [claim for _ in range(8) if (claim := queue.pop()) is not None]
    assert [claim.payload for claim in rest] == ["a"] * 7, "each one comes, also the one that was given back"


def check_fair_share(queue: Queue) -> None:
    """In a fair queue, the messages of small tenants come in the first rounds, however many a large one has."""
    queue.push_many(["x"] * 300, group="large")
    small = [f"small {number}" for number in range(10)]
    for group in small:
        queue.push_many(["x"] * 3, group=group)
    one_by_one = [claimed(queue).group for _ in range(11)]
    assert sorted(filter(None, one_by_one)) == ["large", *small], "one of each in the first round"
    at_once = [claim.group for claim in queue.pop_many(22)]
    for turn in (at_once[:11], at_once[11:]):
        assert sorted(filter(None, turn)) == ["large", *small], "one of each in each round"
    assert [claim.group for claim in queue.pop_many(267)] == ["large"] * 267, "what is left of a share goes to others"


def check_pop_group(queue: Queue) -> None:
    """A claim of one group of a fair queue gets no message of another one, and its own in order."""
    ids = queue.push_many([NewMessage(group, group=group) for group in "abcaab"])
    claims = queue.pop_group("a", 2)
    assert ids_of(claims) == [ids[0], ids[3]]
    assert {(claim.attempt, claim.payload) for claim in claims} == {(1, "a")}
    assert ids_of(queue.pop_group("b", 5)) == [ids[1], ids[5]]
    assert queue.pop_group("d", 5) == []
    assert ids_of(queue.pop_group("a", 5)) == [ids[4]]
    claims[1].release()
    claims[0].complete()
    assert ids_of(queue.pop_group("a", 5)) == [ids[3]]


def check_a_taken_message_is_gone(queue: Queue, connection: sa.Connection, **options: Any) -> None:
    """The commit finishes the message, and it is never redelivered."""
    id = queue.push("x", **options)
    message = queue.take(connection)
    assert message is not None
    assert message.id == id
    connection.commit()
    assert queue.pop() is None, "it is gone"
    assert ids_of(queue.history()) == [id]


def check_keys(queue: Queue, **options: Any) -> None:
    """A key belongs to one message, whichever call pushes another one with it."""
    id = queue.push("x", key="k", **options)
    assert queue.push("x", key="k", on_conflict="skip", **options) is None, "the key is taken"
    assert queue.push("x", key="k", on_conflict="return", **options) == id, "the key is taken"
    batch = [NewMessage("x", key=key) for key in ("k", "new", "k", "new")]
    ids = queue.push_many(batch, on_conflict="skip", **options)
    assert [place for place, id in enumerate(ids) if id is not None] == [1], "the keys are taken"


def check_retention(queue: Queue, other: Queue, **options: Any) -> None:
    """In a queue with a history of 60 seconds, the claims of any process delete older rows, and no others."""
    ids = []
    for time in (0, 39, 40, 41):
        ids.append(queue.push("x", **options, now=at(time)))
        claimed(queue, now=at(time)).complete(now=at(time))
    assert ids_of(queue.history()) == ids[::-1]
    # A process shortens the history at its first claim, and then once a minute.
    assert other.pop(now=at(100)) is None
    assert ids_of(queue.history()) == [ids[3]], "what is older is gone"


def check_expiry(queue: Queue) -> None:
    """In a queue with `expires=60`, a message that waits so long is never handed out, and ends in the history."""
    group = design_group(queue, "a")
    queue.push("a", **group, now=at(0))
    context = context_of(queue)
    assert not context.run(context.messages.claim, leased(context, 9, 60, at(60))[1]), "no sweep yet"
    queue.purge()
    old = [*queue.push_many([*"ab"], **group, now=at(0)), queue.push("c", **group, delay=50, now=at(0))]
    young = queue.push("d", **group, now=at(1))
    assert claimed(queue, now=at(60)).id == young, "it passes over the others"
    assert queue.pop(now=at(60)) is None
    gone = {message.id: message.state for message in queue.history() if message.id != young}
    assert gone == dict.fromkeys(old, "expired")


def check_unique_for(queue: Queue, **options: Any) -> None:
    """In a queue with `unique_for=300`, a key stays taken for so long after its push, finished or not."""
    id = queue.push("a", key="k", **options, now=at(0))
    claimed(queue, now=at(1)).complete(now=at(1))
    for seconds in (1, 299):
        assert queue.push("b", key="k", on_conflict="return", **options, now=at(seconds)) == id
    later = queue.push("b", key="k", on_conflict="skip", **options, now=at(300))
    assert later is not None, "the time is over"
    assert later > id
    for seconds, renewed in ((599, False), (600, True)):
        again = queue.push("c", key="k", on_conflict="renew", **options, now=at(seconds))
        assert (again != later) is renewed, "a message that waits keeps its key for that time, and no longer"
        assert found(queue, later).key == (None if renewed else "k")


def check_results(queue: Queue, **options: Any) -> None:
    """In a queue with results, that of a message is what its consumer gave, as long as it is in the history."""
    ids = [queue.push(payload, **options, now=at(0)) for payload in "ab"]
    for _ in ids:
        message = claimed(queue, now=at(0))
        message.complete(result={"of": message.id}, now=at(message.id))
    assert [queue.result(id) for id in ids] == [{"of": id} for id in ids]
    queue.purge_history(0, now=at(ids[0]))
    with pytest.raises(NoResult):
        queue.result(ids[0])
    assert context_of(queue).run(context_of(queue).reads.result, {"id": ids[0]}) is None, "it left with its message"


def check_at_most_once(queue: Queue) -> None:
    """A message that its consumer did not finish is never redelivered, and `lost` lists it."""
    id = queue.push("x", now=at(0))
    assert claimed(queue, now=at(0)).id == id
    assert queue.pop(now=at(1_000_000)) is None, "never twice"
    assert ids_of(queue.lost(now=at(1_000_000))) == [id]


def check_lost(queue: Queue) -> None:
    """`stats` counts messages that were not completed within the lease after their pop, by producer and consumer."""
    queue.push_many([*"abc"], now=at(0))
    done, _, _ = queue.pop_many(3, now=at(0))
    done.complete(now=at(1))
    lease = queue.definition.lease
    assert queue.stats(now=at(lease - 1)).lost == 0, "these may yet be done"
    stats = queue.stats(window=60, now=at(lease))
    lost = ids_of(queue.lost(now=at(lease)))
    assert stats.lost == 2 == len(lost)
    assert ids_of(queue.lost(now=at(lease), after=lost[0])) == lost[1:], "the next page"
    assert stats.window is not None
    assert [each.lost for each in (*stats.window.producers, *stats.window.consumers)] == [2, 2]


def check_window(queue: Queue) -> None:
    """The window counts exactly the messages pushed and finished in it, by producer and consumer, with rates and
    times."""

    def done(by: str, popped: float, *finished: float) -> None:
        context_of(queue).who = by
        for claim, time in zip(queue.pop_many(len(finished), now=at(popped)), finished, strict=True):
            claim.complete(now=at(time))

    context_of(queue).who = "ada"
    queue.push_many([*"abc"], now=at(0))
    done("cat", 10, 12, 14)
    context_of(queue).who = "dog"
    claimed(queue, now=at(20)).fail("no", retry_in=0, now=at(21))
    done("dog", 30, 33)
    context_of(queue).who = "bob"
    queue.push("d", now=at(100))
    done("dog", 100, 101)
    queue.push("never", now=at(102))
    for time in (103, 105):
        claimed(queue, now=at(time)).fail("no", retry_in=0, now=at(time))

    window = queue.stats(window=100, now=at(110)).window
    assert window is not None
    assert (window.seconds, window.exact) == (100, True)
    whole = window.queue
    assert (whole.who, whole.pushed, whole.push_rate) == (None, 2, 0.02), "of the last 100 seconds"
    assert (whole.finished, whole.completion_rate, whole.redeliveries) == (4, 0.04, 1)
    assert whole.wait_time is not None
    assert whole.run_time is not None
    assert asdict(whole.wait_time) == pytest.approx({"p50": 10, "p95": 18.5, "p99": 19.7})
    assert asdict(whole.run_time) == pytest.approx({"p50": 2.5, "p95": 3.85, "p99": 3.97})
    assert whole.pushed_slices is not None
    assert [place for place, number in enumerate(whole.pushed_slices) if number] == [53, 55]
    assert [place for place, number in enumerate(whole.finished_slices) if number] == [1, 2, 13, 54]
    assert whole.failed == 3, "one of a message that was finished since, two of a message in the queue"
    assert whole.failed_slices is not None
    assert [place for place, number in enumerate(whole.failed_slices) if number] == [6, 55, 56]
    by_producer = [(each.who, each.pushed, each.finished, each.redeliveries) for each in window.producers]
    assert by_producer == [("ada", 0, 3, 1), ("bob", 1, 1, 0), ("dog", 1, 0, 0)]
    by_consumer = [(each.who, each.pushed, each.finished, each.redeliveries, each.failed) for each in window.consumers]
    assert by_consumer == [("cat", None, 2, 0, 0), ("dog", None, 2, 1, 3)]

    window = queue.stats(window=9, now=at(110)).window
    assert window is not None
    assert (window.queue.pushed, window.queue.finished, window.queue.run_time) == (1, 0, None)
    assert window.queue.failed == 2


# The operations that search for messages, each in one state.
PLANS = (("claim", "ready"), ("take", "ready"), ("peek", "dead"), ("sweep", "scheduled"), ("sweep", "in_progress"))


def check_plans(database: Database, kind: Kind, queue: Queue, plans: Iterable[tuple[str, str]] = PLANS) -> None:
    """The index of the order serves the claim without a sort. The indexes of the states serve the other operations."""
    explain = _explain(kind)
    for delay in (None, 3600):
        batch = [NewMessage(number, **design_group(queue, f"group {number % 100}")) for number in range(5000)]
        queue.push_many(batch, delay=delay)
    table = context_of(queue).table
    with database.engine.begin() as connection:
        connection.exec_driver_sql(kind.analyze + table.engine.words(table)["queue"])
    for operation, state in plans:
        # On MariaDB a look whether claims are paused comes first.
        statements = [one for one in table.statements(operation, state) if "into @tq_paused" not in one]
        for statement in statements[: kind.looks]:
            plan = _plan(database, explain + statement, 1)
            assert kind.index_of(queue, state) in plan, f"the index of the state: {statement}"
            assert operation == "sweep" or not re.search(kind.sorts, plan), f"the index has the order: {statement}"


def check_plan_of_a_new_queue(database: Database, kind: Kind, queue: Queue) -> None:
    """A large claim does not sort, even before the database has statistics of the pushed messages."""
    explain = _explain(kind)
    queue.push_many(range(20_000))
    statements = [one for one in context_of(queue).table.statements("claim") if "into @tq_paused" not in one]
    (statement,) = statements[: kind.looks]
    plan = _plan(database, explain + statement, 1000)
    assert kind.index_of(queue, "ready") in plan
    assert not re.search(kind.sorts, plan)


def check_plan_of_times(database: Database, kind: Kind, queue: Queue) -> None:
    """The index of the times tells which ids finished in an interval, wherever these are in the history."""
    explain = _explain(kind)
    for tenth in range(10):
        queue.push_many(range(300), now=at(tenth))
        queue.complete_many(queue.pop_many(300, now=at(tenth)), now=at(tenth))
    context = context_of(queue)
    table = context.table
    (statement,) = table.statements("finished_bounds")
    times = {"since": context.time(at(5), "since"), "until": context.time(at(6), "until")}
    with database.engine.begin() as connection:
        connection.exec_driver_sql(kind.analyze + table.engine.words(table)["history"])
        plan = str(list(connection.exec_driver_sql(explain + statement, times))).lower()
    assert "__finished" in plan, plan


def _explain(kind: Kind) -> str:
    if kind.explain is None:
        pytest.skip("A plan is not asked for by a word before the statement.")
    return kind.explain


def _plan(database: Database, statement: str, n: int) -> str:
    """In lower case."""
    params = {"n": n, "after": 0, **WHOLE, "lease": 60, "max_attempts": 5, "token": "0" * 32}
    params |= {"consumer": None, "now": None}
    params |= {"starts": [0, -(1 << 63)], "above": [(1 << 63) - 1, -(1 << 63)], "ends": [(1 << 63) - 1, 0]}
    with database.engine.begin() as connection:
        if "@tq_paused" in statement:  # MariaDB plans for the value that it has
            connection.exec_driver_sql("set @tq_paused = 0")
        return str(list(connection.exec_driver_sql(statement, params))).lower()


def check_redrive(queue: Queue) -> None:
    """A redriven dead letter has all its attempts again, and keeps the errors of the earlier ones."""
    id = queue.push("x", now=at(0))
    attempts = queue.definition.max_attempts
    for _ in range(attempts):
        claimed(queue, now=at(0)).fail("no", retry_in=0, now=at(0))
    assert queue.redrive(ALL, now=at(0)) == 1
    claim = claimed(queue, now=at(0))
    assert (claim.id, claim.attempt) == (id, 1), "all attempts are before it"
    (message,) = queue.peek(state="in_progress")
    assert [error.attempt for error in message.errors] == list(range(1, attempts + 1))


def check_cancel(queue: Queue) -> None:
    """What waits is gone; what is in progress is told to stop, and is not retried however its consumer ends it."""
    waits = queue.push("waits", now=at(0))
    assert queue.cancel(waits, now=at(0)).cancelled == (waits,)
    assert queue.pop(now=at(0)) is None, "a cancelled message was handed out"
    ends: list[Callable[[Claim], object]] = [
        lambda claim: claim.fail("why", retry_in=0, now=at(1)),
        lambda claim: claim.release(now=at(1)),
        lambda claim: queue.pop(now=at(100)),
    ]
    for end in ends:
        id = queue.push("told", now=at(0))
        message = claimed(queue, lease=10, now=at(0))
        assert queue.cancel(id, now=at(0)).in_progress == (id,)
        assert message.cancelled, "its consumer was not told"
        end(message)
        assert queue.pop(now=at(1000)) is None, "a cancelled message was retried"
    assert [message.state for message in queue.history()] == ["cancelled"] * 4


def check_reschedule(queue: Queue) -> None:
    id = queue.push("a", delay=600, now=at(0))
    queue.reschedule(id, delay=50, now=at(0))
    assert queue.pop(now=at(49)) is None
    message = queue.pop(now=at(51))
    assert message is not None, "a rescheduled message is not ready at its new time"
    assert message.id == id


def check_move(queue: Queue) -> None:
    """A message that is moved is in one queue, once, with its attempts and errors; a moved dead letter stays one."""
    runner = context_of(queue).runner
    other = Queue(Context.at(runner, catalogue.create(runner, "other", queue.definition), "test"))
    dead = queue.push("dead", now=at(0))
    for _ in range(queue.definition.max_attempts):
        claimed(queue, now=at(0)).fail("no", retry_in=0, now=at(0))
    tried, fresh = queue.push("tried", key="k", headers={"a": 1}, now=at(1)), queue.push("fresh", now=at(2))
    claimed(queue, now=at(2)).fail("no", retry_in=0, now=at(2))
    before = {id: found(queue, id) for id in (dead, tried, fresh)}
    moved = queue.move([dead, tried, fresh], to=other, now=at(3))
    assert [queue.find(id) for id in before] == [None, None, None], "it is in one queue"
    for id, message in before.items():
        after = found(other, moved[id])
        assert replace(after, id=id) == message, "it keeps what it has"
    assert [claim.payload for claim in other.pop_many(9, now=at(3))] == ["tried", "fresh"]


def check_complete_many(queue: Queue) -> None:
    """The whole batch is completed, or `LeaseLost` names the messages that are not."""
    ids = queue.push_many([*"abcd"])
    queue.complete_many(queue.pop_many(4))
    assert sorted(ids_of(queue.history())) == ids, "never half a batch"


@dataclass
class Expected:
    """A message in the reference comparator. It is ready when no consumer has it and `due` is past."""

    id: int
    priority: int
    group: str | None
    due: float
    attempts: int = 0
    claim: Any = None
    until: float = 0

    def is_ready(self, time: float) -> bool:
        return self.claim is None and self.due <= time


def heads(live: Iterable[Expected], time: float) -> list[Expected]:
    """Return the first message of each group if it is ready. If it is not, it holds up the others."""
    first: dict[str | None, Expected] = {}
    for message in sorted(live, key=by_id):
        first.setdefault(message.group, message)
    return ready(first.values(), time)


def ready(live: Iterable[Expected], time: float) -> list[Expected]:
    return [message for message in live if message.is_ready(time)]


def by_id(message: Expected) -> int:
    return message.id


# The promise of each design: the live messages that may be delivered, and their order; None for any order.
Rule = tuple[Callable[[Iterable[Expected], float], list[Expected]], Callable[[Expected], Any] | None]
RULES: dict[str, Rule] = {
    "fifo": (ready, by_id),
    "heap": (ready, None),
    "lifo": (ready, lambda message: -message.id),
    "due": (ready, lambda message: (message.due, message.id)),
    "priority": (ready, lambda message: (-message.priority, message.id)),
    "strict": (heads, by_id),
    "groups": (heads, by_id),
    "fair": (ready, None),
}


class Turns:
    """The promise of a fair queue: messages of a group come in the order of their ids, and no group is served twice
    while another one has a message ready."""

    def __init__(self) -> None:
        self.since: dict[str | None, set[str | None]] = {}
        """For each group that has had a message ready since it was served: the groups that were served since then."""

    def check(self, popped: Iterable[Expected], waiting: Iterable[Expected]) -> None:
        rest: dict[str | None, list[Expected]] = {}
        for message in sorted(waiting, key=by_id):
            rest.setdefault(message.group, []).append(message)
        for message in popped:
            assert message is rest[message.group].pop(0), "in order within the group"
            self.since = {group: self.since.get(group, set()) for group in rest if rest[group]}
            for group, served in self.since.items():
                if group != message.group:
                    assert message.group not in served, f"{message.group!r} is served twice while {group!r} waits"
                    served.add(message.group)
            self.since.pop(message.group, None)


class Life:
    """A random life of a queue. Each step is compared with the simplest model of its order."""

    def __init__(self, queue: Queue, seed: int) -> None:
        definition = queue.definition
        self.queue = queue
        self.chance = random.Random(seed)
        self.time = 0
        self.live: dict[int, Expected] = {}
        self.dead: set[int] = set()
        design = "strict" if definition.strict else "groups" if definition.grouped else definition.arrangement
        self.turns = Turns() if definition.fair else None
        self.eligible, self.rank = RULES[design]

    def push(self) -> None:
        priority = self.chance.randint(-1, 1) if self.queue.definition.order == "priority" else None
        group = self.chance.choice("abc") if self.queue.definition.takes_groups else None
        options: dict[str, Any] = {"delay": self.chance.choice([None, 0, 3, 7]), "priority": priority, "group": group}
        number = self.chance.randint(1, 4)
        one_by_one = self.chance.choice([True, False])
        # With options of the call and with options of each message, because different statements push them.
        batch = [NewMessage("x", **options)] * number if one_by_one else ["x"] * number
        ids = self.queue.push_many(batch, **({} if one_by_one else options), now=at(self.time))
        due = self.time + (options["delay"] or 0)
        self.live.update({id: Expected(id, priority or 0, group, due) for id in ids})

    def pop(self, n: int, lease: int = 12) -> list[Expected]:
        self._expire()
        may_go = self.eligible(self.live.values(), self.time)
        claims = self.queue.pop_many(n, lease=lease, now=at(self.time))
        popped = ids_of(claims)
        if self.rank is None:
            assert len(set(popped)) == len(popped) == min(n, len(may_go)), "as many as were asked for"
            assert set(popped) <= {message.id for message in may_go}, "only those that are ready"
            if self.turns is not None:
                self.turns.check([self.live[id] for id in popped], may_go)
        else:
            assert popped == [message.id for message in sorted(may_go, key=self.rank)[:n]], "in order"
        for claim in claims:
            message = self.live[claim.id]
            message.claim, message.until = claim, self.time + lease
            message.attempts += 1
            told = (claim.attempt, claim.priority, claim.group)
            assert told == (message.attempts, message.priority, message.group)
        return [self.live[id] for id in popped]

    def finish(self, verb: str) -> None:
        held = [message for message in self.live.values() if message.claim is not None]
        if held:
            message = self.chance.choice(sorted(held, key=by_id))
            getattr(self, f"_{verb}")(message)

    def drain(self) -> None:
        """Check that the remaining messages come in order too, until only dead letters are left."""
        while self.live:
            self.time += 20
            for message in self.pop(5):
                self._complete(message)
        assert set(ids_of(self.queue.dead(1000))) == self.dead

    def _complete(self, message: Expected) -> None:
        self.queue.complete(message.claim, now=at(self.time))
        del self.live[message.id]

    def _extend(self, message: Expected) -> None:
        self.queue.extend(message.claim, 30, now=at(self.time))
        message.until = self.time + 30

    def _release(self, message: Expected) -> None:
        delay = self.chance.choice([0, 0, 4])
        self.queue.release(message.claim, delay=delay, now=at(self.time))
        message.claim = None
        message.attempts -= 1
        if delay:
            message.due = self.time + delay

    def _fail(self, message: Expected) -> None:
        wait = self.chance.choice([0, 9])
        state = self.queue.fail(message.claim, "no", retry_in=wait, now=at(self.time))
        message.claim = None
        if message.attempts >= self.queue.definition.max_attempts:
            self._bury(message)
            assert state == "dead"
        else:
            message.due = self.time + wait
            assert state == ("scheduled" if wait else "ready")

    def _expire(self) -> None:
        for message in list(self.live.values()):
            if message.claim is not None and message.until <= self.time:
                message.claim = None
                if message.attempts >= self.queue.definition.max_attempts:
                    self._bury(message)

    def _bury(self, message: Expected) -> None:
        del self.live[message.id]
        self.dead.add(message.id)


def check_order(queue: Queue, seed: int, steps: int = 80) -> None:
    """Messages are delivered in the order of the definition, whatever happens to them in between."""
    life = Life(queue, seed)
    for _ in range(steps):
        life.time += life.chance.choice([0, 0, 1, 5])
        step = life.chance.choice(["push", "pop", "pop", "complete", "fail", "fail", "release", "extend"])
        if step == "push":
            life.push()
        elif step == "pop":
            life.pop(life.chance.choice([1, 1, 2, 5]))
        else:
            life.finish(step)
    life.drain()


def check_dead_letters_move(db: Database) -> None:
    """A dead letter is in the other queue as soon as it is one, whatever made it so, and nowhere else."""
    failed = db.create_queue("failed")
    work = db.create_queue("work", dead_letter_to="failed", max_attempts=1)
    work.push_many(["failed", "refused", "expired", "completed"], now=at(0))
    batch = work.pop_many(4, lease=5, now=at(0))
    assert work.fail(batch[0], "no", now=at(1)) == "dead"
    assert work.fail_many(batch[1:2], "no", retry=False, now=at(1)) == ["dead"]
    work.complete(batch[3], now=at(1))
    assert [message.payload for message in failed.peek()] == ["failed", "refused"]
    assert work.pop(now=at(6)) is None
    there = failed.peek()
    assert [message.payload for message in there] == ["failed", "refused", "expired"]
    assert [[error.error for error in message.errors] for message in there] == [["no"], ["no"], ["lease expired"]]
    origins = [message.headers["tablequeue-origin"] for message in there]
    assert [(origin["queue"], origin["id"]) for origin in origins] == [("work", claim.id) for claim in batch[:3]]
    assert work.dead() == []
    assert work.redrive(ALL, now=at(7)) == 3
    assert failed.peek() == []
    assert sorted(claim.payload for claim in work.pop_many(9, now=at(7))) == ["expired", "failed", "refused"]


class Crash(Exception):
    pass


def check_move_between(database: Database, groups: bool) -> None:
    """Each message ends in the other database once, with all that it has, although a move dies before its last step."""
    runner = database._runner
    engine = type(runner.engine)(database.engine.dialect, runner.engine.schema)
    other = Database(database.engine, Runner(database.engine, engine), None)
    options: Any = {"groups": groups, "max_attempts": 2, "expires": 100}
    source, target = database.create_queue("source", **options), other.create_queue("target", **options)
    a, b = ("a", "b") if groups else (None, None)
    source.push(1, group=a, key="k", headers={"a": 1}, now=at(0))
    claimed(source, now=at(0)).fail("no", retry_in=0, now=at(0))
    source.push_many([NewMessage(2, group=b), NewMessage(3, group=b), NewMessage(4, group=a)], now=at(0))
    first, second = source.pop_many(2, now=at(1))
    first.release(now=at(1))
    before = {message.payload: message for message in snapshot(source)}
    run = context_of(source).runner.run

    def dying(operation: Any, *args: Any, **kwargs: Any) -> Any:
        # Not where it deletes the row of the first look.
        if operation.__name__ == "forget_aside" and any(id > 0 for id in runner.engine.load_ids(args[1]["ids"])):
            raise Crash
        return run(operation, *args, **kwargs)

    def move() -> dict[int, int]:
        try:
            return source.move(ALL, to=target, now=at(1))
        except (TablequeueError, KeyError) as error:
            raise AssertionError(f"a move can go on: {error!r}") from error

    context_of(source).runner.run = dying  # type: ignore[method-assign]
    with pytest.raises(Crash):
        move()
    context_of(source).runner.run = run  # type: ignore[method-assign]
    moved = move()
    there = sorted(snapshot(target), key=lambda message: message.id)
    assert [message.payload for message in there] == ([1, 4] if groups else [1, 3, 4]), "once, and in their order"
    for message in there:
        was = before[message.payload]
        assert replace(message, id=was.id, state=was.state) == was, "it keeps what it has"
    assert moved == {before[message.payload].id: message.id for message in there}
    stay = sorted(message.payload for message in snapshot(source))
    assert stay == ([2, 3] if groups else [2]), "what is in progress stays, and what is behind it"
    assert not context_of(source).run(context_of(source).engine.moving.aside, {"after": 0, "n": 9}), (
        "nothing is on its way"
    )
    second.complete(now=at(2))
    source.move(ALL, to=target, now=at(2))
    assert target.pop(now=at(101)) is None, "they expire there"
    other.close()


def check_errors(queue: Queue) -> None:
    """A message keeps its first errors and its last ones, with their numbers, however often it fails."""
    id = queue.push("x", **design_group(queue, "g"), now=at(0))
    for number in range(1, 31):
        claim = claimed(queue, lease=5, now=at(10 * number))
        if number % 2:  # each second lease expires: the next pop finds that out
            claim.fail(f"error {number}", retry_in=0, now=at(10 * number + 1))
        there = number - 1 + number % 2
        numbers = [*range(1, there + 1)] if there <= 10 else [1, 2, 3, *range(there - 6, there + 1)]
        errors = found(queue, id).errors
        assert [error.number for error in errors] == numbers
        assert [error.attempt for error in errors] == numbers
        assert [error.error for error in errors] == [f"error {n}" if n % 2 else "lease expired" for n in numbers]
        assert [error.at for error in errors] == [at(10 * n + (1 if n % 2 else 10)) for n in numbers]


def check_counters(database: Database) -> None:
    """The counters of this process agree with what the queue has in the end: each message is counted once."""
    before = counters.read()
    queue = database.create_queue("counted", max_attempts=2, backoff=Backoff(base=0))
    queue.push_many(range(8))
    queue.push(8)
    queue.push_many([NewMessage(9, priority=None)])
    first, *rest = queue.pop_many(6)
    (next_one,) = queue.pop_many(1, completing=[first])
    queue.complete_many(rest[:2])
    rest[2].fail("no")
    rest[3].fail("no", retry=False)
    queue.release_many([rest[4], next_one])
    rose = {key: number - before.get(key, 0) for key, number in counters.read().items()}
    own = {(name, outcome): number for (name, of, outcome), number in rose.items() if of == "counted" and number}
    assert own == {
        ("pushed_messages", ""): 10,
        ("popped_messages", ""): 7,
        ("completed_messages", ""): 3,
        ("failed_messages", "ready"): 1,
        ("failed_messages", "dead"): 1,
        ("released_messages", ""): 2,
    }
    stats = queue.stats()
    assert (stats.finished, stats.dead, stats.ready) == (3, 1, 6), "as the queue has it"


def check_a_handle_is_of_one_queue(database: Database) -> None:
    """Whoever has a dropped queue open is told so by every verb, and acts on no queue that gets its name later."""
    old, other = database.create_queue("work", payload="text", max_attempts=9), database.create_queue("other")
    old.push_many([*"abc"])
    held = claimed(old)
    database.queue("work").drop()
    new = database.create_queue("work", payload="bytes", delivery="at_most_once")
    id = new.push(b"new")
    check_refuses_all(old, held, other)
    assert (ids_of(new.peek()), new.stats().paused_until) == ([id], None), "nothing of the new one was changed"
    database.rename("work", "renamed")
    database.queue("renamed").drop()
    last = database.create_queue("work")
    id = last.push("last")
    for each in (old, new):
        check_refuses_all(each, held, other)
    old.drop()  # once more: nothing is left of it
    assert (ids_of(last.peek()), database.queues()) == ([id], ["other", "work"])


def check_refuses_all(queue: Queue, held: Claim, other: Queue) -> None:
    """Each verb of a queue that was dropped says so: before it looks at the definition again, and after."""
    payload = {"text": "x", "bytes": b"x", "json": 1}[queue.definition.payload]
    calls: dict[str, Callable[[], Any]] = {
        "stats": queue.stats,
        "peek": queue.peek,
        "find": lambda: queue.find(1),
        "dead": queue.dead,
        "history": queue.history,
        "push": lambda: queue.push(payload),
        "push_many": lambda: queue.push_many([payload] * 300),
        "pop": queue.pop,
        "pop_many": lambda: queue.pop_many(300),
        "complete": held.complete,
        "fail": lambda: held.fail("why"),
        "release": held.release,
        "extend": lambda: held.extend(5),
        "cancel": lambda: queue.cancel([1]),
        "is_cancelled": lambda: queue.is_cancelled(held),
        "reschedule": lambda: queue.reschedule(1, delay=5),
        "move": lambda: queue.move(ALL, to=other),
        "move to it": lambda: other.move(ALL, to=queue),
        "redrive": lambda: queue.redrive(ALL),
        "purge": queue.purge,
        "purge_dead": lambda: queue.purge_dead(ALL),
        "purge_history": lambda: queue.purge_history(0),
        "pause": queue.pause,
        "resume": queue.resume,
        "alter": lambda: queue.alter(labels={"a": "b"}),
    }
    if queue.definition.payload == other.definition.payload:
        other.push(1)
    else:
        del calls["move"], calls["move to it"]  # refused for the payload
    _each_finds_no_queue(queue, calls)
    with database_of(queue).connect() as connection:
        try:
            queue.take(connection)
        except QueueNotFound:
            return
        raise AssertionError("take of a dropped queue")


def _each_finds_no_queue(dropped: Consumer, calls: Mapping[str, Callable[[], Any]]) -> None:
    """Each call of a dropped queue raises `QueueNotFound`, whether it looks into the catalogue or not."""
    for looks in (False, True):
        for name, call in calls.items():
            context = context_of(dropped)
            context.looked = context.next_look = monotonic() + (-3600 if looks else 3600)
            try:
                call()
            except QueueNotFound:
                continue
            except Exception as error:
                raise AssertionError(f"{name} of a dropped queue says something else: {error!r}") from error
            raise AssertionError(f"{name} of a dropped queue")


def database_of(queue: Queue) -> sa.Engine:
    return context_of(queue).runner.sa_engine


def check_a_handle_is_of_one_subscription(database: Database) -> None:
    """A dropped subscription, or one of a topic that was made again, gets nothing of its successors."""
    topic = database.create_topic("events", payload="text")
    mail = topic.subscribe("mail")
    topic.push("a")
    held = claimed(mail)
    database.subscription("events/mail").drop()
    audit = topic.subscribe("audit")
    topic.push("b")
    check_gets_nothing(mail, held)
    assert [claim.payload for claim in audit.pop_many(9)] == ["a", "b"]
    log = topic.subscribe("log")
    database.topic("events").drop()
    again = database.create_topic("events", payload="text", groups=True)
    later = [again.subscribe(name) for name in ("log", "audit")]
    again.push("c", group="g")
    for each in (mail, audit, log):
        check_gets_nothing(each, held)
    of_topic: list[Callable[[], Any]] = [
        lambda: topic.push("x"),
        lambda: topic.push_many([*"xy"]),
        lambda: topic.subscribe("more"),
        lambda: topic.subscribe("log"),
        lambda: topic.subscription("log"),
        topic.subscriptions,
    ]
    for call in of_topic:
        try:
            call()
        except QueueNotFound:
            continue
        raise AssertionError("a dropped topic goes on")
    assert [[claim.payload for claim in each.pop_many(9)] for each in later] == [["c"], ["c"]]


def check_gets_nothing(subscription: Consumer, held: Claim) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "pop_many": lambda: subscription.pop_many(9),
        "pop": subscription.pop,
        "peek": subscription.peek,
        "stats": subscription.stats,
        "complete": held.complete,
        "fail": lambda: held.fail("why"),
        "purge": subscription.purge,
        "pause": subscription.pause,
    }
    _each_finds_no_queue(subscription, calls)
