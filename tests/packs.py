"""PostgreSQL with every claim packed, so that the conformance suite tests packs. Normally only large claims are
packed."""

from __future__ import annotations

from copy import copy
from functools import cache

from tablequeue.engines.engine import Engine
from tablequeue.engines.postgresql.packs import Packs
from tests.servers import KINDS, VariantKind

# The files of the conformance suite that also test packs: those about messages in progress.
FILES = frozenset(
    (
        "test_cancel test_complete_and_claim test_consume test_errors test_finish test_history test_keys test_leases "
        "test_transactions"
    ).split()
)
# Packs are the same for all orders, and groups have none, so one order is enough.
DESIGNS = frozenset({"fifo", "priority"})


@cache
def packing(engine: type[Engine]) -> type[Engine]:
    """Return the engine with packs of one message and more, even after one was unpacked."""

    messages = copy(engine.messages)
    messages.packs = Packs(least=1, unpacked=0)  # type: ignore[attr-defined]
    return type(engine.__name__, (engine,), {"messages": messages})


PACKING = [VariantKind.of(kind, "packs", packing, FILES, DESIGNS) for kind in KINDS if kind.name == "postgresql"]
