"""The queues of kombu in one database: one table for each durable queue, and one for all transient queues."""

from __future__ import annotations

import logging
import re
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from threading import Lock, local
from typing import Any, NamedTuple

import tablequeue
from tablequeue.contrib.kombu.registry import Registry
from tablequeue.contrib.kombu.settings import Settings, Transient, seconds, transient
from tablequeue.errors import BadInput, QueueDiffers, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, NewMessage
from tablequeue.queue import Queue

logger = logging.getLogger("tablequeue.contrib.kombu")

TRANSIENT_QUEUES = "kombu.transient"
"""The queue of the database that has the transient queues as its groups."""
# Messages expire only if their queue has that option. In such a queue, a message without an expiry gets a hundred
# years.
NEVER = 100 * 365 * 86400.0
# Seconds that finished messages of transient queues stay in the history.
TRANSIENT_HISTORY = 60.0
# The most messages of a transient queue that are counted or purged at once.
AT_ONCE = 1000


class Outgoing(NamedTuple):
    """A message as the database keeps it."""

    payload: str
    priority: int
    expires: float | None
    """Seconds until it expires, whatever the option of its queue."""
    due: datetime | None
    """When a worker may get it. The time to live in its queue begins then."""


class Store:
    """Opened once for each URL of a process, and shared by its connections."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.db = tablequeue.connect(url)
        self.url = url
        self._settings = settings
        self._lock = Lock()
        self._open: dict[str, Queue] = {}
        self._transient: set[str] = set()
        """The transient queues that this process has declared: they need no look for a table."""
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()
        self.transient = self.db.create_queue(
            TRANSIENT_QUEUES,
            if_exists="alter",
            groups="fair",
            payload="text",
            expires=NEVER,
            history=TRANSIENT_HISTORY,
            max_attempts=settings.max_attempts,
        )
        self.registry = Registry(self.db.engine, self._clock)

    def queue(self, name: str) -> Queue | None:
        """Return the queue with a table of its own, if there is one."""
        known = self._open.get(name)
        if known is None and (found := self._found(name)) is not None:
            known = self._open.setdefault(name, found)
        return known

    def declare(self, name: str, auto_delete: bool, exclusive: bool, arguments: Mapping[str, Any]) -> Transient | None:
        """Make the queue, if it does not exist. Return it if it is transient."""
        queue = transient(name, auto_delete, exclusive, arguments)
        if queue is not None:
            self.delete_expired()
            if queue.shared and self.queue(name) is not None:
                return None  # it was made as a durable queue
            self.registry.declare(queue)
            if queue.shared:
                self._transient.add(name)
                return queue
        with self._lock:  # many threads of a process declare the same queues
            if self.current(name) is None:
                ttl = seconds(arguments.get("x-message-ttl"))
                self._open[name] = self.db.create_queue(
                    stored(name),
                    order="priority",
                    payload="text",
                    expires=NEVER if ttl is None else ttl,
                    history=self._settings.history,
                    max_attempts=self._settings.max_attempts,
                )
        return queue

    def push(self, message: Outgoing, names: Iterable[str]) -> None:
        """Push a message to each of the queues. A missing queue is skipped, like a message without a route."""
        push = Push(self, message, names)
        try:
            _gathering.pushes[self.url].append(push)
        except KeyError:
            push(None)

    def push_in(self, connection: Connection | None, message: Outgoing, names: Iterable[str]) -> None:
        """Do what `push` does, in the caller's transaction."""
        others = []
        for name in names:
            queue = self._open.get(name)
            if queue is None:
                others.append(name)
            else:
                self._push(queue, name, message, connection)
        if not others:
            return
        to_transient = [queue for queue in self.registry.find(others) if queue.shared]
        for name in {*others}.difference(queue.name for queue in to_transient):
            queue = self.queue(name)
            if queue is None:
                logger.warning("There is no queue %r: a message to it is dropped.", name)
            else:
                self._push(queue, name, message, connection)
        if to_transient:
            self.transient.push_many(
                [
                    NewMessage(
                        message.payload,
                        group=stored(queue.name),
                        due=message.due,
                        expires=self._expires(message, queue.ttl),
                    )
                    for queue in to_transient
                ],
                connection=connection,
            )

    def current(self, name: str) -> Queue | None:
        """Return the queue as `queue` does, but read the catalogue: it may have been dropped, and made again."""
        known, found = self._open.get(name), self._found(name)
        if found is None:
            self._open.pop(name, None)
            return None
        if known is None or not context_of(known).table.is_that_of(context_of(found).table):
            self._open[name] = known = found
        return known  # consumers wait for it, also in other threads

    def pop(self, name: str, n: int) -> tuple[Queue, list[Claim]]:
        """Claim messages of a queue. Return them with the queue that they were claimed from."""
        queue = self.queue(name)
        if queue is not None:
            return queue, queue.pop_many(n, lease=self._settings.lease)
        return self.transient, self.transient.pop_group(stored(name), n, lease=self._settings.lease)

    def size(self, name: str) -> int:
        """Return how many messages wait; for a transient queue, among the first thousand of all transient queues."""
        queue = self.current(name)
        if queue is not None:
            stats = queue.stats()
            return stats.ready + stats.scheduled
        return sum(message.group == stored(name) for message in self.transient.peek(AT_ONCE))

    def purge(self, name: str) -> int:
        """Delete the messages that wait. Return their number."""
        queue = self.current(name)
        return self._purge_transient(name) if queue is None else queue.purge()

    def delete(self, name: str) -> None:
        """Delete a queue with its messages and bindings."""
        queue = self.current(name)
        self.registry.delete(name, later=queue is None)
        if queue is None:
            self._transient.discard(name)
            self._purge_transient(name)
            return
        self.forget(name)
        try:
            queue.drop()
        except QueueNotFound:
            return  # another process was faster

    def delete_expired(self) -> None:
        """Delete transient queues that were not used for too long, and messages that came to deleted queues since."""
        for queue in self.registry.expired():
            if queue.shared:
                self.registry.delete(queue.name, later=True)
                self._purge_transient(queue.name)
            else:
                self.delete(queue.name)

    def forget(self, name: str) -> None:
        """Look for the queue again at its next use: it was missing."""
        self._open.pop(name, None)

    def open(self, user: object) -> None:
        """Note a connection. `Unreachable` if the database is away."""
        self._users.add(user)
        self.db.queues()

    def close(self, user: object) -> None:
        """Forget a connection. With the last one, the connections to the database are closed."""
        self._users.discard(user)
        if not self._users:
            self.db.close()
            self.db.engine.dispose()

    # -- private -----------------------------------------------------------------------------------------------------

    def _found(self, name: str) -> Queue | None:
        """Return the queue of the catalogue with a table of its own, if there is one."""
        if name in self._transient:
            return None
        try:
            found = self.db.queue(stored(name))
        except QueueNotFound:
            return None
        _check(found)
        return found

    def _purge_transient(self, name: str) -> int:
        purged, group, last = 0, stored(name), 0
        while claims := self.transient.pop_group(group, AT_ONCE):
            self.transient.complete_many(claims)
            purged += len(claims)
        while waiting := self.transient.peek(AT_ONCE, state="scheduled", after=last):
            last = waiting[-1].id
            if ids := [each.id for each in waiting if each.group == group]:
                purged += len(self.transient.cancel(ids).cancelled)
        return purged

    def _expires(self, message: Outgoing, ttl: float | None) -> float:
        """Return the seconds until a message expires in a queue with that time to live."""
        in_queue = NEVER if ttl is None else self.registry.seconds_until(message.due) + ttl
        return min(in_queue, NEVER if message.expires is None else message.expires, NEVER)

    def _push(self, queue: Queue, name: str, message: Outgoing, connection: Connection | None) -> None:
        options: dict[str, Any] = {
            "priority": message.priority,
            "expires": self._expires(message, queue.definition.expires),
            "due": message.due,
            "connection": connection,
        }
        try:
            queue.push(message.payload, **options)
        except QueueNotFound:
            # It was deleted, and may have been made again.
            again = self.current(name)
            if again is None:
                logger.warning("There is no queue %r any more: a message to it is dropped.", name)
            else:
                again.push(message.payload, **options)

    def _clock(self) -> datetime:
        context = context_of(self.transient)
        return context.engine.load_time(context.run(context.engine.checks.read_clock, {"now": None}))


