"""What the processes of test_crashes.py do, and the steps at which they die.

A step is a moment at which control is back from the driver in the middle of a verb: after a statement of it, between
two rows or two pieces of a bulk push, before and after a commit. Every one of them is a point to die at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import sqlalchemy as sa

from tablequeue import ALL, Database, NewMessage, Queue, Rate
from tablequeue.engines import engine_class
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.runner import Runner
from tablequeue.ext import context_of
from tablequeue.verbs.claim import leased
from tests.nightly import by_night
from tests.servers import Place
from tests.support import at, looked

# The name of the consumer or producer that dies, the same in each run of a verb.
NAME = "the dead"
LEASE = 10
# Messages of a large claim.
MANY = 220


# -- steps ---------------------------------------------------------------------------------------------------------


class Steps:
    """Counts the steps of a verb after `armed`, and calls `reached` at each."""

    def __init__(self, reached: Callable[[int, str], None]) -> None:
        self.armed = False
        self.count = 0
        self._reached = reached

    def step(self, words: str) -> None:
        if self.armed:
            self.count += 1
            self._reached(self.count, words)


class SteppingCursor:
    """A driver's cursor with a step after each call."""

    def __init__(self, cursor: Any, steps: Steps) -> None:
        self.__dict__.update(_cursor=cursor, _steps=steps)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._cursor, name, value)

    def execute(self, statement: Any, *params: Any, **options: Any) -> Any:
        result = self._cursor.execute(statement, *params, **options)
        words = statement if isinstance(statement, str) else statement.decode("utf-8", "replace")
        self._steps.step(words.split()[0])
        return result

    def executemany(self, statement: str, rows: Iterable[Any]) -> Any:
        def counted() -> Iterator[Any]:
            for row in rows:
                yield row
                self._steps.step("between two rows")

        return self._cursor.executemany(statement, counted())

    def packet(self, statements: Sequence[str], params: Any) -> Any:
        """Run several statements, between which the server goes on by itself: one step."""
        result = self._cursor.packet(statements, params)
        self._steps.step("packet")
        return result

    @contextmanager
    def copy(self, statement: str) -> Iterator[Any]:
        with self._cursor.copy(statement) as copy:
            yield SteppingCopy(copy, self._steps)
        self._steps.step("end of the copy")


def torn(self: SteppingCursor, statements: Sequence[str], params: Any) -> Any:
    """Send the statements of a packet one by one, as the packet of a mutant does."""
    found = []
    for statement in statements:
        self.execute(statement, params)
        if self._cursor.description:
            found.append(self._cursor.fetchall())
    return found


@dataclass
class SteppingCopy:
    copy: Any
    steps: Steps

    def write(self, data: str) -> None:
        self.copy.write(data)
        self.steps.step("between two pieces of a copy")


def stepping(engine: type[Engine], steps: Steps) -> type[Engine]:
    """Return the engine, whose cursors have steps."""

    class Stepping(engine):  # type: ignore[misc, valid-type]
        def adopt(self, dbapi: Any) -> RawConnection:
            held: RawConnection = super().adopt(dbapi)
            if not isinstance(held.cursor, SteppingCursor):  # it may have come from our join
                held.cursor = SteppingCursor(held.cursor, steps)
            return held

        def join(self, dbapi: Any) -> Any:
            return SteppingCursor(super().join(dbapi), steps)

    return Stepping


def open_stepping(place: Place, steps: Steps) -> Database:
    sa_engine = place.sa_engine()
    stepping_class = stepping(engine_class(sa_engine.dialect.name), steps)
    database = Database(sa_engine, Runner(sa_engine, stepping_class(sa_engine.dialect, place.schema)), NAME)
    place.opened.append(database)
    return database


# -- verbs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """The surroundings of a verb: its queue, the messages popped for it, and the connections."""

    queue: Queue
    held: list[Any]
    engine: sa.Engine
    steps: Steps


