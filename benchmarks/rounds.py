"""Rounds in which every contender has its turn, so that what disturbs the machine disturbs them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from time import perf_counter
from typing import TypeVar

from rich.progress import track

T = TypeVar("T")


def interleaved(works: Mapping[str, Callable[[], T]], repeats: int, label: str) -> dict[str, list[T]]:
    """What each work answers, in `repeats` rounds; a round before them finds everything cold and does not count.

    In another order in each round, the same in every run: none always has the warmer cache, nor always comes after the
    one that leaves the disk the most to do.
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
    """Messages a second of a call that handles so many."""
    started = perf_counter()
    call()
    return messages / (perf_counter() - started)
