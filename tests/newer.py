"""PostgreSQL 18 beside the machine's older server, for a part of the conformance suite.

`make test PG=18` runs all tests on it instead.
"""

from __future__ import annotations

from dataclasses import replace

from tablequeue.engines.engine import Engine
from tests.embedded import VERSION
from tests.servers import KINDS, VariantKind

# Of each family of verbs a file, with the statements that lean most on what a server may do otherwise: COPY and arrays,
# CTEs that write, locks that are skipped, conflicts of unique indexes, notifications.
FILES = frozenset({"test_dead_letters", "test_key_for", "test_limits", "test_many"})
DESIGNS = frozenset({"fifo", "groups"})


def same(engine: type[Engine]) -> type[Engine]:
    return engine


NEWER = [
    VariantKind.of(
        replace(kind, url=lambda request: request.getfixturevalue("newer_postgresql_url")),
        VERSION,
        same,
        FILES,
        DESIGNS,
    )
    for kind in KINDS
    if kind.name == "postgresql"
]
