"""The sizes of the tables."""

from __future__ import annotations

from tablequeue import Database
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
        table for table, owner in owners.items() if owner == "orders_history" and not table.endswith("_history")
    ]
    assert other.startswith("tq_orders_history_x")
    assert [size.table for size in found] == sorted(owners)
