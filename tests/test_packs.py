"""PostgreSQL's packs: which claims are packed, how packs are unpacked, and that users see no difference."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import pytest

from tablequeue import Backoff, Claim, Database, History, LeaseLost, NewMessage, PayloadType, Queue
from tablequeue.engines.engine import Engine
from tablequeue.engines.postgresql.packs import Packs
from tablequeue.errors import SchemaTooOld
from tests.packs import packing
from tests.servers import Kind, Place, only
from tests.sessions import call
from tests.support import at, check_fenced, claimed, counts, found, ids_of, refuses
from tests.test_mutants import rewritten

pytestmark = only("postgresql")

MANY = Packs().least


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text", max_attempts=2, backoff=Backoff(base=0, jitter=0))


def packed(place: Place, queue: Queue) -> list[int]:
    """Return the sizes of the packs."""
    return [size for (size,) in place.execute(f"select size from {place.table(queue.name)}__packs order by first_id")]  # noqa: S608


def rows(place: Place, queue: Queue) -> int:
    [(number,)] = place.execute(f"select count(*) from {place.table(queue.name)} where state = 'in_progress'")  # noqa: S608
    return int(number)


def test_a_large_claim_is_a_pack_and_looks_like_any_other(place: Place, queue: Queue) -> None:
    ids = queue.push_many(map(str, range(MANY + 1)), headers={"n": 1}, delay=0)
    claims = queue.pop_many(MANY, lease=100)
    assert (packed(place, queue), rows(place, queue)) == ([MANY], 0)
    assert ids_of(claims) == ids[:MANY]
    assert {(claim.attempts, claim.headers["n"]) for claim in claims} == {(1, 1)}
    assert counts(queue) == {"ready": 1, "in_progress": MANY}
    peeked = queue.peek(5, state="in_progress", after=ids[2])
    assert ids_of(peeked) == ids[3:8]
    one = found(queue, ids[3])
    assert one == peeked[0]
    assert (one.payload, one.state, one.attempts, one.consumer, one.lease_until) == (
        "3", "in_progress", 1, one.producer, claims[3].lease_until
    )  # fmt: skip
    assert one.first_popped_at == one.popped_at == claims[3].popped_at
    queue.complete_many(claims)
    assert counts(queue) == {"ready": 1, "finished": MANY}
    done = queue.history(1)[0]
    assert (done.id, done.payload, done.headers, done.attempts, done.first_popped_at, done.lease_until) == (
        ids[MANY - 1], str(MANY - 1), {"n": 1}, 1, claims[0].popped_at, None
    )  # fmt: skip
    assert packed(place, queue) == []


@pytest.mark.parametrize("history", ["keep", "none"])
@pytest.mark.parametrize("payload", ["json", "text", "bytes"])
def test_in_any_order_it_is_completed_whole(place: Place, db: Database, payload: PayloadType, history: History) -> None:
    queue = db.create_queue("work", payload=payload, history=history)
    queue.push_many([{"json": {"a": [1]}, "text": "é", "bytes": b"\0\xff"}[payload]] * MANY)
    claims = queue.pop_many(MANY)
    assert queue.pop_many(MANY, completing=claims[::-1]) == []
    assert packed(place, queue) == []
    assert counts(queue) == ({"finished": MANY} if history == "keep" else {})


@pytest.mark.parametrize(
    "message",
    [
        NewMessage("x", key="a"),
        NewMessage("x" * Packs().largest + "x"),
        NewMessage("x", headers={"trace": "x" * Packs().largest}),
    ],
    ids=["a key", "a large payload", "large headers"],
)
def test_what_is_not_packed(place: Place, queue: Queue, message: NewMessage) -> None:
    queue.push_many([*["x"] * MANY, message])
    claims = queue.pop_many(MANY + 1)
    assert (len(claims), packed(place, queue), rows(place, queue)) == (MANY + 1, [], MANY + 1)
    queue.complete_many(claims)


def test_nor_is_a_retry(place: Place, queue: Queue) -> None:
    queue.push_many(["x"] * MANY)
    queue.release_many(queue.pop_many(MANY))
    claims = queue.pop_many(MANY)
    assert (len(claims), packed(place, queue)) == (MANY, [])


def test_nor_are_more_than_a_server_could_hold(place: Place, kind: Kind) -> None:
    engine, messages = kind.engine_class, copy(kind.engine_class.messages)
    messages.packs = Packs(most=MANY)  # type: ignore[attr-defined]
    queue = place.open_with(type("Few", (engine,), {"messages": messages})).create_queue("few")
    queue.push_many(range(MANY + 1))
    assert len(queue.pop_many(MANY + 1)) == MANY + 1
    assert packed(place, queue) == []


def test_what_a_sweep_adds_is_claimed_beside_the_pack(place: Place, queue: Queue) -> None:
    queue.push_many(["x"] * MANY, delay=0.001)
    queue.push_many(["x"] * MANY)
    queue.context.table.next_sweep = math.inf  # not before the claim, but after it found too few messages
    claims = queue.pop_many(2 * MANY)
    assert (packed(place, queue), rows(place, queue)) == ([MANY], MANY)
    assert len({claim.token for claim in claims}) == 1
    queue.complete_many(claims)
    assert counts(queue) == {"finished": 2 * MANY}


def test_one_of_a_pack_by_itself(place: Place, queue: Queue) -> None:
    queue.push_many(["x"] * MANY)
    claims = queue.pop_many(MANY)
    claims[0].complete()
    claims[1].fail("broken")
    claims[2].release()
    until = claims[3].extend(1000)
    assert counts(queue) == {"finished": 1, "ready": 2, "in_progress": MANY - 3}
    assert (packed(place, queue), rows(place, queue)) == ([], MANY - 3)
    assert found(queue, claims[3].id).lease_until == until
    check_fenced(queue, claims[0])
    queue.complete_many(claims[3:])
    assert counts(queue) == {"finished": MANY - 2, "ready": 2}


@pytest.mark.parametrize("way", ["complete", "fail", "release", "extend"])
def test_each_way_unpacks(place: Place, queue: Queue, way: str) -> None:
    queue.push_many(["x"] * MANY)
    claims = queue.pop_many(MANY)
    given: dict[str, dict[str, Any]] = {"fail": {"error": "broken"}, "extend": {"lease": 5}}
    getattr(claims[-1], way)(**given.get(way, {}))
    assert (packed(place, queue), rows(place, queue)) == ([], MANY - (way != "extend"))
    queue.complete_many(claims[:-1])


def test_after_one_that_was_unpacked_the_next_claims_are_row_by_row(place: Place, queue: Queue) -> None:
    queue.push_many(["x"] * MANY * (Packs().unpacked + 2))
    first, *_ = queue.pop_many(MANY)
    first.complete()
    for _ in range(Packs().unpacked):
        queue.pop_many(MANY)
        assert packed(place, queue) == []
    queue.pop_many(MANY)
    assert packed(place, queue) == [MANY]


def test_some_of_a_pack_with_the_next_claim(place: Place, queue: Queue) -> None:
    queue.push_many(["x"] * (MANY + 3))
    claims = queue.pop_many(MANY)
    following = queue.pop_many(2, completing=claims[:5])
    assert len(following) == 2
    assert counts(queue) == {"finished": 5, "in_progress": MANY - 5 + 2, "ready": 1}
    assert len(queue.pop_many(MANY, completing=claims[5:])) == 1


def test_a_lease_that_ends_gives_all_of_a_pack_back(place: Place, db: Database, queue: Queue) -> None:
    queue.push_many(["x"] * MANY)
    first = queue.pop_many(MANY, lease=10, now=at(0))
    assert db.queue("work").pop_many(MANY, now=at(9)) == []
    second = queue.pop_many(MANY, lease=10, now=at(11))
    assert ids_of(second) == ids_of(first)
    assert {claim.attempts for claim in second} == {2}
    for claim in (first[0], first[-1]):
        check_fenced(queue, claim)
    assert queue.pop_many(MANY, now=at(30)) == []
    letters = queue.dead(MANY)
    assert len(letters) == MANY, "the last attempt is spent"
    assert [error.error for error in letters[0].errors] == ["lease expired"] * 2


def test_with_one_attempt_they_are_dead_letters_at_once(queue: Queue, db: Database) -> None:
    once = db.create_queue("once", max_attempts=1)
    once.push_many(range(MANY))
    once.pop_many(MANY, lease=10, now=at(0))
    assert once.pop(now=at(11)) is None
    assert counts(once) == {"dead": MANY}


def test_who_waits_waits_for_the_end_of_its_lease(queue: Queue) -> None:
    queue.push_many(["x"] * MANY)
    queue.pop_many(MANY, lease=1000)
    engine, runner, table = queue.context.engine, queue.context.runner, queue.context.table
    assert 900 < runner.run(engine.reads.until_next, table, {"now": None}).seconds <= 1000


def test_statistics_count_what_is_packed(queue: Queue) -> None:
    queue.push_many(["x"] * MANY)
    queue.pop_many(MANY)
    window = queue.stats(window=60).window
    assert window is not None
    assert window.queue.pushed == MANY


@pytest.mark.parametrize("verb", ["complete", "release", "fail", "extend"])
def test_a_procedure_finishes_what_python_has_claimed(place: Place, db: Database, queue: Queue, verb: str) -> None:
    db.install_procedures("work")
    queue.push_many(["x"] * MANY)
    claims = queue.pop_many(MANY)
    call(db, verb, token=claims[1].token, **{"ids": [claims[1].id]} if verb in ("complete", "release") else {"id": 2})
    assert packed(place, queue) == []
    queue.complete_many([claims[0], *claims[2:]])


def test_a_procedure_claims_row_by_row_and_sweeps_packs(place: Place, db: Database, queue: Queue) -> None:
    db.install_procedures("work")
    queue.push_many(["x"] * MANY)
    queue.pop_many(MANY, lease=0)
    assert len(call(db, "pop", n=MANY)) == MANY
    assert packed(place, queue) == []


def test_a_dropped_queue_leaves_none(place: Place, queue: Queue) -> None:
    names = f"select table_name from information_schema.tables where table_schema = '{place.schema}'"  # noqa: S608
    assert {("tq_work__packs",), ("tq_work__packed",)} <= set(place.execute(names))
    queue.drop()
    assert [name for (name,) in place.execute(names) if "work" in name] == []


def test_a_queue_of_version_2_gets_them(place: Place, db: Database, queue: Queue) -> None:
    table = place.table("work")
    ids = queue.push_many(["x"] * MANY)
    held = claimed(queue)
    for statement in (
        f"drop view {table}__packed",
        f"drop table {table}__packs",
        f"alter table {table} drop column expires_at, drop column cancelled_at",
        f"alter table {table}_history drop column outcome",
    ):
        place.execute(statement)
    place.execute(f"update {place.table('queues')} set schema_version = 2")  # noqa: S608
    refuses(SchemaTooOld, db.queue, "work")
    assert db.upgrade() == {"work": 2}
    assert ids_of(db.queue("work").pop_many(MANY)) == ids[1:]
    held.complete()
    assert counts(queue) == {"in_progress": MANY - 1, "finished": 1}
    assert packed(place, queue) == [], "there were fewer than a pack has"


def test_grouped_queues_and_those_that_deliver_at_most_once_have_none(place: Place, db: Database) -> None:
    for queue in (db.create_queue("once", delivery="at_most_once"), db.create_queue("grouped", groups=True)):
        queue.push_many([NewMessage(n, group=f"g{n}" if queue.definition.groups else None) for n in range(MANY)])
        claims = queue.pop_many(MANY)
        assert len(claims) == MANY
        assert packed(place, queue) == []
        queue.complete_many(claims)


# -- mutants ------------------------------------------------------------------------------------------------------


def killed(queue: Queue) -> None:
    queue.push_many(["x"] * 3)
    queue.pop_many(3, lease=10, now=at(0))  # and then dies
    assert len(queue.pop_many(3, now=at(11))) == 3


def fenced(queue: Queue) -> None:
    queue.push_many(["x"] * 3)
    claims = queue.pop_many(3)
    refuses(LeaseLost, queue.complete_many, [Claim.of(queue, claim.id, "0" * 32) for claim in claims])
    assert counts(queue) == {"in_progress": 3}
    queue.complete_many(claims)


def whole(queue: Queue) -> None:
    queue.push_many(["x"] * 3)
    claims = queue.pop_many(3)
    claims[0].complete()
    queue.complete_many(claims[1:])
    assert counts(queue) == {"finished": 3}


def seen(queue: Queue) -> None:
    queue.push_many(["x"] * 3)
    ids = ids_of(queue.pop_many(3))
    assert ids_of(queue.peek(5, state="in_progress")) == ids
    assert counts(queue) == {"in_progress": 3}
    assert found(queue, ids[0])


def keyed(queue: Queue) -> None:
    id = queue.push("x", key="a")
    claimed(queue)
    assert queue.push("y", key="a", on_conflict="return") == id


LOST = ("from pack, unnest", "from pack as a join pack on false, unnest")

MUTANTS = {
    "a sweep that leaves packs": (rewritten("limit 10 for", "limit 0 for", "sweep"), killed),
    "a sweep that loses packs": (rewritten(*LOST, "sweep"), killed),
    "a pack that anybody completes": (rewritten(r"token = .* and (?=ids)", "", "complete_packed"), fenced),
    "a pack completed by one of its messages": (rewritten("and ids = ", "and ids && ", "complete_packed"), whole),
    "a pack that loses its messages": (rewritten(*LOST, "unpack"), whole),
    "a pack that nobody can unpack": (rewritten("token = cast", "size = 0 and token = cast", "unpack"), whole),
    "a pack that nobody sees": (rewritten("last_id > :after", "last_id < :after", "peek_in_progress"), seen),
    "a key in a pack": (rewritten("dedup_key is null and ", "", "claim_packed"), keyed),
}


@pytest.mark.parametrize(
    "check", dict.fromkeys(check for _, check in MUTANTS.values()), ids=lambda check: check.__name__
)
def test_the_engine_passes(place: Place, kind: Kind, check: Any) -> None:
    check(place.open_with(packing(kind.engine_class)).create_queue("work"))


@pytest.mark.parametrize(("mutant", "check"), MUTANTS.values(), ids=MUTANTS)
def test_the_mutant_is_noticed(place: Place, kind: Kind, mutant: Any, check: Any) -> None:
    engine: type[Engine] = mutant(packing(kind.engine_class))
    with pytest.raises((AssertionError, pytest.fail.Exception, LeaseLost)):
        check(place.open_with(engine).create_queue("work"))
    assert all(engine.rewrites.values()), "the mutant is no mutant: its text is the engine's own"  # type: ignore[attr-defined]
