"""Which transitions of tablequeue.model.states the messages of a real database make, and which the table has.

`recording` has an engine look at all messages before and after each of its operations. `live_through` is a life in
which every transition comes that a queue can have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tablequeue import ALL, Claim, Database, Definition, NewMessage, Queue
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.engines.columns import COLUMNS
from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.reads import Reads
from tablequeue.engines.table import Table
from tablequeue.ext import context_of
from tablequeue.model.options import QueueOptions
from tablequeue.model.states import TRANSITIONS, VERBS
from tests.support import at, design_group

Move = tuple[str, str, str]
"""A state, a verb, and the state after it."""

OPERATIONS = {
    operation: tuple(verb for verb, operations in VERBS.items() if operation in operations.split())
    for operation in " ".join(VERBS.values()).split()
}
ID, STATE = COLUMNS.index("id"), COLUMNS.index("state")
WHOLE: Params = {"low": 0, "high": (1 << 63) - 1, "n": 10_000}
# Text that the columns of JSON take, and that Python cannot read.
UNREADABLE = "[1e400]"


def moves_of(definition: Definition) -> set[Move]:
    """The transitions that the table has for such a queue."""
    true = conditions(definition)

    def fits(queues: str) -> bool:
        return all(word[4:] not in true if word[:4] == "not_" else word in true for word in queues.split())

    return {(one.source, one.verb, one.target) for one in TRANSITIONS if fits(one.queues.replace("not ", "not_"))}


class Recorder:
    """The moves that the operations of an engine have made, each with the operation."""

    def __init__(self, reads: Reads) -> None:
        self.made: set[Move] = set()
        self._reads = reads
        self._states: dict[str, dict[int, str]] = {}
        self._running: list[str] = []

    def around(self, operation: str) -> Callable[..., Any]:
        """The method of that operation, for a subclass of its part: as before, and recorded."""

        def method(part: Any, cursor: Cursor, table: Table, params: Params) -> Any:
            tables = [one for one in (table.source, table) if one is not None]
            for one in tables:
                self._look(cursor, one)  # what an operation around this one did before it
            at_most_once = operation == "take" and params.get("token")
            self._running.append("claim" if at_most_once else operation)
            try:
                result = getattr(super(type(part), part), operation)(cursor, table, params)
                for one in tables:
                    self._look(cursor, one)
            finally:
                self._running.pop()
            return result

        return method

    def _look(self, cursor: Cursor, table: Table) -> None:
        rows = list(self._reads.live(cursor, table, WHOLE))
        if table.definition.keeps_history:
            rows += self._reads.history(cursor, table, WHOLE)
        after = {row[ID]: row[STATE] for row in rows}
        before = self._states.get(table.table_name, {})
        if self._running:
            for id in {*before, *after}:
                move = before.get(id, "new"), self._running[-1], after.get(id, "deleted")
                if move[0] != move[2]:
                    self.made.add(move)
        self._states[table.table_name] = dict.fromkeys(before, "deleted") | after


def recording(engine: Engine) -> Recorder:
    """Record what the operations of this engine do from here on."""
    recorder = Recorder(engine.reads)
    for name in ("messages", "streams", "staging"):
        part = copy(getattr(engine, name))
        methods = {operation: recorder.around(operation) for operation in OPERATIONS if hasattr(part, operation)}
        part.__class__ = type(f"Recorded{type(part).__name__}", (type(part),), methods)
        setattr(engine, name, part)  # of this engine alone
    return recorder


def check_states(database: Database, **options: Any) -> None:
    """A queue makes all transitions that the table has for it, and no other ones."""
    engine = database._runner.engine
    recorder = recording(engine)
    queue = database.create_queue("work", max_attempts=2, **options)
    live_through(database, queue)
    there = moves_of(queue.definition)
    seen: set[Move] = set()
    for move in recorder.made:
        known = _in_table(move, there, triggers=not engine.promotes)
        assert known, f"the table has no such transition: {move}"
        seen |= known
    assert not there - seen, f"the table has what never comes: {sorted(there - seen)}"


def _in_table(move: Move, there: set[Move], triggers: bool) -> set[Move]:
    """The transitions that the move is made of; none if the table does not have it."""
    source, operation, target = move
    verbs = OPERATIONS[operation]
    promoted: Move = ("blocked", "promote", target)
    if known := {(source, verb, target) for verb in verbs} & there:
        return known
    if triggers and promoted in there:
        # What is pushed or redriven may become the head at once, and so may the message behind what is moved.
        return {promoted} if source == "blocked" else {(source, verb, "blocked") for verb in verbs} & there
    return set()


def live_through(database: Database, queue: Queue) -> None:
    """A life of messages in which every transition comes that the queue can have."""
    definition = queue.definition
    group = design_group(queue, "g")
    push = partial(queue.push, **group)

    def empty() -> None:
        queue.purge()
        queue.purge_dead(ALL)

    def take(**options: Any) -> Claim | None:
        with database.engine.begin() as connection:
            return queue.take(connection, **options)

    # Pushed in every way, alone and behind others; taken, and purged in every state of waiting.
    push(1)
    push(2, delay=60, now=at(0))
    queue.push_many([3, 4], **group)
    queue.push_many([NewMessage(5, key="k")], **group)
    staging.prepare(queue)
    columns = {"payload": [_stored(definition, 6)], **{name: [value] for name, value in group.items()}}
    staging.publish(
        queue, "0" * 32, [staging.stage(queue, "0" * 32, "1" * 32, 0, [pa.RecordBatch.from_pydict(columns)])]
    )
    take(now=at(0))
    empty()
    push(1, delay=60, now=at(0))
    empty()

    if definition.order == "due":
        # Scheduled and due, and no sweep comes before the claim.
        for claim in (queue.pop, take):
            push(1, delay=1, now=datetime(2020, 1, 1, tzinfo=UTC))
            context_of(queue).table.next_sweep = math.inf
            claimed = claim()
            assert claimed is not None
            if claimed.token:
                claimed.complete()

    # Rescheduled to and fro; cancelled in every state.
    id = push(1, now=at(0))
    queue.reschedule(id, delay=5, now=at(0))
    queue.reschedule(id, delay=0, now=at(0))
    push(2, delay=60, now=at(0))
    push(3, now=at(0))
    queue.cancel(lambda message: message.state != "ready", now=at(0))
    queue.cancel(lambda message: True, now=at(0))
    push(1, delay=60, now=at(0))
    queue.cancel(lambda message: True, now=at(0))
    if definition.delivery == "at_least_once":
        _fail_and_recover(queue, push)
        _stop(queue, push)
        if definition.grouped:
            _run(queue, push)
    else:
        push(1, now=at(0))
        push(2, now=at(0), delay=10)
        done, _lost = queue.pop_many(1, now=at(0)) + queue.pop_many(1, now=at(10))
        done.complete(now=at(10))

    # What cannot be read is buried, and comes back.
    if definition.payload == "json":
        for leave in (queue.redrive, queue.purge_dead, lambda ids: queue.cancel(ids).cancelled):
            id = push(1, now=at(0))
            name = context_of(queue).table.engine.words(context_of(queue).table)["queue"]
            with database.engine.begin() as connection:
                connection.execute(sa.text(f"update {name} set payload = '{UNREADABLE}' where id = {id}"))  # noqa: S608
            assert take(now=at(0)) is None
            assert leave([id])
            empty()
    if definition.expires:
        # Behind the first one, of a group, one waits; and one for its time. Then the time of all is over.
        push(1, now=at(5000))
        push(2, now=at(5000))
        queue.push(3, delay=2 * definition.expires, **design_group(queue, "h"), now=at(5000))
        queue.pop(now=at(5000 + definition.expires))
        empty()
    if definition.keeps_history:
        queue.purge_history(0, now=at(10_000 + (definition.expires or 0)))
    _move(database, queue, push)


def _move(database: Database, queue: Queue, push: Callable[..., int]) -> None:
    """Move messages in every state to another queue, and back."""
    options: Any = {name: getattr(queue.definition, name) for name in QueueOptions.__annotations__}
    other = database.create_queue("other", **options)
    empty = push(1)
    name = context_of(queue).table.engine.words(context_of(queue).table)["queue"]
    with database.engine.begin() as connection:
        connection.execute(sa.text(f"update {name} set payload = '{UNREADABLE}' where id = {empty}"))  # noqa: S608
    with database.engine.begin() as connection:
        assert queue.take(connection) is None
    assert queue.move(ALL, to=other) == {empty: 1}
    # Those behind it are blocked in a queue with groups.
    ids = [push(1), push(2), push(3, delay=3000)]
    assert len(queue.move(ids[1:], to=other)) == 2
    assert len(queue.move(ALL, to=other)) == 1
    later = push(4, delay=3000)
    assert len(queue.move([later], to=other)) == 1
    assert len(other.move(ALL, to=queue)) == 5


def _fail_and_recover(queue: Queue, push: Callable[..., int]) -> None:
    """Every way out of the hands of a consumer, of a message and the one behind it."""

    def pop(seconds: float, **options: Any) -> Claim:
        claim = queue.pop(now=at(seconds), **options)
        assert claim is not None
        return claim

    push(1, now=at(0))
    pop(0).fail("no", retry_in=0, now=at(0))
    pop(1).release(now=at(1))
    pop(2).release(delay=5, now=at(2))
    pop(10).fail("no", retry=False, now=at(10))
    assert queue.redrive(ALL, now=at(11)) == 1
    empty_handed = pop(20)
    empty_handed.fail("no", retry_in=5, now=at(20))
    assert pop(30, lease=5).id == empty_handed.id
    queue.pop(now=at(40))  # it swept: the lease had expired, and with it the last attempt
    queue.redrive(ALL, now=at(40))
    pop(50, lease=5)
    last = pop(60)
    push(2, now=at(60), delay=3000)
    last.complete(now=at(60))
    pop(4000).complete(now=at(4000))

    # A stream claims, and another claim completes.
    push(3, now=at(4000))
    stream = Stream(queue, "s")
    stream.complete(stream.advance(stream.found.batch, 1, now=at(4000)), now=at(4000))
    push(4, now=at(4000))
    push(5, now=at(4000))
    for claim in queue.pop_many(1, completing=[pop(4000)], now=at(4000)):
        claim.complete(now=at(4001))
    queue.purge()


def _stop(queue: Queue, push: Callable[..., int]) -> None:
    """Every end of a message that was told to stop."""
    ends: list[Callable[[Claim], object]] = [
        lambda claim: claim.fail("no", now=at(5000)),
        lambda claim: claim.release(now=at(5000)),
        lambda claim: queue.pop(now=at(5100)),
    ]
    for end in ends:
        push(1, now=at(5000))
        claim = queue.pop(lease=50, now=at(5000))
        assert claim is not None
        queue.cancel(claim.id, now=at(5000))
        end(claim)
    push(1, now=at(5200))
    claim = queue.pop(now=at(5200))
    assert claim is not None
    claim.fail("no", retry=False, now=at(5200))
    queue.cancel(claim.id, now=at(5200))


def _run(queue: Queue, push: Callable[..., int]) -> None:
    """Every end of a message that was claimed with others of its group."""
    for number in range(5):
        push(number, now=at(6000))
    run = queue.pop_many(4, lease=50, same_group=True, now=at(6000))
    run[0].fail("no", retry_in=0, now=at(6000))
    run[1].release(now=at(6000))
    run[2].complete(now=at(6000))
    head = queue.pop(now=at(6100))  # it swept
    assert head is not None
    head.complete(now=at(6100))
    queue.purge()


def _stored(definition: Definition, value: object) -> str | bytes:
    return str(value).encode() if definition.payload == "bytes" else str(value)
