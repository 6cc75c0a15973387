"""huey on SQLite: each message is a task, which is dequeued and executed in this process as huey's consumer does.

Results are off, because they would cost another commit for each task. Commits are flushed: WAL, with SQLite's default
for synchronous. A task is deleted when it is dequeued, before it is executed, so the tasks of a consumer that dies are
lost. There are no bulk operations.
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
