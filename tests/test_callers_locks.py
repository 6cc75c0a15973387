"""A call in a caller's transaction locks the messages that it acted on, and nothing else, at every isolation level.

Each call is tried in a transaction that has a snapshot from before the last changes of other consumers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database, LeaseLost, Queue, Rate
from tablequeue.engines.mysql import messages, within
from tablequeue.errors import BadInput, BatchNotFound, Conflict, DuplicateKey, TablequeueError
from tablequeue.testing.transaction import in_transaction
from tests.nightly import by_night
from tests.row_locks import locked_ids, mariadb_locks
from tests.servers import KINDS, Kind, Place, only
from tests.support import DESIGNS, ids_of, refuses, rewritten

LEVELS = ("READ COMMITTED", "REPEATABLE READ")
# PostgreSQL locks the same rows at both.
CELLS = by_night(
    [(kind, level) for kind in KINDS if kind.name in ("mariadb", "postgresql") for level in LEVELS],
    lambda cell: cell[0].name == "mariadb" or cell[1] == LEVELS[1],
)
Ids = Iterable[int]


@dataclass
class Scene:
    """A queue, what was done to it before the caller's transaction began, and since."""

    db: Database
    queue: Queue
    ids: list[int] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    def push(self, n: int = 5) -> None:
        groups = self.queue.definition.takes_groups and not self.queue.definition.strict
        self.ids += [self.queue.push(str(one), group=f"g{one}" if groups else None) for one in range(n)]

    def pop(self, n: int = 1) -> None:
        self.claims += self.queue.pop_many(n)

    def lose(self) -> None:
        """The first claim is lost to another consumer."""
        self.claims[0].extend(0)
        other = self.queue.pop()
        assert other is not None
        assert other.id == self.claims[0].id


@dataclass(frozen=True)
class Call:
    """A call in a caller's transaction, which returns the ids of the messages that it acted on."""

    act: Callable[[Scene, Any], Ids]
    before: Callable[[Scene], object] = lambda scene: scene.push()
    since: Callable[[Scene], object] = lambda scene: scene.pop(2)
    options: Mapping[str, Any] = field(default_factory=dict)


def _claimed(n: int) -> Callable[[Scene, Any], Ids]:
    return lambda scene, connection: ids_of(scene.queue.pop_many(n, connection=connection))


def _none(act: Callable[[Scene, Any], object]) -> Callable[[Scene, Any], Ids]:
    def call(scene: Scene, connection: Any) -> Ids:
        act(scene, connection)
        return []

    return call


def _push_and_pop(scene: Scene) -> None:
    scene.push(1)
    scene.pop()


def _push_and_pop_three(scene: Scene) -> None:
    scene.push(3)
    scene.pop(3)


def _pop_and_push(scene: Scene) -> None:
    scene.pop(2)
    scene.push(2)


def _pop_and_lose(scene: Scene) -> None:
    scene.pop()
    scene.lose()


def _push_and_report(scene: Scene) -> None:
    _push_and_pop(scene)
    _first(scene).progress(0.1)


def _finish_all(scene: Scene) -> None:
    scene.queue.complete_many(scene.queue.pop_many(5))


def _first(scene: Scene) -> Claim:
    return scene.claims[0]


def _finish(verb: Callable[..., object]) -> Callable[[Scene, Any], Ids]:
    def call(scene: Scene, connection: Any) -> Ids:
        verb(_first(scene), connection=connection)
        return [_first(scene).id]

    return call


def _complete_many(scene: Scene, connection: Any) -> Ids:
    try:
        scene.queue.complete_many(scene.claims, connection=connection)
    except LeaseLost:
        return ids_of(scene.claims[1:])
    return ids_of(scene.claims)


def _push_again(scene: Scene, connection: Any) -> None:
    assert scene.queue.push("b", key="k", on_conflict="skip", connection=connection) is None


def _open_batch(scene: Scene, connection: Any) -> None:
    with scene.queue.batch(connection=connection):
        pass


