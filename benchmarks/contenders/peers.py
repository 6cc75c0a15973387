"""The other queues in tables, by engine. To add one: a module with a Contender, and its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.contenders import Contender
from benchmarks.contenders.awa_ import Awa
from benchmarks.contenders.chancy_ import ChancyContender
from benchmarks.contenders.huey_ import Huey
from benchmarks.contenders.litequeue_ import Litequeue, LitequeueUnflushed
from benchmarks.contenders.persistqueue_ import PersistQueue
from benchmarks.contenders.pgqueuer_ import Pgqueuer
from benchmarks.contenders.procrastinate_ import Procrastinate

PEERS: Mapping[str, tuple[Callable[[str], Contender], ...]] = {
    "postgresql": (Pgqueuer, Awa, ChancyContender, Procrastinate),
    "sqlite": (Litequeue, LitequeueUnflushed, Huey, PersistQueue),
}
