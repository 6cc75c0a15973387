"""A worker whose handlers end in every way that a handler can; the payload says which."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from tablequeue import Claim
from tablequeue.worker import DeadLetter, Done, Finished, Retry, Snooze, Worker

work = Worker()


def _raise(error: BaseException) -> Any:
    raise error


def _sleep() -> None:
    while True:
        time.sleep(0.001)


def _complete(message: Claim) -> Finished:
    message.complete()
    return Finished()


WAYS: dict[str, Callable[[Claim], Any]] = {
    "nothing": lambda message: None,
    "result": lambda message: {"attempt": message.attempt},
    "done": lambda message: Done([1]),
    "unserialisable": lambda message: Done({1, 2}),
    "error": lambda message: _raise(ValueError("boom")),
    "exit": lambda message: _raise(SystemExit(3)),
    "cancelled": lambda message: _raise(asyncio.CancelledError()),
    "late": lambda message: _sleep(),
    "retry": lambda message: Retry(error="busy"),
    "at once": lambda message: Retry(after=0, error="busy"),
    "dead": lambda message: DeadLetter("no address"),
    "snooze": lambda message: Snooze(30),
    "finished": _complete,
    "not finished": lambda message: Finished(),
    "class": lambda message: Retry,
    "generator": lambda message: (one for one in message.payload),
}


@work.handler("threads", timeout=0.3)
def in_thread(message: Claim) -> Any:
    return WAYS[message.payload](message)


@work.handler("tasks", timeout=0.3)
async def in_task(message: Claim) -> Any:
    await asyncio.sleep(0)
    if message.payload == "late":
        await asyncio.sleep(60)
    return WAYS[message.payload](message)


@work.handler("batches", batch=3)
def in_batch(messages: list[Claim]) -> Any:
    return [Done(len(messages)) if one.payload == "result" else WAYS[one.payload](one) for one in messages]


@work.handler("processes", processes=True)
def in_process(message: Claim) -> Any:
    return WAYS[message.payload](message)
