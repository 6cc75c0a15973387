"""`Worker.run` returns how many messages became what: each is counted once, even if an answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Thread
from typing import Any

import pytest

from tablequeue.model import pacing
from tablequeue.worker import Handler, Worker, completer
from tablequeue.worker.heartbeat import Heartbeat
from tests.servers import Kind, Place
from tests.support import counts
from tests.worker import handlers
from tests.worker.support import PATIENCE, losing

WORDS = ["done", "retry", "bury", "snooze"] * 30
DEFINITIONS: dict[str, dict[str, Any]] = {
    "history": {},
    "no history": {"history": "none"},
    "groups": {"groups": True},
    "at most once": {"delivery": "at_most_once"},
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "BACKOFF", (0.001, 0.01))


def check_counts(place: Place, kind: Kind, definition: str, batch: int | None = None) -> None:
    """For a while connections break before or after calls. The counts of `run` are those in the database."""
    random = Random(definition)
    fates = random.choices(["before", "after", "not at all"], k=40)

    def fate(verb: str) -> str:
        return fates.pop() if fates else "not at all"

    queue = place.open().create_queue("work", payload="text", **DEFINITIONS[definition])
    for number, word in enumerate(WORDS):
        queue.push(word, group=str(number) if queue.definition.groups else None)
    worker = Worker(maximum=2)
    worker.add(Handler("work", handlers.batch_by_payload_quietly if batch else handlers.by_payload, batch=batch))
    result = worker.run(place.open_with(losing(kind.engine_class, fate)), drain=True)
    found = counts(queue)
    if queue.definition.delivery == "at_most_once":
        assert result == {"completed": 30, "lost": 90}
        assert found == {"finished": 30}
        assert len(queue.lost(older_than=0)) == 90
    else:
        assert result == {"completed": 30, "scheduled": 30, "dead": 30, "snoozed": 30}
        finished = {} if definition == "no history" else {"finished": 30}
        assert found == {"scheduled": 60, "dead": 30, **finished}


def check_others(place: Place, kind: Kind, definition: str) -> None:
    """The connection breaks before a completion, and meanwhile another consumer completes the message."""
    other = place.open().create_queue("work", payload="text", lease=0.3, **DEFINITIONS[definition])
    other.push("done")
    others: list[Thread] = []

    def complete() -> None:
        with other.receive(wait=PATIENCE):
            pass

    def fate(verb: str) -> str:
        if not others:
            worker.stop()  # otherwise the worker would pop the message again
            others.append(Thread(target=complete))
            others[0].start()
        return "before" if others[0].is_alive() else "not at all"

    worker = Worker()
    worker.add(Handler("work", handlers.by_payload))
    assert worker.run(place.open_with(losing(kind.engine_class, fate))) == {}


@pytest.mark.parametrize("batch", [None, 7])
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_finished_message_is_counted_once(place: Place, kind: Kind, definition: str, batch: int | None) -> None:
    check_counts(place, kind, definition, batch)


@pytest.mark.parametrize("definition", ["history", "no history"])
def test_completions_of_others_are_not_counted(
    place: Place, kind: Kind, definition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heartbeat, "_extend", lambda *args: None)
    check_others(place, kind, definition)


MUTANTS: dict[str, tuple[Callable[[Place, Kind, str], None], bool]] = {
    "a lost answer is a lost lease": (check_counts, False),
    "a lost lease is a lost answer": (check_others, True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_does_not(place: Place, kind: Kind, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, fault = MUTANTS[name]
    monkeypatch.setattr(Heartbeat, "_extend", lambda *args: None)
    monkeypatch.setattr(completer, "_took_effect", lambda *args: fault)
    with pytest.raises(AssertionError):
        check(place, kind, "history")
