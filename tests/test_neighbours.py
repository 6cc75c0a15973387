"""A caller's transaction holds up nobody beside it in an index: neither neighbouring groups nor neighbouring keys.

Deleted entries of the same groups and keys are there still, because an old snapshot needs them. MariaDB checks a unique
index with a lock on the next entry where it meets one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Claim, NewMessage, Queue
from tablequeue.engines.engine import Engine
from tablequeue.errors import Conflict
from tests.matrix import scene
from tests.servers import Kind, Place, only
from tests.support import at, counts, rewritten

LEVELS = ("READ COMMITTED", "REPEATABLE READ")
NAMES = "abcdef"
MIDDLE = "d"
BESIDE = ("c", "e")

Mutant = Callable[[type[Engine]], type[Engine]]


@contextmanager
def old_snapshot(place: Place) -> Iterator[None]:
    """Keep the server from removing what is deleted from now on."""
    with place.sa_engine().connect().execution_options(isolation_level="REPEATABLE READ") as old:
        old.exec_driver_sql(f"select * from {place.schema}.tq_queues").all()  # noqa: S608 (our names)
        yield


def held_up(
    place: Place, kind: Kind, level: str, act: Callable[[sa.Connection], object], calls: Mapping[str, Callable[[], Any]]
) -> list[str]:
    """Make the calls of others while the act is in an open transaction. Return those that wait for it."""
    caller = place.sa_engine().connect().execution_options(isolation_level=level)
    with scene(place, kind) as one, caller, caller.begin() as transaction:
        act(caller)
        wrong, pending = one.held_up(kind.number(caller.connection.dbapi_connection), calls)
        transaction.rollback()
        wait(pending)
        return wrong


def beside_a_group(place: Place, kind: Kind, level: str, act: str, engine: type[Engine] | None = None) -> list[str]:
    queue = (place.open_with(engine) if engine else place.open()).create_queue("work", payload="text", groups=True)
    ids = queue.push_many([NewMessage(group, group=group) for group in NAMES * 3])
    with old_snapshot(place):
        claims = {claim.group: claim for claim in queue.pop_many(len(NAMES))}
        behind = ids[len(NAMES) + NAMES.index(MIDDLE)]
        acts: Mapping[str, Callable[[sa.Connection], object]] = {
            "complete": lambda caller: queue.complete(claims[MIDDLE], connection=caller),
            "fail": lambda caller: queue.fail(claims[MIDDLE], "why", retry=False, connection=caller),
            "cancel of the next": lambda caller: queue.cancel(behind, connection=caller),
        }
        others = BESIDE if act != "cancel of the next" else (*BESIDE, MIDDLE)
        calls = {f"complete in {group}": partial(queue.complete, claims[group]) for group in others}
        return held_up(place, kind, level, acts[act], calls)


def unique_fronts(engine: type[Engine]) -> type[Engine]:
    """A unique index of the heads."""
    return rewritten(engine, create_groups=lambda text: re.sub(r"key (\S+__front)", r"unique key \1", text))


def waits_for_the_next(engine: type[Engine]) -> type[Engine]:
    """A promotion waits for the message that it has chosen, if a transaction has locked it."""
    return rewritten(
        engine, promote=lambda text: re.sub(r"(state(?: \|\| '')? = 'blocked'\s+for update) skip locked", r"\1", text)
    )


GROUP_ACTS = ("complete", "fail", "cancel of the next")
SERVERS = only("mariadb", "postgresql")


@SERVERS
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("act", GROUP_ACTS)
def test_no_group_waits_for_its_neighbour(place: Place, kind: Kind, level: str, act: str) -> None:
    assert not beside_a_group(place, kind, level, act)


@only("mariadb")
@pytest.mark.parametrize("act", ["complete", "fail"])
def test_a_group_that_waits_for_its_neighbour_is_detected(place: Place, kind: Kind, act: str) -> None:
    assert "complete in c" in beside_a_group(place, kind, LEVELS[1], act, unique_fronts(kind.engine_class))


@SERVERS
def test_a_promotion_that_waits_is_detected(place: Place, kind: Kind) -> None:
    waits = beside_a_group(place, kind, LEVELS[1], "cancel of the next", waits_for_the_next(kind.engine_class))
    assert "complete in d" in waits


def passed_over(queue: Queue, place: Place, end: str) -> tuple[list[int], list[int]]:
    """Cancel the next message of a group in a transaction, and complete the one before it. Return the ids that are
    popped before the transaction ends, and after it, as numbers of messages."""
    ids = queue.push_many([NewMessage("x", group="g")] * 3)
    claim = queue.pop()
    assert isinstance(claim, Claim)
    with place.sa_engine().connect() as caller, caller.begin() as transaction:
        queue.cancel(ids[1], connection=caller)
        queue.complete(claim)
        before = queue.pop_many(3)
        getattr(transaction, end)()
    return [ids.index(claim.id) for claim in before], [ids.index(claim.id) for claim in queue.pop_many(3)]


ENDS = {"commit": [2], "rollback": [1]}


@only("postgresql", "mariadb", "mssql")
@pytest.mark.parametrize("end", ENDS)
def test_what_a_promotion_passes_over_is_promoted_later(place: Place, end: str) -> None:
    """A rollback leaves no note of the group. And no other message comes before that one."""
    queue = place.open().create_queue("work", payload="text", groups=True)
    assert passed_over(queue, place, end) == ([], ENDS[end])


def forgets_what_it_passed_over(engine: type[Engine]) -> type[Engine]:
    """A promotion does not note again what it has passed over."""
    noted = r"(insert into \S+__turns \(group_key\)\s+select \S+\s+from) "
    nothing = r"\1 (select 1 as no limit 0) as nothing cross join "
    return rewritten(engine, promote=lambda text: re.sub(noted, nothing, text))


def takes_the_one_behind(engine: type[Engine]) -> type[Engine]:
    """A promotion takes the lowest message that nobody has locked."""
    lowest = r"(order by (?:message\.)?id limit 1)\b"
    return rewritten(engine, promote=lambda text: re.sub(lowest, r"\1 for update skip locked", text))


@SERVERS
@pytest.mark.parametrize(
    ("mutant", "popped"), [(forgets_what_it_passed_over, ([], [])), (takes_the_one_behind, ([2], []))]
)
def test_a_promotion_that_forgets_or_overtakes_is_detected(
    place: Place, kind: Kind, mutant: Mutant, popped: object
) -> None:
    queue = place.open_with(mutant(kind.engine_class)).create_queue("work", payload="text", groups=True)
    assert passed_over(queue, place, "rollback") == popped


def beside_a_key(
    place: Place, kind: Kind, level: str, act: str, freed: bool, engine: type[Engine] | None = None, **options: Any
) -> list[str]:
    """Push a key, or complete or take a message with one. Return which pushes of the keys beside it wait."""
    queue = (place.open_with(engine) if engine else place.open()).create_queue(
        "work", payload="text", history="none", **options
    )
    keys = {"a", MIDDLE, "f", *(BESIDE if freed else ())}
    queue.push_many([NewMessage("x", key=key) for key in sorted(keys)], now=at(0))
    with old_snapshot(place):
        claims = {claim.key: claim for claim in queue.pop_many(len(keys), now=at(0))}
        for key in BESIDE if freed else ():
            queue.complete(claims[key])
        if act == "take":
            queue.release(claims[MIDDLE], now=at(0))
        acts: Mapping[str, Callable[[sa.Connection], object]] = {
            "push": lambda caller: queue.push("x", key="cc", connection=caller, now=at(99)),
            "complete": lambda caller: queue.complete(claims[MIDDLE], connection=caller),
            "take": lambda caller: queue.take(connection=caller, now=at(0)),
        }
        calls = {f"push {key}": partial(queue.push, "x", key=key, now=at(99)) for key in BESIDE}
        return held_up(place, kind, level, acts[act], calls)


def unique_keys(engine: type[Engine]) -> type[Engine]:
    """A unique index of the keys, on the messages."""
    state = r"(key \S+__state \(state, sweep_at, id\))"
    return rewritten(engine, create=lambda text: re.sub(state, r"\1, unique key of_keys (dedup_key)", text))


KEY_ACTS = ("push", "complete", "take")


@only("mariadb")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("act", "options"), [*((act, {}) for act in KEY_ACTS), ("take", {"unique_for": 60})])
@pytest.mark.parametrize("freed", [False, True], ids=["new", "freed"])
def test_no_key_waits_for_its_neighbour(
    place: Place, kind: Kind, level: str, act: str, options: dict[str, Any], freed: bool
) -> None:
    assert not beside_a_key(place, kind, level, act, freed, **options)


@only("mariadb")
@pytest.mark.parametrize("act", KEY_ACTS)
def test_a_key_that_waits_for_its_neighbour_is_detected(place: Place, kind: Kind, act: str) -> None:
    assert beside_a_key(place, kind, LEVELS[1], act, True, unique_keys(kind.engine_class)) == ["push c"]


def push_of_an_ended_key(place: Place, kind: Kind, level: str, engine: type[Engine] | None = None) -> dict[str, int]:
    """Push a key again, of which the time is over, while a transaction that has locked the message completes it."""
    queue = (place.open_with(engine) if engine else place.open()).create_queue("work", payload="text", unique_for=60)
    queue.push("x", key="k", now=at(0))
    claim = queue.pop(lease=1000, now=at(0))
    assert claim is not None
    assert kind.blocked is not None
    pusher, finisher = (place.sa_engine().connect().execution_options(isolation_level=level) for _ in range(2))
    with ThreadPoolExecutor(1) as threads, pusher, finisher, place.sa_engine().connect() as watch:
        claim.extend(1000, connection=finisher, now=at(99))
        push = threads.submit(queue.push, "y", key="k", on_conflict="renew", connection=pusher, now=at(99))
        while not kind.blocked(watch):
            assert not push.done()
        claim.complete(connection=finisher)
        finisher.commit()
        push.result()
        pusher.commit()
    return counts(queue)


@only("mariadb")
@pytest.mark.parametrize("level", LEVELS)
def test_a_push_of_an_ended_key_and_a_finish_do_not_deadlock(place: Place, kind: Kind, level: str) -> None:
    assert push_of_an_ended_key(place, kind, level) == {"ready": 1, "finished": 1}


def locks_the_key_first(engine: type[Engine]) -> type[Engine]:
    """A push of an ended key locks first the key, and then the message that has it."""
    key = r"straight_join \1__live_keys as live on live.dedup_key = cast(given.dedup_key as binary) "
    return rewritten(
        engine, end_keys=lambda text: re.sub(r"straight_join (\S+) as message", rf"{key}\g<0>", text, count=1)
    )


@only("mariadb")
def test_a_key_that_is_locked_before_its_message_is_detected(place: Place, kind: Kind) -> None:
    with pytest.raises(Conflict, match="Deadlock"):
        push_of_an_ended_key(place, kind, LEVELS[0], locks_the_key_first(kind.engine_class))


@only("mariadb")
def test_the_table_of_heads_has_the_heads(place: Place) -> None:
    """However a message becomes the head, and however it is one no longer: else its group would stand still."""
    queue = place.open().create_queue("work", payload="text", groups=True, max_attempts=2)
    table = f"{place.schema}.tq_work"

    def check(expected: int) -> None:
        with place.sa_engine().connect() as look:
            heads = look.exec_driver_sql(f"select group_key, id from {table}__heads").all()  # noqa: S608 (our names)
            messages = f"select group_key, id from {table} where front is not null and in_run = 0"  # noqa: S608 (our names)
            assert sorted(heads) == sorted(look.exec_driver_sql(messages).all())
            assert len(heads) == expected

    queue.push_many([NewMessage("x", group=group) for group in "abc" * 4])
    check(3)
    a, b, c = queue.pop_many(3)
    a.complete()
    b.fail("why", retry_in=60)
    c.release()
    check(3)
    queue.reschedule(b.id, delay=0)
    queue.cancel(c.id)
    check(3)
    for claim in queue.pop_many(3):
        claim.fail("why", retry=False)
    check(3)
    queue.redrive(ALL)
    check(3)
    run = queue.pop_many(2, same_group=True)
    check(2)
    run[0].fail("why", retry_in=0)
    check(2)
    run[1].complete()
    check(3)
    for claim in queue.pop_many(3):
        claim.extend(0)
    queue.pop_many(3)
    check(3)
    queue.purge(in_progress=True)
    check(0)


def rows_of_keys(place: Place, engine: type[Engine] | None = None) -> set[tuple[str, str]]:
    """Let messages with keys leave queues, and come to them, in every way. Return the queues and keys that have a row
    without a message, or a message without a row."""
    db = place.open_with(engine) if engine else place.open()
    db.create_queue("dead", payload="text")
    options: dict[str, Any] = {"payload": "text", "max_attempts": 1, "expires": 1000, "unique_for": 60}
    queue = db.create_queue("work", **options, dead_letter_to="dead")
    other = db.create_queue("other", **options, history="none")
    ids = queue.push_many([NewMessage("x", key=str(n)) for n in range(12)] + [NewMessage("x")], now=at(0))
    one, two, three, *rest = queue.pop_many(6, lease=1000, now=at(0))
    one.complete()
    queue.complete_many([two, three])
    for claim in rest:
        claim.fail("why", now=at(0))
    db.queue("dead").redrive([1], now=at(0))
    with place.sa_engine().begin() as caller:
        queue.take(connection=caller, now=at(0))
        queue.push("x", key="in a transaction", connection=caller, now=at(0))
    queue.cancel(ids[7], now=at(0))
    queue.push("x", key="expires", expires=1, now=at(0))
    queue.pop(now=at(2))
    queue.move([ids[9], ids[10]], to=other, now=at(2))
    other.push("x", key="timed", now=at(2))
    other.push("x", key="timed", on_conflict="renew", now=at(99))
    (dead,) = other.pop_many(1, now=at(2))
    dead.fail("why", now=at(2))
    other.purge_dead([dead.id])
    other.purge()
    with place.sa_engine().connect() as look:

        def rows(table: str) -> set[tuple[Any, ...]]:
            named = f"select dedup_key, id from {place.schema}.tq_{table} where dedup_key is not null"  # noqa: S608 (our names)
            return {*look.exec_driver_sql(named).all()}

        return {(name, key.decode()) for name in db.queues() for key, _ in rows(name) ^ rows(f"{name}__live_keys")}


@only("mariadb")
def test_a_key_has_a_row_as_long_as_its_message_is_there(place: Place) -> None:
    assert not rows_of_keys(place)


@only("mariadb")
@pytest.mark.parametrize("operation", ["complete", "cancel", "expire", "move", "move_dead", "purge", "purge_ids"])
def test_a_row_that_stays_is_detected(place: Place, kind: Kind, operation: str) -> None:
    """The key would be taken for ever."""
    stays: Any = {operation: lambda text: re.sub(r"(delete \S+), \S+__live_keys", r"\1", text)}
    assert rows_of_keys(place, rewritten(kind.engine_class, **stays))
