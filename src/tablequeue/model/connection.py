"""What `connection=` takes: the caller's transaction, in one of the forms that programs have it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:  # not at run time: these modules of SQLAlchemy take a third of the time of `import tablequeue`
    import sqlalchemy as sa
    from sqlalchemy import orm
    from sqlalchemy.ext import asyncio

    class DriverConnection(Protocol):
        """A DB-API connection, of the driver that the queue's database has."""

        def cursor(self) -> Any: ...

    # The verbs of tablequeue.aio have the types of the others, and take the async ones only; the others refuse these.
    Connection: TypeAlias = (
        sa.Connection | orm.Session | DriverConnection | asyncio.AsyncConnection | asyncio.AsyncSession
    )
else:
    Connection = Any

__all__ = ["Connection"]
