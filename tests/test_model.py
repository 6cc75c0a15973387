"""Random lives of a queue, compared with the model of tests/model.py: every verb, every design, every engine.

The examples are always the same: a few, and more of them by night. TABLEQUEUE_TEST_EXAMPLES=1000 runs this many others
for each design, and shrinks one that fails, which takes many minutes.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any
from zlib import crc32

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tablequeue import ALL, Backoff, Claim, Database, LiveState, Message, NewMessage, Queue
from tablequeue.errors import BadInput, DuplicateKey, LeaseLost
from tablequeue.model.states import STATES
from tests.model import Item, Model, Refusal
from tests.nightly import by_night
from tests.servers import Kind, Place
from tests.support import DESIGNS, START, ids_of, refuses

CHOSEN = os.environ.get("TABLEQUEUE_TEST_EXAMPLES")
LIVES = settings(
    stateful_step_count=40,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink] if CHOSEN else [Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

FEW, MANY = int(CHOSEN or 4), 25
examples = pytest.mark.parametrize("examples", by_night([FEW, MANY], FEW.__eq__))

CONSUMERS = ("ada", "bob", "eve")
# Longer than any example takes, for those that use the database's clock.
LEASE = 1000
PLAIN = "payload headers state attempts priority group key producer consumer".split()
TIMES = "pushed_at first_popped_at popped_at lease_until finished_at".split()


@dataclass(frozen=True)
class New:
    """What to push. `due` is in seconds from now. `plain`: in a batch, the payload alone, with the call's options.

    What the design has no use for is left out.
    """

    payload: str
    delay: int | None = None
    due: int | None = None
    priority: int | None = None
    group: str = "x"
    key: str | None = None
    expires: int | None = None
    plain: bool = False

    def __repr__(self) -> str:
        options = [f"{one.name}={value!r}" for one in fields(self) if (value := getattr(self, one.name)) != one.default]
        return f"New({', '.join(options)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # Hypothesis would show every field


@st.composite
def news(draw: st.DrawFn) -> New:
    timed = draw(st.sampled_from([{}, {}, {"delay": 0}, {"delay": 500}, {"delay": 3000}, {"due": -500}, {"due": 500}]))
    return New(
        payload=draw(st.sampled_from("abc")),
        priority=draw(st.sampled_from([None, -1, 7])),
        group=draw(st.sampled_from("xyz")),
        key=draw(st.sampled_from([None, None, None, "k", "l"])),
        expires=draw(st.sampled_from([None, None, 500, 3000])),
        plain=draw(st.booleans()),
        **timed,
    )


NEWS = news()
ON_CONFLICT = st.sampled_from(["raise", "skip", "return"])
WHO = st.sampled_from(CONSUMERS)
SIZE = st.sampled_from([1, 1, 1, 2, 5])
RETRY_IN = st.sampled_from([None, 0, 500])
# Dead letters: all, or the payload of some, or the places of their ids among all that were ever given.
WHICH = st.one_of(st.just(ALL), st.sampled_from("abc"), st.lists(st.integers(0, 9), max_size=3))
FIRST = st.lists(NEWS, max_size=5)
DELAY = st.sampled_from([0, 0, 500])
STEPS = st.lists(
    st.tuples(st.sampled_from("push pop take complete fail release extend cancel".split()), st.integers(0, 3)),
    max_size=5,
)


def PERHAPS(claims: Bundle[Claim]) -> st.SearchStrategy[Claim | None]:  # noqa: N802 (a strategy, as those above)
    return st.one_of(st.none(), consumes(claims))


@dataclass
class World:
    """The place of the lives of one test."""

    databases: dict[str, Database]
    callers: sa.Engine
    settles_at_once: bool
    sweeps_apart: bool
    options: dict[str, Any]
    own_clock: bool
    numbers: Iterator[int]


class Life(RuleBasedStateMachine):
    """A queue and its model. Every rule does the same to both, and compares the answers.

    It uses either a clock that is moved (`now=`) and three consumers, or the database's clock, one consumer and no
    waiting. With the database's clock the engines take short cuts, but another consumer may see released messages late.
    """

    fresh = Bundle("fresh")
    """Claims that were popped and not finished; not all of them are held still."""
    old = Bundle("old")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.time = START
        self.connection: sa.Connection | None = None
        self.outside: Model
        """In addition to the model of what a transaction sees, the model of what others see."""

    @initialize(history=st.sampled_from(["keep", "keep", "none"]), attempts=st.integers(1, 2), first=FIRST)
    def create(self, history: str, attempts: int, first: list[New]) -> None:
        options = {"history": history, "max_attempts": attempts, **self.world.options}
        name = f"life_{next(self.world.numbers)}"
        queue = self.world.databases["ada"].create_queue(
            name, payload="text", lease=LEASE, backoff=Backoff(LEASE, jitter=0), **options
        )
        self.definition = queue.definition
        self.once = queue.definition.delivery == "at_most_once"
        self.model = Model(queue.definition, self.world.settles_at_once)
        self.queues = {who: database.queue(name) for who, database in self.world.databases.items()}
        if first:
            self._push_many("ada", first, New("a"), "skip")

    def teardown(self) -> None:
        if hasattr(self, "queues"):
            self.queues["ada"].drop()

    # -- the rules -----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 500, LEASE, 3000]))
    def wait(self, seconds: int) -> None:
        if not self.world.own_clock:
            self.time += timedelta(seconds=seconds)

    @rule(who=WHO, new=NEWS, on_conflict=ON_CONFLICT)
    def push(self, who: str, new: New, on_conflict: Any) -> None:
        self._push(who, new, on_conflict)

    @rule(who=WHO, news=st.lists(NEWS, min_size=1, max_size=5), shared=NEWS, on_conflict=ON_CONFLICT)
    def push_many(self, who: str, news: list[New], shared: New, on_conflict: Any) -> None:
        self._push_many(who, news, shared, on_conflict)

    @rule(target=fresh, who=WHO, n=SIZE, lease=st.sampled_from([None, 500]))
    def pop(self, who: str, n: int, lease: int | None) -> Any:
        return multiple(*self._pop(who, n, lease))

    @precondition(lambda self: self.definition.grouped)
    @rule(target=fresh, who=WHO, n=SIZE, lease=st.sampled_from([None, 500]))
    def pop_run(self, who: str, n: int, lease: int | None) -> Any:
        claims = self._queue(who).pop_many(n, lease=lease, same_group=True, now=self._now())
        token = claims[0].token if claims else ""
        self._compare_claims(claims, self.model.pop_run(n, self._name(who), token, lease or LEASE, self.time))
        return multiple(*claims)

    @rule(target=old, who=WHO, one=consumes(fresh), two=PERHAPS(fresh), three=PERHAPS(old))
    def complete(self, who: str, one: Claim, two: Claim | None, three: Claim | None) -> Any:
        return self._complete(who, [claim for claim in (one, two, three) if claim])

    @rule(target=old, who=WHO, claim=consumes(fresh), retry_in=RETRY_IN)
    def fail(self, who: str, claim: Claim, retry_in: int | None) -> Any:
        return self._fail(who, claim, retry_in)

    @precondition(lambda self: not self.once)
    @rule(target=old, who=WHO, one=consumes(fresh), two=PERHAPS(fresh), three=PERHAPS(old), delay=DELAY)
    def release(self, who: str, one: Claim, two: Claim | None, three: Claim | None, delay: int) -> Any:
        return self._release(who, [claim for claim in (one, two, three) if claim], delay)

    @precondition(lambda self: not self.once)
    @rule(who=WHO, claim=fresh, seconds=st.sampled_from([None, 500, 3000]))
    def extend(self, who: str, claim: Claim, seconds: int | None) -> None:
        self._extend(who, claim, seconds)

    @rule(who=WHO, claim=old, verb=st.sampled_from(["complete", "fail", "release", "extend"]))
    def use_again(self, who: str, claim: Claim, verb: str) -> None:
        self._finish(who, verb, claim, 0)

    @rule(target=fresh, who=WHO, steps=STEPS, given=PERHAPS(fresh), new=NEWS, commit=st.booleans())
    def transaction(self, who: str, steps: list[tuple[str, int]], given: Claim | None, new: New, commit: bool) -> Any:
        """Run steps in a caller's transaction. Those that finish messages act on the given claim and on those
        popped."""
        self.outside = copy.deepcopy(self.model)
        claims = [given] if given else []
        with self.world.callers.connect() as self.connection:
            self.model.inside = True
            for verb, number in steps:
                if verb == "push":
                    self._push(who, new, "return")
                elif verb == "pop":
                    claims += self._pop(who, number + 1, None)
                elif verb == "take":
                    self._take(who, number + 1)
                elif verb == "cancel":
                    self._cancel(who, [number])
                elif claims:
                    self._finish(who, verb, claims[number % len(claims)], number * 500)
            if commit:
                self.connection.commit()
            else:
                self.model = self.outside
        self.connection = None
        self.model.inside = False
        self.model.locked = set()
        if self.definition.grouped:
            # Where the database cannot do it within a transaction, the next claim makes the next ones heads.
            claims += self._pop(who, 1, None)
        return multiple(*claims)

    @rule(who=WHO, which=WHICH.filter(lambda which: which is not ALL))
    def cancel(self, who: str, which: Any) -> None:
        self._cancel(who, which)

    @rule(who=WHO, place=st.integers(0, 9), delay=st.sampled_from([None, 0, 500]), priority=st.sampled_from([None, 3]))
    def reschedule(self, who: str, place: int, delay: int | None, priority: int | None) -> None:
        ids = self._which([place])
        priority = priority if self.definition.order == "priority" else None
        if not ids or (delay is None and priority is None):
            return
        change = partial(self._queue(who).reschedule, ids[0], delay=delay, priority=priority, **self._call())
        if self.model.reschedule(ids[0], delay, priority, self.time):
            change()
        else:
            refuses(BadInput, change)

    @rule(who=WHO, which=WHICH)
    def redrive(self, who: str, which: Any) -> None:
        given = self._queue(who).redrive(self._which(which), now=self._now())
        same(given, self.model.redrive(self._which(which), self.time))

    @rule(who=WHO, which=WHICH)
    def purge_dead(self, who: str, which: Any) -> None:
        same(self._queue(who).purge_dead(self._which(which)), self.model.purge_dead(self._which(which)))

    @rule(who=WHO)
    def purge(self, who: str) -> None:
        same(self._queue(who).purge(), self.model.purge())

    @precondition(lambda self: self.definition.keeps_history)
    @rule(who=WHO, older_than=st.sampled_from([0, 1, LEASE]))
    def purge_history(self, who: str, older_than: int) -> None:
        given = self._queue(who).purge_history(older_than, now=self._now())
        same(given, self.model.purge_history(older_than, self.time))

    @rule(who=WHO, state=st.sampled_from(STATES), limit=st.integers(1, 5), place=st.integers(0, 9))
    def look(self, who: str, state: LiveState, limit: int, place: int) -> None:
        queue = self._queue(who)
        ids = self._which([place])
        after = ids[0] if ids else 0
        if not self.definition.grouped:
            expected = [id for id, item in sorted(self.model.live.items()) if item.state == state and id > after]
            same(ids_of(queue.peek(limit, state=state, after=after)), expected[:limit])
            if state == "dead":
                same(ids_of(queue.dead(limit, after=after)), expected[:limit])
        message = queue.find(after)
        kept = self.model.gone if self.definition.keeps_history else {}
        same(None if message is None else message.id, after if after in {**self.model.live, **kept} else None)
        if self.definition.keeps_history:
            same(ids_of(queue.history(limit)), sorted(self.model.gone, reverse=True)[:limit])

    @precondition(lambda self: self.once)
    @rule(who=WHO, older_than=st.sampled_from([None, 0, 500]), limit=st.integers(1, 9), after=st.integers(0, 5))
    def lost(self, who: str, older_than: int | None, limit: int, after: int) -> None:
        before = self.time - timedelta(seconds=LEASE if older_than is None else older_than)
        gone = sorted(self.model.gone.items())
        expected = [id for id, item in gone if item.finished_at is None and (item.popped_at or before) <= before]
        expected = [id for id in expected if id > after][:limit]
        same(ids_of(self._queue(who).lost(limit, after=after, older_than=older_than, now=self._now())), expected)

    @invariant()
    def content(self) -> None:
        queue = self.queues["bob"]
        # The counts of all states are compared too, so states that are empty in the model need no check.
        there = {item.state for item in self.model.live.values()}
        if self.definition.grouped:
            there |= {"ready", "scheduled"}
        live = [message for state in STATES if state in there for message in queue.peek(10_000, state=state)]
        gone = queue.history(10_000) if self.definition.keeps_history else []
        here = datetime.now(UTC) if self.world.own_clock else self.time
        given = {message.id: self._row(message, here) for message in [*live, *gone]}
        assert len(given) == len(live) + len(gone), "no message is in two places"
        expected = {id: self._row(item, self.time) for id, item in (self.model.live | self.model.gone).items()}
        same(sorted(given), sorted(expected))
        for id, row in expected.items():
            different = {name for name in row if given[id][name] != row[name]}
            same({(id, name): given[id][name] for name in different}, {(id, name): row[name] for name in different})
        self._compare_stats(queue)

    # -- the verbs, beside the model -----------------------------------------------------------------------------------

    def _push(self, who: str, new: New, on_conflict: Any) -> None:
        options = self._options(new) | self._call() | {"key": new.key, "on_conflict": on_conflict}
        given = answer(lambda: [self._queue(who).push(new.payload, **options)])
        same(
            given,
            answer(
                lambda: self.model.push([self._item(who, replace(new, plain=False), new)], on_conflict, ids_in(given))
            ),
        )

    def _push_many(self, who: str, news: list[New], shared: New, on_conflict: Any) -> None:
        messages = [
            new.payload if new.plain else NewMessage(new.payload, key=new.key, **self._options(new)) for new in news
        ]
        options = self._options(shared) | self._call() | {"on_conflict": on_conflict}
        given = answer(lambda: self._queue(who).push_many(messages, **options))
        items = [self._item(who, new, shared) for new in news]
        same(given, answer(lambda: self.model.push(items, on_conflict, ids_in(given))))

    def _pop(self, who: str, n: int, lease: int | None) -> list[Claim]:
        queue, options = self._queue(who), self._call() | ({} if self.once else {"lease": lease})
        popped = [queue.pop(**options)] if n == 1 else queue.pop_many(n, **options)
        claims = [claim for claim in popped if claim is not None]
        token = claims[0].token if claims else ""
        self._sweep_apart()
        items = self.model.pop(n, self._name(who), token, lease or LEASE, ids_of(claims), self.time)
        self._compare_claims(claims, items)
        same({claim.token for claim in claims} | {token}, {token})
        return claims

    def _take(self, who: str, n: int) -> None:
        if self.definition.grouped:
            n = 1  # where the next one becomes the head at once, it may come within the same call, or not
        claims = self._queue(who).take_many(n, **self._call())
        self._sweep_apart()
        self._compare_claims(claims, self.model.pop(n, self._name(who), None, 0, ids_of(claims), self.time))

    def _sweep_apart(self) -> None:
        """On engines whose sweep is outside the transaction: sweep all messages that the transaction has not
        changed."""
        if not (self.model.inside and self.world.sweeps_apart):
            return
        outside, inside = self.outside.live, self.model.live
        locked = {id for id, item in outside.items() if item != inside.get(id)}
        seen = [id for id in outside if id not in locked]
        self.outside.sweep(self.time, locked)
        for id in seen:
            item = copy.deepcopy(outside.get(id) or self.outside.gone.get(id))
            if item is None:  # it was told to stop, its lease was over, and the queue keeps no history
                inside.pop(id, None)
                continue
            if id in outside:
                self.model.live[id] = item
            else:
                del self.model.live[id]
                self.model.gone[id] = item

    def _complete(self, who: str, batch: list[Claim]) -> Any:
        given = answer(lambda: self._queue(who).complete_many(batch, **self._call()))
        same(given, answer(lambda: self.model.complete(held_by(batch), self.time)))
        return multiple(*batch)

    def _fail(self, who: str, claim: Claim, retry_in: int | None) -> Claim:
        given = answer(lambda: self._queue(who).fail(claim, "why", retry_in=retry_in, **self._call()))
        held = claim.id, claim.token
        same(given, answer(lambda: self.model.fail(held, claim.attempt, "why", retry_in, self.time)))
        return claim

    def _release(self, who: str, batch: list[Claim], delay: int) -> Any:
        given = answer(lambda: self._queue(who).release_many(batch, delay=delay, **self._call()))
        same(given, answer(lambda: self.model.release(held_by(batch), delay, self.time)))
        return multiple(*batch)

    def _extend(self, who: str, claim: Claim, seconds: int | None) -> None:
        given = answer(lambda: self._queue(who).extend(claim, seconds, **self._call()))
        expected = answer(
            lambda: self.model.extend((claim.id, claim.token), LEASE if seconds is None else seconds, self.time)
        )
        if not (self.world.own_clock and isinstance(given, datetime) and isinstance(expected, datetime)):
            same(given, expected)

    def _cancel(self, who: str, which: Any) -> None:
        chosen = self._which(which)
        given = astuple(self._queue(who).cancel(chosen, **self._call()))
        if callable(chosen):
            chosen = [id for id, item in self.model.live.items() if chosen(item)]
        same(given, self.model.cancel(chosen, self.time))
        if self.model.inside and self.world.sweeps_apart:
            self.model.locked |= {*given[1]}

    def _finish(self, who: str, verb: str, claim: Claim, seconds: int) -> None:
        if verb == "complete":
            self._complete(who, [claim])
        elif verb == "fail":
            self._fail(who, claim, seconds)
        elif verb == "release" and not self.once:
            self._release(who, [claim], seconds)
        elif verb == "extend" and not self.once:
            # Not 0, because the database's clock would then decide when others see the end.
            self._extend(who, claim, seconds or None)

    # -- private -------------------------------------------------------------------------------------------------------

    def _name(self, who: str) -> str:
        return "ada" if self.world.own_clock else who

    def _queue(self, who: str) -> Queue:
        return self.queues[self._name(who)]

    def _now(self) -> datetime | None:
        return None if self.world.own_clock else self.time

    def _call(self) -> dict[str, Any]:
        return {"connection": self.connection, "now": self._now()}

    def _which(self, which: Any) -> Any:
        if isinstance(which, str):
            return lambda message: message.payload == which
        ids = sorted(self.model.live | self.model.gone)
        return which if which is ALL else [ids[place] for place in which if place < len(ids)]

    def _options(self, new: New) -> dict[str, Any]:
        due = None if new.due is None else self.time + timedelta(seconds=new.due)
        if due is not None and self.world.own_clock:
            due += datetime.now(UTC) - START
        return {
            "delay": new.delay,
            "due": due,
            "priority": new.priority if self.definition.order == "priority" else None,
            "group": new.group if self.definition.groups else None,
            "headers": {"group": new.group},
            "expires": new.expires if self.definition.expires else None,
        }

    def _item(self, who: str, new: New, shared: New) -> Item:
        """Return the message that `new` becomes in a call with the options of `shared`."""
        own = shared if new.plain else new
        timed = shared if own.delay is None and own.due is None else own
        wait = timed.due if timed.delay is None else timed.delay
        if wait is None and self.definition.order == "due":
            wait = 0
        expires = own.expires or shared.expires or self.definition.expires
        priority = own.priority if own.priority is not None else shared.priority
        return Item(
            payload=new.payload,
            producer=self._name(who),
            pushed_at=self.time,
            due_at=None if wait is None else self.time + timedelta(seconds=wait),
            priority=priority if self.definition.order == "priority" and priority is not None else 0,
            group=own.group if self.definition.groups else None,
            key=None if new.plain else new.key,
            headers={"group": own.group},
            expires_at=self.time + timedelta(seconds=expires) if expires and self.definition.expires else None,
        )

    def _compare_claims(self, claims: Sequence[Claim], items: Sequence[Item]) -> None:
        same([claim.attempt for claim in claims], [item.attempts for item in items])
        fields = ["id", "payload", "headers", "priority", "group", "key"]
        if not self.world.own_clock:
            fields += ["pushed_at", "popped_at", "lease_until"]
        given, expected = (
            [{field: getattr(one, field) for field in fields} for one in many] for many in (claims, items)
        )
        same(given, expected)

    def _compare_stats(self, queue: Queue) -> None:
        given = queue.stats(now=self._now())
        states = [item.state for item in self.model.live.values()]
        expected = {state: states.count(state) for state in STATES}
        counts = {state: getattr(given, state) for state in STATES}
        for each in (counts, expected):
            if self.definition.grouped:
                each["ready"] += each.pop("scheduled")
        same(counts, expected)
        finished = sum(item.finished_at is not None for item in self.model.gone.values())
        same(given.finished, finished if self.definition.keeps_history else None)
        ready = [id for id, item in self.model.live.items() if item.state == "ready"]
        if not (self.world.own_clock or self.definition.grouped):
            oldest = (self.time - self.model.live[min(ready)].pushed_at).total_seconds() if ready else None
            same(given.oldest_age, oldest)

    def _row(self, message: Message | Item, here: datetime) -> dict[str, Any]:
        row = {field: getattr(message, field) for field in PLAIN}
        errors = [error if isinstance(error, tuple) else astuple(error) for error in message.errors]
        if self.world.own_clock:
            errors = [(attempt, None, *rest) for attempt, _, *rest in errors]
            row["due_at"] = None
        else:
            row |= {field: getattr(message, field) for field in TIMES}
            told = message.state == "scheduled" or self.definition.order == "due"
            row["due_at"] = message.due_at if told else None
        if self.definition.grouped and message.state == "scheduled" and message.due_at and message.due_at <= here:
            # The head of its group may be scheduled for a time that has passed, which the next claim notices.
            row |= {"state": "ready", "due_at": None}
        return row | {"errors": errors}


def same(given: object, expected: object) -> None:
    """Check that the engine and the model give the same answer."""
    assert given == expected, f"the engine says {given!r}, and the model {expected!r}"


def answer(call: Callable[[], Any]) -> Any:
    """Return the result of a verb, or the name of its error with the ids or keys in it."""
    try:
        return call()
    except LeaseLost as error:
        return "LeaseLost", error.ids
    except DuplicateKey as error:
        return "DuplicateKey", error.keys
    except Refusal as refusal:
        return refusal.args


def ids_in(given: Any) -> Sequence[int | None]:
    return given if isinstance(given, list) else []


def held_by(claims: Sequence[Claim]) -> list[tuple[int, str]]:
    return [(claim.id, claim.token) for claim in claims]


def live(place: Place, kind: Kind, examples: float, design: str, own_clock: bool = False, **options: Any) -> None:
    """Run random lives of queues with this design, one for each of the `examples`."""
    world = World(
        databases={name: place.open(name) for name in CONSUMERS},
        callers=place.sa_engine(),
        settles_at_once=not kind.engine_class.promotes,
        sweeps_apart=not kind.engine_class.sweeps_within,
        options=DESIGNS[design] | options,
        own_clock=own_clock,
        numbers=count(),
    )
    # The same examples in every run, by night after the few; but others for each design and each chosen number.
    factory: Any = partial(Life, world)
    factory = seed(crc32(f"{CHOSEN or 8} {design} {own_clock} {options}".encode()))(factory)
    run_state_machine_as_test(factory, settings=settings(LIVES, max_examples=max(1, int(examples))))


@examples
@pytest.mark.parametrize("design", DESIGNS)
def test_at_least_once(place: Place, kind: Kind, design: str, examples: int) -> None:
    live(place, kind, examples, design)


@examples
@pytest.mark.parametrize("design", [design for design in DESIGNS if not {"strict", "groups"} & {*DESIGNS[design]}])
def test_at_most_once(place: Place, kind: Kind, design: str, examples: int) -> None:
    live(place, kind, examples / 2, design, delivery="at_most_once", history="keep")


@examples
@pytest.mark.parametrize("design", ["fifo", "due", "groups"])
def test_messages_expire(place: Place, kind: Kind, design: str, examples: int) -> None:
    live(place, kind, examples / 2, design, expires=2 * LEASE)


@examples
@pytest.mark.parametrize("design", ["fifo", "heap", "strict"])
def test_by_the_databases_own_clock(place: Place, kind: Kind, design: str, examples: int) -> None:
    live(place, kind, examples, design, own_clock=True)
