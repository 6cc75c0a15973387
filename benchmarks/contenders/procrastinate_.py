"""Procrastinate: the async connector, and a worker that ends when the queue is empty and does not listen before.

Finished jobs stay in its table, the default.
"""

from __future__ import annotations

from collections.abc import Sequence

import procrastinate
from procrastinate.types import JSONDict

from benchmarks.contenders.asynchronous import Asynchronous
from benchmarks.results import named

# Concurrent tasks. It fetches one job at a time. 5 and 30 give the same rate, and 1 (the default) a little less.
CONCURRENCY = 10


class Procrastinate(Asynchronous):
    name = named("procrastinate")
    fewer = 20

    async def _open(self, url: str) -> None:
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, max_size=CONCURRENCY + 2))
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()

        @self._app.task(name="work", queue="work")
        async def handle(payload: str) -> None:
            self.handled(payload)

        self._task = handle

    async def _push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            await self._task.defer_async(payload=payload)

    async def _push_bulk(self, payloads: Sequence[str]) -> None:
        jobs: list[JSONDict] = [{"payload": payload} for payload in payloads]
        await self._task.batch_defer_async(*jobs)

    async def _work(self, singly: bool) -> None:
        await self._app.run_worker_async(
            concurrency=1 if singly else CONCURRENCY, wait=False, listen_notify=False, install_signal_handlers=False
        )

    async def _close(self) -> None:
        await self._app.close_async()