@dataclass(frozen=True)
class Verb:
    """A verb in which a process dies. Its times are those of `at`, and the same in every run."""

    act: Callable[[Moment], Any]
    definition: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Queue], Any] = lambda queue: None
    """What other processes have done before."""
    hold: int = 0
    """The number of messages that the dying process has popped, at time 1."""
    commits: int = 1
    """The number of transactions that may change something, each of which is visible from outside."""
    promotes: bool = False
    """Whether there is one more that promotes groups, where the engine has no triggers that do."""
    time: float = 2
    sweeps_first: bool = False
    """Whether it sweeps before it claims. A refused sweep stops no claim, which then finds the server back."""
    outside: bool = False
    """Whether it runs in a transaction of the application, which SQLAlchemy commits."""
    in_run: bool = False
    """Whether the messages that it has popped are of one group."""


def push_four(queue: Queue) -> None:
    queue.push_many(["a", "b", "c", "d"], now=at(0))


def push_many(queue: Queue) -> None:
    queue.push_many(map(str, range(MANY + 10)), now=at(0))


def push_to_groups(queue: Queue) -> None:
    queue.push_many([NewMessage(payload, group=payload[0]) for payload in ("a1", "a2", "b1", "b2")], now=at(0))


def bury_three(queue: Queue) -> None:
    options = {"group": "a"} if queue.definition.groups else {}
    queue.push_many(["a", "b", "c"], now=at(0), **options)  # type: ignore[call-overload]
    while claim := queue.pop(now=at(0)):
        claim.fail("no", now=at(0))


def first_two(moment: Moment) -> list[int]:
    return [message.id for message in moment.queue.peek(2)]


def cancel_and_fail(moment: Moment) -> None:
    moment.steps.armed = False
    moment.queue.cancel(moment.held[0].id, now=at(2))
    moment.steps.armed = True
    moment.held[0].fail("why", now=at(2))


def take_with_an_effect(moment: Moment) -> None:
    # The effect is another message: it lives and dies with the transaction as a row of the application's would.
    with moment.engine.begin() as connection:
        moment.queue.take_many(2, connection, now=at(2))
        moment.queue.push("effect", connection=connection, now=at(2))
        moment.steps.step("taken, not committed")
    moment.steps.step("committed")


def push_in_a_transaction(moment: Moment) -> None:
    with moment.engine.begin() as connection:
        moment.queue.push_many(["x", "y"], connection=connection, now=at(2))
        moment.steps.step("pushed, not committed")
    moment.steps.step("committed")


def complete_in_a_transaction(moment: Moment) -> None:
    with moment.engine.begin() as connection:
        moment.queue.complete_many(moment.held, connection=connection, now=at(2))
        moment.queue.push("effect", connection=connection, now=at(2))
        moment.steps.step("completed, not committed")
    moment.steps.step("committed")


def complete(moment: Moment) -> None:
    moment.queue.complete_many(moment.held, now=at(2))


def complete_and_claim(moment: Moment) -> None:
    """Like `pop_many(2, completing=held)`, which with `now=` would be two transactions."""
    context = context_of(moment.queue)
    ids = context.engine.dump_ids([message.id for message in moment.held])
    _, params = leased(context, 2, LEASE, at(2))
    params |= {"held": moment.held[0].token, "ids": ids, "number": len(moment.held)}
    assert context.runner.run(context.engine.messages.complete_and_claim, context.table, params)[0] is None


GROUPS: dict[str, Any] = {"groups": True}
ONCE: dict[str, Any] = {"delivery": "at_most_once"}
LAST: dict[str, Any] = {"max_attempts": 1}

