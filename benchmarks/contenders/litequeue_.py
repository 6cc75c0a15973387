"""litequeue: put, pop and done, in a file of its own, as litequeue recommends.

It sets synchronous=NORMAL itself, so a power cut may lose commits. So there are two contenders: one with its defaults,
and one that flushes each commit, by the pragma on its connection. The only bulk operation is put, in one of its
transactions. Done messages stay, as in the history of tablequeue.
"""

from __future__ import annotations

from collections.abc import Sequence

from litequeue import LiteQueue

from benchmarks.contenders import Contender, beside
from benchmarks.results import named


class Litequeue(Contender):
    name = named("litequeue")
    fewer = 10
    synchronous = "full"

    def __init__(self, url: str, file: str = "") -> None:
        self._queue = LiteQueue(beside(url, file or f"{self.name}.db"), timeout=60)
        self._queue.conn.execute(f"pragma synchronous = {self.synchronous}")

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._queue.put(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        with self._queue.transaction():
            self.push(payloads)

    def drain_singly(self, number: int) -> list[str]:
        delivered = []
        for _ in range(number):
            message = self._queue.pop()
            self._queue.done(message.message_id)
            delivered.append(message.data)
        return delivered

    def drain(self, number: int) -> list[str]:
        return self.drain_singly(number)

    def close(self) -> None:
        self._queue.close()


class LitequeueUnflushed(Litequeue):
    name = f"{named('litequeue')}, not flushed"
    synchronous = "normal"
