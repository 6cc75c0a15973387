"""How an async verb is made of the synchronous verb of the same name.

Each call runs the synchronous verb in a thread (threads.py has the cost), so that no call to the database holds up the
event loop. With `connection=` it runs on the caller's async driver instead, in SQLAlchemy's `run_sync`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from tablequeue.aio.threads import Threads
from tablequeue.consumer import Consumer
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.model.connection import own_session
from tablequeue.topic import Topic
from tablequeue.verbs.batches import Batch

T = TypeVar("T")
A = TypeVar("A")
P = ParamSpec("P")
Own = TypeVar("Own", bound=Database | Consumer | Topic | Batch)


class AsyncVerbs(Generic[Own]):
    """Calls the verbs of a synchronous object in threads."""

    def __init__(self, own: Own, threads: Threads) -> None:
        self._own: Own = own
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Async{repr(self._own)[1:]}"

    async def _call(
        self,
        run: Callable[[Callable[[], T]], Coroutine[Any, Any, T]],
        verb: Callable[..., T],
        *args: Any,
        connection: Any = None,
        **options: Any,
    ) -> T:
        """Call the verb in a thread, by `run`; or in the caller's transaction."""
        if connection is None:
            return await run(partial(verb, *args, **options))
        return await self._within(connection, verb, *args, **options)

    @staticmethod
    async def _within(connection: Any, verb: Callable[..., T], *args: Any, **options: Any) -> T:
        connection = own_session(connection)
        if not hasattr(connection, "run_sync"):
            raise BadInput(
                f"connection is a {type(connection).__name__}.", "Pass a SQLAlchemy AsyncConnection or AsyncSession."
            )
        return await connection.run_sync(lambda sync: verb(*args, connection=sync, **options))


def same(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make an async verb with the parameters, types and docstring of the synchronous one."""

    @wraps(verb)
    async def awaited(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        # By its name: a subscription has a verb of its own for some of a queue's.
        return await self._call(self._threads.run, getattr(self._own, verb.__name__), *args, **options)

    return awaited


def opens(
    verb: Callable[Concatenate[Any, P], Any], kind: type[A]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, A]]:
    """Make an async verb as `same` does; it returns the async object of that kind."""

    @wraps(verb)
    async def awaited(self: Any, /, *args: P.args, **options: P.kwargs) -> A:
        make: Any = kind
        return make(await self._threads.run(partial(verb, self._own, *args, **options)), self._threads)

    opener: Any = awaited
    opener.__signature__ = signature(verb).replace(return_annotation=kind.__name__)  # for help()
    return opener


__all__ = ["AsyncVerbs", "opens", "same"]
