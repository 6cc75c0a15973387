"""persist-queue: its SQLiteAckQueue, in a folder of its own.

Its commits are flushed: WAL, and SQLite's own synchronous. What was acknowledged stays in the way of the next get until
it is cleared, so that is done each thousand messages, as many as it clears at a time. It has no bulk, and does not keep
two processes from getting the same message: contention.py counts them.
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
