"""Handlers for the tests, in a module that other processes can import. The payload says what they do."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tablequeue import Claim
from tablequeue.worker import DeadLetter, Finished, Outcome, Retry, Snooze

FOR_EVER = 3600

OUTCOMES: dict[str, Outcome] = {
    "retry": Retry(500, "not yet"),
    "bury": DeadLetter("no such address"),
    "snooze": Snooze(timedelta(seconds=500)),
}


def act(message: Claim) -> Any:
    word = message.payload
    if word == "raise":
        raise ValueError("the handler's own words")
    if word == "exit":
        raise SystemExit(3)
    if word == "finish":
        message.complete()
        return Finished()
    if word == "value":
        return "what no outcome is"
    return OUTCOMES.get(word)


async def act_async(message: Claim) -> Any:
    await asyncio.sleep(0)
    if message.payload == "finish":
        await asyncio.to_thread(message.complete)
        return Finished()
    return act(message)


def act_batch(messages: list[Claim]) -> Any:
    if messages[0].payload == "too few":
        return []
    return [act(message) or Retry(500, f"one of {len(messages)}") for message in messages]


def act_batch_quietly(messages: list[Claim]) -> Any:
    return [act(message) for message in messages]


def never_end(message: Claim) -> None:
    end = time.monotonic() + FOR_EVER
    while time.monotonic() < end:
        time.sleep(0.001)  # Python code runs in between


async def never_end_async(message: Claim) -> None:
    await asyncio.sleep(FOR_EVER)


def die(message: Claim) -> None:
    if message.attempts == 1:
        os._exit(7)


def announce(message: Claim) -> None:
    """Write to the file named by the payload that the handler has begun. Then wait for the permission to end."""
    folder, _, name = message.payload.rpartition("/")
    with Path(folder, "begun").open("a") as begun:
        begun.write(f"{name}\n")
    while not Path(folder, "go").exists():
        time.sleep(0.001)


async def announce_async(message: Claim) -> None:
    folder, _, name = message.payload.rpartition("/")
    with Path(folder, "begun").open("a") as begun:
        begun.write(f"{name}\n")
    while not Path(folder, "go").exists():
        await asyncio.sleep(0.001)
