"""What a queue is: its name, order, payload, lease, retries and history. Pure: no database here."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from dataclasses import dataclass, field
from typing import Any, Self

from tablequeue.errors import BadDefinition, BadName

ORDERS = ("fifo", "heap")
PAYLOADS = ("json", "text", "bytes")
HISTORIES = ("keep", "none")
LARGEST = (1 << 31) - 1
"""The largest count: what an integer column holds on every engine."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
# tq_queues is the catalogue.
_RESERVED = frozenset({"queues"})


def check_name(name: str, what: str = "queue") -> str:
    """`name` itself, if it can name a table on every engine; else `BadName`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} cannot name a {what}.",
            "Use 1 to 48 characters: a lower-case letter, then lower-case letters, digits and underscores.",
        )
    if what == "queue" and name in _RESERVED:
        raise BadName(f"{name!r} is reserved for the catalogue of queues.", "Choose another name.")
    return name


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed message waits: `base * factor ** (attempts - 1)` seconds, at most `cap`.

    `jitter` is the share of the wait that chance may take away, so that messages that failed together do not
    come back together.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.1

    def seconds(self, attempts: int) -> float:
        # factor ** attempts overflows a float long before it matters: compare logarithms first.
        exponent = max(attempts - 1, 0)
        if self.base > 0 and self.factor > 1 and exponent * math.log(self.factor) > math.log(self.cap / self.base):
            wait = self.cap
        else:
            wait = min(self.cap, self.base * self.factor**exponent)
        return wait * (1 - self.jitter * random.random())


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a queue; it is stored in the catalogue and does not change.

    order         `fifo`: lowest id first, passing over messages in progress; `heap`: any order.
    payload       `json`, `text` or `bytes`: the type of the column.
    lease         seconds a popped message stays with its consumer unless extended.
    max_attempts  how often a message may be claimed before it becomes a dead letter.
    backoff       how long a failed message waits.
    history       `keep`: a finished message moves to the history; `none`: it is deleted.
    """

    order: str = "fifo"
    payload: str = "json"
    lease: float = 60.0
    max_attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    history: str = "keep"

    def __post_init__(self) -> None:
        _one_of("order", self.order, ORDERS)
        _one_of("payload", self.payload, PAYLOADS)
        _one_of("history", self.history, HISTORIES)
        _positive("lease", self.lease)
        attempts = self.max_attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= LARGEST:
            raise BadDefinition(f"max_attempts is {attempts!r}.", f"Give a whole number from 1 to {LARGEST}.")
        if not isinstance(self.backoff, Backoff):
            raise BadDefinition(f"backoff is {self.backoff!r}.", "Give a tablequeue.Backoff.")
        _positive("backoff.cap", self.backoff.cap)
        _positive("backoff.factor", self.backoff.factor)
        for name, value in (("backoff.base", self.backoff.base), ("backoff.jitter", self.backoff.jitter)):
            _number(name, value)
            if value < 0:
                raise BadDefinition(f"{name} is {value!r}.", "Give a number that is not negative.")
        if self.backoff.jitter > 1:
            raise BadDefinition(f"backoff.jitter is {self.backoff.jitter!r}.", "Give a share from 0 to 1.")

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        return cls(**{**values, "backoff": Backoff(**values["backoff"])})

    def differences(self, other: Definition) -> list[str]:
        """One line for each option that differs, this definition's value first."""
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        return [f"{name}: {mine[name]!r} is not {theirs[name]!r}" for name in mine if mine[name] != theirs[name]]


def _one_of(name: str, value: object, values: tuple[str, ...]) -> None:
    if value not in values:
        raise BadDefinition(f"{name} is {value!r}.", f"Give one of: {', '.join(values)}.")


def _number(name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise BadDefinition(f"{name} is {value!r}.", "Give a finite number.")


def _positive(name: str, value: Any) -> None:
    _number(name, value)
    if value <= 0:
        raise BadDefinition(f"{name} is {value!r}.", "Give a number greater than 0.")