def _more_of_batch(scene: Scene, connection: Any) -> None:
    with scene.queue.batch_of(_first(scene), connection=connection) as batch:
        batch.push("more")


def _in_batch(scene: Scene) -> None:
    with scene.queue.batch() as batch:
        batch.push("a")
    scene.pop()


FINISHES: dict[str, Callable[..., object]] = {
    "complete": Claim.complete,
    "fail": lambda claim, connection: claim.fail("why", connection=connection),
    "release": Claim.release,
    "extend": lambda claim, connection: claim.extend(100, connection=connection),
}
LIMITS: dict[str, Mapping[str, Any]] = {
    "concurrency": {"concurrency": 4},
    "rate": {"rate": Rate(100, per=1)},
    "per group": {"groups": "fair", "per_group": 2},
    "rate of groups": {"groups": "fair", "group_rate": Rate(100, per=1)},
    "batches": {"batches": True},
    "expires": {"expires": 1000},
}
CALLS: dict[str, Call] = {
    **{f"pop ({name})": Call(_claimed(1), options=options) for name, options in (DESIGNS | LIMITS).items()},
    **{f"pop_many ({name})": Call(_claimed(3), options=options) for name, options in (DESIGNS | LIMITS).items()},
    "pop, of which others have all": Call(_claimed(1), since=lambda scene: scene.pop(5)),
    "pop, and all are finished": Call(
        _claimed(1), since=lambda scene: scene.queue.complete_many(scene.queue.pop_many(5))
    ),
    "pop (strict), of which another has the head": Call(
        _claimed(1), since=lambda scene: scene.pop(), options={"strict": True}
    ),
    "pop, of an empty queue": Call(_claimed(1), before=lambda scene: None, since=lambda scene: None),
    "pop, where the limit is reached": Call(_claimed(1), options={"concurrency": 2}),
    "pop, where the rate is spent": Call(_claimed(1), options={"rate": Rate(2, per=1000)}),
    "pop, of what was pushed since": Call(_claimed(7), since=_pop_and_push),
    "pop (at most once)": Call(_claimed(1), options={"delivery": "at_most_once"}),
    "take": Call(lambda scene, connection: ids_of(scene.queue.take_many(1, connection))),
    "take_many": Call(lambda scene, connection: ids_of(scene.queue.take_many(9, connection))),
    "take (no history)": Call(
        lambda scene, connection: ids_of(scene.queue.take_many(1, connection)), options={"history": "none"}
    ),
    **{
        f"{name}, {what}": Call(_finish(verb), before, since)
        for name, verb in FINISHES.items()
        for what, before, since in (
            ("held", _push_and_pop, lambda scene: None),
            ("claimed since", lambda scene: scene.push(1), lambda scene: scene.pop()),
            ("lost", _push_and_pop, Scene.lose),
            ("lost, claimed since", lambda scene: scene.push(1), _pop_and_lose),
            ("finished", _push_and_pop, lambda scene: _first(scene).complete()),
            ("failed", _push_and_pop, lambda scene: _first(scene).fail("why")),
        )
    },
    "complete_many, of which one is lost": Call(_complete_many, _push_and_pop_three, Scene.lose),
    "complete (at most once), completed before": Call(
        _finish(Claim.complete),
        _push_and_pop,
        lambda scene: _first(scene).complete(),
        {"delivery": "at_most_once"},
    ),
    "cancel": Call(
        lambda scene, connection: scene.queue.cancel(scene.ids[3], connection=connection).cancelled,
    ),
    "cancel, of what is finished": Call(
        _none(lambda scene, connection: scene.queue.cancel(scene.ids, connection=connection)),
        since=_finish_all,
    ),
    "reschedule, of what is in progress": Call(
        _none(lambda scene, connection: scene.queue.reschedule(scene.ids[0], delay=9, connection=connection))
    ),
    **{
        f"push of a key that is taken ({name})": Call(
            _none(_push_again), lambda scene: scene.queue.push("a", key="k"), lambda scene: None, options
        )
        for name, options in (("fifo", {}), ("unique_for", {"unique_for": 100}))
    },
    "batch, empty": Call(_none(_open_batch), options={"batches": True}),
    "batch_of, lost": Call(_none(_more_of_batch), _in_batch, Scene.lose, {"batches": True}),
    "progress": Call(
        _none(lambda scene, connection: _first(scene).progress(0.5, connection=connection)),
        _push_and_report,
        lambda scene: None,
    ),
    "pause": Call(_none(lambda scene, connection: scene.queue.pause(connection=connection))),
    "resume, of what is not paused": Call(_none(lambda scene, connection: scene.queue.resume(connection=connection))),
}
REFUSALS = (LeaseLost, Conflict, BadInput, DuplicateKey, BatchNotFound)


