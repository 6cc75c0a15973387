"""The queues that the endpoint serves: a queue of the database with its SQS name, attributes and waiting receives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tablequeue.aio import AsyncDatabase
from tablequeue.aio.queue import AsyncQueue
from tablequeue.errors import BadName, QueueNotFound
from tablequeue.model.origin import Origin
from tablequeue.sqs.attributes import PREFIX, Settings
from tablequeue.sqs.counting import InFlight
from tablequeue.sqs.errors import SqsError, no_queue
from tablequeue.sqs.urls import Owner
from tablequeue.sqs.waiting import Waiters

log = logging.getLogger("tablequeue.sqs")


class Hosted:
    """One queue, as SQS sees it."""

    def __init__(self, owner: Owner, name: str, queue: AsyncQueue) -> None:
        self.owner = owner
        self.name = name
        self.queue = queue
        self.waiters = Waiters(queue)
        self.in_flight = InFlight(queue)
        self._settings = Settings(queue.definition)

    @property
    def settings(self) -> Settings:
        """Its attributes; another process may have changed them up to a second ago."""
        if self._settings.definition is not self.queue.definition:
            self._settings = Settings(self.queue.definition)
        return self._settings

    def origin_of(self, headers: Mapping[str, Any]) -> Origin | None:
        """Return the origin of a dead letter that was moved here; None for any other message."""
        origin = Origin.of(headers)
        return None if origin is None or origin.table == self.queue.table else origin

    @property
    def arn(self) -> str:
        return self.owner.arn(self.name)

    @property
    def seed(self) -> str:
        """The secret from which the ids and the receipt handles of its messages are made."""
        return self.settings.seed or self.name


class Queues:
    """The queues of a database, by account, region and name. Queues made by Python are in all accounts and regions."""

    def __init__(self, db: AsyncDatabase) -> None:
        self.db = db
        self._open: dict[tuple[Owner, str], Hosted] = {}

    async def open(self, owner: Owner, name: str, *, fresh: bool = False) -> Hosted:
        """Return a queue; with `fresh`, read from the catalogue now. `QueueDoesNotExist` if there is none."""
        known = self._open.get((owner, name))
        if known is not None and not fresh:
            return known
        for stored in stored_names(owner, name):
            try:
                hosted = Hosted(owner, name, await self.db.queue(stored))
            except (QueueNotFound, BadName):
                continue
            if not hosted.settings.is_in(owner):
                continue
            if known is None or known.queue.table != hosted.queue.table or known.queue.name != stored:
                self._open[owner, name] = known = hosted
            # An open queue has its statements ready.
            return known if known.settings.definition == hosted.settings.definition else hosted
        self.forget(name)
        raise no_queue()

    async def named(self, owner: Owner, name: str, *, fresh: bool = False) -> Hosted:
        """Return the queue that a client names, as `open` does; an error says where else a queue of that name is."""
        try:
            return await self.open(owner, name, fresh=fresh)
        except SqsError:
            raise no_queue(await self._elsewhere(owner, name)) from None

    async def _elsewhere(self, owner: Owner, name: str) -> str:
        """Return a sentence about the queue of that name in another account or region: the client may mean that
        queue."""
        for stored in await self.db.queues():
            if stored == name or stored.startswith(f"{name}@"):
                with suppress(QueueNotFound):
                    other = Settings((await self.db.queue(stored)).definition).owner_or(owner)
                    words = f"The request is for the account {owner.account} and the region {owner.region}"
                    log.info("%s: %s; the queue is in %s, %s", name, words, other.account, other.region)
                    return f" {words}; the queue is in the account {other.account} and the region {other.region}."
        return ""

    def forget(self, name: str) -> None:
        """Open the queues of that name anew."""
        for key in [key for key in self._open if key[1] == name]:
            del self._open[key]

    async def names(self, owner: Owner) -> list[str]:
        """Return the names of all queues of an account and region, sorted."""
        found = set()
        for stored in await self.db.queues():
            name = shown(stored, owner)
            try:
                await self.open(owner, name)
            except SqsError:
                continue  # it belongs to another account or region, or another process dropped it
            found.add(name)
        return sorted(found)

    async def free_name(self, owner: Owner, name: str) -> str:
        """Return the name under which the database keeps a new queue."""
        taken = await self.db.queues()
        return next(stored for stored in stored_names(owner, name) if stored not in taken)

    async def origin(self, owner: Owner, origin: Origin) -> tuple[str, str]:
        """Return the name and the seed of the queue from which a dead letter came; its name twice, if it is gone."""
        named = shown(origin.queue, owner)
        seed = await self._seed(owner, named, origin)
        if seed is not None:
            return named, seed
        for name in await self.names(owner):  # it was renamed
            if (seed := await self._seed(owner, name, origin)) is not None:
                return name, seed
        return named, named

    async def _seed(self, owner: Owner, name: str, origin: Origin) -> str | None:
        """Return the seed of a queue, if it is the origin."""
        try:
            hosted = await self.open(owner, name)
        except SqsError:
            return None
        return hosted.seed if origin.table == hosted.queue.table else None

    def all(self) -> list[Hosted]:
        return [*self._open.values()]


def stored_names(owner: Owner, name: str) -> tuple[str, ...]:
    """Return the names under which a queue may be kept: the later ones if another account or region uses the first."""
    return name, f"{name}@{owner.region}", f"{name}@{owner.account}@{owner.region}"


def shown(stored: str, owner: Owner) -> str:
    """Return the SQS name of a queue that is kept under that name."""
    *_, regional, full = stored_names(owner, "")
    return stored.removesuffix(full if stored.endswith(full) else regional)


def label(name: str) -> str:
    return f"{PREFIX}{name}"
