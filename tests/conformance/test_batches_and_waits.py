"""Batches and dependencies where features meet: expiry, results that are switched, ids of nobody, rights."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import ALL, Database, NewMessage
from tablequeue.engines.batches import Batches
from tablequeue.errors import DatabaseError, DuplicateKey
from tablequeue.verbs import dependencies, move
from tests.servers import Kind, Place
from tests.support import at, claimed, found, idle, refuses

pytestmark = pytest.mark.quick


def check_expired_child(db: Database, which: Any, groups: bool = False) -> None:
    """A message that expired while it waited is a dead letter. Redriven, it waits still, until its parent has left."""
    parents = db.create_queue("parents")
    jobs = db.create_queue("jobs", dependencies=True, expires=60, history="none", groups=groups)
    group: dict[str, Any] = {"group": "a"} if groups else {}
    first, second = (parents.push("parent", now=at(0)) for _ in range(2))
    children = [jobs.push("child", after=[("parents", id)], now=at(0), **group) for id in (first, second)]
    assert jobs.pop(now=at(100)) is None
    assert [found(jobs, child).state for child in children] == ["dead", "dead"]
    claimed(parents, now=at(100)).complete()
    assert jobs.redrive(ALL if which is ALL else children) == 2
    assert claimed(jobs, now=at(101)).id == children[0]
    assert jobs.pop(now=at(102)) is None
    claimed(parents, now=at(102)).complete(now=at(102))
    if not groups:  # else its group is busy
        assert claimed(jobs, now=at(103)).id == children[1]


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("which", [ALL, "ids"], ids=["all", "ids"])
def test_an_expired_message_that_is_redriven_waits_still(db: Database, which: Any, groups: bool) -> None:
    check_expired_child(db, which, groups)


def test_a_dead_letter_that_waits_for_nothing_is_ready_at_once(db: Database) -> None:
    jobs = db.create_queue("jobs", dependencies=True)
    parent = jobs.push("parent")
    child = jobs.push("child", after=[parent])
    claimed(jobs).complete()
    assert claimed(jobs).fail("no", retry=False) == "dead"
    jobs.redrive(ALL)
    assert found(jobs, child).state == "ready"


@pytest.mark.parametrize("first", [True, False])
def test_results_are_switched_on_again_beside_batches(db: Database, place: Place, first: bool) -> None:
    queue = db.create_queue("work", batches=True, results=first)
    for switched in (False, True, False, True):
        queue.alter(results=switched)
    with queue.batch() as batch:
        batch.push("x")
    claimed(idle(place.open().queue("work"))).complete(result=2)
    assert [*db.batch(batch.id).results().values()] == [2]


def check_ids_of_nobody(db: Database) -> None:
    """In a queue without a history, an id that no message has yet is taken as finished."""
    queue = db.create_queue("work", dependencies=True, history="none", strict=True)
    last = queue.push("first")
    claimed(queue).complete()
    queue.push_many(["second", "third"], after=[last + 1, last + 2, last + 5])
    queue.push_many(["fourth", "fifth", "sixth"])
    came = []
    while message := queue.pop():
        came.append(message.payload)
        message.complete()
    assert came == ["second", "third", "fourth", "fifth", "sixth"]


def test_an_id_that_no_message_has_yet_is_not_waited_for(db: Database) -> None:
    check_ids_of_nobody(db)


def test_a_message_of_the_same_queue_is_waited_for(db: Database) -> None:
    queue = db.create_queue("work", dependencies=True, history="none")
    parent = queue.push("parent")
    queue.push("child", after=[parent])
    claim = claimed(queue)
    assert queue.pop() is None
    claim.complete()
    assert claimed(queue).payload == "child"


def test_a_callback_that_cannot_be_pushed_stops_no_consumer(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer may lack the right to push the callback. A consumer that has the right ends the batch."""
    queue, callbacks = db.create_queue("work", batches=True), db.create_queue("callbacks")
    original = Batches.lock_batch

    def refused(*given: Any) -> Any:
        raise DatabaseError("No rights.", "Grant them.")

    with queue.batch(then=("callbacks", "done")) as batch:
        batch.push("x")
    with queue.batch() as other:
        other.push("y")
    for claim in queue.pop_many(2):
        with monkeypatch.context() as patched:
            patched.setattr(Batches, "lock_batch", refused)
            claim.complete()
    with monkeypatch.context() as patched:
        patched.setattr(
            Batches,
            "lock_batch",
            lambda part, cursor, table, params: (
                refused() if params["id"] == batch.id else original(part, cursor, table, params)
            ),
        )
        assert queue.pop() is None
        assert [each.id for each in queue.batches()] == [batch.id], "the other one has ended"
    assert queue.pop() is None
    assert claimed(callbacks).payload == "done"


def test_a_move_names_the_keys_that_are_taken(db: Database) -> None:
    source, target = db.create_queue("source"), db.create_queue("target")
    ids = source.push_many([NewMessage("x", key="a"), NewMessage("y", key="b")])
    target.push("x", key="a")
    for which in (ids, ALL):
        error = refuses(DuplicateKey, source.move, which, to=target)
        assert [*error.keys] == ["a"]
        assert "'a'" in error.cause


def test_a_move_goes_on_if_the_key_is_free_before_it_can_be_named(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = db.create_queue("source"), db.create_queue("target")
    id = source.push("x", key="a")
    target.push("x", key="a")
    claim, keys = claimed(target), move._keys

    def freed(*given: Any) -> Any:
        if target.stats().in_progress:
            claim.complete()
        return keys(*given)

    monkeypatch.setattr(move, "_keys", freed)
    assert source.move([id], to=target).keys() == {id}


def test_mutants(db: Database, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(dependencies, "_later", lambda *_: set())
        with pytest.raises(AssertionError):
            check_ids_of_nobody(db)
    engine = kind.engine_class
    render = engine.render

    def without(self: Any, operation: str, *given: Any, **more: Any) -> str:
        text = render(self, operation, *given, **more)
        return text.replace("head.on_table = ''", "head.on_table = 'x'") if operation.startswith("redrive") else text

    monkeypatch.setattr(engine, "render", without)
    with pytest.raises(AssertionError):
        check_expired_child(db, ALL)
