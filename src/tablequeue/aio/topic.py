"""A topic and its subscriptions for asyncio: `AsyncTopic` and `AsyncSubscription`."""

from __future__ import annotations

from tablequeue.aio.consumer import AsyncConsumer
from tablequeue.aio.verbs import AsyncVerbs, opens, same
from tablequeue.model.definition import TopicDefinition
from tablequeue.topic import Subscription, Topic


class AsyncSubscription(AsyncConsumer[Subscription]):
    """`Subscription` for asyncio: the verbs of `AsyncConsumer`, and its own. Made by `AsyncTopic` or `AsyncDatabase`.

    A claim is never a part of a caller's transaction: `pop` has no `connection=` here. The finishing verbs have it.
    """

    seek = same(Subscription.seek)
    lag = same(Subscription.lag)


class AsyncTopic(AsyncVerbs[Topic]):
    """`Topic` for asyncio: every verb does what its namesake there does. Made by `AsyncDatabase`.

    `AsyncConsumer` explains `connection=`, and what a cancellation leaves.
    """

    @property
    def name(self) -> str:
        return self._own.name

    @property
    def definition(self) -> TopicDefinition:
        return self._own.definition

    push = same(Topic.push)
    push_many = same(Topic.push_many)  # the payloads are read in the thread
    subscribe = opens(Topic.subscribe, AsyncSubscription)
    subscription = opens(Topic.subscription, AsyncSubscription)
    subscriptions = same(Topic.subscriptions)
    trim = same(Topic.trim)
    drop = same(Topic.drop)


__all__ = ["AsyncSubscription", "AsyncTopic"]
