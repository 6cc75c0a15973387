"""The sizes of the tables."""

from __future__ import annotations

import pytest

from tablequeue import Database
from tablequeue.verbs import doctor
from tablequeue.verbs import sizes as of_tables
from tests.servers import Kind


def test_each_table_has_its_queue_and_its_bytes(db: Database, kind: Kind) -> None:
    assert db.sizes() == [], "nothing is installed"
    queue = db.create_queue("orders", groups=True)
    db.create_queue("orders_history")
    topic = db.create_topic("events")
    topic.subscribe("mail")
    queue.push_many([{}] * 10, group="ada")
    found = db.sizes()
    assert all(size.bytes > 0 for size in found)
    if kind.name == "sqlite":
        assert [(size.queue, size.rows, size.dead) for size in found] == [(None, None, None)]
        return
    owners = {size.table: size.queue for size in found}
    assert owners["tq_queues"] is None
    assert owners["tq_orders"] == owners["tq_orders_history"] == owners["tq_orders__turns"] == "orders"
    assert owners["tq_events"] == owners["tq_events__runs"] == "events"
    assert (
        owners["tq_events__s1"] == owners["tq_events__s1_history"] == owners["tq_events__s1__ranges"] == "events/mail"
    )
    (other,) = [
        table
        for table, owner in owners.items()
        if owner == "orders_history" and not table.endswith(("_history", "__live_keys"))
    ]
    assert other.startswith("tq_orders_history_x")
    assert [size.table for size in found] == sorted(owners)


def test_what_a_day_adds_is_the_mean_size_at_the_rate_of_the_window(
    db: Database, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_tables, "ENOUGH", 10)
    monkeypatch.setattr(doctor, "KEPT", 10)
    queue = db.create_queue("orders", history="keep")
    queue.push_many([{}] * 20)
    queue.complete_many(queue.pop_many(10))
    stats = queue.stats(window=3600)
    found = {size.table: of_tables.added_a_day(size, stats) for size in db.sizes()}
    if kind.name == "sqlite":
        assert {*found.values()} == {None}, "the file is of all"
        return
    (history,) = [size for size in db.sizes() if size.table == "tq_orders_history"]
    assert found.pop(history.table) == 24 * history.bytes, "as much in an hour as there is"
    assert {*found.values()} == {None}
    assert of_tables.added_a_day(history, queue.stats()) is None
    (finding,) = [each for each in db.doctor("orders") if "for ever" in each.cause]
    assert finding.cause.endswith(" more a day."), finding.cause
    assert finding.cause.count(" more a day") == 2
