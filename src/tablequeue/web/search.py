"""Messages in a state, page by page, filtered by a text. Only the start of each payload is read: `Context.in_brief`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import cast

from tablequeue.consumer import Consumer
from tablequeue.errors import Locked
from tablequeue.ext import context_of
from tablequeue.model.message import Message
from tablequeue.model.states import STATES, LiveState
from tablequeue.verbs import inspect
from tablequeue.verbs.context import Context
from tablequeue.web.render import payload_text

PAGE = 100
# Maximum number of messages that a search reads: there is no index of their text.
MOST_READ = 10_000
# Few at a time: a search holds these and a page of found messages in memory.
CHUNK = 100
# Seconds that a search waits for the one before it. Each waiting search occupies a thread that pages need.
WAIT = 3.0

FINISHED = "finished"


@dataclass(frozen=True)
class Page:
    """Messages, the number of messages read for them, and the start of the next page; None if this is the last one."""

    messages: list[Message]
    read: int
    next: int | None


# One for all visitors: searches share the database and the memory with other visitors.
_searching = Lock()


def search(queue: Consumer, state: str, text: str, start: int | None) -> Page:
    """Return up to PAGE messages in a state from `start` on: live messages by id, finished ones the last one first.

    With a text, only messages that contain it in the start of the payload, an error, the key, the group, or the names
    of producer and consumer, regardless of case. Reads at most MOST_READ messages. One search at a time: `Locked` if
    another one takes long.
    """
    context = context_of(queue).in_brief()
    if not text:
        return _page(_walk(context, state, start, PAGE + 1), "", start)
    with _one_at_a_time():
        return _page(_walk(context, state, start, CHUNK), text.casefold(), start)


def ids(queue: Consumer, state: str, text: str) -> list[int]:
    """Return the ids of all messages that a search finds: on all of its pages, among the first MOST_READ messages."""
    messages = _walk(context_of(queue).in_brief(), state, None, CHUNK)
    with _one_at_a_time():
        return [each.id for each in islice(messages, MOST_READ) if contains(each, text.casefold())]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    if not _searching.acquire(timeout=WAIT):
        raise Locked("Another search is running.", "Wait for a moment, and search again.")
    try:
        yield
    finally:
        _searching.release()


def has(queue: Consumer, id: int) -> bool:
    """Whether a message of the queue has that id, in any state."""
    return inspect.find(context_of(queue).in_brief(), id) is not None


def contains(message: Message, text: str) -> bool:
    fields = (message.key, message.group, message.producer, message.consumer, payload_text(message.payload))
    errors = (error.error for error in message.errors)
    return any(text in field.casefold() for field in (*fields, *errors) if field)


def states(queue: Consumer) -> list[str]:
    """Return the states that messages of the queue can be in."""
    live: list[str] = [state for state in STATES if state != "blocked" or queue.definition.grouped]
    return [*live, FINISHED] if queue.definition.keeps_history else live


def _page(messages: Iterator[Message], text: str, start: int | None) -> Page:
    found: list[Message] = []
    read = 0
    last = start
    for message in messages:
        if len(found) == PAGE or read == MOST_READ:
            return Page(found, read, last)
        read += 1
        last = message.id
        if not text or contains(message, text):
            found.append(message)
    return Page(found, read, None)


def _walk(context: Context, state: str, start: int | None, chunk: int) -> Iterator[Message]:
    while True:
        if state == FINISHED:
            batch = inspect.history(context, chunk, start)
        else:
            batch = inspect.peek(context, chunk, cast(LiveState, state), start or 0)
        yield from batch
        if len(batch) < chunk:
            return
        start = batch[-1].id
