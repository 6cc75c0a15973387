"""What tests of dependencies share, and the checks that mutants must fail."""

from __future__ import annotations

from typing import Any

from tablequeue import Database, NewMessage, Queue
from tablequeue.ext import context_of
from tablequeue.model.names import PART
from tests.support import at, claimed


def made(db: Database, name: str = "work", **options: Any) -> Queue:
    return db.create_queue(name, **{"payload": "text", "dependencies": True, **options})


def payloads(queue: Queue, **options: Any) -> list[str]:
    """Pop all that is ready, complete it, and return the payloads."""
    messages = queue.pop_many(100, **options)
    queue.complete_many(messages)
    return [message.payload for message in messages]


def rows(queue: Queue) -> list[Any]:
    """Return the rows about messages of the queue that wait."""
    context = context_of(queue)
    table = f"{context.engine.prefix}tq{PART}dependencies"

    def read(cursor: Any, *_: Any) -> list[Any]:
        cursor.execute(f"select * from {table} where queue = '{context.table.table_name}'")  # noqa: S608
        return list(cursor.fetchall())

    return context.run(read, {})


def check_many(db: Database) -> None:
    """Messages of one push wait for the same others, and come at times of their own."""
    queue, other = made(db), db.create_queue("other", payload="text")
    awaited: list[Any] = [queue.push("a"), ("other", other.push("b"))]
    messages: list[Any] = ["c", NewMessage("d", delay=60), NewMessage("e", due=at(100))]
    queue.push_many(messages, after=awaited, now=at(0))
    queue.push_many([*"fg"], after=awaited, delay=30, now=at(0))
    assert len(rows(queue)) == 15
    assert payloads(queue, now=at(1)) == ["a"]
    assert payloads(queue, now=at(2)) == []
    assert payloads(other, now=at(3)) == ["b"]
    assert payloads(queue, now=at(10)) == ["c"]
    assert payloads(queue, now=at(40)) == ["f", "g"]
    assert payloads(queue, now=at(70)) == ["d"]
    assert payloads(queue, now=at(100)) == ["e"]
    assert rows(queue) == []


def check_dependencies(db: Database, **design: Any) -> None:
    """A message comes when the last of those has ended that it waits for."""
    queue = made(db, **design)
    first, second = queue.push_many(["a", "b"])
    last = queue.push("last", after=[first, second])
    assert [message.state for message in queue.peek(9, state="scheduled") if message.id == last] == ["scheduled"]
    messages = queue.pop_many(9)
    assert sorted(message.id for message in messages) == [first, second]
    one, other = messages
    assert queue.pop() is None, "both are in progress"
    one.complete()
    assert queue.pop() is None, "one is in progress"
    other.release()
    assert queue.pop_many(9)[0].id == other.id, "and nothing else"
    assert queue.pop() is None
    held = next(message for message in queue.peek(9, state="in_progress"))
    queue.extend_held(held.id, 0)
    claimed(queue).complete()
    assert [message.id for message in queue.pop_many(9)] == [last], "when both have ended"
    assert rows(queue) == []
