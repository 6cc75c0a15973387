"""A handler: the function that works at the messages of a queue, and how it is to be called."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tablequeue.errors import BadInput
from tablequeue.operations.context import count, seconds

Function = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """Who works at a queue.

    function    takes a `Claim`, or a list of them, and returns an outcome; may be `async def`.
    consumers     how many calls may run at once at the most; None: as many as the worker may have.
    batch       None: one message a call. A number: a list of up to so many.
    timeout     seconds after which a call is interrupted and has failed; None: never. In a thread the interrupt
                arrives when Python code runs next: one that waits inside of C is only left to lose its lease.
    processes   each consumer has a process of its own, for work that is all Python's; not with `async def`.
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
                "Leave one of the two out: processes are for handlers that compute, async ones wait.",
            )
        if self.processes and "<" in getattr(self.function, "__qualname__", "<"):
            raise BadInput(
                f"The handler of {self.queue!r} cannot be found by another process.", "Define it in a module, by def."
            )

    @property
    def is_async(self) -> bool:
        function = self.function
        return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))  # an object may be callable


def load(target: str) -> Any:
    """What `package.module:name` names; modules of the current folder are found too."""
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
