"""Every interleaving of a few sessions, in the manner of PostgreSQL's isolation tester.

A scenario has named sessions, each with its steps; a session that ends with commit or rollback does its steps in that
transaction, another one each step by itself. `explore` runs every interleaving that there is: it runs one, remembers
where another session could have gone on instead, and goes back for that. A session whose step waits for a lock (the
server is asked) goes on when it may; so no step is ever run ahead of its time, and none is missed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import sqlalchemy as sa

import tablequeue
from tablequeue import ALL, Claim, LeaseLost, Queue
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.model.states import STATES
from tests.servers import Kind, Place
from tests.support import at, at_once, ids_of

# Seconds within which a step must finish or wait for a lock. It takes a few milliseconds.
PATIENCE = 60
# A time at which every lease has expired, and every message is due.
LATE = 10_000_000
LEASE = 60
# The queue to which messages are moved.
OTHER = "other"
# Looks, some milliseconds apart, at a session that need not wait, before it is said that it does: MariaDB passes over
# what is locked by waiting for it no time at all, which can be seen.
LOOKS = 100


class Hold(NamedTuple):
    """The token that may finish a message, and the time until which it is held. Without a token nobody may finish
    it."""

    token: str | None
    until: float


@dataclass
class Account:
    """What was done to the messages, as the sessions were told; it must agree with what the others are told."""

    sweeps_apart: bool = False
    """Whether a lease that a claim in a transaction found expired is still expired after a rollback."""
    pushed: set[int] = field(default_factory=set)
    groups: dict[int, str | None] = field(default_factory=dict)
    holds: dict[int, Hold] = field(default_factory=dict)
    finished: Counter[int] = field(default_factory=Counter)
    purged: int = 0
    """How many messages were deleted, or moved to another queue."""
    cancelled: set[int] = field(default_factory=set)
    paused: bool = False
    told: set[int] = field(default_factory=set)
    undo: dict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    """The effect of a rollback, for each session in a transaction."""
    then: dict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    """The effect of a commit."""

    def gave(self, session: Session, claims: Sequence[Claim], now: float, until: float) -> None:
        session.claims += claims
        assert not (claims and self.paused), "claims are paused"
        for claim in claims:
            there = self.holds.get(claim.id)
            assert there is None or there.until <= now, f"message {claim.id} belongs to somebody else"
            assert claim.id not in self.cancelled | self.told, f"message {claim.id} was cancelled"
            rivals = [id for id, hold in self.holds.items() if hold.until > now and hold.token is not None]
            group = self.groups.get(claim.id)
            if group is not None:
                assert group not in {self.groups.get(id) for id in rivals}, f"two of the group {group!r} at a time"
            if there is not None and self.sweeps_apart:
                del self.holds[claim.id]
            self._hold(session, claim.id, Hold(claim.token, until))
        if session.in_transaction:
            self.undo[session.name].append(session.claims.clear)

    def finish(self, session: Session, claim: Claim, after: Hold | None, done: bool = False) -> None:
        """Record a verb that acted under the claim. After the commit the message is held as `after`, or by nobody."""
        hold = self.holds.get(claim.id, Hold(None, 0))
        assert hold.token == claim.token, f"the claim on message {claim.id} was lost before"
        self._hold(session, claim.id, Hold(None if done else claim.token, math.inf))

        def commit() -> None:
            self.finished[claim.id] += done
            if after is None:
                del self.holds[claim.id]
            else:
                self.holds[claim.id] = after

        self.at_commit(session, commit)

    def refuse(self, claim: Claim, now: float) -> None:
        """Record that a verb raised LeaseLost."""
        hold = self.holds.get(claim.id, Hold(None, 0))
        lost = hold.token != claim.token or hold.until <= now
        assert lost, f"the lease on message {claim.id} was held, and yet refused"

    def at_commit(self, session: Session, change: Callable[[], object]) -> None:
        if session.in_transaction:
            self.then[session.name].append(change)
        else:
            change()

    def end(self, session: Session, committed: bool) -> None:
        undo, then = self.undo.pop(session.name, []), self.then.pop(session.name, [])
        for change in then if committed else reversed(undo):
            change()

    def _hold(self, session: Session, id: int, hold: Hold) -> None:
        before = self.holds.get(id)

        def undo() -> None:
            self.holds.pop(id)
            if before is not None:
                self.holds[id] = before

        self.holds[id] = hold
        if session.in_transaction:
            self.undo[session.name].append(undo)


class Session:
    """A thread with a connection of its own. All its connections are known, including those of the library."""

    def __init__(self, name: str, place: Place, kind: Kind) -> None:
        self.name = name
        self.kind = kind
        self.raw: list[Any] = []
        self.claims: list[Claim] = []
        self.in_transaction = False
        self.running: Future[Noted] | None = None
        self.step: Step
        engine = sa.create_engine(place.url, connect_args=dict(kind.patient))
        sa.event.listen(engine, "connect", self._connected)
        place.engines.append(engine)
        self.database = tablequeue.connect(engine, schema=place.schema, name=name)
        place.opened.append(self.database)
        self.connection = engine.connect()
        self.thread = ThreadPoolExecutor(1)
        self.queue: Queue
        self.peers: Mapping[str, Session] = {}

    def _connected(self, dbapi: Any, record: Any) -> None:
        self.raw.append(dbapi)
        self.kind.number(dbapi)  # SQL Server's drivers ask for it, which they cannot do while the session waits

    @property
    def caller(self) -> sa.Connection | None:
        """The argument `connection=` of a verb."""
        return self.connection if self.in_transaction else None

    @property
    def writes(self) -> bool:
        """Whether this session is the one that writes, on engines with one writer."""
        return self.running is None and any(raw.in_transaction for raw in self.raw)

    def close(self) -> None:
        self.thread.shutdown()
        self.connection.close()


Noted = Callable[[Account], str]
"""Enters the result of a step into the account, and returns a text to print."""


@dataclass(frozen=True)
class Step:
    name: str
    run: Callable[[Session], Noted]


@dataclass(frozen=True)
class Scenario:
    sessions: Mapping[str, Sequence[Step]]
    before: Sequence[tuple[str, Step]] = ()
    """Steps that the named session does first, each in a transaction of its own."""
    may_wait: frozenset[str] = frozenset()
    """The steps, as `ada: commit`, that may wait for another session where transactions can write side by side."""


@dataclass
class Run:
    """One interleaving."""

    account: Account
    lines: list[str] = field(default_factory=list)
    turns: list[tuple[str, list[str]]] = field(default_factory=list)
    """The session that ran at each step, and the sessions that could have run."""


class Runner:
    def __init__(self, place: Place, kind: Kind, queue: Queue, names: Sequence[str]) -> None:
        self.kind = kind
        self.queue = queue
        self.watch = place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT")
        self.sessions = {name: Session(name, place, kind) for name in names}
        for session in self.sessions.values():
            session.queue = session.database.queue(queue.name)
            session.peers = self.sessions

    def close(self) -> None:
        for session in self.sessions.values():
            if session.running is None:
                session.connection.rollback()  # after a failure another session may wait for it
        for session in self.sessions.values():
            session.close()
        self.watch.close()

    def explore(self, scenario: Scenario) -> int:
        """Run every interleaving. Return their number."""
        todo: list[tuple[str, ...]] = [()]
        done = 0
        while todo:
            prefix = todo.pop()
            run = Run(Account(not self.kind.engine_class.sweeps_within))
            try:
                self._run(scenario, prefix, run)
            except Exception as error:
                # Whatever the error was, the account of this interleaving explains it.
                report = "\n".join(["", *run.lines, "", f"{type(error).__name__}: {error}"])
                raise AssertionError(report) from error
            done += 1
            chosen = tuple(turn for turn, _ in run.turns)
            for place in range(len(prefix), len(run.turns)):
                turn, others = run.turns[place]
                todo += [(*chosen[:place], other) for other in others if other != turn]
        return done

    # -- one interleaving ----------------------------------------------------------------------------------------------

    def _run(self, scenario: Scenario, prefix: Sequence[str], run: Run) -> None:
        left = {name: list(steps) for name, steps in scenario.sessions.items()}
        for session in self.sessions.values():
            session.claims.clear()
            session.in_transaction = False
        for name, step in scenario.before:
            self._start(self.sessions[name], step, run, scenario)
        for name, steps in left.items():
            self.sessions[name].in_transaction = steps[-1].name in ("commit", "rollback")
        while any(left.values()) or self._waiting():
            free = [name for name, steps in left.items() if steps and self._is_free(self.sessions[name])]
            assert free, "everybody waits"
            place = len(run.turns)
            turn = prefix[place] if place < len(prefix) and prefix[place] in free else free[0]
            run.turns.append((turn, free))
            self._start(self.sessions[turn], left[turn].pop(0), run, scenario)
        self._check_drained(run.account)

    def _is_free(self, session: Session) -> bool:
        if session.running is not None:
            return False
        # With one writer, only one session may wait: otherwise chance would decide which of two comes next.
        return self.kind.side_by_side or not self._waiting() or session.writes

    def _start(self, session: Session, step: Step, run: Run, scenario: Scenario) -> None:
        session.running = session.thread.submit(step.run, session)
        session.step = step
        words = f"{session.name}: {step.name}"
        may_wait = words in scenario.may_wait or not self.kind.side_by_side
        if not self._settled(session, 1 if may_wait else LOOKS):
            run.lines.append(f"{words:<40} waits")
            assert may_wait, f"{words} need not wait"
            return
        self._note(session, run)
        for other in self._waiting():
            if self._settled(other):
                self._note(other, run)

    def _note(self, session: Session, run: Run) -> None:
        assert session.running is not None
        words = f"{session.name}: {session.step.name}"
        result, session.running = session.running, None
        run.lines.append(words)
        run.lines[-1] = f"{words:<40} {result.result()(run.account)}"

    def _waiting(self) -> list[Session]:
        return [session for session in self.sessions.values() if session.running is not None]

    def _settled(self, session: Session, looks: int = 1) -> bool:
        """Return whether the step of the session is done; False if the server reports every time that it waits for a
        lock."""
        assert session.running is not None
        until, blocked = monotonic() + PATIENCE, 0
        while not wait([session.running], timeout=0.003).done:
            blocked = blocked + 1 if self._is_blocked(session) else 0
            if blocked == looks:
                return session.running.done()
            assert monotonic() < until, f"{session.name} neither ends nor waits for a lock"
        return True

    def _is_blocked(self, session: Session) -> bool:
        if self.kind.blocked is not None:
            return not self.kind.blocked(self.watch).isdisjoint(map(self.kind.number, session.raw))
        # With one writer, a session that has begun to write makes all others wait.
        return any(other.writes for other in self.sessions.values() if other is not session)

    def _check_drained(self, account: Account) -> None:
        """Check that every message can be popped and completed once, that none is left, and that nothing else was
        done."""
        if account.paused:
            self.queue.resume()
        # First by the database's clock, as a process that took part sees it, with its short cuts.
        eve = [*self.sessions.values()][-1].queue
        self._drain(eve, None, account)
        assert eve.definition.order == "due" or not eve.peek(1), "what is ready is not seen"
        while True:
            self._drain(self.queue, at(LATE), account)
            if not self.queue.redrive(ALL, now=at(LATE)):
                break
        stats = self.queue.stats(now=at(LATE))
        left = {state: count for state in STATES if (count := getattr(stats, state))}
        assert not left, f"the queue does not drain: {left}"
        account.finished = +account.finished  # without those whose attempt failed
        twice = [id for id, times in account.finished.items() if times > 1]
        assert not twice, f"finished twice: {twice}"
        # Ids grow, so messages that finished in this interleaving are the last in the history.
        history = [one for one in self.queue.history(max(1, len(account.pushed))) if one.id in account.pushed]
        assert set(account.finished) == {one.id for one in history if one.state == "finished"}, "the history differs"
        cancelled = {one.id for one in history if one.state == "cancelled"}
        assert account.cancelled <= cancelled <= account.cancelled | account.told, "what was cancelled differs"
        assert set(account.finished) <= account.pushed, "what was never pushed was finished"
        lost = len(account.pushed) - len(account.finished) - account.purged - len(cancelled)
        assert not lost, f"{lost} messages are lost"

    def _drain(self, queue: Queue, now: datetime | None, account: Account) -> None:
        while batch := queue.pop_many(10, now=now):
            queue.complete_many(batch, now=now)
            account.finished.update(ids_of(batch))


# -- the steps ---------------------------------------------------------------------------------------------------------


def _step(function: Callable[..., Callable[[Session], Noted]]) -> Callable[..., Step]:
    """Make a step that has the arguments and the name of the function."""

    def step(*args: Any, **options: Any) -> Step:
        words = [*map(repr, args), *(f"{name}={value!r}" for name, value in options.items())]
        name = function.__name__ + (f"({', '.join(words)})" if words else "")
        return Step(name, function(*args, **options))

    return step


@_step
def push(payloads: str = "a", group: str | None = None, key: str | None = None, on_conflict: Any = "raise") -> Any:
    """Push a message for each character, or one message if there is a key."""

    def run(session: Session) -> Noted:
        queue = session.queue
        options: dict[str, Any] = {"connection": session.caller, "group": group, "now": at(0)}
        try:
            if key is None:
                ids = queue.push_many([*payloads], **options)
            else:
                id: int | None = queue.push(payloads, key=key, on_conflict=on_conflict, **options)
                ids = [id] if id is not None else []
        except DuplicateKey:
            return lambda account: "DuplicateKey"

        def note(account: Account) -> str:
            new = [id for id in ids if id not in account.pushed]
            account.groups |= dict.fromkeys(new, "" if queue.definition.strict else group)
            account.at_commit(session, partial(account.pushed.update, new))
            return f"pushed {new}" if new else f"there already {ids}"

        return note

    return run


@_step
def pop(now: float | None = 0, n: int = 1) -> Any:
    """`now=None`: by the database's own clock, by which these leases never end; there the engines take short cuts."""

    def run(session: Session) -> Noted:
        claims = session.queue.pop_many(n, connection=session.caller, now=None if now is None else at(now))

        def note(account: Account) -> str:
            account.gave(session, claims, now or 0, math.inf if now is None else now + LEASE)
            return f"got {ids_of(claims)}"

        return note

    return run


