"""A handler: the function for the messages of a queue, and how to call it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import coroutine
from typing import Any

from tablequeue.errors import BadInput
from tablequeue.model.message import Claim
from tablequeue.verbs.context import count, seconds
from tablequeue.worker.outcome import Outcome, outcome_of, outcomes_of

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """The function that handles the messages of a queue.

    function    takes a `Claim`, or a list of them, and returns an outcome; may be `async def`.
    consumers   maximum number of calls that run at once; None: the maximum of the worker.
    batch       None: one message a call; a number: a list of up to that many messages.
    timeout     seconds after which a call is interrupted and has failed; None: never. A thread is interrupted when it
                next runs Python code. While it waits in C code, its lease is not extended any longer.
    processes   whether each consumer has a process of its own, for work that computes in Python; not with `async def`.
    """

    queue: str
    function: Function
    consumers: int | None = None
    batch: int | None = None
    timeout: float | None = None
    processes: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise BadInput(f"The handler of {self.queue!r} is {self.function!r}.", "Give a function.")
        for name in ("consumers", "batch"):
            if getattr(self, name) is not None:
                count(getattr(self, name), name)
        if self.timeout is not None:
            if not seconds(self.timeout, "timeout"):
                raise BadInput(f"timeout is {self.timeout!r}.", "Give seconds, more than 0.")
            object.__setattr__(self, "timeout", seconds(self.timeout, "timeout"))
        if self.processes and self.is_async:
            raise BadInput(
                f"The handler of {self.queue!r} is async and is to run in processes.",
                "Choose one of the two: processes are for handlers that compute, async ones wait.",
            )
        if self.processes and "<" in getattr(self.function, "__qualname__", "<"):
            raise BadInput(
                f"The handler of {self.queue!r} cannot be found by another process.", "Define it in a module, by def."
            )

    @property
    def is_async(self) -> bool:
        function = self.function
        return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))  # an object may be callable

    def call(self, claims: list[Claim]) -> Any:
        """Call the function, in a context of its own: context variables that it sets are reset afterwards."""
        return copy_context().run(self.function, self._argument(claims))

    @coroutine
    def call_async(self, claims: list[Claim]) -> Generator[Any, Any, Any]:
        """Call the async function, in a context of its own.

        The steps of the calling task run in it. A task for each message would take twelve times as long.
        """
        context = copy_context()
        running = context.run(self.function, self._argument(claims)).__await__()
        step, given = running.send, None
        while True:
            try:
                awaited = context.run(step, given)
            except StopIteration as end:
                return end.value
            try:
                step, given = running.send, (yield awaited)
            except BaseException as error:
                step, given = running.throw, error

    def _argument(self, claims: list[Claim]) -> Any:
        return claims[0] if self.batch is None else claims

    def outcomes(self, result: Any, n: int) -> Sequence[Outcome]:
        """Return the outcomes of `n` messages, from the value that the function has returned."""
        return [outcome_of(result)] if self.batch is None else outcomes_of(result, n)


def import_target(target: str) -> Any:
    """Import the object that `package.module:name` names, also from the current folder."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise BadInput(f"{target!r} names no handler.", "Write package.module:function.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        raise BadInput(f"There is no module {error.name!r}.", "Check the name, or change to its folder.") from None
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        raise BadInput(f"The module {module_name!r} cannot be imported: {words}.", "Correct it.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadInput(f"{module_name!r} has no {name!r}.", "Correct the name after the colon.")
        found = getattr(found, part)
    return found
