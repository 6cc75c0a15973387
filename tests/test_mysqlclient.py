"""Transactions of callers on connections of mysqlclient, as Django's are. It is no dependency: it must be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database
from tablequeue.errors import BadInput, BadPayload, ConnectionLost, DuplicateKey
from tests.servers import Place, only
from tests.support import refuses

MySQLdb = pytest.importorskip("MySQLdb", reason="mysqlclient is not installed")
if MySQLdb.__name__ != "MySQLdb":
    pytest.skip("pymysql is installed in its place", allow_module_level=True)

pytestmark = only("mariadb")
VALUES: dict[str, list[Any]] = {
    "json": [{"a": "ä€😀'\\%s\x7f"}, 1.5, None],
    "text": ["'\\%d 😀"],
    "bytes": [b"\x00\xff'\\%s"],
}


def connected(place: Place, charset: str = "utf8mb4") -> Any:
    url = sa.make_url(place.url)
    assert place.schema is not None
    return MySQLdb.connect(
        user=url.username,
        password=url.password or "",
        host=url.host,
        port=url.port,
        database=place.schema,
        charset=charset,
    )


@pytest.fixture
def caller(db: Database, place: Place) -> Iterator[Any]:
    db.create_queue("work", payload="text")
    connection = connected(place)
    yield connection
    connection.close()


@pytest.mark.parametrize("payload", VALUES)
def test_messages_go_with_the_transaction(db: Database, caller: Any, payload: Any) -> None:
    queue = db.create_queue("tried", payload=payload, order="priority", results=True)
    values = VALUES[payload]
    for value in values:
        queue.push(value, priority=3, key=f"ä{value}"[:200], headers={"x": "ü"}, connection=caller)
    assert queue.pop() is None
    caller.commit()
    queue.push_many(values * 20, connection=caller)
    caller.rollback()
    queue.push_many(values * 20, connection=caller)
    caller.commit()
    popped = []
    while (message := queue.pop(connection=caller)) is not None:
        popped.append(message.payload)
        message.complete(result={"of": 1}, connection=caller)
    caller.commit()
    assert popped[: len(values)] == values
    assert len(popped) == 21 * len(values)
    due = datetime(2099, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    id = queue.push(values[0], due=due, connection=caller)
    caller.commit()
    assert queue.peek(state="scheduled")[0].due_at == due
    queue.cancel(id, connection=caller)
    queue.push(values[0], connection=caller)
    failed = queue.pop(connection=caller)
    assert failed is not None
    failed.fail("no", retry=False, connection=caller)
    caller.commit()
    assert [message.id for message in queue.dead()] == [failed.id]


def test_its_errors_are_those_of_the_engine(db: Database, place: Place, caller: Any) -> None:
    queue = db.queue("work")
    queue.push("x", key="one", connection=caller)
    refuses(DuplicateKey, queue.push, "x", key="one", connection=caller)
    assert "max_allowed_packet" in refuses(BadPayload, queue.push, "x" * (1 << 25), connection=caller).cause
    place.execute(f"kill {caller.thread_id()}")
    refuses(ConnectionLost, queue.push, "x", connection=caller)
    assert queue.peek() == []
    other = connected(place, "latin1")
    refuses(BadInput, queue.push, "x", connection=other)
    other.close()
    alone = connected(place)
    alone.autocommit(True)
    assert "autocommit" in refuses(BadInput, queue.push, "x", connection=alone).cause
    alone.close()
