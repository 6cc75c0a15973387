"""A move between two databases: each message ends in the other one exactly once, with all that it has."""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier, Event, Thread
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Consumer, Message, NewMessage, Queue
from tablequeue.errors import BadInput, BadPayload, DuplicateKey, TablequeueError
from tablequeue.ext import context_of
from tablequeue.verbs import doctor
from tests import mssql
from tests.crashes import Steps
from tests.crowd import answer, started
from tests.movers import move_all, stop_in_move_between
from tests.servers import KINDS, Kind, Place
from tests.support import at, claimed, counts, found, refuses

PAIRS: tuple[str, ...] = ("sqlite-postgresql", "postgresql-mariadb", "mariadb-sqlite", "sqlite-sqlite")
PAIRS += ("sqlite-mssql", "mssql-sqlite") if mssql.URL else ()


class Two(NamedTuple):
    """A fresh database to move from, and one to move to."""

    source: Place
    target: Place

    def queues(self, **options: Any) -> tuple[Queue, Queue]:
        first, second = (place.open().create_queue("work", **options) for place in self)
        return first, second


@pytest.fixture(params=PAIRS)
def two(kept: Callable[[str], sa.Engine], request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Two]:
    kinds = {kind.name: kind for kind in KINDS}
    places = []
    for name in request.param.split("-"):
        kind: Kind = kinds[name]
        url = kind.url(request) if name != "sqlite" else f"sqlite:///{tmp_path}/{secrets.token_hex(4)}.db"
        places.append(kind.place(url, f"test_{secrets.token_hex(8)}" if kind.has_schemas else None))
    yield Two(*places)
    for name, place in zip(request.param.split("-"), places, strict=True):
        kind = kinds[name]
        if place.schema and kind.drop_schema:
            with kept(place.url).begin() as connection:
                connection.exec_driver_sql(kind.drop_schema.format(place.schema))
        place.close()


def everything(queue: Queue) -> list[Message]:
    """All messages that wait, and the dead letters, by id."""
    states = ("ready", "scheduled", "blocked", "dead", "in_progress")
    return sorted((one for state in states for one in queue.peek(5000, state=state)), key=lambda one: one.id)  # type: ignore[arg-type]


def aside(queue: Queue) -> int:
    """How many messages are on their way."""
    moving = context_of(queue).engine.moving
    return len(context_of(queue).run(moving.aside, {"after": 0, "n": 5000}))


def test_a_message_keeps_what_it_has(two: Two) -> None:
    source, target = two.queues(max_attempts=2, order="priority")
    target.push("there")
    source.push("dead", key="dead", now=at(0))
    for _ in range(2):
        claimed(source, now=at(0)).fail('it\'s "no" ünd nein', retry_in=0, now=at(0))
    source.push({"tried": [1, None, 1e300]}, key="k", headers={"a": "ü"}, priority=5, now=at(1))
    claimed(source, now=at(2)).fail("once", retry_in=30, now=at(3))
    source.push("fresh", now=at(2))
    source.push("later", due=at(10_000_000), priority=-3)
    held = source.push("held", priority=9)
    claim = claimed(source)
    assert claim.id == held
    before = {one.id: one for one in everything(source) if one.id != held}
    moved = source.move(ALL, to=target)
    assert [*moved] == sorted(before)
    assert [*moved.values()] == sorted(moved.values())
    for id, message in before.items():
        assert found(target, moved[id]) == replace(message, id=moved[id])
    assert counts(source) == {"in_progress": 1}
    assert aside(source) == 0
    claim.release()
    assert source.move(ALL, to=target).keys() == {held}
    assert target.redrive(ALL) == 1
    assert source.move(ALL, to=target) == {}
    assert counts(source) == {}


