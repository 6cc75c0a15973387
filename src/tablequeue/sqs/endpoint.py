"""The objects that all operations use: the queues, the settings of the endpoint, and one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tablequeue.aio import AsyncDatabase
from tablequeue.aio.consumer import AsyncClaim
from tablequeue.sqs.attempts import Attempts
from tablequeue.sqs.errors import missing
from tablequeue.sqs.hosted import Hosted, Queues
from tablequeue.sqs.housekeeping import Housekeeping
from tablequeue.sqs.urls import Place

DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"

Result = dict[str, Any]


class Endpoint:
    """The state of one endpoint. All of it is in this process and may be lost: durable state is in the database."""

    def __init__(self, db: AsyncDatabase, account: str, region: str, strict: bool = False) -> None:
        self.db = db
        self.place = Place(account, region)
        self.strict = strict
        self.deleted: dict[tuple[Place, str], float] = {}
        """When queues were deleted here, by place and name, for a strict endpoint."""
        self.queues = Queues(db)
        self.attempts = Attempts()
        self.housekeeping = Housekeeping(self.queues)
        self.moves: set[asyncio.Task[None]] = set()
        """The message move tasks that run here."""


@dataclass(slots=True)
class Call:
    """One call of an operation.

    place      the account and the region of the client.
    base       the URL of the endpoint, as the client reached it.
    trace      the header X-Amzn-Trace-Id of the request; None without it.
    in_xml     whether the answer is XML, which cannot have every character.
    claimed    the messages that a receive has claimed, to release them if the response cannot be sent.
    """

    endpoint: Endpoint
    parameters: dict[str, Any]
    place: Place
    base: str
    trace: str | None = None
    in_xml: bool = False
    claimed: list[AsyncClaim] = field(default_factory=list)

    def get(self, name: str, default: Any = None) -> Any:
        return self.parameters.get(name, default)

    async def queue(self, *, fresh: bool = False) -> Hosted:
        """Return the queue that the call is about."""
        url = self.parameters.get("QueueUrl")
        if url is None:
            raise missing("QueueUrl")
        return await self.endpoint.queues.named(*self.place.of(url), fresh=fresh)

    def url(self, place: Place, name: str) -> str:
        return self.base + place.path(name)


Operation = Callable[[Call], Awaitable[Result]]
