"""Handlers that do what no handler should, as the payload says; in a module, so that other processes find them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from tablequeue import Claim
from tablequeue.worker import DeadLetter, Retry, Snooze

FOR_EVER = 3600


class Dumb(Exception):
    """An exception that can neither be formatted nor be sent to another process."""

    def __init__(self, said: type[BaseException]) -> None:
        self.said = said
        self.lock = threading.Lock()

    def __str__(self) -> str:
        raise self.said


class Later(Retry):
    """A subclass of an outcome, defined by the handler."""


async def never_awaited() -> None:
    raise AssertionError("it runs")


def never_run() -> Iterator[None]:
    yield


async def never_run_async() -> AsyncIterator[None]:
    yield


def raising(error: Callable[[], BaseException]) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error()

    return raise_it


# What a handler does, and a part of the error of its message.
MISDEEDS: dict[str, tuple[Callable[[], Any], str]] = {
    "exit": (raising(lambda: SystemExit(3)), "SystemExit: 3"),
    "interrupt": (raising(KeyboardInterrupt), "KeyboardInterrupt"),
    "close": (raising(GeneratorExit), "GeneratorExit"),
    "cancel": (raising(asyncio.CancelledError), "CancelledError"),
    "group": (raising(lambda: ExceptionGroup("several", [ValueError("one")])), "ValueError: one"),
    "base group": (raising(lambda: BaseExceptionGroup("several", [SystemExit(4)])), "SystemExit: 4"),
    "dumb": (raising(lambda: Dumb(ValueError)), "Dumb"),
    "dumb to the end": (raising(lambda: Dumb(SystemExit)), "Dumb"),
    "time-out of its own": (raising(lambda: TimeoutError("mine")), "TimeoutError: mine"),
    "no error": (lambda: Retry(error=None), "error is a NoneType"),  # type: ignore[arg-type]
    "a number": (lambda: DeadLetter(3), "error is a int"),  # type: ignore[arg-type]
    "for ever": (lambda: Snooze(datetime.max.replace(tzinfo=UTC)), "from 0 to 100 years"),
    "infinite": (lambda: Retry(float("inf")), "from 0 to 100 years"),
    "an outcome of its own": (lambda: Later(500, "later"), "later"),
    "class": (lambda: Retry, "returned the class Retry"),
    "coroutine": (never_awaited, "it has not run"),
    "generator": (never_run, "it has not run"),
    "async generator": (never_run_async, "it has not run"),
}


def handle(message: Claim) -> Any:
    return MISDEEDS[message.payload][0]() if message.payload in MISDEEDS else None


async def handle_async(message: Claim) -> Any:
    return handle(message)


def stay(message: Claim) -> None:
    """Catch the time-out and return normally."""
    end = time.monotonic() + FOR_EVER
    try:
        while time.monotonic() < end:
            time.sleep(0.001)
    except BaseException:
        return


async def stay_async(message: Claim) -> None:
    try:
        await asyncio.sleep(FOR_EVER)
    except BaseException:
        return


def turn(message: Claim) -> None:
    """Catch the time-out and raise another error."""
    try:
        stay_for_ever()
    except BaseException as error:
        raise ValueError("turned") from error


def stay_for_ever() -> None:
    end = time.monotonic() + FOR_EVER
    while time.monotonic() < end:
        time.sleep(0.001)


async def turn_async(message: Claim) -> None:
    try:
        await asyncio.sleep(FOR_EVER)
    except BaseException as error:
        raise ValueError("turned") from error


async def cancel_itself(message: Claim) -> None:
    task = asyncio.current_task()
    assert task
    task.cancel()
    if message.payload == "at once":
        await asyncio.sleep(FOR_EVER)


async def exit_in_another_task(message: Claim) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    await asyncio.gather(leave())


async def stop_the_loop(message: Claim) -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


class Called:
    """An object that is called like an async function."""

    async def __call__(self, message: Claim) -> None:
        await asyncio.sleep(0)
