"""awa: a Rust runtime that calls handlers in Python, with its default storage of append-only segments.

Each drain has its own worker, because a client can be started only once. A worker runs forever, so it is stopped after
the last message. One by one, there is one worker, which claims one message at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import awa

from benchmarks.contenders.asynchronous import Asynchronous
from benchmarks.results import named

QUEUE = "work"
# Concurrent handlers: the best of 50, 200 and 1,000. 2 or 4 claimers gain nothing.
WORKERS, BATCH, CLAIMERS = 1_000, 500, 1


@dataclass
class Work:
    payload: str


class Awa(Asynchronous):
    name = named("awa-pg")
    fewer = 5

    async def _open(self, url: str) -> None:
        self._url = url
        self._client = awa.AsyncClient(url)
        await self._client.migrate()
        await self._client.install_queue_storage()

    async def _push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            await self._client.insert(Work(payload), queue=QUEUE)

    async def _push_bulk(self, payloads: Sequence[str]) -> None:
        await self._client.enqueue_many_copy([Work(payload) for payload in payloads], queue=QUEUE)

    async def _work(self, singly: bool) -> None:
        client = awa.AsyncClient(self._url)

        @client.task(Work, queue=QUEUE)
        async def handle(job: Any) -> None:
            self.handled(job.args.payload)

        workers, batch = (1, 1) if singly else (WORKERS, BATCH)
        await client.start(
            [{"name": QUEUE, "max_workers": workers, "claimers": CLAIMERS, "claim_batch_size": batch}],
            poll_interval_ms=50,  # shorter intervals gain nothing
        )
        await self._enough.wait()
        await client.shutdown()
        await client.close()

    async def _close(self) -> None:
        await self._client.close()