@pytest.mark.parametrize(
    ("payload", "payloads"),
    [
        ("json", [None, [], "ü\x7f\u2028", {"a": [1.5, True, {"b": "\U0001f600"}]}, 10**30]),
        ("text", ["", " a ", "\u2028\U0001f600'\"\\\n", "x" * 100_000]),
        ("bytes", [b"", bytes(range(256)), b"\x00" * 70_000]),
    ],
)
def test_payloads_of_each_type(two: Two, payload: Any, payloads: list[Any]) -> None:
    source, target = two.queues(payload=payload)
    source.push_many(payloads)
    source.move(ALL, to=target)
    assert [claim.payload for claim in target.pop_many(9)] == payloads


@pytest.mark.parametrize("two", ["postgresql-mariadb"], indirect=True)
@pytest.mark.parametrize("options", [{}, {"groups": True}], ids=str)
def test_a_payload_that_the_target_cannot_hold_stays(two: Two, options: dict[str, Any]) -> None:
    source, target = two.queues(**options)
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    group = {"group": "x"} if options else {}
    source.push_many([*range(5), deep, *range(5, 10)], **group)  # type: ignore[call-overload]
    for _ in range(2):
        assert "these stay" in refuses(BadPayload, source.move, ALL, to=target).cause
    assert counts(target)["ready"] == (1 if options else 10)
    if options:
        assert counts(target)["blocked"] == 4, "and what is behind it"
        assert aside(source) == 6
    else:
        assert claimed(source).payload == deep
        assert aside(source) == 0


def test_what_expires_does_so_there(two: Two) -> None:
    source, target = two.queues(expires=60)
    source.push_many([NewMessage("short"), NewMessage("long", expires=900)], now=at(0))
    source.move(ALL, to=target, now=at(1))
    assert claimed(target, now=at(61)).payload == "long"
    assert target.pop(now=at(61)) is None


@pytest.mark.parametrize("options", [{"groups": True}, {"strict": True}], ids=str)
def test_groups_keep_their_order(two: Two, options: dict[str, Any]) -> None:
    """What is behind a message in progress stays; the source hands out no more."""
    source, target = two.queues(**options)
    group = {"group": "x"} if source.definition.groups else {}
    source.push_many(range(4), **group)  # type: ignore[call-overload]
    if group:
        source.push_many([10, 11], group="y")
    claim = claimed(source)
    assert claim.payload == 0
    if group:
        assert len(source.move(ALL, to=target)) == 2
        assert [message.payload for message in everything(source)] == [0, 1, 2, 3]
    else:
        assert source.move(ALL, to=target) == {}
    assert source.pop() is None
    claim.fail("no", retry_in=0)
    source.push(4, **group)  # type: ignore[call-overload]
    assert source.pop() is None, "the source is paused"
    assert len(source.move(ALL, to=target)) == 5
    done = []
    while batch := target.pop_many(9):
        done += [one.payload for one in batch]
        target.complete_many(batch)
    assert sorted(done) == [0, 1, 2, 3, 4, *([10, 11] if group else [])]
    assert [one for one in done if one < 10] == [0, 1, 2, 3, 4]


def test_a_key_that_is_taken_stays(two: Two) -> None:
    source, target = two.queues()
    target.push("there", key="k")
    ids = source.push_many([NewMessage(1), NewMessage(2, key="k"), NewMessage(3, key="l")])
    error = refuses(DuplicateKey, source.move, ALL, to=target)
    assert error.keys == ("k",)
    assert "the others were moved" in error.cause
    assert [message.id for message in everything(source)] == [ids[1]]
    assert aside(source) == 0
    assert [claim.payload for claim in target.pop_many(9)] == ["there", 1, 3]
    refuses(DuplicateKey, target.push, 4, key="l")
    context_of(target).run(context_of(target).messages.purge, {"state": "in_progress", "n": 9})
    assert source.move(ALL, to=target).keys() == {ids[1]}


