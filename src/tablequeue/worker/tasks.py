"""Readers that are tasks: for async handlers, all in one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
from threading import Thread

from tablequeue.telemetry import processing
from tablequeue.worker.crew import Begin, Crew, Piece, Report, TimedOut
from tablequeue.worker.handler import Handler


class Loop:
    """The event loop of a worker: what its async handlers share, as a session of an HTTP client, belongs to one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="event loop of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Cancel what still runs, and end."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


class Tasks(Crew):
    def __init__(self, handler: Handler, begin: Begin, report: Report, loop: Loop) -> None:
        super().__init__(handler, begin, report)
        self._loop = loop.loop
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()
        self._readers: set[asyncio.Task[None]] = set()

    def add(self) -> None:
        self._loop.call_soon_threadsafe(self._start)

    def retire(self) -> None:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, None)

    def give(self, piece: Piece) -> None:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    def take_back(self) -> list[Piece]:
        return asyncio.run_coroutine_threadsafe(self._take_back(), self._loop).result()

    def abandon(self) -> None:
        self._loop.call_soon_threadsafe(lambda: [reader.cancel() for reader in self._readers])

    def _start(self) -> None:
        reader = self._loop.create_task(self._read(), name=f"reader of {self.handler.queue}")
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)

    async def _take_back(self) -> list[Piece]:
        pieces = [self._pieces.get_nowait() for _ in range(self._pieces.qsize())]
        for piece in pieces:
            if piece is None:
                self._pieces.put_nowait(None)
        return [piece for piece in pieces if piece is not None]

    async def _read(self) -> None:
        while (piece := await self._pieces.get()) is not None:
            self._begin(piece)
            try:
                with processing(self.handler.queue, piece.claims):
                    async with asyncio.timeout(self.handler.timeout) as limit:
                        result = await self.handler.function(self.argument(piece))
                outcomes = self.outcomes(piece, result)
            except BaseException as error:
                timed_out = isinstance(error, TimeoutError) and limit.expired()
                why = TimedOut().with_traceback(error.__traceback__) if timed_out else error
                outcomes = self.failed(piece, why)
            self._report(piece, outcomes)
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # it is this task
                return  # abandoned; a handler may also raise the CancelledError of a task of its own
