"""tablequeue through its public verbs, with everything on: leases, fencing, retries, the history."""

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
        self._queue = self._database.create_queue(f"ours_{type(self).__name__.lower()}_{batch}", payload="text")
        self._batch = batch

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._queue.push(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self._queue.push_many(payloads)

    def drain_singly(self, number: int) -> list[str]:
        return self._drain(number, 1)

    def drain(self, number: int) -> list[str]:
        return self._drain(number, self._batch)

    def close(self) -> None:
        self._database.close()

    def _drain(self, number: int, size: int) -> list[str]:
        """Complete the messages of each pop with the next one."""
        delivered: list[str] = []
        batch = self._queue.pop_many(size)
        while batch:
            delivered += [message.payload for message in batch]
            if len(delivered) >= number:
                self._queue.complete_many(batch)
                break
            batch = self._queue.pop_many(size, completing=batch)
        return delivered


class Apart(Tablequeue):
    """One call for the pop and one for the completion, for programs that cannot combine them."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.name = f"{OURS}, two calls"

    def drain_singly(self, number: int) -> list[str]:
        delivered: list[str] = []
        while len(delivered) < number and (message := self._queue.pop()):
            message.complete()
            delivered.append(message.payload)
        return delivered