def test_keys_for_a_time_stay_taken_there(two: Two) -> None:
    source, target = two.queues(unique_for=300)
    source.push_many([NewMessage(1, key="k"), NewMessage(2)])
    source.move(ALL, to=target)
    claimed(target).complete()
    refuses(DuplicateKey, target.push, 3, key="k")
    source.push_many([NewMessage(4, key="l")])
    target.push(5, key="l")
    refuses(DuplicateKey, source.move, ALL, to=target)
    assert [message.payload for message in everything(source)] == [4]


def test_the_history_is_copied_once(two: Two) -> None:
    source, target = two.queues()
    ids = source.push_many(NewMessage(number, key=f"k{number}", headers={"a": number}) for number in range(1200))
    source.complete_many(source.pop_many(1100))
    source.cancel(ids[1100:1110])
    claimed(source).fail("once", retry_in=0)
    claimed(source).complete()
    copied: dict[int, int] = {}
    for batch in source.move_batches(to=target, history=True):
        copied |= batch.ids if batch.history else {}
    before = {message.id: message for message in source.history(5000)}
    assert [*copied] == sorted(before)
    after = {message.id: message for message in target.history(5000)}
    assert after == {copied[id]: replace(message, id=copied[id]) for id, message in before.items()}
    assert sorted(copied.values()) == [*copied.values()]
    claimed(target).complete()
    source.push("more")
    claimed(source).complete()
    again = [batch.ids for batch in source.move_batches(to=target, history=True) if batch.history]
    assert [len(ids) for ids in again] == [1]
    assert len(target.history(5000)) == 1113
    assert counts(target) == {"ready": 88, "finished": 1113}


# -- processes die -----------------------------------------------------------------------------------------------------


def fill(source: Queue) -> None:
    """Messages of every state, and a history."""
    source.push_many([NewMessage(number, key=f"k{number}") for number in range(7)])
    claimed(source).fail("no", retry=False)
    claimed(source).complete()
    source.push(7, delay=10_000)


def payloads_of(two: Two) -> Counter[Any]:
    """What is in the target, and what the source still has, aside or not."""
    source, target = (place.open().queue("work") for place in two)
    there = Counter(message.payload for message in everything(target))
    return there + Counter(message.payload for message in everything(source))


def test_a_move_killed_at_any_step(two: Two) -> None:
    """The move after it ends it: each message is in the target once, and the history too."""
    words: list[str] = []
    number = 0
    for place in two:
        place.open().create_queue("work", max_attempts=2)
    source, target = (place.open().queue("work") for place in two)
    fill(source)
    expected = Counter(range(8)) - Counter([1])
    move_all(*two, Steps(lambda number, step: words.append(step)))
    for number in chosen_steps(len(words)):
        for queue in (source, target):
            queue.drop()
        source, target = (place.open().create_queue("work", max_attempts=2) for place in two)
        fill(source)
        with started(1, stop_in_move_between, until_killed(two, number, True)) as (pipe,):
            assert answer(pipe) in words
            assert payloads_of(two) <= expected, "none is in both"
        for _ in source.move_batches(to=target, history=True):
            pass
        assert Counter(message.payload for message in everything(target)) == expected
        assert [message.payload for message in target.history()] == [1]
        assert (counts(source), aside(source)) == ({"finished": 1}, 0)
        assert [message.payload for message in everything(target)] == [0, *range(2, 8)]


def until_killed(two: Two, number: int, history: bool) -> Callable[[int], tuple[Any, ...]]:
    return lambda _: (*two, number, history)


def chosen_steps(number: int) -> list[int]:
    """An eighth of the steps, others in each run, and the last: all of them take minutes."""
    return sorted({*range(random.randint(1, 8), number + 1, 8), number})


