"""Rounds in which every contender has a turn, so that a disturbance of the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from time import perf_counter
from typing import TypeVar

from rich.progress import track

T = TypeVar("T")


def interleaved(works: Mapping[str, Callable[[], T]], repeats: int, label: str) -> dict[str, list[T]]:
    """Return the results of each work in `repeats` rounds. A warm-up round before them does not count.

    The order differs between rounds and is the same in every run. So no contender always has the warmer cache, or
    always follows the one that leaves the most work to the disk.
    """
    names = list(works)
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in track(range(repeats + 1), description=label, transient=True):
        for name in Random(number).sample(names, len(names)):
            answer = works[name]()
            if number:
                found[name].append(answer)
    return found


def rate(call: Callable[[], object], messages: int) -> float:
    """Return the messages a second of a call that handles this number of messages."""
    started = perf_counter()
    call()
    return messages / (perf_counter() - started)
