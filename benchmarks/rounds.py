"""Rounds in which every contender has its turn, so that what disturbs the machine disturbs them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TypeVar

from rich.progress import track

T = TypeVar("T")


def interleaved(works: Mapping[str, Callable[[], T]], repeats: int, label: str) -> dict[str, list[T]]:
    """What each work answers, in `repeats` rounds; a round before them finds everything cold and does not count.

    Another one begins in each round: none always has the warmer cache.
    """
    names = list(works)
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in track(range(repeats + 1), description=label, transient=True):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            answer = works[name]()
            if number:
                found[name].append(answer)
    return found


def rate(call: Callable[[], object], messages: int) -> float:
    """Messages a second of a call that handles so many."""
    started = perf_counter()
    call()
    return messages / (perf_counter() - started)