def stored(name: str) -> str:
    """Return the name under which the database keeps a queue: forbidden characters are written as in a URL."""
    if name == TRANSIENT_QUEUES:
        return _quoted(name[0]) + name[1:]
    inner = re.sub(r"[%/]|[^\S ]", lambda found: _quoted(found[0]), name)
    inner = "".join(letter if letter.isprintable() else _quoted(letter) for letter in inner)
    return re.sub(r"^[ ]|[ ]$|^\.{1,2}$", lambda found: _quoted(found[0]), inner)


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _check(queue: Queue) -> None:
    """Refuse a queue that cannot hold messages of kombu."""
    definition = queue.definition
    if (definition.order, definition.payload, bool(definition.expires)) != ("priority", "text", True):
        raise QueueDiffers(
            f"The queue {queue.name!r} was not made by kombu: its order, payload or expiry differ.",
            "Give the queue of kombu another name, or drop that one.",
        )


class Push(NamedTuple):
    """A message to queues of a store."""

    store: Store
    message: Outgoing
    names: Iterable[str]

    def __call__(self, connection: Connection | None) -> None:
        self.store.push_in(connection, self.message, self.names)


class _Gathering(local):
    """The messages that a thread gathers instead of pushing them, by the URLs of the databases."""

    def __init__(self) -> None:
        self.pushes: dict[str, list[Push]] = {}


