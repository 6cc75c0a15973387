"""PostgreSQL with every claim packed, so that the conformance suite runs over packs; by itself, only large ones are."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import ClassVar

from tablequeue import Database
from tablequeue.engines.base import Engine
from tests.servers import KINDS, Kind, Place

# The files of the conformance suite that run over packs too: those about messages that are in progress.
FILES = frozenset(
    "test_complete_and_claim test_consume test_finish test_history test_keys test_leases test_transactions".split()
)


@dataclass(frozen=True)
class PackingKind(Kind):
    @property
    def engine_class(self) -> type[Engine]:
        return packing(super().engine_class)

    def place(self, url: str, schema: str | None) -> Place:
        return PackingPlace(url, schema, kind=self)


@dataclass
class PackingPlace(Place):
    kind: Kind | None = None

    def open(self, name: str | None = None) -> Database:
        assert self.kind is not None
        return self.open_with(self.kind.engine_class, name)


@cache
def packing(engine: type[Engine]) -> type[Engine]:
    """The engine with packs of one message and more, also after one had to be unpacked."""

    class Packing(engine):  # type: ignore[misc, valid-type]
        least_packed: ClassVar[int] = 1
        unpacked: ClassVar[int] = 0

    return Packing


PACKING = tuple(
    PackingKind(**{each.name: getattr(kind, each.name) for each in fields(Kind)})
    for kind in KINDS
    if kind.name == "postgresql"
)
