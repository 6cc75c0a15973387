"""Messages in a state, page by page, filtered by a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from tablequeue.message import Message
from tablequeue.queue import Queue
from tablequeue.states import STATES, LiveState
from tablequeue.web.render import payload_text

PAGE = 100
# Maximum number of messages that a search reads: there is no index of their text.
MOST_READ = 10_000
CHUNK = 1000

FINISHED = "finished"


@dataclass(frozen=True)
class Page:
    """Messages, the number of messages read for them, and the start of the next page; None if this is the last one."""

    messages: list[Message]
    read: int
    next: int | None


def search(queue: Queue, state: str, text: str, start: int | None) -> Page:
    """Return up to PAGE messages in a state from `start` on: live messages by id, finished ones the last one first.

    With a text, only messages that contain it in the payload, an error, the key, the group, or the names of producer
    and consumer, regardless of case. Reads at most MOST_READ messages.
    """
    found: list[Message] = []
    read = 0
    last = start
    for message in _walk(queue, state, start, CHUNK if text else PAGE + 1):
        if len(found) == PAGE or read == MOST_READ:
            return Page(found, read, last)
        read += 1
        last = message.id
        if not text or contains(message, text.casefold()):
            found.append(message)
    return Page(found, read, None)


def contains(message: Message, text: str) -> bool:
    fields = (message.key, message.group, message.producer, message.consumer, payload_text(message.payload))
    errors = (error.error for error in message.errors)
    return any(text in field.casefold() for field in (*fields, *errors) if field)


def states(queue: Queue) -> list[str]:
    """Return the states that messages of the queue can be in."""
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