@_step
def take(now: float = 0) -> Any:
    def run(session: Session) -> Noted:
        claim = session.queue.take(session.connection, now=at(now))

        def note(account: Account) -> str:
            if claim is None:
                return "got nothing"
            account.gave(session, [claim], now, now + LEASE)
            account.finish(session, claim, after=Hold(None, math.inf), done=True)
            return f"took {claim.id}"

        return note

    return run


def _finishing(
    now: float, verb: Callable[[Session, Claim], Any], after: Callable[[Claim], Hold | None], done: bool = False
) -> Any:
    """Make a verb that acts under the session's first claim."""

    def run(session: Session) -> Noted:
        if not session.claims:
            return lambda account: "has nothing"
        claim = session.claims[0]
        try:
            result = verb(session, claim)
        except LeaseLost:

            def refused(account: Account) -> str:
                account.refuse(claim, now)
                return "LeaseLost"

            return refused

        def note(account: Account) -> str:
            account.finish(session, claim, after(claim), done)
            return f"{result or 'done'} {claim.id}"

        return note

    return run


@_step
def complete(now: float = 0) -> Any:
    def verb(session: Session, claim: Claim) -> None:
        session.queue.complete(claim, connection=session.caller, now=at(now))

    return _finishing(now, verb, lambda claim: Hold(None, math.inf), done=True)


