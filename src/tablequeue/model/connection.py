"""What `connection=` takes: the caller's transaction, in one of the forms that programs have it in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # not at run time: these modules of SQLAlchemy take a third of the time of `import tablequeue`
    import sqlalchemy as sa
    from sqlalchemy import orm
    from sqlalchemy.ext import asyncio

    class DriverConnection(Protocol):
        """A DB-API connection, of the driver that the queue's database has."""

        def cursor(self) -> Any: ...

    # The verbs of tablequeue.aio have the same types, but accept only async connections, which the sync verbs refuse.
    Connection: TypeAlias = (
        sa.Connection
        | orm.Session
        | orm.scoped_session[Any]
        | DriverConnection
        | asyncio.AsyncConnection
        | asyncio.AsyncSession
        | asyncio.async_scoped_session[Any]
    )
else:
    Connection = Any

# The registries of SQLAlchemy: each gives the one session of a thread, a request or a task. Flask-SQLAlchemy's
# `db.session` is one.
_REGISTRIES = (("sqlalchemy.orm", "scoped_session"), ("sqlalchemy.ext.asyncio", "async_scoped_session"))


def own_session(connection: Any) -> Any:
    """Return the current session of a registry of sessions; return anything else unchanged."""
    # A caller with a registry has imported its module. An import here would be a third of `import tablequeue`.
    for module, name in _REGISTRIES:
        registry = getattr(sys.modules.get(module), name, None)
        if registry is not None and isinstance(connection, registry):
            return connection()
    return connection


__all__ = ["Connection"]
