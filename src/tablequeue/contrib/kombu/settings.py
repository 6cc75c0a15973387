"""The transport options, and the meaning of a declared queue's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from tablequeue.model.definition import History

# The least seconds that a queue stays after its last use. Its consumers renew their entry three times in that time.
SHORTEST_LIFE = 60.0
# Seconds that an auto-delete queue stays if it never had a consumer, or its last consumer was killed.
LIFE_WITHOUT_CONSUMERS = 300.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of `transport_options`; other options belong to kombu."""

    lease: float = 60.0
    """Seconds until the messages of a killed consumer are delivered again. A running consumer extends its leases."""
    max_attempts: int = 20
    """How often a message may be delivered without an answer before it is a dead letter. For new queues."""
    history: History = 24 * 3600.0
    """How long finished messages stay in the history of a queue; `none`: no history. For new queues."""
    eta_in_table: bool = True
    """Whether a task with an ETA stays in the table until then, and not in the memory of a worker."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})


@dataclass(frozen=True, slots=True)
class Transient:
    """A queue that is deleted when it is not used."""

    name: str
    ttl: float | None
    """Seconds after which its messages expire."""
    life: float
    """Seconds without a use after which it is deleted."""
    auto_delete: bool
    """Whether it is deleted with its last consumer."""
    shared: bool
    """Whether it is in the shared table of such queues. A queue with priorities has a table of its own."""


def transient(name: str, auto_delete: bool, exclusive: bool, arguments: Mapping[str, Any]) -> Transient | None:
    """Return the queue if it is deleted when not used; None if it stays until a program deletes it."""
    expires = seconds(arguments.get("x-expires"))
    if not auto_delete and not exclusive and expires is None:
        return None
    life = LIFE_WITHOUT_CONSUMERS if expires is None else max(expires, SHORTEST_LIFE)
    ttl, shared = seconds(arguments.get("x-message-ttl")), arguments.get("x-max-priority") is None
    return Transient(name, ttl, life, auto_delete or exclusive, shared)


def seconds(milliseconds: Any) -> float | None:
    """Return milliseconds, as AMQP gives them, as seconds: also from a string. None if it is not a number."""
    try:
        return None if milliseconds is None else max(float(milliseconds) / 1000, 0.001)
    except (TypeError, ValueError):
        return None
