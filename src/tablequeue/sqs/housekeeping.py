"""Periodic work of the endpoint: delete expired messages for good, and forget dropped queues."""

from __future__ import annotations

import asyncio

from tablequeue.errors import TablequeueError
from tablequeue.model.message import Message
from tablequeue.sqs.hosted import Queues

EVERY = 60.0
"""Seconds between two rounds."""


class Housekeeping:
    """A task that looks after the queues that are open in this process. It begins with the first request."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            await tidy(self._queues)


async def tidy(queues: Queues) -> None:
    """Delete the expired messages of the queues that were made through the endpoint. Forget dropped queues.

    They keep no history, so an expired message is a dead letter there. In any other queue it stays.
    """
    try:
        there = await queues.db.queues()
    except TablequeueError:
        return  # the next round tries again
    for hosted in queues.all():
        if hosted.queue.name not in there:
            queues.forget(hosted.name)
        elif hosted.settings.seed and not hosted.settings.definition.keeps_history:
            try:
                await hosted.queue.purge_dead(_expired)
            except TablequeueError:
                continue  # the next round tries again


def _expired(message: Message) -> bool:
    return bool(message.errors) and message.errors[-1].error == "expired"
