"""Deduplication keys: unique among the live messages and dead letters of a queue, compared character by character."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event
from typing import Any

import pytest

from tablequeue import ALL, Database, Delivery, NewMessage, Queue
from tablequeue.errors import BadInput, BadPayload, DuplicateKey
from tests.callers import Caller
from tests.checks import check_keys
from tests.servers import Place
from tests.support import at, claimed, complete_all, counts, design_group, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("procedures")]


@pytest.fixture
def plain(db: Database) -> Queue:
    """For tests that do not depend on the order."""
    return db.create_queue("plain", payload="text", max_attempts=1)


def keyed(*keys: str | None) -> list[NewMessage]:
    return [NewMessage(f"payload of {key}", key=key) for key in keys]


# -- push --------------------------------------------------------------------------------------------------------------


def test_a_key_is_taken_once(queue: Queue) -> None:
    check_keys(queue, **design_group(queue, "a"))


def test_raise_skip_return(queue: Queue) -> None:
    group = design_group(queue, "a")
    first = queue.push("x", key="k", **group)
    error = refuses(DuplicateKey, queue.push, "y", key="k", **group)
    assert error.keys == ("k",)
    assert "'k'" in error.cause
    assert queue.push("y", key="k", on_conflict="skip", **group) is None
    assert queue.push("y", key="k", on_conflict="return", **group) == first
    assert sum(counts(queue).values()) == 1
    message = found(queue, first)
    assert (message.key, message.payload) == ("k", "x")
    assert claimed(queue).key == "k"


@pytest.mark.parametrize("on_conflict", ["raise", "skip", "return"])
def test_a_key_that_is_free_is_pushed_whatever_the_conflict(plain: Queue, on_conflict: Any) -> None:
    ids = [plain.push("x", key=key, on_conflict=on_conflict) for key in "ab"]
    ids += plain.push_many(keyed("c", "d", None, None), on_conflict=on_conflict)
    assert [message.key for message in plain.peek()] == ["a", "b", "c", "d", None, None]
    assert ids_of(plain.peek()) == ids


def test_without_a_key_nothing_is_a_duplicate(plain: Queue) -> None:
    plain.push_many(["x"] * 3)
    plain.push("x", on_conflict="skip")
    assert counts(plain) == {"ready": 4}


@pytest.mark.parametrize("state", ["ready", "scheduled", "in_progress", "dead", "blocked"])
def test_every_message_in_the_queue_holds_its_key(db: Database, state: str) -> None:
    queue = db.create_queue("work", max_attempts=1, strict=state == "blocked")
    if state == "blocked":
        queue.push(0)
    id = queue.push(1, key="k", delay=60 if state == "scheduled" else None)
    if state in ("in_progress", "dead"):
        claim = claimed(queue)
        if state == "dead":
            claim.fail("no")
    assert found(queue, id).state == state
    assert queue.push(2, key="k", on_conflict="return") == id
    assert refuses(DuplicateKey, queue.push, 2, key="k").keys == ("k",)


@pytest.mark.parametrize("way", ["complete", "purge", "purge_dead", "take", "pop at most once"])
def test_what_leaves_the_queue_frees_its_key(db: Database, way: str) -> None:
    delivery: Delivery = "at_most_once" if way == "pop at most once" else "at_least_once"
    queue = db.create_queue("work", max_attempts=1, delivery=delivery)
    first = queue.push(1, key="k")
    if way == "purge":
        queue.purge()
    elif way == "take":
        with db.engine.begin() as connection:
            queue.take(connection)
    else:
        claim = claimed(queue)
        if way == "complete":
            claim.complete()
        elif way == "purge_dead":
            claim.fail("no")
            queue.purge_dead(ALL)
    second = queue.push(2, key="k")
    assert second > first
    assert claimed(queue).key == "k"


def test_the_history_keeps_the_key(plain: Queue) -> None:
    for _ in range(2):
        plain.push("x", key="k")
        claimed(plain).complete()
    assert [message.key for message in plain.history()] == ["k", "k"]


def test_a_redriven_letter_has_its_key(plain: Queue) -> None:
    id = plain.push("x", key="k")
    claimed(plain).fail("no")
    assert plain.redrive(ALL) == 1
    assert plain.push("y", key="k", on_conflict="return") == id


def test_each_queue_has_keys_of_its_own(db: Database, plain: Queue) -> None:
    other = db.create_queue("other")
    plain.push("x", key="k")
    other.push(1, key="k")
    assert (counts(plain), counts(other)) == ({"ready": 1}, {"ready": 1})


# -- what a key is -----------------------------------------------------------------------------------------------------

DIFFERENT = [
    *(
        "a",
        "A",
        "a ",
        " a",
        "a\t",
        "aa",
        "\u00e1",
        "ae",
        "\u00e4",
        "ss",
        "\u00df",
        "0",
        "00",
        "%",
        "_",
        "'",
        '"',
        "\\",
        "\n",
    ),
    *("i", "I", "\u0130", "\u0131"),  # i with and without a dot: Turkish upper and lower case
    *("\u00e9", "e\u0301"),  # an accented letter, composed and decomposed
    *("\U0001f600", "\U0010ffff", "\ufffe"),
    *("a" * 255, "\U0001f600" * 255),
]


def test_keys_are_compared_character_by_character(plain: Queue) -> None:
    ids = [plain.push("x", key=key) for key in DIFFERENT]
    assert [message.key for message in plain.peek(100)] == DIFFERENT
    assert plain.push_many(keyed(*DIFFERENT), on_conflict="return") == ids
    assert plain.push_many(keyed(*reversed(DIFFERENT)), on_conflict="skip") == [None] * len(ids)
    assert plain.push_many(keyed(*DIFFERENT[1:]), on_conflict="return") == ids[1:]


def test_what_cannot_be_a_key(plain: Queue) -> None:
    impossible: list[Any] = ["", "a" * 256, "a\0b", "\ud800", 1, b"a", True, ("a",)]
    for key in impossible:
        refuses(BadInput, plain.push, "x", key=key)
        error = refuses(BadInput, plain.push_many, [*keyed("good"), NewMessage("x", key=key)])
        assert "number 2" in error.cause
        assert counts(plain) == {}, repr(key)


def test_what_cannot_be_an_on_conflict(plain: Queue) -> None:
    for on_conflict in ("ignore", None, 1, ""):
        refuses(BadInput, plain.push, "x", key="k", on_conflict=on_conflict)
        refuses(BadInput, plain.push_many, keyed("k"), on_conflict=on_conflict)
        assert counts(plain) == {}, repr(on_conflict)


# -- push_many ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1500], ids=["few", "many"])
def test_results_are_aligned_with_the_input(queue: Queue, size: int) -> None:
    group = design_group(queue, "a")
    b = queue.push("x", key="b", **group)
    batch = [*keyed("a", "b", None, "c"), "plain", *keyed(*(f"more {number}" for number in range(size)))]
    ids = queue.push_many(batch, on_conflict="skip", **group)
    assert ids[1] is None
    pushed = {id: place for place, id in enumerate(ids) if id is not None}
    assert len(pushed) == len(batch) - 1
    for state in ("ready", "blocked"):
        for message in queue.peek(size + 10, state=state):
            if message.id != b:
                entry = batch[pushed.pop(message.id)]
                told = (entry.payload, entry.key) if isinstance(entry, NewMessage) else (entry, None)
                assert (message.payload, message.key) == told
    assert pushed == {}
    again = queue.push_many(batch[:4], on_conflict="return", **group)
    assert [again[0], again[1], again[3]] == [ids[0], b, ids[3]]
    assert again[2] not in (None, ids[2])


def test_duplicates_inside_one_batch(plain: Queue) -> None:
    first = plain.push_many(keyed("a", "a", "b", "a"), on_conflict="skip")
    assert first[0] is not None
    assert first[1:] == [None, first[2], None]
    again = plain.push_many(keyed("c", "a", "c", "b", "c"), on_conflict="return")
    assert again == [again[0], first[0], again[0], first[2], again[0]]
    assert counts(plain) == {"ready": 3}
    error = refuses(DuplicateKey, plain.push_many, keyed("d", "e", "d", "e", "e"))
    assert set(error.keys) == {"d", "e"}
    assert counts(plain) == {"ready": 3}


def test_raise_pushes_nothing_of_the_batch(plain: Queue) -> None:
    plain.push_many(keyed("b", "d"))
    error = refuses(DuplicateKey, plain.push_many, [*keyed("a", "b", "c", "d"), "plain"])
    assert error.keys == ("b", "d")
    assert [message.key for message in plain.peek()] == ["b", "d"]


def test_each_message_has_options_of_its_own(db: Database) -> None:
    queue = db.create_queue("work", order="priority")
    batch = [
        NewMessage("own", delay=5, priority=7, key="k", headers={"a": 1}),
        NewMessage("due", due=at(9), priority=(1 << 31) - 1),
        NewMessage("timedelta", delay=timedelta(seconds=3), headers={}),
        NewMessage("the call's"),
        "the call's",
    ]
    ids = queue.push_many(batch, delay=60, priority=2, headers={"b": 2}, now=at(0))
    messages = queue.peek(state="scheduled")
    assert ids_of(messages) == ids
    assert [message.due_at for message in messages] == [at(5), at(9), at(3), at(60), at(60)]
    assert [message.priority for message in messages] == [7, (1 << 31) - 1, 2, 2, 2]
    assert [message.headers for message in messages] == [{"a": 1}, {"b": 2}, {}, {"b": 2}, {"b": 2}]
    assert [message.key for message in messages] == ["k", None, None, None, None]
    assert {(message.pushed_at, message.producer) for message in messages} == {(at(0), messages[0].producer)}


@pytest.mark.parametrize(
    "bad",
    [
        NewMessage(1),
        NewMessage("x", delay=-1),
        NewMessage("x", delay=1, due=at(1)),
        NewMessage("x", priority=1),
        NewMessage("x", group="a"),
        NewMessage("x", headers={"a": float("nan")}),
    ],
    ids=repr,
)
def test_a_bad_message_refuses_the_whole_batch(plain: Queue, bad: NewMessage) -> None:
    for before in (["x"], keyed("k"), []):
        error = refuses((BadInput, BadPayload), plain.push_many, [*before, bad, "x"])  # type: ignore[arg-type]
        assert f"number {len(before) + 1}" in error.cause
    assert counts(plain) == {}


# -- at the same moment, and in a transaction --------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True], ids=["push", "push_many"])
def test_of_two_that_push_one_key_one_wins(place: Place, plain: Queue, many: bool) -> None:
    rounds, meet = 10, Barrier(3)

    def produce(queue: Queue) -> list[int | None]:
        ids: list[int | None] = []
        for number in range(rounds):
            meet.wait(60)
            key = f"round {number}"
            if many:
                ids += queue.push_many(keyed(key), on_conflict="skip")
            else:
                ids.append(queue.push("x", key=key, on_conflict="skip"))
        return ids

    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(produce, [place.open().queue("plain") for _ in range(3)]))
    for ids in zip(*results, strict=True):
        assert len([id for id in ids if id is not None]) == 1
    assert counts(plain) == {"ready": rounds}


def test_of_two_that_return_both_have_the_same_id(place: Place, plain: Queue) -> None:
    meet = Barrier(3)

    def produce(queue: Queue) -> list[int]:
        ids = []
        for number in range(10):
            meet.wait(60)
            ids.append(queue.push("x", key=f"round {number}", on_conflict="return"))
        return ids

    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(produce, [place.open().queue("plain") for _ in range(3)]))
    assert results[0] == results[1] == results[2]
    assert counts(plain) == {"ready": 10}


def test_return_while_a_consumer_completes_gives_a_message_that_was_there(place: Place, plain: Queue) -> None:
    """The message with the key may be finished at any moment. Then the new one is pushed."""

    done = Event()
    with ThreadPoolExecutor(1) as thread:
        consumer = thread.submit(complete_all, place.open().queue("plain"), done)
        ids = [plain.push("x", key="k", on_conflict="return") for _ in range(50)]
        ids += [id for _ in range(20) for id in plain.push_many(keyed("k"), on_conflict="return")]
        done.set()
        consumer.result(60)
    assert sorted(set(ids_of(plain.history(100)))) == sorted(set(ids))
    assert ids == sorted(ids)


def test_a_raise_leaves_the_transaction_usable(plain: Queue, caller: Caller) -> None:
    taken = plain.push("x", key="taken")
    before = plain.push("y", key="before", connection=caller.connection)
    refuses(DuplicateKey, plain.push, "z", key="taken", connection=caller.connection)
    refuses(DuplicateKey, plain.push_many, keyed("new", "taken"), connection=caller.connection)
    refuses(DuplicateKey, plain.push_many, keyed("new", "before"), connection=caller.connection)
    after = plain.push_many(keyed("after"), connection=caller.connection)
    caller.commit()
    assert ids_of(plain.peek()) == [taken, before, *after]


def test_return_in_a_transaction(plain: Queue, caller: Caller) -> None:
    committed = plain.push("x", key="committed")
    for end in (caller.rollback, caller.commit):
        own = plain.push("y", key="own", connection=caller.connection)
        for key, id in (("committed", committed), ("own", own)):
            assert plain.push("z", key=key, on_conflict="return", connection=caller.connection) == id
            assert plain.push("z", key=key, on_conflict="skip", connection=caller.connection) is None
        ids = plain.push_many(keyed("own", "new", "committed"), on_conflict="return", connection=caller.connection)
        assert [ids[0], ids[2]] == [own, committed]
        end()
    assert ids_of(plain.peek()) == [committed, own, ids[1]]


def test_a_key_is_free_again_after_a_rollback(plain: Queue, caller: Caller) -> None:
    plain.push("x", key="k", connection=caller.connection)
    caller.rollback()
    plain.push("y", key="k")
    claim = claimed(plain)
    claim.complete(connection=caller.connection)
    caller.rollback()
    assert plain.push("z", key="k", on_conflict="return") == claim.id
