"""An extension by 0 seconds ends a lease: the message is ready when the call returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tablequeue import Claim, Consumer, Database
from tablequeue.errors import LeaseLost, TablequeueError, Unreachable
from tablequeue.ext import context_of
from tablequeue.verbs import finish
from tests.servers import Place
from tests.support import claimed, counts, found, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("newer")]

ENDINGS: dict[str, Callable[[Consumer, Claim], Any]] = {
    "extend": lambda queue, claim: claim.extend(0),
    "extend_many": lambda queue, claim: queue.extend_many([claim], 0),
    "extend_held": lambda queue, claim: queue.extend_held(claim.id, 0),
}
DESIGNS: dict[str, dict[str, Any]] = {
    "queue": {},
    "groups": {"groups": True},
    "strict": {"strict": True},
    "places": {"concurrency": 1},
    "places of groups": {"groups": "fair", "per_group": 1},
}


def check_an_ended_lease(queue: Consumer, end: Callable[[Consumer, Claim], Any], push: Callable[..., Any]) -> None:
    push("x")
    claim = claimed(queue, lease=600)
    push("y")
    end(queue, claim)
    assert not counts(queue).get("in_progress"), "before any other claim"
    refuses(LeaseLost, claim.complete)
    again = claimed(queue)
    assert (again.id, again.attempt) == (claim.id, 2)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_message_is_ready_at_once(db: Database, design: str, ending: str) -> None:
    queue = db.create_queue("work", payload="text", max_attempts=9, **DESIGNS[design])
    group: dict[str, Any] = {"group": "a"} if queue.definition.takes_groups else {}
    check_an_ended_lease(queue, ENDINGS[ending], lambda payload: queue.push(payload, **group))


@pytest.mark.parametrize("ordered", [False, True])
def test_that_of_a_subscription_too(db: Database, ordered: bool) -> None:
    topic = db.create_topic("events", payload="text", groups=ordered)
    mail = topic.subscribe("mail", ordered=ordered, max_attempts=9)
    group: dict[str, Any] = {"group": "a"} if ordered else {}
    topic.push("x", **group)
    claim = claimed(mail, lease=600)
    claim.extend(0)
    refuses(LeaseLost, claim.complete)
    assert claimed(mail).attempt == 2


def test_a_lease_that_waits_for_the_next_sweep_is_detected(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "end_leases", lambda *_: None)
    queue = db.create_queue("work", payload="text")
    with pytest.raises(AssertionError, match="before any other claim"):
        check_an_ended_lease(queue, ENDINGS["extend"], queue.push)


def test_the_last_attempt_ends_as_a_dead_letter(db: Database) -> None:
    queue = db.create_queue("work", payload="text", max_attempts=1)
    id = queue.push("x")
    claimed(queue, lease=600).extend(0)
    assert found(queue, id).state == "dead"


def test_in_a_transaction_it_waits_for_the_commit(place: Place, db: Database) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push("x")
    claim = claimed(queue, lease=600)
    with place.sa_engine().connect() as connection:
        claim.extend(0, connection=connection)
        connection.rollback()
    assert counts(queue) == {"in_progress": 1}
    with place.sa_engine().begin() as connection:
        claim.extend(0, connection=connection)
    assert claimed(queue).id == claim.id, "a claim that finds too little sweeps"


def test_a_sweep_that_fails_is_no_error_of_the_call(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It took effect."""

    def cut_off(*_: Any) -> TablequeueError:
        raise Unreachable("The server is away.", "Wait.")

    queue = db.create_queue("work", payload="text")
    queue.push("x")
    claim = claimed(queue, lease=600)
    monkeypatch.setattr("tablequeue.verbs.sweep.sweep", cut_off)
    assert claim.extend(0)
    monkeypatch.undo()
    assert claimed(queue).id == claim.id


@contextmanager
def waiting_consumer(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Future[Claim]]:
    """A thread that waits at the queue, and looks only when it is woken."""
    queue = place.open().queue("work")
    notifier = context_of(queue).runner.notifier
    assert notifier is not None
    monkeypatch.setattr("tablequeue.verbs.wait.PAUSES_WITH_NOTIFIER", (1000.0, 1000.0))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: next(queue.consume(wait=60)))
        while not notifier._waiting.get(context_of(queue).table.channel):
            assert not waiting.done()
        yield waiting


def test_a_consumer_that_waits_is_woken(place: Place, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push("x")
    claim = claimed(queue, lease=600)
    with waiting_consumer(place, monkeypatch) as waiting:
        claim.extend(0)
        assert waiting.result().id == claim.id
