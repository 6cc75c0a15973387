"""The exchanges, bindings and transient queues: three small tables beside the tables of the queues.

A row is found by the hash of the names in it, because not every database's collation distinguishes `a` from `A`, and
not every database's index holds three names of 255 characters. The names themselves are JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from time import time
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from tablequeue.contrib.kombu.settings import Transient
from tablequeue.errors import Unreachable

T = TypeVar("T")
# How often a call is tried if its transaction met another one, or the server had closed its connection.
TRIES = 5
# Milliseconds for which a deleted queue keeps its row: in that time a message may still be sent to it.
ON_THE_WAY = 3_600_000

_metadata = sa.MetaData()
# No queue has a table of such a name: see `tablequeue.model.names`. A time is in milliseconds since 1970, by the clock
# of the database.
_queues = sa.Table(
    "tq_kombu__queues",
    _metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("until", sa.BigInteger, nullable=False),  # of a deleted queue: the time of its deletion, negative
    sa.Column("body", sa.Text, nullable=False),
)
_consumers = sa.Table(
    "tq_kombu__consumers",
    _metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("queue_id", sa.String(64), nullable=False, index=True),
    sa.Column("until", sa.BigInteger, nullable=False),
)
_bindings = sa.Table(
    "tq_kombu__bindings",
    _metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("exchange_id", sa.String(64), nullable=False, index=True),
    sa.Column("queue_id", sa.String(64), nullable=False, index=True),
    sa.Column("body", sa.Text, nullable=False),
)


class Binding(NamedTuple):
    exchange: str
    kind: str
    """The type of the exchange."""
    routing_key: str
    queue: str

    @property
    def id(self) -> str:
        return _hash(self.exchange, self.routing_key, self.queue)


class Registry:
    """Reads and writes the rows. Each call is a transaction of its own; a crash leaves all of it, or nothing."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock
        self._ahead = 0.0
        """Milliseconds that the clock of the database is ahead of this process's."""
        self._run(lambda connection: _metadata.create_all(connection))
        self.read_clock()

    def read_clock(self) -> None:
        self._ahead = (self._clock().timestamp() - time()) * 1000

    def seconds_until(self, due: datetime | None) -> float:
        """Return the time until then, by the clock of the database; 0 if that time has come."""
        return 0.0 if due is None else max(0.0, due.timestamp() - time() - self._ahead / 1000)

    # -- transient queues --------------------------------------------------------------------------------------------

    def declare(self, queue: Transient, consumers: Sequence[str] = ()) -> None:
        """Make the queue, or note its use, and that its consumers are alive."""
        values = {"until": self._after(queue.life), "body": json.dumps(asdict(queue))}
        self._run(partial(_put, table=_queues, id=_hash(queue.name), values=values))
        ids = {"queue_id": _hash(queue.name), "until": values["until"]}
        for consumer in consumers:
            self._run(partial(_put, table=_consumers, id=consumer, values=ids))

    def find(self, names: Collection[str]) -> list[Transient]:
        """Return the queues that exist."""
        rows = sa.select(_queues.c.body).where(_queues.c.id.in_(map(_hash, names)), _queues.c.until > self._after(0))
        return [Transient(**json.loads(body)) for body in self._run(lambda connection: connection.scalars(rows).all())]

    def leave(self, name: str, consumer: str) -> bool:
        """Note that a consumer is gone. Return whether the queue has no other consumer."""

        def leave(connection: sa.Connection) -> bool:
            connection.execute(sa.delete(_consumers).where(_consumers.c.id == consumer))
            others = sa.select(_consumers.c.id).where(
                _consumers.c.queue_id == _hash(name), _consumers.c.until > self._after(0)
            )
            return connection.execute(others.limit(1)).scalar() is None

        return self._run(leave)

    def expired(self) -> list[Transient]:
        """Return the queues that were not used for too long, and the queues that were deleted an hour ago."""
        ended = sa.or_(_queues.c.until.between(1, self._after(0)), self._deleted_before(ON_THE_WAY))
        rows = sa.select(_queues.c.body).where(ended).limit(100)
        return [Transient(**json.loads(body)) for body in self._run(lambda connection: connection.scalars(rows).all())]

    def delete(self, name: str, later: bool = False) -> None:
        """Forget a queue, transient or not, with its consumers and bindings.

        later   keep its row for an hour, so that `expired` returns it once more.
        """

        def delete(connection: sa.Connection) -> None:
            row = _queues.c.id == _hash(name)
            if later:
                connection.execute(sa.update(_queues).where(row, _queues.c.until > 0).values(until=-self._after(0)))
                row = sa.and_(row, self._deleted_before(ON_THE_WAY))
            connection.execute(sa.delete(_queues).where(row))
            for table in (_consumers, _bindings):
                connection.execute(sa.delete(table).where(table.c.queue_id == _hash(name)))

        self._run(delete)

    # -- bindings ----------------------------------------------------------------------------------------------------

    def bind(self, binding: Binding) -> None:
        values = {
            "exchange_id": _hash(binding.exchange),
            "queue_id": _hash(binding.queue),
            "body": json.dumps(binding),
        }
        known = sa.select(_bindings.c.body).where(_bindings.c.id == binding.id)
        if self._run(lambda connection: connection.execute(known).scalar()) != values["body"]:
            self._run(partial(_put, table=_bindings, id=binding.id, values=values))

    def unbind(self, exchange: str, routing_key: str, queue: str) -> None:
        row = _bindings.c.id == _hash(exchange, routing_key, queue)
        self._run(lambda connection: connection.execute(sa.delete(_bindings).where(row)))

    def delete_exchange(self, exchange: str) -> None:
        rows = _bindings.c.exchange_id == _hash(exchange)
        self._run(lambda connection: connection.execute(sa.delete(_bindings).where(rows)))

    def bindings(self, exchange: str | None = None) -> list[Binding]:
        """Return the bindings of an exchange, or all."""
        rows = sa.select(_bindings.c.body)
        if exchange is not None:
            rows = rows.where(_bindings.c.exchange_id == _hash(exchange))
        return [Binding(*json.loads(body)) for body in self._run(lambda connection: connection.scalars(rows).all())]

    # -- private -----------------------------------------------------------------------------------------------------

    def _deleted_before(self, milliseconds: int) -> sa.ColumnElement[bool]:
        return _queues.c.until.between(milliseconds - self._after(0), 0)

    def _after(self, seconds: float) -> int:
        return int(time() * 1000 + self._ahead + seconds * 1000)

    def _run(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in a transaction; run it again if it met another transaction, or if the connection was closed."""
        for left in reversed(range(TRIES)):
            try:
                with self._engine.begin() as connection:
                    return work(connection)
            except sa.exc.DBAPIError as error:
                if not left:
                    words = " ".join(str(error.orig).split()).rstrip(".")
                    raise Unreachable(f"The bindings cannot be read or written: {words}.", "Try again.") from error
        raise AssertionError("unreachable: the last try returns or raises")


def _put(connection: sa.Connection, table: sa.Table, id: str, values: dict[str, Any]) -> None:
    """Change the row of that id, or insert it. IntegrityError if another transaction inserts it meanwhile."""
    if not connection.execute(sa.update(table).where(table.c.id == id).values(values)).rowcount:
        connection.execute(sa.insert(table).values(id=id, **values))


def _hash(*names: str) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()
