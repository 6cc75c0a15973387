"""Messages of one chosen group of a fair queue."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tablequeue import Database, NewMessage, Queue, Rate
from tablequeue.aio import AsyncQueue
from tablequeue.aio.threads import Threads
from tablequeue.errors import BadInput
from tests import checks
from tests.support import at, counts, ids_of, refuses

pytestmark = pytest.mark.quick


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", groups="fair", payload="text", max_attempts=2, expires=1000)


def push(queue: Queue, groups: str, **options: Any) -> list[int]:
    """Push a message for each letter, in the group of that letter; a dash has no group."""
    return queue.push_many([NewMessage(group, group=None if group == "-" else group) for group in groups], **options)


def test_only_of_that_group_in_order(queue: Queue) -> None:
    checks.check_pop_group(queue)


def test_names_of_groups_are_exact(queue: Queue) -> None:
    ids = push(queue, "A-aäá")
    for group, id in zip("aäá", ids[2:], strict=True):
        assert ids_of(queue.pop_group(group, 5)) == [id]
    assert queue.pop_group("a ") == []


def test_a_lost_lease_brings_the_message_back_to_its_group(queue: Queue) -> None:
    ids = push(queue, "ab", now=at(0))
    first = queue.pop_group("a", lease=10, now=at(0))
    assert queue.pop_group("a", now=at(9)) == []
    (again,) = queue.pop_group("a", lease=10, now=at(11))
    assert (again.id, again.attempt) == (ids[0], 2)
    assert first[0].token != again.token
    assert queue.pop_group("a", now=at(30)) == [], "it has no attempts left"
    assert counts(queue) == {"ready": 1, "dead": 1}


def test_what_is_due_later_over_or_paused_is_not_claimed(queue: Queue) -> None:
    queue.push("later", group="a", due=at(20), now=at(0))
    queue.push("over", group="a", expires=5, now=at(0))
    assert queue.pop_group("a", 5, now=at(10)) == []
    queue.pause()
    assert queue.pop_group("a", 5, now=at(30)) == []
    queue.resume()
    assert [claim.payload for claim in queue.pop_group("a", 5, now=at(30))] == ["later"]


def test_the_groups_keep_their_turns(queue: Queue) -> None:
    push(queue, "aaabbb")
    (first,) = queue.pop_many(1)
    other = "b" if first.group == "a" else "a"
    assert first.group is not None
    queue.pop_group(first.group)
    assert [claim.group for claim in queue.pop_many(1)] == [other]


def test_refused_where_no_group_can_be_chosen(db: Database, queue: Queue) -> None:
    refuses(BadInput, db.create_queue("plain").pop_group, "a")
    refuses(BadInput, db.create_queue("ordered", groups=True).pop_group, "a")
    refuses(BadInput, db.create_queue("limited", groups="fair", rate=Rate(1)).pop_group, "a")
    refuses(BadInput, queue.pop_group, None)
    refuses(BadInput, queue.pop_group, "")
    refuses(BadInput, queue.pop_group, "a", 0)


def test_async(queue: Queue) -> None:
    async def run() -> None:
        ids = push(queue, "ba")
        claims = await AsyncQueue(queue, Threads(2)).pop_group("a", 5)
        assert [claim.id for claim in claims] == ids[1:]

    asyncio.run(run())
