"""The history: kept, kept for a time, or none at all; and purges by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tablequeue import ALL, Database, History, LiveState, Message, Queue
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tests.checks import check_retention
from tests.servers import Place
from tests.support import at, claimed, counts, design_group, found, ids_of, refuses, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def plain(db: Database) -> Queue:
    """For tests that do not depend on the order."""
    return db.create_queue("plain", payload="text", max_attempts=1)


def finish(queue: Queue, times: list[int]) -> list[int]:
    """Push a message that finishes at each of these times."""
    ids = []
    for time in times:
        ids.append(queue.push("x", **design_group(queue, "a"), now=at(time)))
        claimed(queue, now=at(time)).complete(now=at(time))
    return ids


# -- retention ---------------------------------------------------------------------------------------------------------


def test_a_retention_deletes_what_is_older_and_keeps_what_is_younger(
    db: Database, options: dict[str, Any], place: Place
) -> None:
    queue = db.create_queue("work", **options | {"history": 60})
    check_retention(queue, place.open().queue("work"), **design_group(queue, "a"))


@pytest.mark.parametrize("retention", [60, 0.5, timedelta(days=7), 3.2e9], ids=repr)
def test_a_retention_is_a_number_of_seconds_or_a_timedelta(place: Place, retention: Any) -> None:
    queue = place.open().create_queue("work", history=retention)
    seconds = retention.total_seconds() if isinstance(retention, timedelta) else retention
    assert place.open().queue("work").definition.retention == seconds
    finish(queue, [0])
    assert counts(place.open().create_queue("work", history=retention)) == {"finished": 1}


def test_a_long_history_goes_bit_by_bit(db: Database, place: Place) -> None:
    """A look deletes a thousand rows at most. The next claim continues, with twice as many looks."""
    queue = db.create_queue("work", history=60)
    ids = queue.push_many(range(2500), now=at(0))
    queue.complete_many(queue.pop_many(2500, now=at(0)), now=at(0))
    other = place.open().queue("work")
    left = []
    for _ in range(4):
        assert other.pop(now=at(1000)) is None
        left.append(counts(queue).get("finished", 0))
    assert left == [1500, 0, 0, 0]
    assert len(ids) == 2500


def test_the_bounds_are_the_lowest_and_the_highest_id_of_the_history(plain: Queue) -> None:
    assert plain.history_bounds() is None
    ids = finish(plain, [0, 10, 20])
    plain.push("waits")
    assert plain.history_bounds() == (ids[0], ids[-1])
    assert plain.purge_history(5, now=at(10)) == 1
    assert plain.history_bounds() == (ids[1], ids[-1])


def test_the_history_of_a_keeper_stays(db: Database, place: Place) -> None:
    keeper = db.create_queue("keeper", history="keep")
    (id,) = finish(keeper, [0])
    assert place.open().queue("keeper").pop(now=at(3e9)) is None
    assert ids_of(keeper.history()) == [id]


def test_a_history_is_kept_for_30_days_if_nothing_is_said(plain: Queue, place: Place) -> None:
    (id,) = finish(plain, [0])
    assert place.open().queue("plain").pop(now=at(30 * 86400 - 60)) is None
    assert ids_of(plain.history()) == [id]
    assert place.open().queue("plain").pop(now=at(30 * 86400 + 60)) is None
    assert plain.history() == []


# -- purge_history -----------------------------------------------------------------------------------------------------


def test_purge_history_deletes_what_is_that_old(queue: Queue) -> None:
    ids = finish(queue, [0, 10, 20, 30])
    assert queue.purge_history(20.000001, now=at(30)) == 1
    assert ids_of(queue.history()) == ids[:0:-1]
    assert queue.purge_history(timedelta(seconds=10), now=at(30)) == 2
    assert ids_of(queue.history()) == ids[3:]
    assert queue.purge_history(0, now=at(29)) == 0
    assert queue.purge_history(0, now=at(30)) == 1
    assert queue.purge_history(0, now=at(30)) == 0


def test_none_is_not_all(queue: Queue) -> None:
    ids = bury(queue, ["a", "b"])
    refuses(BadInput, queue.redrive, None)
    refuses(BadInput, queue.purge_dead, None)
    assert sorted(ids_of(queue.dead())) == sorted(ids)


def test_purge_history_of_many(plain: Queue) -> None:
    plain.push_many(["x"] * 2100, now=at(0))
    plain.complete_many(plain.pop_many(2100, now=at(0)), now=at(0))
    assert plain.purge_history(0, now=at(0)) == 2100
    assert counts(plain) == {}


def test_purge_history_leaves_the_living_alone(queue: Queue) -> None:
    finish(queue, [0])
    queue.push("waiting", **design_group(queue, "a"), now=at(0))
    assert queue.purge_history(0, now=at(1000)) == 1
    assert counts(queue) == {"ready": 1}


@pytest.mark.parametrize("wrong", [-1, "1", None, float("nan"), True], ids=repr)
def test_an_age_that_cannot_be(plain: Queue, wrong: Any) -> None:
    finish(plain, [0])
    refuses(BadInput, plain.purge_history, wrong)
    assert counts(plain) == {"finished": 1}


def test_without_a_history_there_is_nothing_to_purge(db: Database) -> None:
    queue = db.create_queue("work", history="none")
    refuses(BadInput, queue.purge_history, 0)
    refuses(BadInput, queue.history)
    refuses(BadInput, queue.history_bounds)


# -- dead letters, chosen ----------------------------------------------------------------------------------------------


def bury(queue: Queue, payloads: list[str]) -> list[int]:
    ids = []
    for payload in payloads:
        ids.append(queue.push(payload, now=at(0), **design_group(queue, payload)))
        for _ in range(queue.definition.max_attempts):
            claimed(queue, now=at(0)).fail(f"no {payload}", retry_in=0, now=at(0))
    return ids


def is_b(message: Message) -> bool:
    return message.payload == "b" and message.errors[-1].error == "no b" and message.state == "dead"


def test_redrive_by_ids_by_a_predicate_and_all(queue: Queue) -> None:
    a, b, c, again = bury(queue, ["a", "b", "c", "b"])
    assert queue.redrive([c, 999], now=at(0)) == 1
    claimed(queue, now=at(0)).complete(now=at(0))
    assert queue.redrive(is_b, now=at(0)) == 2
    assert ids_of(queue.dead()) == [a]
    assert queue.redrive(is_b, now=at(0)) == 0
    assert queue.redrive(lambda message: False) == 0
    assert queue.redrive(ALL, now=at(0)) == 1
    assert queue.dead() == []
    popped = set()
    while (claim := queue.pop(now=at(0))) is not None:
        assert claim.attempt == 1
        popped.add(claim.id)
        claim.complete(now=at(0))
    assert popped == {a, b, again}


def test_purge_dead_by_ids_by_a_predicate_and_all(queue: Queue) -> None:
    a, b, c, again = bury(queue, ["a", "b", "c", "b"])
    assert queue.purge_dead([c, 999]) == 1
    assert queue.purge_dead([]) == 0
    assert queue.purge_dead(is_b) == 2
    assert ids_of(queue.dead()) == [a]
    assert queue.purge_dead(lambda message: False) == 0
    assert queue.purge_dead(ALL) == 1
    assert counts(queue) == {}
    assert queue.find(b) is None
    assert queue.find(again) is None


@pytest.mark.parametrize("verb", ["redrive", "purge_dead"])
def test_a_predicate_sees_every_letter_once(plain: Queue, verb: str) -> None:
    """Also over several batches, although the selected ones have left in the meantime."""
    ids = plain.push_many(map(str, range(2100)), now=at(0))
    plain.pop_many(2100, lease=1, now=at(0))
    for _ in range(3):
        plain.pop(now=at(1))
    seen = []

    def odd(message: Message) -> bool:
        seen.append(message.id)
        return message.id % 2 == 1

    assert getattr(plain, verb)(odd) == 1050
    assert seen == ids
    assert counts(plain) == {"dead": 1050} | ({"ready": 1050} if verb == "redrive" else {})


def test_a_predicate_that_raises_changes_nothing_of_its_batch(plain: Queue) -> None:
    bury(plain, ["a", "b"])
    before = snapshot(plain)
    with pytest.raises(ZeroDivisionError):
        plain.redrive(lambda message: bool(1 / (message.payload != "b")))
    assert snapshot(plain) == before


# -- find ------------------------------------------------------------------------------------------------------------


def test_find_follows_a_message_to_the_history(queue: Queue) -> None:
    id = queue.push("x", **design_group(queue, "a"), now=at(0))
    assert queue.find(id + 1) is None
    states = [found(queue, id).state]
    claim = claimed(queue, now=at(1))
    states.append(found(queue, id).state)
    claim.complete(now=at(2))
    message = queue.find(id)
    assert message is not None
    assert (*states, message.state) == ("ready", "in_progress", "finished")
    assert (message.id, message.payload, message.finished_at) == (id, "x", at(2))
    assert [message] == queue.history()
    assert queue.find(id - 1) is None
    assert queue.find(id + 1) is None
    queue.purge_history(0, now=at(3))
    assert queue.find(id) is None


@pytest.mark.parametrize("history", ["none", 60])
def test_find_does_not_find_what_is_not_kept(place: Place, history: History) -> None:
    queue = place.open().create_queue("work", history=history)
    id = queue.push(1, now=at(0))
    claimed(queue, now=at(0)).complete(now=at(0))
    assert (queue.find(id) is None) == (history == "none")
    assert place.open().queue("work").pop(now=at(61)) is None  # the first claim of a process deletes older rows
    assert queue.find(id) is None


def test_find_finds_what_is_finished_while_it_looks(
    db: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`find` reads the queue first: a message that has left it is in the history. In the other order it could be
    missed."""
    queue = db.create_queue("work")
    id = queue.push(1)
    claims = [claimed(place.open().queue("work"))]
    run = context_of(queue).runner.run

    def run_then_finish(*args: Any) -> Any:
        result = run(*args)
        while claims:
            claims.pop().complete()
        return result

    monkeypatch.setattr(context_of(queue).runner, "run", run_then_finish)
    found(queue, id)
    message = queue.find(id)
    assert message is not None
    assert message.state == "finished"