@contextmanager
def at_work(two: Two, push: int) -> Iterator[tuple[Counter[int], list[int]]]:
    """A consumer and a producer at the source, and a consumer at the target. Yields what was done, and pushed."""
    stop, done, pushed = Event(), Counter[int](), [*range(push)]
    errors: list[BaseException] = []
    started_up = Barrier(4, timeout=60)

    def consume(queue: Consumer) -> None:
        started_up.wait()
        while not stop.is_set():
            for claim in queue.pop_many(3, lease=3600):
                claim.complete()
                done[claim.payload] += 1

    def produce(queue: Queue) -> None:
        started_up.wait()
        while not stop.is_set():
            queue.push(len(pushed))
            pushed.append(len(pushed))

    source, target = (place.open().queue("work") for place in two)
    jobs = [(consume, source), (produce, source), (consume, target)]

    def run(job: Callable[[Queue], None], queue: Queue) -> None:
        try:
            job(queue)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=run, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    started_up.wait()
    try:
        yield done, pushed
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        assert errors == []


@pytest.mark.nightly
def test_twenty_kills_under_load(two: Two) -> None:
    """While consumers work at both ends, and a producer at the source."""
    source, target = two.queues()
    source.push_many(range(3000))
    seed = secrets.randbits(32)
    print("seed", seed)
    chance = random.Random(seed)
    with at_work(two, 3000) as (done, pushed):
        for _ in range(20):
            number = chance.randint(1, 120)
            with started(1, stop_in_move_between, until_killed(two, number, False)) as (pipe,):
                answer(pipe)
    while source.move(ALL, to=target):
        pass
    assert counts(source).keys() <= {"finished"}
    while batch := target.pop_many(500):
        done.update(claim.payload for claim in batch)
        target.complete_many(batch)
    assert done == Counter(pushed)


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_two_moves_at_once(two: Two) -> None:
    source, target = two.queues()
    source.push_many(range(3500))
    barrier = Barrier(2, timeout=60)
    moved: list[dict[int, int]] = []

    def move() -> None:
        first, second = (place.open().queue("work") for place in two)
        barrier.wait()
        moved.append(first.move(ALL, to=second))

    threads = [Thread(target=move, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(moved) == 2
    both = moved[0] | moved[1]
    assert len(both) == 3500
    assert [message.payload for message in everything(target)] == [*range(3500)]
    assert counts(source) == {}
    assert aside(source) == 0


def test_a_move_that_wakes_up_late_adds_nothing(two: Two) -> None:
    """It stands between its look at what is aside and its insert, while another one moves all."""
    source, target = two.queues()
    source.push_many(range(5))
    late = two.source.open().queue("work"), two.target.open().queue("work")
    rest = late[0].move_batches(to=late[1])
    runner = context_of(late[1]).runner
    run = runner.run

    def after_the_other(operation: Any, *args: Any, **options: Any) -> Any:
        runner.run = run  # type: ignore[method-assign]
        assert len(source.move(ALL, to=target)) == 5
        return run(operation, *args, **options)

    moving = context_of(late[0]).engine.moving
    aside_run = context_of(late[0]).runner.run

    def seen(operation: Any, *args: Any, **options: Any) -> Any:
        rows = aside_run(operation, *args, **options)
        if operation == moving.aside and rows:
            runner.run = after_the_other  # type: ignore[method-assign]
            context_of(late[0]).runner.run = aside_run  # type: ignore[method-assign]
        return rows

    context_of(late[0]).runner.run = seen  # type: ignore[method-assign]
    assert sum(len(batch.ids) for batch in rest) == 5
    assert [message.payload for message in everything(target)] == [*range(5)]
    assert counts(source) == {}


@pytest.mark.parametrize("options", [{}, {"groups": True}], ids=str)
def test_a_key_that_is_taken_at_the_last_moment_goes_back(two: Two, options: dict[str, Any]) -> None:
    """Between the look at the keys and the insert. In groups what is behind it waits with it."""
    source, target = two.queues(**options)
    group = "x" if options else None
    source.push_many([NewMessage(1, key="k", group=group), NewMessage(2, group=group)])
    moving, run = context_of(source).engine.moving, context_of(source).runner.run

    def look(operation: Any, *args: Any, **kwargs: Any) -> Any:
        rows = run(operation, *args, **kwargs)
        if operation == moving.aside and rows:
            context_of(source).runner.run = run  # type: ignore[method-assign]
            target.push("there", key="k", group=group)
        return rows

    context_of(source).runner.run = look  # type: ignore[method-assign]
    assert refuses(DuplicateKey, source.move, ALL, to=target).keys == ("k",)
    if options:
        assert aside(source) == 2
    else:
        assert [(message.payload, message.key) for message in everything(source)] == [(1, "k")]
        assert aside(source) == 0
    claim = claimed(target)
    assert claim.payload == "there"
    claim.complete()
    source.move(ALL, to=target)
    assert [message.payload for message in everything(target)] == ([1, 2] if options else [2, 1])


def test_a_target_that_is_dropped_in_the_middle(two: Two) -> None:
    source, target = two.queues()
    source.push_many(range(2500))
    moves = source.move_batches(to=target)
    assert len(next(moves).ids) == 1000
    two.target.open().queue("work").drop()
    with pytest.raises(TablequeueError):
        next(moves)
    again = two.target.open().create_queue("work")
    assert len(source.move(ALL, to=again)) == 1500
    assert [message.payload for message in everything(again)] == [*range(1000, 2500)]


def test_a_source_that_is_renamed_in_the_middle(two: Two) -> None:
    source, target = two.queues()
    source.push_many(range(2500))
    moves = source.move_batches(to=target)
    next(moves)
    del moves  # which ends the iteration
    database = two.source.open()
    database.rename("work", "old work")
    two.target.open().rename("work", "new work")
    database.queue("old work").move(ALL, to=two.target.open().queue("new work"))
    assert [message.payload for message in everything(target)] == [*range(2500)]


def test_what_is_refused(two: Two) -> None:
    source, target = two.queues()
    source.push_many(range(3))
    assert "both queues" in refuses(BadInput, source.move, ALL, to=two.source.open().queue("work")).cause
    for name, options in (("text", {"payload": "text"}), ("groups", {"groups": True}), ("fair", {"groups": "fair"})):
        other = two.target.open().create_queue(name, **options)
        refuses(BadInput, source.move, ALL, to=other)
        refuses(BadInput, source.move_batches, to=other)
    refuses(BadInput, source.move, [1], to=target)
    refuses(BadInput, source.move, ALL, to=target, state="dead")
    refuses(BadInput, source.move_batches, to=two.source.open().create_topic("events").subscribe("mail"))
    none = two.target.open().create_queue("none", history="none")
    refuses(BadInput, lambda: [*source.move_batches(to=none, history=True)])
    database = two.source.open()
    refuses(BadInput, database.queue("work").move_batches, to=database.create_queue("other"))
    assert counts(source) == {"ready": 3}
    assert aside(source) == 0


def test_a_target_that_is_a_source_too(two: Two) -> None:
    """Both have messages aside, with the same ids, which a move that died has left there."""
    queues = two.queues()
    for queue, other in (queues, queues[::-1]):
        queue.push_many([f"{context_of(queue).engine.name} {number}" for number in range(3)])
        moves = queue.move_batches(to=other)
        moving, run = context_of(queue).engine.moving, context_of(queue).runner.run

        def dying(operation: Any, *args: Any, **options: Any) -> Any:
            if operation == moving.aside and run(operation, *args, **options):  # noqa: B023
                raise KeyboardInterrupt
            return run(operation, *args, **options)  # noqa: B023

        context_of(queue).runner.run = dying  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(moves)
        context_of(queue).runner.run = run  # type: ignore[method-assign]
        assert aside(queue) == 3
        assert any("on their way" in finding.cause for finding in doctor.of_queue(context_of(queue)))
    first, second = ([message.payload for message in everything(queue)] for queue in queues)
    assert first == second == []
    source, target = queues
    assert len(source.move(ALL, to=target)) == 3
    assert len(target.move(ALL, to=source)) == 6
    assert len(everything(source)) == 6
    assert aside(source) == aside(target) == 0
    assert not any("on their way" in finding.cause for finding in doctor.of_queue(context_of(source)))
