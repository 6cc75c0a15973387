"""What only SQLite needs: each of its statements reads the clock for itself."""

from __future__ import annotations

import sqlite3
from itertools import count
from pathlib import Path

import tablequeue
from tests.support import at, ids_of


def test_a_message_that_becomes_due_in_the_middle_of_a_take_is_not_lost(tmp_path: Path) -> None:
    """A take is two statements: what is due at the second one only must not be removed by it."""
    path = tmp_path / "queues.db"
    with tablequeue.connect(f"sqlite:///{path}") as db:
        queue = db.create_queue("work", order="due")
        ids = [queue.push(number, due=at(number), now=at(0)) for number in range(100)]
        connection = sqlite3.connect(path)
        # A clock that is a second later whenever it is read.
        moments = count(at(0).timestamp() + 20)
        connection.create_function("julianday", 1, lambda now: next(moments) / 86400 + 2440587.5)
        messages = queue.take_many(50, connection)
        connection.commit()
        connection.close()
        assert 0 < len(messages) < 100
        assert ids_of(queue.history()) == ids_of(reversed(messages)), "whatever was removed is in the history"
        assert ids_of(messages) == ids[: len(messages)]
