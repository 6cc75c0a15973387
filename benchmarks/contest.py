"""Contenders side by side: what each does, step by step, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter

from benchmarks.contenders import Contender, check
from benchmarks.places import LABELS
from benchmarks.results import Figure
from benchmarks.rounds import interleaved

# What a contender does with so many payloads; what it delivers, or None.
Step = Callable[[Contender, Sequence[str]], list[str] | None]
# By the engine, what is measured and the contender's name: how many times as good as it ours must be.
Aim = Callable[[str, str, str], float | None]


def contest(
    engine: str,
    contenders: Sequence[Contender],
    steps: Mapping[str, Step],
    payloads: Sequence[str],
    repeats: int,
    aim: Aim = lambda engine, what, contender: None,
    alike: bool = True,
) -> Iterator[Figure]:
    """Messages a second of each contender at each step, in rounds in which all do all steps, one after the other.

    Those that ask for fewer messages get all of them if all are treated `alike`.
    """
    shares = [payloads if alike else payloads[: len(payloads) // each.fewer] for each in contenders]
    works = {each.name: partial(_rates, each, steps, share) for each, share in zip(contenders, shares, strict=True)}
    found = interleaved(works, repeats, f"{LABELS[engine]}, {', '.join(steps)}")
    for what in steps:
        for name, rounds in found.items():
            values = [rates[what] for rates in rounds]
            yield Figure(LABELS[engine], what, name, "messages/s", values, aim(engine, what, name))


def _rates(contender: Contender, steps: Mapping[str, Step], payloads: Sequence[str]) -> dict[str, float]:
    rates = {}
    for what, step in steps.items():
        started = perf_counter()
        delivered = step(contender, payloads)
        rates[what] = len(payloads) / (perf_counter() - started)
        if delivered is not None:
            check(payloads, delivered)
    return rates
