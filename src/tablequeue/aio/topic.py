"""A topic and its subscriptions for asyncio: `AsyncTopic` and `AsyncSubscription`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from tablequeue.aio.consumer import AsyncConsumer, AsyncVerbs, same
from tablequeue.model.definition import TopicDefinition
from tablequeue.topic import Subscription, Topic

A = TypeVar("A")
P = ParamSpec("P")


def opens(
    verb: Callable[Concatenate[Any, P], Any], kind: type[A]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """Make a verb of an async class of its namesake: the same, but that it returns the async object of that kind."""

    @wraps(verb)
    async def awaited(self: Any, /, *args: P.args, **options: P.kwargs) -> A:
        make: Any = kind
        return make(await self._threads.run(partial(verb, self._own, *args, **options)), self._threads)

    opener: Any = awaited
    opener.__signature__ = signature(verb).replace(return_annotation=kind.__name__)  # for help()
    return opener


class AsyncSubscription(AsyncConsumer[Subscription]):
    """`Subscription` for asyncio: those of an `AsyncConsumer`, and its own. Made by `AsyncTopic` or `AsyncDatabase`.

    A claim is never a part of a caller's transaction: `pop` has no `connection=` here. The finishing verbs have it.
    """

    seek = same(Subscription.seek)
    lag = same(Subscription.lag)


class AsyncTopic(AsyncVerbs[Topic]):
    """`Topic` for asyncio: every verb does what its namesake there does. Made by `AsyncDatabase`.

    `connection=`, and what a cancellation leaves, are those of `AsyncConsumer`.
    """

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
