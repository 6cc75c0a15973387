"""Messages of a state, page by page; those that contain a text if one is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from tablequeue.message import Message
from tablequeue.queue import Queue
from tablequeue.states import STATES, LiveState
from tablequeue.web.render import payload_text

PAGE = 100
# Messages that one search looks through: no index has their text.
FARTHEST = 10_000
CHUNK = 1000

FINISHED = "finished"


@dataclass(frozen=True)
class Page:
    """Messages, how many were looked at, and where the next page begins; None if this is the last one."""

    messages: list[Message]
    looked: int
    next: int | None


def search(queue: Queue, state: str, text: str, start: int | None) -> Page:
    """Up to PAGE messages in a state, or finished, from `start` on: live ones by id, finished ones the last one first.

    With a text those that contain it, in whatever case: in the payload, an error, the key, the group, or the names of
    producer and consumer. Looks through FARTHEST messages at the most.
    """
    found: list[Message] = []
    looked = 0
    last = start
    for message in _walk(queue, state, start, CHUNK if text else PAGE + 1):
        if len(found) == PAGE or looked == FARTHEST:
            return Page(found, looked, last)
        looked += 1
        last = message.id
        if not text or contains(message, text.casefold()):
            found.append(message)
    return Page(found, looked, None)


def contains(message: Message, text: str) -> bool:
    fields = (message.key, message.group, message.producer, message.consumer, payload_text(message.payload))
    errors = (error.error for error in message.errors)
    return any(text in field.casefold() for field in (*fields, *errors) if field)


def states(queue: Queue) -> list[str]:
    """Those that messages of the queue can be in."""
    live: list[str] = [state for state in STATES if state != "blocked" or queue.definition.grouped]
    return [*live, FINISHED] if queue.definition.keeps_history else live


def _walk(queue: Queue, state: str, start: int | None, chunk: int) -> Iterator[Message]:
    while True:
        if state == FINISHED:
            batch = queue.history(chunk, before=start)
        else:
            batch = queue.peek(chunk, state=cast(LiveState, state), after=start or 0)
        yield from batch
        if len(batch) < chunk:
            return
        start = batch[-1].id