VERBS: dict[str, Verb] = {
    "push": Verb(lambda m: m.queue.push("x", now=at(2))),
    "push in a transaction": Verb(push_in_a_transaction, outside=True),
    "push with a key": Verb(lambda m: [m.queue.push("x", key="k", on_conflict="return", now=at(2)) for _ in range(2)]),
    "push to a group": Verb(lambda m: m.queue.push("x", group="g", now=at(2)), GROUPS, promotes=True),
    "push_many": Verb(lambda m: m.queue.push_many(map(str, range(6)), now=at(2))),
    # Long enough for a COPY, and for several pieces of it.
    "push_many of many": Verb(lambda m: m.queue.push_many([f"{n:0800}" for n in range(1500)], now=at(2))),
    "push_many with options": Verb(
        lambda m: m.queue.push_many([NewMessage(k, key=k, delay=5) for k in "xyz"], now=at(2)), before=push_four
    ),
    "push_many to groups": Verb(
        lambda m: m.queue.push_many([NewMessage(k, group=k[0]) for k in ("x1", "x2", "a3")], now=at(2)),
        GROUPS,
        before=push_to_groups,
        promotes=True,
    ),
    "pop": Verb(lambda m: m.queue.pop(lease=LEASE, now=at(2)), before=push_four),
    "pop of a stack": Verb(lambda m: m.queue.pop(lease=LEASE, now=at(2)), {"order": "lifo"}, push_four),
    "pop by priority": Verb(lambda m: m.queue.pop(lease=LEASE, now=at(2)), {"order": "priority"}, push_four),
    "pop of what is due": Verb(lambda m: m.queue.pop(lease=LEASE, now=at(2)), {"order": "due"}, push_four),
    "pop_many": Verb(lambda m: m.queue.pop_many(3, lease=LEASE, now=at(2)), before=push_four),
    "pop at most once": Verb(lambda m: m.queue.pop(now=at(2)), ONCE, push_four),
    "pop_many at most once": Verb(lambda m: m.queue.pop_many(3, now=at(2)), ONCE, push_four),
    # All messages are held: a claim that finds messages returns them, even if its sweep is refused.
    "sweep of lost leases": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), before=push_four, hold=4, commits=2, time=20
    ),
    "sweep of spent attempts": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), LAST, push_four, hold=4, commits=2, time=20
    ),
    "sweep of spent attempts in groups": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), GROUPS | LAST, push_to_groups, 2, 2, True, time=20
    ),
    "take": Verb(take_with_an_effect, before=push_four, outside=True),
    "take without history": Verb(take_with_an_effect, {"history": "none"}, push_four, outside=True),
    "complete": Verb(complete, before=push_four, hold=1),
    "complete_many": Verb(complete, before=push_four, hold=3),
    "complete_and_claim": Verb(complete_and_claim, before=push_four, hold=2),
    "complete_and_claim without history": Verb(complete_and_claim, {"history": "none"}, push_four, hold=2),
    "complete without history": Verb(complete, {"history": "none"}, push_four, hold=3),
    "complete at most once": Verb(complete, ONCE, push_four, hold=3),
    "complete in a transaction": Verb(complete_in_a_transaction, before=push_four, hold=2, outside=True),
    "complete of the head of a group": Verb(complete, GROUPS, push_to_groups, hold=1, promotes=True),
    "complete in strict order": Verb(complete, {"strict": True}, push_four, hold=1, promotes=True),
    "fail": Verb(lambda m: m.held[0].fail("why", retry_in=5, now=at(2)), before=push_four, hold=1),
    "fail for the last time": Verb(lambda m: m.held[0].fail("why", now=at(2)), LAST, push_four, hold=1),
    "fail of the head of a group": Verb(
        lambda m: m.held[0].fail("why", now=at(2)), GROUPS | LAST, push_to_groups, hold=1, promotes=True
    ),
    "fail at most once": Verb(lambda m: m.held[0].fail("why", now=at(2)), ONCE, push_four, hold=1),
    "fail_many": Verb(
        lambda m: m.queue.fail_many(m.held, "why", retry_in=5, now=at(2)), {"max_attempts": 2}, push_four, hold=3
    ),
    "fail_many for the last time": Verb(
        lambda m: m.queue.fail_many(m.held, "why", now=at(2)), GROUPS | LAST, push_to_groups, hold=2, promotes=True
    ),
    "release": Verb(lambda m: m.held[0].release(now=at(2)), before=push_four, hold=1),
    "release_many": Verb(lambda m: m.queue.release_many(m.held, delay=5, now=at(2)), before=push_four, hold=3),
    "extend": Verb(lambda m: m.held[0].extend(30, now=at(2)), before=push_four, hold=1),
    "extend_many": Verb(lambda m: m.queue.extend_many(m.held, 30, now=at(2)), before=push_four, hold=3),
    "fail_many of many": Verb(
        lambda m: m.queue.fail_many(m.held, "why", retry_in=5, now=at(2)), before=push_many, hold=MANY
    ),
    "pop_many of many": Verb(lambda m: m.queue.pop_many(MANY, lease=LEASE, now=at(2)), before=push_many),
    "sweep of many lost leases": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), before=push_many, hold=MANY + 10, commits=2, time=20
    ),
    "complete_many of many": Verb(complete, before=push_many, hold=MANY),
    "complete_and_claim of many": Verb(complete_and_claim, before=push_many, hold=MANY),
    "complete of one of many": Verb(lambda m: m.held[5].complete(now=at(2)), before=push_many, hold=MANY),
    "fail of one of many": Verb(lambda m: m.held[5].fail("why", retry_in=5, now=at(2)), before=push_many, hold=MANY),
    "pop_many of a group": Verb(
        lambda m: m.queue.pop_many(3, lease=LEASE, same_group=True, now=at(2)),
        {"strict": True},
        push_four,
        sweeps_first=True,
    ),
    "complete of a run": Verb(complete, GROUPS, push_to_groups, hold=2, promotes=True, in_run=True),
    "fail of one of a run": Verb(
        lambda m: m.held[0].fail("why", retry_in=5, now=at(2)), GROUPS, push_to_groups, hold=2, in_run=True
    ),
    "release of a run": Verb(
        lambda m: m.queue.release_many(m.held, now=at(2)), GROUPS, push_to_groups, hold=2, promotes=True, in_run=True
    ),
    "sweep of a run": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), {"strict": True}, push_four, 3, 2, True, 20, in_run=True
    ),
    "redrive": Verb(lambda m: m.queue.redrive(ALL, now=at(2)), LAST, bury_three),
    "redrive by id": Verb(
        lambda m: m.queue.redrive([letter.id for letter in m.queue.dead()][:2], now=at(2)), LAST, bury_three
    ),
    "redrive to a group": Verb(lambda m: m.queue.redrive(ALL, now=at(2)), GROUPS | LAST, bury_three, promotes=True),
    "cancel": Verb(lambda m: m.queue.cancel(first_two(m), now=at(2)), before=push_four),
    "cancel by a predicate": Verb(lambda m: m.queue.cancel(lambda message: True, now=at(2)), before=push_four),
    "cancel without history": Verb(lambda m: m.queue.cancel(first_two(m), now=at(2)), {"history": "none"}, push_four),
    "cancel of the heads of groups": Verb(
        lambda m: m.queue.cancel(first_two(m), now=at(2)), GROUPS, push_to_groups, promotes=True
    ),
    "fail of what was cancelled": Verb(cancel_and_fail, GROUPS, push_to_groups, hold=1, promotes=True),
    "reschedule": Verb(lambda m: m.queue.reschedule(first_two(m)[0], delay=5, now=at(2)), before=push_four),
    "push with a key for a time": Verb(
        lambda m: m.queue.push_many([NewMessage(k, key=k) for k in "xyz"], now=at(2)), {"unique_for": 300}
    ),
    "complete with results": Verb(
        lambda m: m.queue.complete_many(m.held, results=[1, None, "x"], now=at(2)), {"results": True}, push_four, hold=3
    ),
    "sweep of what has expired": Verb(
        lambda m: m.queue.pop_many(5, lease=LEASE, now=at(20)), {"expires": 5}, push_four, commits=2, time=20
    ),
    "pop_many within limits": Verb(
        lambda m: m.queue.pop_many(3, lease=LEASE, now=at(2)),
        {"concurrency": 3, "rate": Rate(2, burst=99)},
        push_four,
        sweeps_first=True,
    ),
    "pop_many in turn": Verb(lambda m: m.queue.pop_many(4, lease=LEASE, now=at(2)), {"groups": "fair"}, push_to_groups),
}
# The number of steps at which a process dies: at most this many by day, and all by night.
POINTS, ALL_STEPS = 6, 10_000
MOST = by_night([POINTS, ALL_STEPS], POINTS.__eq__)


