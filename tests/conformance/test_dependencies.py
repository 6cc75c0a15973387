"""Dependencies: a message waits until others have left their queues."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Thread
from typing import Any, TypeAlias

import pytest

import tablequeue.aio
from tablequeue import ALL, Database, NewMessage, Queue
from tablequeue.engines.dependencies import FAR, Dependencies
from tablequeue.errors import (
    BadDefinition,
    BadInput,
    BadPayload,
    DatabaseError,
    DuplicateKey,
    QueueDiffers,
    QueueNotFound,
)
from tablequeue.ext import context_of
from tablequeue.verbs import dependency_ends
from tablequeue.verbs.dependencies import waits
from tests.async_support import claimed as claimed_async
from tests.async_support import in_loop
from tests.batches import ENGINES
from tests.dependencies import check_dependencies, check_many, made, payloads, rows
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, found, refuses

pytestmark = [pytest.mark.quick, only(*ENGINES)]


@pytest.mark.parametrize("history", ["keep", "none"])
@pytest.mark.parametrize("design", ["fifo", "lifo", "due", "priority", "fair"])
def test_a_message_waits_for_others(db: Database, design: str, history: Any) -> None:
    check_dependencies(db, history=history, **DESIGNS[design])


def test_messages_of_other_queues(db: Database) -> None:
    queue, other = made(db), db.create_queue("other", payload="text")
    first, second = other.push_many(["1", "2"])
    one = queue.push("one", after=[("other", first)])
    both = queue.push("both", after=[("other", second), one, ("other", first)])
    assert found(queue, both).due_at == FAR
    other.complete_many(other.pop_many(2))
    assert payloads(queue) == ["one"]
    assert payloads(queue) == ["both"]
    assert rows(queue) == []


def test_a_claim_may_be_waited_for(db: Database) -> None:
    queue = made(db)
    queue.push("a")
    message = claimed(queue)
    queue.push("b", after=[message])
    assert payloads(queue) == []
    message.complete()
    assert payloads(queue) == ["b"]


def test_many_that_wait_for_the_same(db: Database) -> None:
    check_many(db)


def test_for_how_many_a_message_waits(db: Database) -> None:
    queue, other = made(db), db.create_queue("other", payload="text")
    first, second = queue.push_many([*"ab"])
    both = queue.push("c", after=[first, second, ("other", other.push("x"))])
    last = queue.push("d", after=[first], delay=60)
    queue.push("e", due=FAR)
    context = context_of(queue)
    assert waits(context, queue.peek(9, state="scheduled")) == {both: 3, last: 1}
    claimed(queue).complete()
    queue.pop_many(9)
    assert waits(context, queue.peek(9, state="scheduled")) == {both: 2}
    assert waits(context_of(other), other.peek(9)) == {}


def test_many_are_pushed_all_or_none(db: Database) -> None:
    queue, plain = made(db, max_attempts=1), db.create_queue("plain", payload="text")
    first = queue.push("a", key="k")
    refuses(BadInput, plain.push_many, ["b"], after=[first])
    refuses(BadInput, queue.push_many, ["b", "c"], after=[first, first + 7])
    refuses(BadInput, queue.push_many, ["b", "c"], after=[first], on_dead="never")
    refuses(BadPayload, queue.push_many, ["b", 1], after=[first])
    refuses(DuplicateKey, queue.push_many, ["b", NewMessage("c", key="k")], after=[first])
    assert queue.push_many([], after=[first]) == []
    with db.engine.connect() as connection:
        assert len(queue.push_many([*"bc"], after=[first], connection=connection)) == 2
        connection.rollback()
    assert (queue.stats().scheduled, rows(queue)) == (0, [])
    taken = [NewMessage("b", key="k"), NewMessage("c", key="l"), NewMessage("d", key="l", delay=60), "e"]
    skipped = queue.push_many(taken, after=[first], on_conflict="skip", on_dead="cancel")
    assert [id is None for id in skipped] == [True, False, True, False]
    returned = queue.push_many([*taken, NewMessage("f", key="m")], after=[first], on_conflict="return")
    assert returned[:3] == [first, skipped[1], skipped[1]]
    assert len(rows(queue)) == 8, "two for each message that was pushed"
    claimed(queue).fail("no")
    assert payloads(queue) == []
    assert [message.payload for message in queue.history()] == ["e", "c"]
    assert queue.redrive(ALL) == 1
    assert payloads(queue) == ["a"]
    assert payloads(queue) == ["e", "f"]


def check_redriven(db: Database) -> None:
    """What waits for a dead letter of its group, or by way of another message, lets it pass when it is redriven."""
    designs: list[tuple[dict[str, Any], str | None]] = [({"strict": True}, None), ({"groups": True}, "g")]
    for number, (options, group) in enumerate(designs):
        queue = db.create_queue(f"first {number}", payload="text", dependencies=True, max_attempts=1, **options)
        other = db.create_queue(f"other {number}", payload="text", dependencies=True)
        first = queue.push("a", group=group)
        between = other.push("b", after=[(queue.name, first)])
        queue.push("c", group=group, after=[first])
        queue.push("d", group=group, after=[(other.name, between)])
        queue.push("e", group=group)
        claimed(queue).fail("no")
        assert payloads(queue) == []
        assert queue.redrive(ALL) == 1
        assert payloads(queue) == ["a"]
        assert payloads(queue) == ["c"]
        assert payloads(queue) == [], "it waits for b"
        assert payloads(other) == ["b"]
        assert [*payloads(queue), *payloads(queue)] == ["d", "e"]


def test_a_dead_letter_that_is_redriven_in_its_group(db: Database) -> None:
    check_redriven(db)


def test_what_has_ended_before(db: Database) -> None:
    queue = made(db)
    id = queue.push("a")
    assert payloads(queue) == ["a"]
    queue.push("b", after=[id])
    assert payloads(queue) == ["b"]
    queue.push("c", after=[])
    assert payloads(queue) == ["c"]


def test_refusals(db: Database) -> None:
    queue, plain = made(db), db.create_queue("plain", payload="text")
    db.create_queue("once", payload="text", delivery="at_most_once")
    db.create_queue("buried", payload="text", dead_letter_to="plain")
    id = queue.push("a")
    refuses(BadInput, plain.push, "x", after=[id])
    refuses(BadInput, queue.push, "x", after=[id, id + 7])
    refuses(BadInput, queue.push, "x", after=[("once", 1)])
    refuses(BadInput, queue.push, "x", after=[("buried", 1)])
    refuses(QueueNotFound, queue.push, "x", after=[("none", 1)])
    refuses(BadInput, queue.push, "x", after=["a"])
    refuses(BadInput, queue.push, "x", after=id)
    refuses(BadInput, queue.push, "x", after="1")
    refuses(BadInput, queue.push, "x", after=[("plain", 1, 2)])
    refuses(BadInput, queue.push, "x", after=[None])
    refuses(BadInput, queue.push, "x", after=[id], on_dead="never")
    refuses(BadInput, queue.push, "x", on_dead="cancel")
    refuses(BadInput, queue.push_many, ["x"], on_dead="cancel")
    refuses(BadInput, queue.push, "x", after=[id], delay=1, due=at(1))
    refuses(BadInput, queue.push, "x", after=[id], group="a")
    assert queue.stats().scheduled == 0
    assert rows(queue) == []
    refuses(BadDefinition, db.create_queue, "bad", dependencies="yes")
    refuses(QueueDiffers, db.create_queue, "plain", payload="text", dependencies=True)


@pytest.mark.parametrize(("on_dead", "left"), [("wait", []), ("continue", ["b"]), ("cancel", [])])
def test_a_dead_letter(db: Database, on_dead: Any, left: list[str]) -> None:
    queue = made(db, max_attempts=1)
    queue.push("b", after=[queue.push("a")], on_dead=on_dead)
    claimed(queue).fail("no")
    assert payloads(queue) == left
    if on_dead == "cancel":
        assert [message.state for message in queue.history()] == ["cancelled"]
    assert queue.redrive(ALL) == 1
    assert payloads(queue) == ["a"]
    assert payloads(queue) == (["b"] if on_dead == "wait" else [])
    assert rows(queue) == []


@pytest.mark.parametrize("end", ["cancel", "purge", "purge_dead"])
def test_messages_that_leave_without_being_finished(db: Database, end: str) -> None:
    queue, other = made(db), db.create_queue("other", payload="text", max_attempts=1)
    id = other.push("a")
    queue.push("b", after=[("other", id)])
    if end == "purge_dead":
        claimed(other).fail("no")
        assert payloads(queue) == []
    ends: dict[str, Callable[[], object]] = {
        "cancel": lambda: other.cancel([id]),
        "purge": other.purge,
        "purge_dead": lambda: other.purge_dead(ALL),
    }
    ends[end]()
    assert payloads(queue) == ["b"]


def test_a_dropped_queue(db: Database) -> None:
    queue, other = made(db), made(db, "other")
    queue.push("b", after=[("other", other.push("a"))])
    other.push("never", after=[other.push("c")])
    other.drop()
    other = made(db, "other")
    other.push("new")
    assert payloads(queue) == ["b"], "the new queue is another one"
    assert rows(queue) == []


def test_the_time_at_which_it_was_to_be_ready(db: Database) -> None:
    queue = made(db)
    first = queue.push("a", now=at(0))
    queue.push("delayed", after=[first], delay=10, now=at(1))
    queue.push("due", after=[first], due=at(50), now=at(1))
    queue.push("past", after=[first], due=at(5), now=at(1))
    claimed(queue, now=at(20)).complete(now=at(21))
    assert payloads(queue, now=at(22)) == ["past"]
    assert payloads(queue, now=at(31)) == []
    assert payloads(queue, now=at(33)) == ["delayed"]
    assert payloads(queue, now=at(51)) == ["due"]


def test_a_group_waits_with_its_message(db: Database) -> None:
    queue = made(db, groups=True)
    queue.push("b", after=[queue.push("a", group="x")], group="y")
    queue.push("c", group="y")
    queue.push("d", group="z")
    assert sorted(message.payload for message in queue.pop_many(9)) == ["a", "d"]
    first = next(message for message in queue.peek(9, state="in_progress") if message.payload == "a")
    queue.cancel([first.id])
    assert payloads(queue) == []
    queue.extend_held(first.id, 0)
    assert payloads(queue) == ["b"]
    assert payloads(queue) == ["c"]


def test_a_key_that_is_taken(db: Database) -> None:
    queue = made(db)
    first = queue.push("a", key="k")
    assert queue.push("b", key="k", after=[first], on_conflict="skip") is None
    assert queue.push("b", key="k", after=[first], on_conflict="return") == first
    refuses(DuplicateKey, queue.push, "b", key="k", after=[first])
    assert rows(queue) == []
    queue.push("b", key="l", after=[first])
    refuses(DuplicateKey, queue.push, "c", key="l")


def test_in_a_callers_transaction(db: Database) -> None:
    queue = made(db)
    for commits in (False, True):
        with db.engine.connect() as connection:
            first = queue.push("a", connection=connection)
            queue.push("b", after=[first], connection=connection)
            connection.commit() if commits else connection.rollback()
        assert len(rows(queue)) == (2 if commits else 0)
    assert payloads(queue) == ["a"]
    assert payloads(queue) == ["b"]


def test_one_that_was_rescheduled_stays_so(db: Database) -> None:
    queue = made(db)
    first = queue.push("a")
    id = queue.push("b", after=[first])
    assert id is not None
    queue.reschedule(id, due=at(1000))
    claimed(queue).complete()
    assert payloads(queue) == []
    assert found(queue, id).due_at == at(1000)
    assert rows(queue) == []


def test_one_that_was_rescheduled_is_not_cancelled(db: Database) -> None:
    queue = made(db, max_attempts=1)
    id = queue.push("b", after=[queue.push("a")], on_dead="cancel")
    assert id is not None
    queue.reschedule(id, due=at(1000))
    claimed(queue).fail("no")
    assert payloads(queue) == []
    assert (found(queue, id).state, found(queue, id).due_at) == ("scheduled", at(1000))
    assert rows(queue) == []


def test_takes_alone_find_the_ends(db: Database, place: Place) -> None:
    """A consumer that only ever takes, in its own transactions, sees what waits for nothing any more."""
    queue = made(db)
    queue.push("b", after=[queue.push("a")])
    taker = place.open().queue("work")
    got: list[str] = []
    for _ in range(4):  # a sweep beside a transaction may come after its claim
        with db.engine.begin() as connection:
            got += [message.payload for message in taker.take_many(9, connection=connection)]
    assert got == ["a", "b"]
    assert rows(queue) == []


def test_what_a_transaction_took_is_waited_for_until_it_ends(db: Database) -> None:
    queue = made(db)
    queue.push("b", after=[queue.push("a")])
    with db.engine.connect() as connection:
        assert [message.payload for message in queue.take_many(9, connection=connection)] == ["a"]
        queue.take_many(9, connection=connection)
        connection.rollback()
    assert payloads(queue) == ["a"]
    assert payloads(queue) == ["b"]


def test_dead_letters_of_what_is_waited_for_stay(db: Database) -> None:
    queue, other = made(db), db.create_queue("other", payload="text")
    db.create_queue("dead", payload="text")
    queue.push("b", after=[("other", other.push("a"))])
    refuses(BadInput, other.alter, dead_letter_to="dead")
    assert payloads(other) == ["a"]
    assert payloads(queue) == ["b"]
    other.alter(dead_letter_to="dead")


def test_what_waits_or_is_waited_for_is_not_moved(db: Database) -> None:
    queue, other, third = made(db), db.create_queue("other", payload="text"), db.create_queue("third", payload="text")
    assert other.move(ALL, to=third) == {}
    queue.push("b", after=[("other", other.push("a"))])
    refuses(BadInput, other.move, ALL, to=third)
    refuses(BadInput, queue.move, ALL, to=third)


def test_a_renamed_queue(db: Database) -> None:
    queue, other = made(db), db.create_queue("other", payload="text")
    queue.push("b", after=[("other", other.push("a"))])
    db.rename("other", "new")
    db.rename("work", "old")
    assert payloads(db.queue("old")) == []
    assert payloads(db.queue("new")) == ["a"]
    assert payloads(db.queue("old")) == ["b"]


def test_the_option_cannot_be_altered(place: Place, db: Database) -> None:
    queue = made(db)
    assert db.create_queue("work", payload="text", dependencies=True).definition == queue.definition
    refuses(BadDefinition, queue.alter, dependencies=False)


def test_a_sweep_that_is_cut_off_anywhere(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a statement that may be done twice: the next sweep does what is left."""
    queue, other = made(db), db.create_queue("other", payload="text", max_attempts=1)
    runner = context_of(queue).runner
    run, left = runner.run, [0]

    def cut_off(operation: Any, *args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise DatabaseError("cut off", "again")
        return run(operation, *args, **options)

    for steps in range(12):
        dead, done = other.push_many(["dead", "done"])
        queue.push("cancelled", after=[("other", dead)], on_dead="cancel")
        queue.push("freed", after=[("other", done)])
        claimed(other).fail("no")
        claimed(other).complete()
        left[0] = steps
        monkeypatch.setattr(runner, "run", cut_off)
        try:
            dependency_ends.look(context_of(queue), None)
        except DatabaseError:
            pass
        finally:
            monkeypatch.undo()
        assert payloads(queue) == ["freed"], steps
        assert payloads(queue) == []
        assert rows(queue) == []


def test_two_sweeps_at_once(db: Database, place: Place) -> None:
    queue = made(db)
    ids = queue.push_many(str(n) for n in range(20))
    for id in ids:
        queue.push(f"after {id}", after=[id])
    queue.complete_many(queue.pop_many(20))
    others = [place.open().queue("work") for _ in range(3)]
    threads = [Thread(target=dependency_ends.look, args=(context_of(other), None)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(payloads(queue)) == 20
    assert payloads(queue) == []


def test_a_consumer_that_waits(db: Database, place: Place) -> None:
    """It is not notified, and looks from time to time."""
    queue, other = made(db), db.create_queue("other", payload="text")
    queue.push("b", after=[("other", other.push("a"))])
    got: list[str] = []
    consumer = place.open().queue("work")

    def consume() -> None:
        with consumer.receive(wait=60) as message:
            got.append(message.payload)

    waiting = Thread(target=consume)
    waiting.start()
    claimed(other).complete()
    waiting.join()
    assert got == ["b"]


@in_loop
async def test_the_async_verbs(place: Place) -> None:
    async with await tablequeue.aio.connect(place.url, schema=place.schema) as db:
        queue = await db.create_queue("work", payload="text", dependencies=True)
        await queue.push("a")
        message = await claimed_async(queue)
        await queue.push("b", after=[message])
        assert await queue.pop() is None
        await message.complete()
        assert (await claimed_async(queue)).payload == "b"


def test_random_graphs(db: Database) -> None:
    """Nothing runs before its turn, and nothing waits for ever, whatever fails or is cancelled."""
    seed = random.randrange(1 << 32)
    chosen = random.Random(seed)
    queues = {name: made(db, name, max_attempts=1) for name in ("work", "other")}
    waits: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for number in range(60):
        name = chosen.choice([*queues])
        after = set(chosen.sample([*waits], min(len(waits), chosen.choice([0, 0, 1, 2, 5]))))
        on_dead: Any = chosen.choice(["continue", "cancel"])
        id = queues[name].push(str(number), after=[*after], on_dead=on_dead)
        waits[name, id] = after
    idle = 0
    while idle < 3:
        idle += 1
        for name, queue in queues.items():
            for message in queue.pop_many(chosen.randint(1, 4)):
                idle = 0
                here = {each for each in waits[name, message.id] if not _is_over(queues, each)}
                assert here == set(), f"seed {seed}: {message.id} of {name} before {here}"
                message.fail("no") if chosen.random() < 0.2 else message.complete()
    for queue in queues.values():
        assert (queue.stats().ready, queue.stats().scheduled, rows(queue)) == (0, 0, []), f"seed {seed}"


def _is_over(queues: dict[str, Queue], each: tuple[str, int]) -> bool:
    name, id = each
    message = queues[name].find(id)
    return message is not None and message.state in ("finished", "cancelled", "dead")


Original: TypeAlias = Callable[..., Any]


def _all_heads(_: Original, part: Dependencies, cursor: Any, table: Any, params: Any) -> list[int]:
    words = table.engine.words(table)
    cursor.execute(f"select id from {words['dependencies']} where queue = '{table.table_name}' and on_table = ''")  # noqa: S608
    return [row[0] for row in cursor.fetchall()]


def _only_the_head(original: Original, part: Dependencies, cursor: Any, table: Any, params: Any) -> None:
    original(part, cursor, table, {"rows": [row for row in params["rows"] if not row["on_table"]]})


def _with_the_head(original: Original, *given: Any) -> dict[int, int]:
    return {id: number + 1 for id, number in original(*given).items()}


def _of_the_first(original: Original, part: Dependencies, cursor: Any, table: Any, params: Any) -> None:
    first = params["rows"][0]["message"]
    original(part, cursor, table, {"rows": [row for row in params["rows"] if row["message"] == first]})


@pytest.mark.parametrize(
    ("operation", "mutant", "check"),
    [
        ("freed_heads", _all_heads, check_dependencies),
        ("add_dependencies", _only_the_head, check_dependencies),
        ("free_heads", lambda *_: None, check_dependencies),
        ("freed_heads", lambda *_: [], check_dependencies),
        ("add_dependencies", _of_the_first, check_many),
        ("waits_for", _with_the_head, test_for_how_many_a_message_waits),
        ("block_fronts", lambda *_: None, check_redriven),
    ],
    ids="freed_too_early noted_in_vain forgotten never_freed of_the_first counted_with_the_head in_front".split(),
)
def test_mutants(
    db: Database,
    kind: Kind,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    mutant: Callable[..., Any],
    check: Callable[[Database], None],
) -> None:
    part = type(kind.engine_class.dependencies)
    original = getattr(part, operation)
    monkeypatch.setattr(part, operation, lambda *given: mutant(original, *given))
    with pytest.raises(AssertionError):
        check(db)
