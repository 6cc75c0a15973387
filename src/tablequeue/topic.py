"""A topic, an append-only log, and its subscriptions, each of which reads all of it at its own pace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Unpack

from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput
from tablequeue.model.connection import Connection
from tablequeue.model.definition import SubscriptionDefinition, TopicDefinition
from tablequeue.model.message import Claim
from tablequeue.model.options import SubscriptionOptions
from tablequeue.model.pacing import Duration
from tablequeue.verbs import push, topics
from tablequeue.verbs.claim import SameGroup
from tablequeue.verbs.context import Context
from tablequeue.verbs.push import Options
from tablequeue.verbs.topics import Lag, Start


class Topic:
    """A topic. Made by `Database.create_topic` or `Database.topic`; safe to share between threads.

    `connection=` and `now=` mean the same in every verb; see `Consumer`. Every refusal is a `TablequeueError`.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def name(self) -> str:
        return self._context.table.name

    @property
    def definition(self) -> TopicDefinition:
        definition = self._context.table.definition
        assert isinstance(definition, TopicDefinition), "of a topic"
        return definition

    def push(
        self,
        payload: Any,
        *,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> int:
        """Push one message and return its id. When this has returned, the message survives every client's death.

        Every subscription gets it. It costs the same whatever their number.

        group        the group of the message; it must be given if the topic was made with `groups=True`.
        headers      a dict of JSON values kept beside the payload.
        connection, now   see `Consumer`. Until a caller's transaction commits, no subscription gets the message, and
                     none waits for it: it then comes after messages that were committed meanwhile.

        `BadPayload` if the topic's payload type cannot hold the payload exactly.
        """
        options = Options(None, None, None, group, headers)
        id = push.push(self._context.current(connection), payload, options, None, "raise", now, connection)
        assert id is not None, "without a key nothing is refused"
        if connection is None:
            topics.keep_up(self._context)
        return id

    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[int]:
        """Push all of `payloads` in one transaction, or none; return the ids, aligned with the input.

        The options apply to every message. A `NewMessage` among the payloads may have a group and headers of its own.
        The input is encoded in memory first; push a stream in pieces.
        """
        options = Options(None, None, None, group, headers)
        ids = push.push_many(self._context.current(connection), payloads, options, "raise", now, connection)
        if connection is None:
            topics.keep_up(self._context)
        return [id for id in ids if id is not None]

    def subscribe(
        self, name: str, *, start: Start = "beginning", **options: Unpack[SubscriptionOptions]
    ) -> Subscription:
        """Make a subscription; or open it, if it exists with the same options.

        start         where a new subscription begins: `beginning` (if not given), with the first message that the topic
                      still has; `end`, with the next one; or an aware time, with the first message pushed then or
                      later.
        ordered       whether the messages of a group come strictly one after the other, and groups side by side; for a
                      topic with `groups=True`. A message that fails holds its group until it is finished or a dead
                      letter. Such a subscription handles each message by itself, at the speed of a queue. False if not
                      given.
        lease, max_attempts, backoff   as of `Database.create_queue`.

        `QueueDiffers` if it exists with other options. A crash leaves the whole subscription, or nothing of it.
        """
        given: dict[str, Any] = {**options}
        ordered = given.pop("ordered", False)
        unknown = given.keys() - {"lease", "max_attempts", "backoff"}
        if unknown:
            raise BadInput(
                f"subscribe got an unexpected option {min(unknown)!r}.",
                "Options are: start, ordered, lease, max_attempts, backoff.",
            )
        if ordered and not self.definition.groups:
            raise BadInput(
                f"The topic {self.name!r} has no groups, so no subscription can be ordered by them.",
                "Leave ordered out, or create a topic with groups=True.",
            )
        topics.follow_rename(self._context)
        wanted = SubscriptionDefinition(
            payload=self.definition.payload,
            groups=ordered,
            history=self.definition.history_of_detached,
            topic=self.name,
            **given,
        )
        table = topics.subscribe(self._context, name, wanted, start)
        return Subscription(Context.at(self._context.runner, table, self._context.who))

    def subscription(self, name: str) -> Subscription:
        """Open an existing subscription; `QueueNotFound` suggests the nearest name."""
        topics.follow_rename(self._context)
        table = topics.subscription(self._context, name)
        return Subscription(Context.at(self._context.runner, table, self._context.who))

    def subscriptions(self) -> list[str]:
        """Return the names of its subscriptions, sorted."""
        return topics.names(self._context.current())

    def trim(self, *, now: datetime | None = None) -> int:
        """Drop messages that the topic need not keep; return the number of segments dropped, or on SQLite of messages.

        Pushes and claims do it once a minute. It needs the rights of the owner of the tables, if the database has
        rights. A segment of the log is dropped as a whole, when all of its messages may go, and while no transaction
        that has pushed is open. It tries for about a second, and then raises `Locked`.
        """
        return topics.again(lambda: topics.trim(self._context.current(), now))

    def drop(self) -> None:
        """Drop the topic, its messages and all of its subscriptions, also while they are in use."""
        topics.drop(self._context.current())


class Subscription(Consumer):
    """A subscription. Made by `Topic.subscribe`, `Topic.subscription`, or `Database.subscription("topic/name")`.

    It has the verbs of a queue, except the verbs that push, take or move. Its messages come in the order in which their
    transactions became visible. A claim is a range of the log: one row, however many messages. The lease is for the
    range: `extend` extends it for all of the range. A message that fails, is released or loses its lease leaves its
    range and is retried by itself; the other messages of the range are not delivered again.

    A claim is never a part of a caller's transaction: `pop` has no `connection=` here. The finishing verbs have it.
    """

    def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        same_group: SameGroup = False,
        completing: Iterable[Claim] = (),
        now: datetime | None = None,
    ) -> list[Claim]:
        claims = super().pop_many(n, lease=lease, same_group=same_group, completing=completing, now=now)
        topics.keep_up(self._context.current())
        return claims

    pop_many.__doc__ = Consumer.pop_many.__doc__

    def seek(self, to: Start, *, force: bool = False) -> None:
        """Move to another position in the log: to replay messages, or to skip some.

        to      `beginning`, `end`, or an aware time: the first message pushed then or later.
        force   seek even if messages are in progress. Leases on messages after the new position end.

        Every message after the position is delivered once more, as a new one: also a dead letter, and a message that
        waits for a retry. Of earlier messages, only dead letters and messages that wait for a retry stay. An ordered
        subscription does the same.

        `SeekRefused` if messages are in progress. `Locked` if a transaction of another program is changing some.
        """
        topics.seek(self._context.current(), to, force)

    def purge(self) -> int:
        """Skip every message that no consumer has claimed, and delete those that wait for a retry; return how many.

        It is `seek("end")`, and no retries after it. Messages in progress, dead letters and the log itself stay.
        """
        context = self._context.current()
        skipped = context.run(context.engine.range_reads.progress, {"now": None}).ready
        skipped += topics.seek(context, "end", force=True)
        return skipped + super().purge()

    def lag(self) -> Lag:
        """Return how far it is behind its topic: messages that no consumer has claimed, and the age of the first."""
        return topics.lag(self._context.current())


__all__ = ["Lag", "Start", "Subscription", "Topic"]
