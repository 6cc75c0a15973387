"""Small things that the tests of batches share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pytest

from tablequeue import BatchProgress, Claim, Database, NewMessage, Queue
from tablequeue.errors import BatchNotFound, LeaseLost
from tablequeue.ext import context_of
from tablequeue.verbs.batches import progress_of_open
from tests.crashes import Steps, open_stepping, standing_at
from tests.servers import Place
from tests.support import at, claimed, design_group, looked

ENGINES = ("sqlite", "postgresql", "mariadb", "mssql")
THEN = ("called", "ended")
FAILED = ("called", "failed")
HEADER = "tablequeue-batch"


def made(database: Database, **options: Any) -> Queue:
    """Return a queue with batches; their callbacks come to another one."""
    database.create_queue("called", payload="text")
    return database.create_queue("work", **{"payload": "text", "batches": True, "max_attempts": 1, **options})


def opened(queue: Queue, payloads: str = "abc", **options: Any) -> int:
    """Push a batch, and return its id."""
    with queue.batch(**{"then": THEN, **options}) as batch:
        batch.push_many(new for new in _new(queue, payloads))
    return batch.id


def _new(queue: Queue, payloads: str) -> Iterator[Any]:
    for payload in payloads:
        yield NewMessage(payload, **design_group(queue, "g")) if queue.definition.groups else payload


def called(database: Database) -> list[tuple[str, int, dict[str, int]]]:
    """Return the callbacks: of each the payload, the id of the batch, and the numbers that are not zero."""
    messages = database.queue("called").peek(100)
    headers = [message.headers[HEADER] for message in messages]
    return [
        (
            message.payload,
            header["id"],
            {name: number for name, number in header.items() if name not in ("id", "queue") and number},
        )
        for message, header in zip(messages, headers, strict=True)
    ]


def numbers(progress: BatchProgress) -> dict[str, int]:
    """Return the numbers of a batch that are not zero."""
    names = ("waiting", "in_progress", "finished", "dead", "cancelled")
    return {name: number for name in names if (number := getattr(progress, name))}


def progress(database: Database, id: int) -> dict[str, int]:
    return numbers(database.batch(id).progress())


def swept(queue: Queue) -> Claim | None:
    """Pop at a queue that has nothing ready, so that it is swept."""
    return queue.pop()


def check_batch(database: Database, **options: Any) -> None:
    """The callback is pushed once, at the completion that leaves no message, with the numbers of the batch."""
    queue = made(database, **options)
    id = opened(queue)
    for left in (3, 2, 1):
        assert called(database) == [], "messages are left"
        assert progress(database, id) == {"waiting": left} | ({"finished": 3 - left} if left < 3 else {})
        message = claimed(queue)
        assert called(database) == []
        if left == 1:
            assert swept(queue) is None
            assert called(database) == [], "one is in progress"
        message.complete()
    assert called(database) == [("ended", id, {"total": 3, "finished": 3})], "at once"
    assert swept(queue) is None
    assert len(called(database)) == 1
    assert progress(database, id) == {"finished": 3}
    assert database.batch(id).progress().ended_at is not None


def check_together(database: Database, **options: Any) -> None:
    """A pop that completes the last message of a batch ends it at once, also if it claims another message."""
    queue = made(database, **options)
    id = opened(queue, "a")
    first = claimed(queue)
    queue.push("b")
    second = queue.pop(completing=first)
    assert second is not None
    assert second.payload == "b"
    assert called(database) == [("ended", id, {"total": 1, "finished": 1})]
    other = opened(queue, "c")
    third = queue.pop(completing=second)
    assert third is not None
    queue.push("d")
    with pytest.raises(LeaseLost):
        queue.pop_many(1, completing=[second, third])
    assert called(database)[1:] == [("ended", other, {"total": 1, "finished": 1})]


def check_withdrawn(database: Database) -> None:
    """Messages that leave the queue in other ways than by a completion are counted, and leave the batch."""
    queue = made(database)
    id = opened(queue)
    first, second, third = (message.id for message in queue.peek(3))
    queue.cancel(second)
    assert progress(database, id) == {"waiting": 2, "cancelled": 1}
    held = claimed(queue)
    assert held.id == first
    queue.cancel([first, third])
    assert progress(database, id) == {"in_progress": 1, "cancelled": 2}
    assert called(database) == []
    assert held.fail("no") == "cancelled"
    assert called(database) == [("ended", id, {"total": 3, "cancelled": 3})]


def check_dead(database: Database) -> None:
    """A dead letter calls `failed` once, and the batch waits for it."""
    queue = made(database)
    id = opened(queue, failed=FAILED)
    messages = queue.pop_many(3)
    messages[0].fail("no")
    assert called(database) == [("failed", id, {"total": 3, "dead": 1})]
    messages[1].fail("no")
    messages[2].complete()
    assert swept(queue) is None
    assert len(called(database)) == 1, "once, and it waits"
    assert progress(database, id) == {"finished": 1, "dead": 2}
    assert queue.redrive([message.id for message in queue.dead()]) == 2
    queue.complete_many(queue.pop_many(2))
    assert called(database)[1:] == [("ended", id, {"total": 3, "finished": 3})]


def completed_without_a_look(queue: Queue, message: Claim) -> None:
    """Complete a message as a process does that dies right after that."""
    context = context_of(queue)
    params: Any = {"ids": context.engine.dump_ids([message.id]), "token": message.token, "now": None}
    assert context.run(context.messages.complete, params) == [message.id]
    context.table.ending.clear()


def check_repair(database: Database) -> None:
    """A sweep ends a batch whose last completion did not."""
    queue = made(database)
    id = opened(queue, "a")
    completed_without_a_look(queue, claimed(queue))
    assert called(database) == []
    assert swept(database.queue("work")) is None
    assert called(database) == [("ended", id, {"total": 1, "finished": 1})]


def check_added(database: Database) -> None:
    """Messages that a handler adds belong to the batch, which does not end before they are finished."""
    queue = made(database)
    id = opened(queue, "a")
    message = claimed(queue)
    with queue.batch_of(message) as batch:
        batch.push("b")
    message.complete()
    assert called(database) == []
    assert progress(database, id) == {"waiting": 1, "finished": 1}
    claimed(queue).complete()
    assert called(database) == [("ended", id, {"total": 2, "finished": 2})]


def check_seen(database: Database) -> None:
    """A list of the open batches of a queue has the progress of each, and `stats` their number."""
    queue = made(database)
    others = database.create_queue("other", payload="text", batches=True)
    first, ended, *_ = (opened(queue, payloads) for payloads in ("abc", "d", "ef", "g"))
    opened(others, "h")
    done, dead, _, last = queue.pop_many(4)
    queue.complete_many([done, last])
    dead.fail("no")
    found = {batch.id: progress for batch, progress in progress_of_open(context_of(queue), 100, 0).items()}
    assert [*found] == [batch.id for batch in queue.batches()]
    assert ended not in found
    assert numbers(found[first]) == {"in_progress": 1, "finished": 1, "dead": 1}
    assert found == {id: database.batch(id).progress() for id in found}
    assert [batch.id for batch in progress_of_open(context_of(queue), 1, first)] == [[*found][1]]
    assert (queue.stats().open_batches, others.stats().open_batches) == (3, 1)
    assert database.queue("called").stats().open_batches is None


# -- processes that die ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """What a process does when it dies. Its times are those of `at`, and the same in every run."""

    act: Callable[[Queue, list[Claim]], Any]
    payloads: str | None = None
    """The batch that was pushed before; None: there is none."""
    options: dict[str, Any] = field(default_factory=dict)
    hold: int = 0
    """The number of messages that the dying process has popped, at time 1."""
    failed: int = 0
    """How often the callback for dead letters is pushed in the end."""


def _add(queue: Queue, held: list[Claim]) -> None:
    with queue.batch_of(held[0], now=at(2)) as batch:
        batch.push_many([*"xy"])


ACTS: dict[str, Act] = {
    "a push": Act(lambda queue, held: opened(queue, now=at(2))),
    "a push of nothing": Act(lambda queue, held: opened(queue, "", now=at(2))),
    "an addition": Act(_add, "a", hold=1),
    "the last completion": Act(lambda queue, held: queue.complete_many(held, now=at(2)), "ab", hold=2),
    "a dead letter that cancels": Act(
        lambda queue, held: held[0].fail("no", now=at(2)), "abc", {"failed": FAILED, "on_dead": "cancel"}, 1, 1
    ),
    "a sweep": Act(
        lambda queue, held: queue.pop(now=at(20)), "a", {"failed": FAILED, "on_dead": "continue"}, hold=1, failed=1
    ),
}
LEASE = 10


def go_through(act: Act, queue: Queue, steps: Steps) -> None:
    """Run an act with all of its steps. The last step comes after its return."""
    held = queue.pop_many(act.hold, lease=LEASE, now=at(1)) if act.hold else []
    assert len(held) == act.hold
    steps.armed = True
    act.act(looked(queue), held)
    steps.step("returned")
    steps.armed = False


def stop_in_an_act(place: Place, name: str, queue: str, number: int, pipe: Connection) -> None:
    """Run an act up to this step, report it, and stay there until killed."""
    steps = Steps(standing_at(number, pipe))
    go_through(ACTS[name], open_stepping(place, steps).queue(queue), steps)


def check_forgotten(database: Database) -> None:
    """Sweeps of a queue with a retention, and `purge_history`, forget batches that have ended, and no others."""
    queue = database.create_queue("work", payload="text", batches=True, history=3600)
    with queue.batch(now=at(0)) as long_ended, queue.batch(now=at(5000)) as ended, queue.batch(now=at(0)) as still_open:
        still_open.push("a")
    assert [batch.id for batch in queue.batches()] == [still_open.id]
    context_of(queue).table.next_purge = 0
    claimed(queue, now=at(7000))
    assert not is_there(database, long_ended.id)
    assert is_there(database, ended.id)
    assert is_there(database, still_open.id)
    queue.purge_history(0, now=at(20_000))
    assert not is_there(database, ended.id)
    assert is_there(database, still_open.id)


def is_there(database: Database, id: int) -> bool:
    try:
        database.batch(id)
    except BatchNotFound:
        return False
    return True


def check_results(database: Database) -> None:
    """A batch has the results of its own finished messages, in pages, as long as the history has the messages."""
    queue = made(database, results=True)
    queue.push("alone")
    opened(queue, "x")
    id = opened(queue, "abcd")
    batch = database.batch(id)
    assert batch.results() == {}
    queue.complete(claimed(queue), result="alone")
    queue.complete(claimed(queue), result="of another batch")
    a, b, c, d = queue.pop_many(4)
    queue.complete_many([a, b], results=[{"n": 1}, None])
    assert batch.results() == {a.id: {"n": 1}}
    queue.complete(c, result="c")
    with database.engine.begin() as connection:
        queue.complete(d, result=[4], connection=connection)
        assert batch.results() == {a.id: {"n": 1}, c.id: "c"}, "not committed"
    assert swept(queue) is None
    assert len(called(database)) == 2
    assert batch.results() == {a.id: {"n": 1}, c.id: "c", d.id: [4]}
    assert list(batch.results()) == [a.id, c.id, d.id]
    assert batch.results(2) == {a.id: {"n": 1}, c.id: "c"}
    assert batch.results(2, after=c.id) == {d.id: [4]}
    queue.purge_history(0)
    with pytest.raises(BatchNotFound):
        batch.results()
