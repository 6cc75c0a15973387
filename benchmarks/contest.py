"""Measure contenders in turn: what each does, step by step, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter

from benchmarks.contenders import Contender, check
from benchmarks.places import LABELS
from benchmarks.results import Figure
from benchmarks.rounds import interleaved

# What a contender does with these payloads; it returns what it delivered, or None.
Step = Callable[[Contender, Sequence[str]], list[str] | None]
# From the engine, the step and the contender's name: the ratio that tablequeue must reach.
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
    """Yield the messages a second of each contender at each step. In each round, every contender does all steps.

    If all are treated `alike`, contenders that ask for fewer messages get all of them too.
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
