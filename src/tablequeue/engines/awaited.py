"""Call an async driver's objects like synchronous ones. The operations run on an async connection by this."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any


class Awaited:
    """A connection, cursor or COPY of an async driver. Each method returns when its result is available.

    It works only inside SQLAlchemy's `run_sync`, where a wait lets the event loop run. SQLAlchemy's own adapted cursors
    do the same, but they support no row factories, no loaders and no COPY.
    """

    def __init__(self, adapted: Any, inner: Any) -> None:
        # Bypass __setattr__, which sets the driver's attributes.
        self.__dict__.update(_adapted=adapted, _inner=inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*args: Any, **options: Any) -> Any:
            return self._wait(value(*args, **options))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __enter__(self) -> Any:
        return self._wait(self._inner.__aenter__())

    def __exit__(self, *error: Any) -> Any:
        return self._wait(self._inner.__aexit__(*error))

    def _wait(self, value: Any) -> Any:
        if isawaitable(value):
            pending = value  # a name of its own: the lambda must not see the result
            value = self._adapted.run_async(lambda _: pending)
        if value is self._inner:
            return self
        # Only a cursor or a COPY is a context manager. Everything else is data.
        return Awaited(self._adapted, value) if hasattr(value, "__aenter__") else value
