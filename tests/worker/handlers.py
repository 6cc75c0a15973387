"""Handlers for the tests, in a module, so that other processes find them. The payload says what they do."""

from __future__ import annotations

import asyncio
import os
import time
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any

from tablequeue import Claim
from tablequeue.worker import DeadLetter, Finished, Outcome, Retry, Snooze

FOR_EVER = 3600
TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")

OUTCOMES: dict[str, Outcome] = {
    "retry": Retry(500, "not yet"),
    "bury": DeadLetter("no such address"),
    "snooze": Snooze(timedelta(seconds=500)),
}


def by_payload(message: Claim) -> Any:
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


async def by_payload_async(message: Claim) -> Any:
    await asyncio.sleep(0)
    if message.payload == "finish":
        await asyncio.to_thread(message.complete)
        return Finished()
    return by_payload(message)


def batch_by_payload(messages: list[Claim]) -> Any:
    if messages[0].payload == "too few":
        return []
    return [by_payload(message) or Retry(500, f"one of {len(messages)}") for message in messages]


def batch_by_payload_quietly(messages: list[Claim]) -> Any:
    return [by_payload(message) for message in messages]


def see_tenant(messages: Any) -> Outcome:
    """Fail with the tenant that is there, and set another one."""
    seen = TENANT.get()
    TENANT.set("somebody")
    return Retry(500, seen)


async def see_tenant_async(messages: Any) -> Outcome:
    outcome = see_tenant(messages)
    for _ in range(2):
        await asyncio.sleep(0)
        assert TENANT.get() == "somebody", "it lasts as long as the call"
    assert await asyncio.create_task(_tenant()) == "somebody", "also in tasks of the handler"
    return outcome


async def _tenant() -> str:
    return TENANT.get()


def never_end(message: Claim) -> None:
    end = time.monotonic() + FOR_EVER
    while time.monotonic() < end:
        time.sleep(0.001)  # Python code runs in between


async def never_end_async(message: Claim) -> None:
    await asyncio.sleep(FOR_EVER)


def die(message: Claim) -> None:
    if message.attempt == 1:
        os._exit(7)


def announce(message: Claim) -> None:
    """Write into the folder of the payload that the handler has begun, then wait for the file `go` there."""
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
