"""PgQueuer: asyncpg on one connection, as its guide recommends for a worker, with PgQueuer's settings for autovacuum.

The worker runs in drain mode. Finished messages become rows of its log, in batches. The durability is the default;
`balanced`, which loses that log in a crash, is not used.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from pgqueuer import AsyncpgDriver, Job, PgQueuer, Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.contenders.asynchronous import Asynchronous
from benchmarks.results import named

ENTRYPOINT = "work"
# Messages fetched at a time. 1,000 gives the same rate, and 10 (the default) a third of it.
BATCH = 300


class Pgqueuer(Asynchronous):
    name = named("pgqueuer")
    fewer = 2

    async def _open(self, url: str) -> None:
        self._connection = await asyncpg.connect(url)
        self._queries = Queries(AsyncpgDriver(self._connection))
        await self._queries.install()
        await self._queries.optimize_autovacuum()

    async def _push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            await self._queries.enqueue(ENTRYPOINT, payload.encode())

    async def _push_bulk(self, payloads: Sequence[str]) -> None:
        number = len(payloads)
        await self._queries.enqueue([ENTRYPOINT] * number, [payload.encode() for payload in payloads], [0] * number)

    async def _work(self, singly: bool) -> None:
        worker = PgQueuer.from_asyncpg_connection(self._connection)

        @worker.entrypoint(ENTRYPOINT)
        async def handle(job: Job) -> None:
            assert job.payload is not None
            self.handled(job.payload.decode())

        await worker.run(batch_size=1 if singly else BATCH, mode=QueueExecutionMode.drain)

    async def _close(self) -> None:
        await self._connection.close()
