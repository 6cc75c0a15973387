"""The objects that all operations use: the queues, the settings of the endpoint, and one call."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tablequeue.aio import AsyncDatabase
from tablequeue.aio.consumer import AsyncClaim
from tablequeue.sqs.errors import missing
from tablequeue.sqs.hosted import Hosted, Queues
from tablequeue.sqs.housekeeping import Housekeeping
from tablequeue.sqs.urls import Owner

KEPT_FOR = 300.0
MOST_ATTEMPTS = 1000


class Attempts:
    """The claims of receives that named an attempt, for five minutes, in this process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], tuple[float, list[AsyncClaim]]] = OrderedDict()

    def find(self, queue: str, attempt: str) -> list[AsyncClaim]:
        """Return what the attempt has claimed; nothing if it is not known."""
        end, claims = self._kept.get((queue, attempt), (0.0, []))
        return claims if end > monotonic() else []

    def keep(self, queue: str, attempt: str, claims: list[AsyncClaim]) -> None:
        while self._kept and (len(self._kept) >= MOST_ATTEMPTS or next(iter(self._kept.values()))[0] < monotonic()):
            self._kept.popitem(last=False)
        self._kept[queue, attempt] = (monotonic() + KEPT_FOR, claims)

    def forget(self, queue: str, id: int) -> None:
        """Forget the attempts that claimed a message: it was deleted, or its visibility was changed."""
        for key in [
            key for key, (_, claims) in self._kept.items() if key[0] == queue and any(c.id == id for c in claims)
        ]:
            del self._kept[key]


DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"

Result = dict[str, Any]


class Endpoint:
    """The state of one endpoint. All of it is in this process and may be lost: durable state is in the database."""

    def __init__(self, db: AsyncDatabase, account: str, region: str, strict: bool = False) -> None:
        self.db = db
        self.owner = Owner(account, region)
        self.strict = strict
        self.deleted: dict[tuple[Owner, str], float] = {}
        """When queues were deleted here, by owner and name, for a strict endpoint."""
        self.queues = Queues(db)
        self.attempts = Attempts()
        self.housekeeping = Housekeeping(self.queues)
        self.moves: set[asyncio.Task[None]] = set()
        """The message move tasks that run here."""


@dataclass(slots=True)
class Call:
    """One call of an operation.

    owner      the account and the region of the client.
    base       the URL of the endpoint, as the client reached it.
    trace      the header X-Amzn-Trace-Id of the request; None without it.
    in_xml     whether the answer is XML, which cannot have every character.
    claimed    the messages that a receive has claimed, to release them if the response cannot be sent.
    """

    endpoint: Endpoint
    parameters: dict[str, Any]
    owner: Owner
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
        return await self.endpoint.queues.named(*self.owner.of(url), fresh=fresh)

    def url(self, owner: Owner, name: str) -> str:
        return self.base + owner.path(name)


Operation = Callable[[Call], Awaitable[Result]]
