"""How a call for many messages is made of steps, each a statement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tablequeue.engines.base import Params
from tablequeue.engines.texts import Row

T = TypeVar("T")

# Messages that one statement touches at the most. A statement tries to escalate its locks from 5,000 on, and a claim
# takes three a message: in the table, in the index it leaves and in the one it enters. A larger call is made of steps
# in one transaction, not refused: the verbs mean the same on every engine, and it is all or nothing.
STEP = 1000
# Characters of payloads beyond which a step of a bulk push is sent: OPENJSON holds the array in memory.
STEP_CHARACTERS = 1 << 22


def steps_of(items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """The items, as many at a time as a statement takes; `size` is the length of the payload of one."""
    step: list[T] = []
    characters = 0
    for item in items:
        if step and (len(step) == STEP or characters + size(item) > STEP_CHARACTERS):
            yield step
            step, characters = [], 0
        step.append(item)
        characters += size(item)
    if step:
        yield step


def steps_of_ids(params: Params) -> list[Params]:
    """The same parameters, for some of the `ids` each."""
    ids: list[int] = json.loads(params["ids"])
    if len(ids) <= STEP:
        return [params]
    return [params | {"ids": str(ids[start : start + STEP])} for start in range(0, len(ids), STEP)]


def claimed_in_steps(claim: Callable[[int], list[Row]], n: int) -> list[Row]:
    """What claims up to `n` messages yields, until a step finds fewer than it may."""
    rows: list[Row] = []
    while len(rows) < n:
        wanted = min(STEP, n - len(rows))
        step = claim(wanted)
        rows += step
        if len(step) < wanted:
            break
    return rows


def text_of(payload: str | bytes) -> str:
    """A payload as JSON has it: bytes in hexadecimal digits."""
    return payload if isinstance(payload, str) else payload.hex()