@_step
def complete_and_pop() -> Any:
    """In one call, and one transaction, by the database's own clock; see `pop`."""

    def run(session: Session) -> Noted:
        if not session.claims:
            return lambda account: "has nothing"
        claim = session.claims[0]
        try:
            claims = at_once(session.queue).pop_many(1, completing=[claim], connection=session.caller)
        except LeaseLost:

            def refused(account: Account) -> str:
                account.refuse(claim, 0)
                return "LeaseLost"

            return refused

        def note(account: Account) -> str:
            account.finish(session, claim, Hold(None, math.inf), done=True)
            account.gave(session, claims, 0, math.inf)
            return f"done {claim.id}, got {ids_of(claims)}"

        return note

    return run


@_step
def fail(now: float = 0, retry_in: float = 0) -> Any:
    def verb(session: Session, claim: Claim) -> str:
        return session.queue.fail(claim, "why", retry_in=retry_in, connection=session.caller, now=at(now))

    return _finishing(now, verb, lambda claim: None)


@_step
def release(now: float = 0) -> Any:
    def verb(session: Session, claim: Claim) -> None:
        session.queue.release(claim, connection=session.caller, now=at(now))

    return _finishing(now, verb, lambda claim: None)


@_step
def extend(now: float, seconds: float) -> Any:
    def verb(session: Session, claim: Claim) -> None:
        session.queue.extend(claim, seconds, connection=session.caller, now=at(now))

    return _finishing(now, verb, lambda claim: Hold(claim.token, now + seconds))


