"""The queues that the endpoint serves: a queue of the database with its SQS name, attributes and waiting receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tablequeue.aio import AsyncDatabase
from tablequeue.aioqueue import AsyncQueue
from tablequeue.errors import BadName, QueueNotFound
from tablequeue.message import Origin
from tablequeue.sqs.attributes import PREFIX, Settings
from tablequeue.sqs.errors import SqsError, no_queue
from tablequeue.sqs.waiting import Waiters


class Hosted:
    """One queue, as SQS sees it."""

    def __init__(self, name: str, queue: AsyncQueue) -> None:
        self.name = name
        self.queue = queue
        self.waiters = Waiters(queue)
        self._settings = Settings(queue.definition)

    @property
    def settings(self) -> Settings:
        """Its attributes; another process may have changed them up to a second ago."""
        if self._settings.definition is not self.queue.definition:
            self._settings = Settings(self.queue.definition)
        return self._settings

    def origin_of(self, headers: Mapping[str, Any]) -> Origin | None:
        """Return where a dead letter was before it came here; None of any other message."""
        origin = Origin.of(headers)
        return None if origin is None or origin.is_from(self.queue.name, self.queue.table) else origin

    @property
    def seed(self) -> str:
        """What the ids and the receipt handles of its messages are made with."""
        return self.settings.seed or self.name


class Queues:
    """The queues of a database, by region and name. Queues without a region are in all of them."""

    def __init__(self, db: AsyncDatabase, account: str) -> None:
        self.db = db
        self.account = account
        self._open: dict[tuple[str, str], Hosted] = {}

    async def open(self, region: str, name: str, *, fresh: bool = False) -> Hosted:
        """Return a queue; with `fresh` as the catalogue has it now. `QueueDoesNotExist` if there is none."""
        known = self._open.get((region, name))
        if known is not None and not fresh:
            return known
        for stored in (name, regional(name, region)):
            try:
                hosted = Hosted(name, await self.db.queue(stored))
            except (QueueNotFound, BadName):
                continue
            if hosted.settings.region not in (None, region):
                continue
            if known is None or known.seed != hosted.seed or known.queue.name != stored:
                self._open[region, name] = known = hosted
            # What is open has its statements ready.
            return known if known.settings.definition == hosted.settings.definition else hosted
        self.forget(name)
        raise no_queue()

    def forget(self, name: str) -> None:
        """Open the queues of that name anew."""
        for key in [key for key in self._open if key[1] == name]:
            del self._open[key]

    async def names(self, region: str) -> list[str]:
        """Return the names of all queues of a region, sorted."""
        found = set()
        for stored in await self.db.queues():
            name = shown(stored, region)
            try:
                await self.open(region, name)
            except SqsError:
                continue  # it is of another region, or another process dropped it
            found.add(name)
        return sorted(found)

    async def free_name(self, region: str, name: str) -> str:
        """Return the name under which the database keeps a new queue."""
        return regional(name, region) if name in await self.db.queues() else name

    def arn(self, region: str, name: str) -> str:
        return f"arn:aws:sqs:{region}:{self.account}:{name}"

    def path(self, name: str) -> str:
        return f"/{self.account}/{quote(name, safe='')}"

    async def origin(self, region: str, origin: Origin) -> tuple[str, str]:
        """Return the name and the seed of the queue from which a dead letter came; its name twice, if it is gone."""
        named = shown(origin.queue, region)
        seed = await self._seed(region, named, origin)
        if seed is not None:
            return named, seed
        for name in await self.names(region):  # it was renamed
            if (seed := await self._seed(region, name, origin)) is not None:
                return name, seed
        return named, named

    async def _seed(self, region: str, name: str, origin: Origin) -> str | None:
        """Return the seed of a queue, if it is the origin."""
        try:
            hosted = await self.open(region, name)
        except SqsError:
            return None
        return hosted.seed if origin.is_from(hosted.queue.name, hosted.queue.table) else None

    def all(self) -> list[Hosted]:
        return [*self._open.values()]


def regional(name: str, region: str) -> str:
    """Return the name under which a queue is kept whose name has a queue of another region."""
    return f"{name}@{region}"


def shown(stored: str, region: str) -> str:
    """Return the SQS name of a queue that is kept under that name."""
    return stored.removesuffix(regional("", region))


def name_in_arn(arn: str) -> str:
    return arn.rpartition(":")[2]


def label(name: str) -> str:
    return f"{PREFIX}{name}"