_gathering = _Gathering()


@contextmanager
def _gathering_in(pushes: dict[str, list[Push]]) -> Iterator[None]:
    outer = _gathering.pushes
    _gathering.pushes = pushes
    try:
        yield
    finally:
        _gathering.pushes = outer


@contextmanager
def gathered(url: str) -> Iterator[list[Push]]:
    """Gather the messages that this thread sends to the queues of a URL in the block, instead of pushing them.

    Each push takes the connection for its transaction.
    """
    pushes: list[Push] = []
    with _gathering_in(_gathering.pushes | {url: pushes}):
        yield pushes


@contextmanager
def in_transaction(connection: Connection) -> Iterator[None]:
    """Send the messages of the block in your transaction: they are delivered if it commits, and only then.

        with Session(engine) as session, session.begin(), in_transaction(session):
            session.add(order)
            mail.delay(order.email)

    connection   a SQLAlchemy Session or Connection, or a DB-API connection, to the database of the broker.

    The messages that this thread sends in the block are pushed at its end, in their order. An exception in the block
    discards them. `BadInput` if they go to brokers of two URLs.
    """
    pushes: defaultdict[str, list[Push]] = defaultdict(list)
    with _gathering_in(pushes):
        yield
    if len(pushes) > 1:
        raise BadInput(
            f"The messages of the block go to {len(pushes)} databases, and a transaction is in one.",
            "Send to each broker in a block of its own.",
        )
    for gathered in pushes.values():
        with context_of(gathered[0].store.transient).runner.whole(connection, refuses=True):  # all of them or none
            for push in gathered:
                push(connection)


_stores: dict[tuple[str, Settings], Store] = {}
_opening = Lock()


def store_of(url: str, settings: Settings) -> Store:
    """Return the store of a URL, which is opened at its first use in the process."""
    with _opening:
        key = (url, settings)
        if key not in _stores:
            _stores[key] = Store(url, settings)
        return _stores[key]
