"""Base of contenders with an async API: an event loop that runs during their turn, and a count of messages."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from benchmarks.contenders import Contender

T = TypeVar("T")


class Asynchronous(Contender):
    """A contender whose worker calls `handled` with each payload, and ends when `enough` is set."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.Runner()
        self._delivered: list[str] = []
        self._number = 0
        self._run(self._open(sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)))

    def push(self, payloads: Sequence[str]) -> None:
        self._run(self._push(payloads))

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self._run(self._push_bulk(payloads))

    def drain_singly(self, number: int) -> list[str]:
        return self._drain(number, singly=True)

    def drain(self, number: int) -> list[str]:
        return self._drain(number, singly=False)

    def close(self) -> None:
        self._run(self._close())
        self._loop.close()

    def handled(self, payload: str) -> None:
        self._delivered.append(payload)
        if len(self._delivered) == self._number:
            self._enough.set()

    def _drain(self, number: int, singly: bool) -> list[str]:
        self._delivered, self._number, self._enough = [], number, asyncio.Event()
        self._run(self._work(singly))
        return self._delivered

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    # -- for subclasses ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _open(self, url: str) -> None: ...

    @abstractmethod
    async def _push(self, payloads: Sequence[str]) -> None: ...

    @abstractmethod
    async def _push_bulk(self, payloads: Sequence[str]) -> None: ...

    @abstractmethod
    async def _work(self, singly: bool) -> None:
        """Run a worker until it has handled everything. With `singly`, it handles one message at a time."""

    @abstractmethod
    async def _close(self) -> None: ...
