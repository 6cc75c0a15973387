"""PostgreSQL with every claim packed, so that the conformance suite runs over packs; by itself, only large ones are."""

from __future__ import annotations

from copy import copy
from functools import cache

from tablequeue.engines.engine import Engine
from tablequeue.engines.postgresql.packs import Packs
from tests.servers import KINDS, VariantKind

# The files of the conformance suite that run over packs too: those about messages that are in progress.
FILES = frozenset(
    "test_complete_and_claim test_consume test_finish test_history test_keys test_leases test_transactions".split()
)
# The claim is by the order; what is packed is the same for all, and groups have no packs.
DESIGNS = frozenset({"fifo", "priority"})


@cache
def packing(engine: type[Engine]) -> type[Engine]:
    """The engine with packs of one message and more, also after one had to be unpacked."""

    messages = copy(engine.messages)
    messages.packs = Packs(least=1, unpacked=0)  # type: ignore[attr-defined]
    return type(engine.__name__, (engine,), {"messages": messages})


PACKING = [VariantKind.of(kind, "packs", packing, FILES, DESIGNS) for kind in KINDS if kind.name == "postgresql"]
