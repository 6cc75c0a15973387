"""What tests of progress share, and the checks that mutants must fail."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import Claim, Database, LeaseLost, Queue
from tablequeue.ext import context_of
from tablequeue.model.names import PART
from tablequeue.verbs import progress
from tests.support import at, claimed, refuses


def started(db: Database, **options: Any) -> tuple[Queue, Claim]:
    """Return a queue, and a message of it in progress."""
    queue = db.create_queue("work", **{"payload": "text", **options})
    queue.push("a", group="g" if queue.definition.groups else None)
    return queue, claimed(queue)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no report come too early, and each look for old ones."""
    monkeypatch.setattr(progress, "REPORT_EVERY", 0.0)
    monkeypatch.setattr(progress, "FORGET_EVERY", 0.0)


def fraction(queue: Queue, id: int) -> float | None:
    found = queue.progress(id)
    return None if found is None else found.fraction


def reports(queue: Queue) -> int:
    """Return how many rows there are, shown or not."""
    context = context_of(queue)
    table = f"{context.engine.prefix}{context.table.table_name}{PART}progress"

    def read(cursor: Any, *_: Any) -> int:
        cursor.execute(f"select count(*) from {table}")  # noqa: S608
        number: int = cursor.fetchone()[0]
        return number

    return context.run(read, {})


def check_progress(db: Database, **options: Any) -> None:
    """A claim reports while it is held, in place of its report before, and not afterwards."""
    queue, first = started(db, **options)
    assert queue.progress(first.id) is None
    first.progress(0.25, {"row": 1})
    assert fraction(queue, first.id) == 0.25
    for n in (3, 4):
        first.progress(1, {"row": n}, now=at(n))
        assert fraction(queue, first.id) == 1.0
        first.reported = (first.reported[0], 0.5)  # so that 1 is written again
    assert reports(queue) == 1
    first.release()
    assert queue.progress(first.id) is None
    second = claimed(queue)
    assert queue.progress(second.id) is None, "it is of another claim"
    first.reported = (0.0, 0.0)
    refuses(LeaseLost, first.progress, 1)
    assert queue.progress(second.id) is None
    second.progress(0.5)
    assert fraction(queue, second.id) == 0.5


def check_forgotten(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of claims that have ended are deleted, and no others."""
    always(monkeypatch)
    queue, one = started(db)
    queue.push_many([*"bcdef"])
    others = queue.pop_many(9)
    for message in (one, *others):
        message.progress(0.5)
    assert reports(queue) == 6
    others[0].complete()
    others[1].fail("no", retry=False)
    others[2].release(delay=60)
    others[3].extend(0)
    one.progress(0.75)
    assert reports(queue) == 2
    assert fraction(queue, one.id) == 0.75
    assert fraction(queue, others[4].id) == 0.5
