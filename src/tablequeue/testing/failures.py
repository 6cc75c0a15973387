"""Failures on purpose: a consumer that is killed, and a lease that is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from tablequeue.model.message import Claim
from tablequeue.testing.consuming import Killed
from tablequeue.worker import Handler

H = TypeVar("H", Handler, Callable[[Any], Any])


def lose_lease(message: Claim) -> None:
    """End the lease of a message that this consumer holds, as if it had expired; any consumer may pop it then.

    From then on `complete`, `fail`, `release` and `extend` raise `LeaseLost`, as they do already if it was lost before.
    `BadInput` where delivery is at most once: there is no lease.
    """
    message.extend(0)


def with_lost_lease(handler: H) -> H:
    """Return the handler, a function or a `Handler`, so that each message has lost its lease when it is called.

    So it is after a pause of the process, or an outage, that was longer than the lease. What the handler does in its
    own transaction has to be rolled back, because `message.complete(connection=...)` raises `LeaseLost`.
    """
    return _wrapped(handler, before=_lose_leases)


def killed_after(handler: H) -> H:
    """Return the handler, so that its consumer is killed when it has returned, before the worker completes the message.

    The message is delivered again, so whatever the handler has done must not harm when it is done twice. To kill the
    consumer earlier, have something that the handler calls raise `Killed`.
    """
    return _wrapped(handler, after=_kill)


# -- private -----------------------------------------------------------------------------------------------------------


def _kill() -> None:
    raise Killed


def _lose_leases(argument: Claim | list[Claim]) -> None:
    for message in argument if isinstance(argument, list) else [argument]:
        lose_lease(message)


def _wrapped(
    handler: H, before: Callable[[Any], object] = lambda _: None, after: Callable[[], object] = lambda: None
) -> H:
    if isinstance(handler, Handler):
        return replace(handler, function=_wrapped(handler.function, before, after), processes=False)
    function: Any = handler
    if Handler("", function).is_async:

        @wraps(function)
        async def failing(argument: Any) -> Any:
            before(argument)
            result = await function(argument)
            after()
            return result

    else:

        @wraps(function)
        def failing(argument: Any) -> Any:
            before(argument)
            result = function(argument)
            after()
            return result

    return failing