@_step
def purge() -> Any:
    def run(session: Session) -> Noted:
        deleted = session.queue.purge()

        def note(account: Account) -> str:
            account.purged += deleted
            return f"deleted {deleted}"

        return note

    return run


@_step
def move() -> Any:
    """Move all messages that nobody holds to another queue, and complete them there."""

    def run(session: Session) -> Noted:
        other = session.database.queue(OTHER)
        moved = session.queue.move(ALL, to=other, now=at(0))
        there = set()
        while claims := other.pop_many(100, now=at(LATE)):
            there |= {*ids_of(claims)}
            other.complete_many(claims, now=at(LATE))

        def note(account: Account) -> str:
            assert {*moved.values()} == there, "what was moved is not there"
            account.purged += len(moved)
            return f"moved {[*moved]}"

        return note

    return run


@_step
def pause() -> Any:
    def run(session: Session) -> Noted:
        session.queue.pause()

        def note(account: Account) -> str:
            account.paused = True
            return "paused"

        return note

    return run


@_step
def reschedule(delay: float) -> Any:
    """Reschedule the first message that waits."""

    def run(session: Session) -> Noted:
        waiting = session.queue.peek(1)
        if not waiting:
            return lambda account: "found nothing"
        try:
            session.queue.reschedule(waiting[0].id, delay=delay, connection=session.caller, now=at(0))
        except BadInput:
            return lambda account: f"refused {waiting[0].id}"
        return lambda account: f"rescheduled {waiting[0].id}"

    return run