@contextmanager
def _transaction(place: Place, level: str) -> Iterator[sa.Connection]:
    """A transaction that has read something."""
    with place.sa_engine().connect().execution_options(isolation_level=level) as connection:
        connection.exec_driver_sql(f"select count(*) from {place.table('work')}").scalar()  # noqa: S608 (the snapshot)
        yield connection
        connection.rollback()


def check(place: Place, kind: Kind, db: Database, call: Call, level: str) -> None:
    """Check that the call holds what it acted on: the rows of these messages, and no gaps."""
    scene = Scene(db, db.create_queue("work", payload="text", **call.options))
    call.before(scene)
    with _transaction(place, level) as connection, place.sa_engine().connect() as watch:
        call.since(scene)
        refused = False
        try:
            acted = {*call.act(scene, connection)}
        except REFUSALS as error:
            acted, refused = set(), True
            if isinstance(error, Conflict):
                assert kind.name == "postgresql", "MariaDB looks before it locks"
                connection.rollback()
        assert locked_ids(place, place.table("work")) == acted & {*_live(place)}
        if kind.name == "mariadb":
            held = mariadb_locks(watch, kind.number(connection.connection.dbapi_connection))
            assert not held.gaps
            assert held.rows.get("tq_work", set()) <= acted
            assert locked_ids(place, f"{place.table('work')}__live_keys") <= acted
            assert not (refused and held.rows), "a refused call locks nothing"


def _live(place: Place) -> Iterator[int]:
    for (id,) in place.execute(f"select id from {place.table('work')}"):  # noqa: S608
        yield id


@pytest.mark.parametrize(("kind", "level"), CELLS, ids=lambda value: getattr(value, "name", value))
@pytest.mark.parametrize("name", CALLS)
def test_a_call_locks_what_it_acted_on(place: Place, kind: Kind, db: Database, name: str, level: str) -> None:
    check(place, kind, db, CALLS[name], level)


@only("mariadb")
@pytest.mark.parametrize("name", ["pop (fifo)", "take", "complete, held", "cancel", "batch, empty"])
def test_no_call_reads_in_a_serializable_transaction(place: Place, kind: Kind, db: Database, name: str) -> None:
    call = CALLS[name]
    scene = Scene(db, db.create_queue("work", payload="text", **call.options))
    call.before(scene)
    with place.sa_engine().connect().execution_options(isolation_level="SERIALIZABLE") as connection:
        assert "SERIALIZABLE" in refuses(BadInput, call.act, scene, connection).cause


@only("mariadb")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("order", ["fifo", "lifo", "priority", "due", "fair"])
def test_a_transaction_claims_what_it_has_changed_itself(
    place: Place, kind: Kind, db: Database, order: str, level: str
) -> None:
    queue = db.create_queue("work", payload="text", **DESIGNS[order])
    first = queue.push("a")
    with _transaction(place, level) as connection:
        own = queue.push("b", connection=connection)
        claims = queue.pop_many(3, connection=connection)
        assert sorted(ids_of(claims)) == [first, own]
        claims[0].release(connection=connection)
        again = queue.pop(connection=connection)
        assert again is not None
        assert again.id == claims[0].id
        again.complete(connection=connection)
        with pytest.raises(LeaseLost):
            again.complete(connection=connection)
        savepoint = connection.begin_nested()
        claims[1].complete(connection=connection)
        savepoint.rollback()
        claims[1].complete(connection=connection)
        connection.commit()
    assert queue.stats().in_progress == queue.stats().ready == 0


