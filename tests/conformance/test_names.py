"""Names of tables never collide: the parts of a queue belong to no other queue, whatever queues are called."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tablequeue import Database, Queue
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.errors import TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.names import table_of
from tablequeue.verbs import catalogue
from tablequeue.worker.schedule import Schedule, push_due
from tests.servers import Place
from tests.support import claimed, counts

pytestmark = pytest.mark.quick

# Parts of a queue on any engine, now or in an earlier version: tables, indexes, triggers, sequences.
PARTS = (
    "history turns turn packs packed streams staged parts writers ready scheduled in_progress dead blocked key front "
    "finished pushed left moved state pkey id_seq ids packs_lease schedules notify _streams _ready _packs x0123456789"
).split()


# No two of them are the same. Each has what some language gives a meaning, or looks like another one.
FREE = [
    *"A Work work 1a _a __ a-b a.b.c a;b a:b a\"b a'b a''b a`b a]b a%sb a%20b a?b a#b a&b a+b a*b a|b".split(),
    *"a\\b a\\'b -a --json @a $(a) {queue} :name a:now queues Queues tq_queues orders orders_history".split(),
    *"Orders-EU.fifo orders-eu.fifo celery@host.pidbox 5f0c35a5-35ba-4b44-a361-1dd7a1a2e1e0".split(),
    *"\u00e9 e\u0301 \u00c9 \ufb01 fi stra\u00dfe STRASSE \u8ba2\u5355 \u6ce8\u6587".split(),
    *("a b", "a  b", "x; drop table tq_queues; --", "a" * 255, "a" * 254, "A" * 255, "\U0001f600" * 127),
]


def test_any_printable_name_is_exact(place: Place) -> None:
    db = place.open()
    for name in FREE:
        queue = db.create_queue(name, payload="text", order="heap", history="none")
        assert queue.name == name
        queue.push(name)
    again = place.open()
    assert again.queues() == sorted(FREE)
    tables = {context_of(again.queue(name)).table.table_name for name in FREE}
    assert len(tables) == len(FREE)
    assert all(re.fullmatch(r"tq_[a-z0-9]+(_[a-z0-9]+)*", table) and len(table) <= 50 for table in tables)
    for name in FREE[::2]:
        again.queue(name).drop()
    assert again.queues() == sorted(FREE[1::2])
    assert [claimed(again.queue(name)).payload for name in FREE[1::2]] == FREE[1::2]


def test_a_hash_that_two_names_share(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    class Same:
        def __init__(self, text: bytes) -> None:
            self.hexdigest = (b"%010x" % len(text)).decode

    monkeypatch.setattr(hashlib, "sha256", Same)
    first, second = db.create_queue("a b"), db.create_queue("A b")
    first.push(1)
    assert counts(second) == {}
    second.drop()
    assert counts(db.queue("a b")) == {"ready": 1}


def fill(queue: Queue) -> None:
    """Give a queue every part that it may have."""
    Stream(queue, "lake")
    staging.prepare(queue)
    queue.push({"n": 1}, group="a" if queue.definition.groups else None)


@pytest.mark.parametrize(
    ("definition", "first"),
    [({}, "queue"), ({"groups": True}, "neighbours"), ({"order": "due"}, "queue")],
    ids=["fifo", "groups", "due"],
)
def test_a_queue_is_dropped_without_its_neighbours(db: Database, definition: dict[str, Any], first: str) -> None:
    def queue() -> None:
        fill(db.create_queue("orders", **definition))

    def neighbours() -> None:
        for part in PARTS:
            fill(db.create_queue(f"orders_{part}"))

    for make in (queue, neighbours) if first == "queue" else (neighbours, queue):
        make()
    db.queue("orders").drop()
    assert db.queues() == sorted(f"orders_{part}" for part in PARTS)
    for part in PARTS:
        neighbour = db.queue(f"orders_{part}")
        claimed(neighbour).complete()
        assert counts(neighbour) == {"finished": 1}
    fill(db.create_queue("orders", **definition))
    for part in PARTS:
        db.queue(f"orders_{part}").drop()
    assert counts(db.queue("orders")) == {"ready": 1}
    assert db.doctor("orders") == [] or all("index" not in finding.cause for finding in db.doctor("orders"))


def test_the_check_notices_names_that_meet(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "table_of", lambda name, kind, taken: f"tq_{name}")
    with pytest.raises((AssertionError, TablequeueError)):
        test_a_queue_is_dropped_without_its_neighbours(db, {}, "queue")


def test_a_queue_called_schedules_stops_no_schedule(db: Database) -> None:
    schedules = db.create_queue("schedules")
    orders = db.create_queue("orders")
    hourly = Schedule("hourly", "orders", "0 * * * *", {"report": True})
    push_due(db, hourly, datetime(2040, 1, 1, 0, 30, tzinfo=UTC))
    push_due(db, hourly, datetime(2040, 1, 1, 1, 30, tzinfo=UTC))
    assert counts(orders) == {"ready": 1}
    schedules.push("x")
    schedules.drop()
    push_due(db, hourly, datetime(2040, 1, 1, 2, 30, tzinfo=UTC))
    assert counts(orders) == {"ready": 2}


def test_the_catalogue_keeps_the_name_of_the_table(db: Database, place: Place) -> None:
    """Without a collision the table is `tq_<name>`, on which users' SQL may rely."""
    assert table_of("orders") == "tq_orders"
    assert table_of("order_parts") == "tq_order_parts"
    db.create_queue("order_parts").push(1)
    (row,) = place.execute(f"select count(*) from {place.table('order_parts')}")  # noqa: S608 (a name of ours)
    assert row[0] == 1
    (row,) = place.execute(f"select definition from {place.table('queues')}")  # noqa: S608 (a name of ours)
    assert '"table": "tq_order_parts"' in row[0]


def test_tables_of_two_queues_are_two() -> None:
    names = {f"{stem}_{part}" for stem in ("a", "a_b", "q" * 30) for part in (*PARTS, "", "_", "b__c")}
    names |= {"q" * length for length in range(40, 49)}
    tables = {name: table_of(name) for name in names}
    assert len({*tables.values()}) == len(names)
    made = {f"{table}_history" for table in tables.values()} | {
        f"{table}__{part}" for table in tables.values() for part in PARTS
    }
    assert not made & {*tables.values()}
    assert max(map(len, tables.values())) <= 50
