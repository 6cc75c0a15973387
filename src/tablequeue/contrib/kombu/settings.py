"""The transport options, and what the arguments of a declared queue mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from tablequeue.model.definition import History

# The least seconds that a queue stays after its last use. Its consumers renew their entry three times in that time.
SHORTEST_LIFE = 60.0
# Seconds that a queue stays that is deleted with its last consumer, if it never had one or that one was killed.
LIFE_WITHOUT_CONSUMERS = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of `transport_options`; others are kombu's own."""

    lease: float = 60.0
    """Seconds until the messages of a killed consumer are delivered again. Of one that runs, leases are extended."""
    max_attempts: int = 20
    """How often a message may be delivered without an answer before it is a dead letter. For new queues."""
    history: History = 24 * 3600.0
    """How long finished messages stay in the history of a queue; `none`: not at all. For new queues."""
    eta_in_table: bool = True
    """Whether a task with an ETA stays in the table until then, and not in the memory of a worker."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})


@dataclass(frozen=True, slots=True)
class Transient:
    """A queue that goes when it is not used."""

    name: str
    ttl: float | None
    """Seconds after which its messages expire."""
    life: float
    """Seconds without a use after which it is deleted."""
    auto_delete: bool
    """Whether it is deleted with its last consumer."""
    shared: bool
    """Whether it is in the one table of such queues. Those with priorities have a table of their own."""


def transient(name: str, auto_delete: bool, exclusive: bool, arguments: Mapping[str, Any]) -> Transient | None:
    """Return the queue if it goes when it is not used; None if it stays until it is deleted."""
    expires = seconds(arguments.get("x-expires"))
    if not auto_delete and not exclusive and expires is None:
        return None
    life = LIFE_WITHOUT_CONSUMERS if expires is None else max(expires, SHORTEST_LIFE)
    ttl, shared = seconds(arguments.get("x-message-ttl")), arguments.get("x-max-priority") is None
    return Transient(name, ttl, life, auto_delete or exclusive, shared)


def seconds(milliseconds: Any) -> float | None:
    """Return the seconds of a number of milliseconds, as AMQP gives it: also as a string. None if it is none."""
    try:
        return None if milliseconds is None else max(float(milliseconds) / 1000, 0.001)
    except (TypeError, ValueError):
        return None