def spread(number: int, most: int = POINTS) -> list[int]:
    """Return the numbers of at most so many of these steps, with the first and the last."""
    if number <= most:
        return [*range(1, number + 1)]
    return [1 + round(n * (number - 1) / (most - 1)) for n in range(most)]


# Each verb, with its texts of most steps: of groups, of runs, in a caller's transaction, in pieces, within limits.
CORE = (
    *("push", "push in a transaction", "push with a key", "push_many of many", "push_many to groups"),
    *("pop", "pop_many", "pop_many at most once", "pop_many of a group", "pop_many within limits", "pop_many in turn"),
    *("sweep of lost leases", "sweep of spent attempts in groups", "sweep of what has expired", "take"),
    *("complete", "complete_many", "complete_and_claim", "complete without history", "complete at most once"),
    *("complete in a transaction", "complete of the head of a group", "complete with results"),
    *("fail", "fail_many for the last time", "release_many", "release of a run", "extend_many"),
    *("redrive to a group", "cancel of the heads of groups", "fail of what was cancelled", "reschedule"),
)


def begin(verb: Verb, queue: Queue, engine: sa.Engine, steps: Steps) -> Moment:
    """Do everything before the verb itself."""
    lease = None if queue.definition.delivery == "at_most_once" else LEASE
    held = queue.pop_many(verb.hold, lease=lease, same_group=verb.in_run, now=at(1)) if verb.hold else []
    assert len(held) == verb.hold
    return Moment(looked(queue), held, engine, steps)


