"""huey on SQLite: a task a message, dequeued and executed as its consumer does, in this process.

Without results, which would be another commit for each. Its commits are flushed: WAL, and SQLite's own synchronous. A
task is deleted when it is dequeued, before it is executed: what a consumer that dies had is lost. It has no bulk.
"""

from __future__ import annotations

from collections.abc import Sequence

from huey import SqliteHuey

from benchmarks.contenders import Contender, beside
from benchmarks.results import named


class Huey(Contender):
    name = named("huey")
    fewer = 4

    def __init__(self, url: str) -> None:
        self._huey = SqliteHuey(filename=beside(url, "huey.db"), results=False, timeout=60)
        self._delivered: list[str] = []
        self._enqueue = self._huey.task(name="deliver")(self._delivered.append)

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._enqueue(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self.push(payloads)

    def drain_singly(self, number: int) -> list[str]:
        self._delivered.clear()
        for _ in range(number):
            self._huey.execute(self._huey.dequeue())
        return [*self._delivered]

    def drain(self, number: int) -> list[str]:
        return self.drain_singly(number)

    def close(self) -> None:
        self._huey.storage.close()