# -- looking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["ready", "scheduled", "in_progress", "dead", "blocked"])
def test_each_state_can_be_paged_through(db: Database, state: LiveState) -> None:
    queue = db.create_queue("work", max_attempts=1, strict=state == "blocked")
    ids = queue.push_many(range(25), delay=60 if state == "scheduled" else None)
    if state in ("in_progress", "dead"):
        for claim in queue.pop_many(25):
            if state == "dead":
                claim.fail("no")
    if state == "blocked":
        del ids[0]
    pages: list[list[int]] = []
    while page := queue.peek(10, state=state, after=pages[-1][-1] if pages else 0):
        assert {message.state for message in page} == {state}
        pages.append(ids_of(page))
    assert [id for page in pages for id in page] == ids
    assert len(pages) == 3
    if state == "dead":
        assert ids_of(queue.dead(10, after=ids[9])) == ids[10:20]


@pytest.mark.parametrize("after", [-1, "1", 1.0, True, None, 1 << 63], ids=repr)
def test_an_id_to_page_after_that_cannot_be(plain: Queue, after: Any) -> None:
    refuses(BadInput, plain.peek, after=after)
    refuses(BadInput, plain.dead, after=after)


def test_stats_count_the_blocked(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    for group in "aaabbc":
        queue.push(1, group=group, now=at(0))
    stats = queue.stats(now=at(10))
    assert (stats.ready, stats.blocked, stats.oldest_age) == (3, 3, 10)
    claimed(queue, now=at(10)).complete(now=at(10))
    assert queue.stats().blocked == 2


def test_the_history_says_the_group_the_key_and_the_priority(db: Database) -> None:
    grouped = db.create_queue("grouped", groups=True)
    grouped.push(1, group="g", key="k")
    claimed(grouped).complete()
    (message,) = grouped.history()
    assert (message.group, message.key, message.priority) == ("g", "k", 0)
    ranked = db.create_queue("ranked", order="priority")
    ranked.push(1, priority=-7, due=at(5), now=at(0))
    claimed(ranked, now=at(5)).complete(now=at(6))
    (message,) = ranked.history()
    assert (message.group, message.key, message.priority, message.due_at) == (None, None, -7, at(5))


def test_a_window_counts_in_every_order(queue: Queue) -> None:
    for name in "abc":
        queue.push("x", **design_group(queue, name), now=at(0))
    for _ in range(2):
        claimed(queue, now=at(5)).complete(now=at(7))
    window = queue.stats(window=60, now=at(10)).window
    assert window is not None
    assert (window.queue.pushed, window.queue.finished, window.queue.redeliveries) == (3, 2, 0)
    assert window.queue.wait_time is not None
    assert window.queue.run_time is not None
    assert (window.queue.run_time.p50, window.queue.wait_time.p50 <= 5) == (2, True)


def test_the_history_goes_on_before_an_id(queue: Queue) -> None:
    ids = finish(queue, [0, 10, 20])
    assert ids_of(queue.history(2)) == ids[:0:-1]
    assert ids_of(queue.history(2, after=ids[1])) == ids[:1]
    assert ids_of(queue.history(1, after=ids[2])) == [ids[1]]
    assert queue.history(after=ids[0]) == []
    refuses(BadInput, queue.history, after=-1)
