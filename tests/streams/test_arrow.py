"""Messages as Arrow batches: those that a connection returns are the same as those made from rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tablequeue import Database, Queue
from tablequeue.bulk import arrow
from tablequeue.bulk.arrow import Range
from tablequeue.bulk.stream import Stream

pytestmark = pytest.mark.quick


@pytest.fixture(params=["text", "json", "bytes"])
def queue(request: pytest.FixtureRequest, db: Database) -> Queue:
    payloads: dict[str, list[Any]] = {
        "text": ["", "a\tb\\N\n", "\U0001f600"],
        "json": [None, {"word": "schön"}, [1.5, "x"]],
        "bytes": [b"", bytes(range(256)), b"\\x00"],
    }
    queue = db.create_queue("work", payload=request.param, order="priority")
    due = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    for number, payload in enumerate(payloads[request.param]):
        queue.push(payload, headers={"trace": "é"}, priority=number, key=f"key {number}")
    queue.push(payloads[request.param][0], due=due)
    first = queue.pop()
    assert first is not None
    first.fail("not yet", retry_in=0)
    queue.complete_many(queue.pop_many(2))
    return queue


def both(monkeypatch: pytest.MonkeyPatch, read: Any) -> list[dict[str, Any]]:
    """Return the rows of a read, which are the same for a small and a large read."""
    found = []
    for few in (0, 1_000_000):
        monkeypatch.setattr(arrow, "FEW", few)
        found.append(pa.Table.from_batches(read()).to_pylist())
    assert found[0] == found[1]
    rows: list[dict[str, Any]] = found[0]
    return rows


@pytest.mark.parametrize(("source", "number"), [("history", 2), ("queue", 2)])
def test_of_a_table(queue: Queue, source: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    within = arrow.bounds(queue, source, Range(0, 1_000_000))
    assert within is not None
    columns = arrow.columns(queue, source)
    assert len(both(monkeypatch, lambda: arrow.batches(queue, source, within, columns))) == number


def test_of_a_stream(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Stream(queue, "lake")
    token, ids = run.batch(run.advance(0, 10))
    columns = arrow.columns(queue, "stream")
    rows = both(monkeypatch, lambda: arrow.stream_batches(queue, token, ids, columns))
    assert [row["id"] for row in rows] == ids
