"""PostgreSQL 18 beside the machine's older server, for the files of the conformance suite with the marker
`variants("newer")`: of each family of verbs a file, with the statements that lean most on what a server may do
otherwise. These are COPY and arrays, CTEs that write, locks that are skipped, conflicts of unique indexes,
notifications.

`make test PG=18` runs all tests on it instead.
"""

from __future__ import annotations

from dataclasses import replace

from tablequeue.engines.engine import Engine
from tests.servers import KINDS, VariantKind

DESIGNS = frozenset({"fifo", "groups"})


def same(engine: type[Engine]) -> type[Engine]:
    return engine


NEWER = [
    VariantKind.of(
        replace(kind, url=lambda request: request.getfixturevalue("newer_postgresql_url")),
        "newer",
        same,
        DESIGNS,
    )
    for kind in KINDS
    if kind.name == "postgresql"
]