@only("mariadb", "postgresql")
@pytest.mark.parametrize("level", LEVELS)
def test_what_a_savepoint_gives_back_is_claimed_again(place: Place, kind: Kind, db: Database, level: str) -> None:
    queue = db.create_queue("work", payload="text")
    ids = queue.push_many(["a", "b"])
    with _transaction(place, level) as connection:
        for _ in range(2):
            savepoint = connection.begin_nested()
            assert ids_of(queue.take_many(1, connection)) == ids[:1]
            savepoint.rollback()
        assert locked_ids(place, place.table("work")) <= {*ids[:1]}


@only("mariadb")
@pytest.mark.parametrize("level", LEVELS)
def test_a_key_that_the_transaction_frees_can_be_pushed(place: Place, kind: Kind, db: Database, level: str) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push("a", key="k")
    with _transaction(place, level) as connection:
        claim = queue.pop(connection=connection)
        assert claim is not None
        assert queue.push("b", key="k", on_conflict="skip", connection=connection) is None
        claim.complete(connection=connection)
        own = queue.push("b", key="k", connection=connection)
        assert queue.push("c", key="k", on_conflict="return", connection=connection) == own
        with pytest.raises(DuplicateKey):
            queue.push("c", key="k", connection=connection)
        connection.commit()
    assert ids_of(queue.peek()) == [own]


@only("mariadb")
@pytest.mark.parametrize("options", [{"concurrency": 2}, {"rate": Rate(1, per=1)}, {"unique_for": 60}])
def test_a_table_that_is_newer_than_the_snapshot_is_a_conflict(
    place: Place, kind: Kind, db: Database, options: Mapping[str, Any]
) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push("a")
    with _transaction(place, "REPEATABLE READ") as connection:
        queue.alter(**options)
        call = partial(queue.push, "b", key="k") if "unique_for" in options else queue.pop
        with pytest.raises(Conflict, match="newer than the snapshot"):
            call(connection=connection)
        connection.commit()
        assert (queue.stats().ready, queue.stats().in_progress) == (1, 0)
        assert queue.push("b", key="k", connection=connection) is not None
        assert queue.pop(connection=connection) is not None
        connection.commit()
    assert (queue.stats().ready, queue.stats().in_progress) == (1, 1)


# -- without a connection of our own -----------------------------------------------------------------------------------


def claim_on_one_connection(place: Place, db: Database, level: str, options: Mapping[str, Any]) -> None:
    """A claim on the caller's connection alone, as Django's queues have it, locks what it returns, or is refused."""
    queue = db.create_queue("work", payload="text", **options)
    group: dict[str, Any] = {"group": "a"} if "groups" in options else {}
    for _ in range(6):
        queue.push("x", **group)
    with _transaction(place, level) as connection:
        others = {*ids_of(queue.pop_many(1 if options.get("strict") else 3))}
        try:
            claimed = {*ids_of(in_transaction(connection, place.schema).queue("work").pop_many(6))}
        except Conflict:
            assert level == "REPEATABLE READ"
        else:
            assert locked_ids(place, place.table("work")) == claimed
            assert not claimed & others


ALONE: dict[str, Mapping[str, Any]] = {
    "fifo": {},
    "priority": {"order": "priority"},
    "fair": {"groups": "fair"},
    "strict": {"strict": True},
}


@only("mariadb")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", ALONE.values(), ids=ALONE)
def test_a_claim_on_one_connection_locks_no_message_of_others(
    place: Place, db: Database, level: str, options: Mapping[str, Any]
) -> None:
    claim_on_one_connection(place, db, level, options)


