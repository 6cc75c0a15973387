"""Chancy: jobs run in the worker's own event loop, the executor that its documentation recommends for many short jobs.

A worker runs forever, so it is stopped after the last message.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from chancy import Chancy, Job, Queue, Worker

from benchmarks.contenders.asynchronous import Asynchronous
from benchmarks.results import named

# Concurrent jobs, and the number of jobs fetched at a time. 50 and 1,000 give the same rate.
CONCURRENCY = 200

# The queue that every worker serves, with processes of its own unless it is declared otherwise.
QUEUE = "default"

_turn: ChancyContender


async def handle(*, payload: str) -> None:
    """Handle a job. Chancy imports this function by its name."""
    _turn.handled(payload)


class ChancyContender(Asynchronous):
    name = named("chancy")
    fewer = 10

    async def _open(self, url: str) -> None:
        log = logging.getLogger("benchmarks.chancy")
        log.setLevel(logging.WARNING)  # it logs two lines for each job
        self._app = Chancy(url, log=log)
        await self._app.pool.open()
        await self._app.migrate()

    async def _push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            await self._app.push(self._job(payload))

    async def _push_bulk(self, payloads: Sequence[str]) -> None:
        async for _ in self._app.push_many([self._job(payload) for payload in payloads]):
            pass

    async def _work(self, singly: bool) -> None:
        global _turn
        _turn = self
        queue = Queue(
            QUEUE,
            concurrency=1 if singly else CONCURRENCY,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await self._app.declare(queue, upsert=True)
        async with Worker(self._app, register_signal_handlers=False):
            await self._enough.wait()

    async def _close(self) -> None:
        await self._app.pool.close()

    @staticmethod
    def _job(payload: str) -> Job:
        return Job.from_func(handle, queue=QUEUE, kwargs={"payload": payload})
