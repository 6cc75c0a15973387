"""PostgreSQL with every claim packed, so that the conformance suite tests packs. Normally only large claims are packed.

The files about messages in progress have the marker `variants("packs")`.
"""

from __future__ import annotations

from copy import copy
from functools import cache

from tablequeue.engines.engine import Engine
from tablequeue.engines.postgresql.packs import Packs
from tests.servers import KINDS, VariantKind

# Packs are the same for all orders, and groups have none, so one order is enough.
DESIGNS = frozenset({"fifo", "priority"})


@cache
def packing(engine: type[Engine]) -> type[Engine]:
    """Return the engine with packs of one message and more, even after one was unpacked."""

    messages = copy(engine.messages)
    messages.packs = Packs(least=1, unpacked=0)  # type: ignore[attr-defined]
    return type(engine.__name__, (engine,), {"messages": messages})


PACKING = [VariantKind.of(kind, "packs", packing, DESIGNS) for kind in KINDS if kind.name == "postgresql"]
