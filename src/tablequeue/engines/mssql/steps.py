"""Steps: a call for many messages runs a statement for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tablequeue.engines.params import Params
from tablequeue.engines.texts import Row

T = TypeVar("T")

# Maximum number of messages that one statement changes. A statement tries to escalate its locks from 5,000 on, and a
# claim takes three a message: in the table, in the index that it leaves and in the one that it enters. A larger call is
# not refused, because the verbs mean the same on every engine: it runs in steps in one transaction, all or nothing.
STEP = 1000
# Maximum characters of payloads in a step of a bulk push: OPENJSON holds the array in memory.
STEP_CHARACTERS = 1 << 22


def steps_of(items: Sequence[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield the items in lists, each for one statement. `size` returns the length of the payload of an item."""
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
    """Split the parameters into steps: each has some of the `ids`, and the delays of these."""
    ids: list[int] = json.loads(params["ids"])
    if len(ids) <= STEP:
        return [params]
    parts: list[slice] = [slice(start, start + STEP) for start in range(0, len(ids), STEP)]
    if "delays" not in params:
        return [params | {"ids": str(ids[part])} for part in parts]
    delays = json.loads(params["delays"])
    return [params | {"ids": str(ids[part]), "delays": str(delays[part])} for part in parts]


def claimed_in_steps(claim: Callable[[int], list[Row]], n: int) -> list[Row]:
    """Claim up to `n` messages in steps, until a step finds fewer than it asked for. Return the rows."""
    rows: list[Row] = []
    while len(rows) < n:
        wanted = min(STEP, n - len(rows))
        step = claim(wanted)
        rows += step
        if len(step) < wanted:
            break
    return rows


def text_of(payload: str | bytes) -> str:
    """Return a payload as a JSON string: bytes as hexadecimal digits."""
    return payload if isinstance(payload, str) else payload.hex()
