"""tablequeue by its public verbs, with all that it has on: leases, fencing, retries, the history."""

from __future__ import annotations

from collections.abc import Sequence

import tablequeue
from benchmarks.contenders import Contender
from benchmarks.results import OURS

BATCH = 1_000
"""Messages popped and completed at a time."""


class Tablequeue(Contender):
    def __init__(self, url: str, batch: int = BATCH) -> None:
        self.name = OURS if batch == BATCH else f"{OURS} by {batch:,}"
        self._database = tablequeue.connect(url)
        self._queue = self._database.create_queue(f"ours_{batch}", payload="text")
        self._batch = batch

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._queue.push(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self._queue.push_many(payloads)

    def drain_singly(self, number: int) -> list[str]:
        delivered = []
        for _ in range(number):
            message = self._queue.pop()
            if message is None:
                break
            message.complete()
            delivered.append(message.payload)
        return delivered

    def drain(self, number: int) -> list[str]:
        delivered: list[str] = []
        while len(delivered) < number and (batch := self._queue.pop_many(self._batch)):
            self._queue.complete_many(batch)
            delivered += [message.payload for message in batch]
        return delivered

    def close(self) -> None:
        self._database.close()
