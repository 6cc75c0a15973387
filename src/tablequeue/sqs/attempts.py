"""Receive attempts of FIFO queues: a client that got no answer asks again, and gets the same messages."""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import Any

from tablequeue.aio.consumer import AsyncClaim

KEPT_FOR = 300.0
MOST = 1000


class Attempts:
    """The claims of receives that named an attempt, for five minutes, in this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], tuple[float, list[AsyncClaim]]] = OrderedDict()

    def find(self, queue: str, attempt: str) -> list[AsyncClaim]:
        """Return what the attempt has claimed; nothing if it is not known."""
        end, claims = self._kept.get((queue, attempt), (0.0, []))
        return claims if end > monotonic() else []

    def keep(self, queue: str, attempt: str, claims: list[AsyncClaim]) -> None:
        while self._kept and (len(self._kept) >= MOST or next(iter(self._kept.values()))[0] < monotonic()):
            self._kept.popitem(last=False)
        self._kept[queue, attempt] = (monotonic() + KEPT_FOR, claims)

    def forget(self, queue: str, id: int) -> None:
        """Forget the attempts that claimed a message: it was deleted, or its visibility was changed."""
        for key in [
            key for key, (_, claims) in self._kept.items() if key[0] == queue and any(c.id == id for c in claims)
        ]:
            del self._kept[key]