def go_through(verb: Verb, moment: Moment) -> Any:
    """Run the verb with all of its steps. The last step comes after its return."""
    moment.steps.armed = True
    result = verb.act(moment)
    moment.steps.step("returned")
    moment.steps.armed = False
    return result


# -- processes -----------------------------------------------------------------------------------------------------


def stop_in_a_verb(place: Place, name: str, points: Sequence[tuple[str, int]], pipe: Connection) -> None:
    """Run a verb on each of these queues up to its step, report the steps, and stay there until killed."""
    arrived: SimpleQueue[tuple[int, str]] = SimpleQueue()

    def stand(queue: str, number: int) -> None:
        def reached(count: int, words: str) -> None:
            if count == number:
                arrived.put((number, words))
                Event().wait()

        steps = Steps(reached)
        try:
            database = open_stepping(place, steps)
            go_through(VERBS[name], begin(VERBS[name], database.queue(queue), database.engine, steps))
        finally:
            arrived.put((number, "not reached"))

    for point in points:
        Thread(target=stand, args=point, daemon=True).start()
    pipe.send(sorted(arrived.get() for _ in points))
    pipe.recv()


def stop_in_create(place: Place, definition: dict[str, Any], number: int, pipe: Connection) -> None:
    """Create a queue up to this step, report it, and stay there until killed."""
    steps = Steps(standing_at(number, pipe))
    database = open_stepping(place, steps)
    steps.armed = True
    database.create_queue("made", **definition)
    steps.step("returned")


def stop_in_drop(place: Place, number: int, pipe: Connection) -> None:
    """Drop a queue up to this step, report it, and stay there until killed."""
    steps = Steps(standing_at(number, pipe))
    database = open_stepping(place, steps)
    steps.armed = True
    database.queue("made").drop()
    steps.step("returned")


def stop_in_move(place: Place, number: int, pipe: Connection) -> None:
    """Move all messages of a queue up to this step, report it, and stay there until killed."""
    steps = Steps(standing_at(number, pipe))
    database = open_stepping(place, steps)
    steps.armed = True
    database.queue("a").move(ALL, to=database.queue("b"))
    steps.step("returned")


def standing_at(number: int, pipe: Connection) -> Callable[[int, str], None]:
    def reached(count: int, words: str) -> None:
        if count == number:
            pipe.send(words)
            pipe.recv()

    return reached