@only("mariadb")
@pytest.mark.parametrize("name", ["fifo", "strict"])
def test_a_claim_on_one_connection_that_locks_others_is_detected(
    place: Place, db: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(within, "_check_passed_over", lambda *args: None)
    with pytest.raises(AssertionError):
        claim_on_one_connection(place, db, "REPEATABLE READ", ALONE[name])


@only("mariadb")
@pytest.mark.parametrize("verb", FINISHES)
def test_a_finish_on_one_connection_locks_no_message_of_others(place: Place, db: Database, verb: str) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push("x")
    claim = queue.pop(lease=0)
    assert claim is not None
    assert queue.pop()
    with _transaction(place, "READ COMMITTED") as connection:
        alone = in_transaction(connection, place.schema).queue("work")
        more = {"fail": ("why",), "extend": (60,)}.get(verb, ())
        refuses(LeaseLost, getattr(alone, verb), claim, *more)
        assert not locked_ids(place, place.table("work"))


# -- what comes between the look and the lock --------------------------------------------------------------------------


def check_nothing_comes_between(place: Place, kind: Kind, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that no other consumer gets a message that a caller's transaction has looked at and locks next."""
    queue = db.create_queue("work", payload="text")
    ids = queue.push_many(["a", "b", "c"])
    others: list[Claim] = []
    lock = within.lock

    def claimed_before(*args: Any) -> Any:
        others.extend(queue.pop_many(1))
        return lock(*args)

    monkeypatch.setattr(messages, "lock", claimed_before)
    with _transaction(place, "REPEATABLE READ") as connection:
        claims = queue.pop_many(2, connection=connection)
        assert ids_of(claims) == ids[:2]
        assert ids_of(others) == ids[2:]
        assert locked_ids(place, place.table("work")) == {*ids[:2]}


@only("mariadb")
def test_nobody_claims_between_the_look_and_the_lock(
    place: Place, kind: Kind, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_nothing_comes_between(place, kind, db, monkeypatch)


@only("mariadb")
def test_a_claim_that_locks_another_message_is_refused(
    place: Place, kind: Kind, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push_many(["a", "b"])
    claim = queue.pop()
    assert claim is not None
    looked = within._looked

    def lost_after(*args: Any) -> Any:
        monkeypatch.undo()
        found = looked(*args)
        claim.extend(0)
        assert queue.pop() is not None
        return found

    monkeypatch.setattr(within, "_looked", lost_after)
    with _transaction(place, "REPEATABLE READ") as connection, pytest.raises(Conflict):
        claim.complete(connection=connection)


# -- mutants -----------------------------------------------------------------------------------------------------------


@only("mariadb")
@pytest.mark.parametrize(
    "name", ["pop, of which others have all", "pop (strict), of which another has the head", "complete, lost",
             "fail, lost", "release, lost", "extend, lost", "complete, finished", "cancel, of what is finished",
             "reschedule, of what is in progress", "push of a key that is taken (fifo)",
             "push of a key that is taken (unique_for)", "batch, empty", "batch_of, lost",
             "resume, of what is not paused"],
)  # fmt: skip
def test_a_call_that_does_not_look_is_noticed(
    place: Place, kind: Kind, db: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind.engine_class, "looks_apart", False)
    with pytest.raises((AssertionError, TablequeueError)):
        check(place, kind, db, CALLS[name], "REPEATABLE READ")


@only("mariadb")
def test_a_look_that_keeps_nothing_ready_is_noticed(place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    share = re.escape(r"/*!50799 for share skip locked */ /*M!100600 lock in share mode skip locked */")
    engine = rewritten(kind.engine_class, claim_find=lambda text: re.sub(share, "", text))
    with pytest.raises((AssertionError, Conflict)):
        check_nothing_comes_between(place, kind, place.open_with(engine), monkeypatch)
