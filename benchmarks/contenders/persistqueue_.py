"""persist-queue: its SQLiteAckQueue, in a folder of its own.

Commits are flushed: WAL, with SQLite's default for synchronous. Acknowledged messages slow the next get down until they
are cleared. So this is done every thousand messages, the number that it clears at a time. There are no bulk operations.
Two processes may get the same message; contention.py counts such messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from persistqueue import SQLiteAckQueue

from benchmarks.contenders import Contender, beside
from benchmarks.results import named

CLEARED = 1_000


class PersistQueue(Contender):
    name = named("persist-queue")
    fewer = 10

    def __init__(self, url: str) -> None:
        self._queue = SQLiteAckQueue(beside(url, "persist-queue"), timeout=60, auto_resume=False)
        self._finished = 0

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._queue.put(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self.push(payloads)

    def drain_singly(self, number: int) -> list[str]:
        delivered = []
        for _ in range(number):
            message = self._queue.get(block=False, raw=True)
            self._queue.ack(id=message["pqid"])
            delivered.append(message["data"])
            self._finished += 1
            if self._finished % CLEARED == 0:
                self._queue.clear_acked_data(max_delete=CLEARED, keep_latest=0)
        return delivered

    def drain(self, number: int) -> list[str]:
        return self.drain_singly(number)

    def close(self) -> None:
        self._queue.close()