@_step
def redrive() -> Any:
    def run(session: Session) -> Noted:
        redriven = session.queue.redrive(ALL, now=at(0))
        return lambda account: f"redrove {redriven}"

    return run


@_step
def give(name: str) -> Any:
    """Give the claims of the session to another one too, as a copy of the process would have them."""

    def run(session: Session) -> Noted:
        def note(account: Account) -> str:
            session.peers[name].claims += session.claims
            return f"gave {ids_of(session.claims)}"

        return note

    return run


def _ending(committed: bool) -> Step:
    def run(session: Session) -> Noted:
        (session.connection.commit if committed else session.connection.rollback)()

        def note(account: Account) -> str:
            account.end(session, committed)
            return ""

        return note

    return Step("commit" if committed else "rollback", run)


commit, rollback = _ending(True), _ending(False)


@_step
def cancel() -> Any:
    """Cancel all messages that there are."""

    def run(session: Session) -> Noted:
        ids = [message.id for state in STATES for message in session.queue.peek(100, state=state)]
        result = session.queue.cancel(ids, connection=session.caller, now=at(0))

        def note(account: Account) -> str:
            account.at_commit(session, lambda: account.cancelled.update(result.cancelled))
            account.at_commit(session, lambda: account.told.update(result.in_progress))
            return f"cancelled {[*result.cancelled]}, told {[*result.in_progress]}"

        return note

    return run
