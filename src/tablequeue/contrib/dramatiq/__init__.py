"""A broker for dramatiq: see docs/dramatiq.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event
from typing import Any

import dramatiq
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from tablequeue import Claim, Database, Queue, connect, errors
from tablequeue.ext import waiter_of


class Broker(dramatiq.Broker):
    """Keeps dramatiq's messages in queues of tablequeue, which have the names of dramatiq's.

    url       that of `tablequeue.connect`. The connection is made at the first use, not at import.
    options   those of `Database.create_queue`, for a queue that is not there yet. `max_attempts` counts the
              deliveries of one message, and not dramatiq's retries, which are messages.
    """

    def __init__(self, url: Any, *, middleware: list[dramatiq.Middleware] | None = None, **options: Any) -> None:
        super().__init__(middleware)
        self._url = url
        self._options = options
        self.queues: dict[str, Queue | None] = {}

    @cached_property
    def database(self) -> Database:
        return connect(self._url)

    def close(self) -> None:
        if "database" in self.__dict__:
            self.database.close()

    def declare_queue(self, queue_name: str) -> None:
        """Note the name. The queue is opened, or made, at its first use."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def queue(self, queue_name: str) -> Queue:
        """Return the queue of tablequeue; dramatiq's `QueueNotFound` if it was not declared."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        if (queue := self.queues[queue_name]) is None:
            try:
                queue = self.database.queue(queue_name)
            except errors.QueueNotFound:
                queue = self.database.create_queue(queue_name, payload="bytes", **self._options)
            self.queues[queue_name] = queue
        return queue

    def _anew(self, queue_name: str) -> Queue:
        """Open, or make, a queue that may have been dropped since its first use."""
        self.queue(queue_name)  # refuses a name that was not declared
        self.queues[queue_name] = None
        return self.queue(queue_name)

    def enqueue(self, message: Any, *, delay: int | None = None) -> Any:
        """Push the message. With `delay`, in milliseconds, it is due in the table: no worker holds it until then."""
        with dramatiqs_errors():
            queue = self.queue(message.queue_name)
            self.emit_before("enqueue", message, delay)
            options: Any = {"delay": None if delay is None else delay / 1000}
            try:
                queue.push(message.encode(), **options)
            except errors.QueueNotFound:
                self._anew(message.queue_name).push(message.encode(), **options)
            self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> Consumer:
        return Consumer(self._anew(queue_name), prefetch, timeout / 1000)

    def flush(self, queue_name: str) -> None:
        self._anew(queue_name).purge()

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until the queue has no messages but dead letters; `QueueJoinTimeout` after `timeout` milliseconds."""
        self._anew(queue_name)
        end = time.monotonic() + (float("inf") if timeout is None else timeout / 1000)
        while (stats := self.queue(queue_name).stats()).ready or stats.scheduled or stats.in_progress:
            if time.monotonic() >= end:
                raise QueueJoinTimeout(queue_name)
            time.sleep(0.05)


class Consumer(dramatiq.Consumer):
    """Claims up to `prefetch` messages, and extends their leases while dramatiq's consumer thread asks for more."""

    def __init__(self, queue: Queue, prefetch: int, timeout: float) -> None:
        self._queue, self._prefetch, self._timeout = queue, prefetch, timeout
        self._waiter, self._room = waiter_of(queue), Event()
        self._claimed: list[Claim] = []
        self._held: set[Claim] = set()  # shared with worker threads, so each use of it is one atomic call
        self._extended_at = time.monotonic()

    def __next__(self) -> Any:
        """Return the next message. One that cannot be decoded is an error, and a dead letter after its attempts."""
        if time.monotonic() - self._extended_at > self._queue.definition.lease / 2:
            self._extended_at = time.monotonic()
            with suppress(errors.LeaseLost):
                self._queue.extend_many([*self._held])
        self._room.clear()
        room = self._prefetch - len(self._held)
        if not self._claimed and room > 0:
            self._claimed.extend(self._queue.pop_many(room))
            self._held.update(self._claimed)
        if self._claimed:
            self._waiter.found()
            claim = self._claimed.pop(0)
            message: Any = dramatiq.MessageProxy(dramatiq.Message.decode(claim.payload))
            message.claim = claim
            return message
        self._waiter.wait(self._timeout) if room > 0 else self._room.wait(self._timeout)
        return None

    def ack(self, message: Any) -> None:
        self._finish(message.claim, message.claim.complete)

    def nack(self, message: Any) -> None:
        """Make the message a dead letter."""
        error = message._exception or "rejected by dramatiq"  # noqa: SLF001  (there is no public name)
        self._finish(message.claim, message.claim.fail, error, retry=False)

    def requeue(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self._finish(message.claim, message.claim.release)

    def close(self) -> None:
        self._waiter.leave()
        while self._claimed:
            claim = self._claimed.pop(0)
            self._finish(claim, claim.release)

    def _finish(self, claim: Claim, finish: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Finish a message. If its lease is lost, it is delivered again."""
        with dramatiqs_errors(), suppress(errors.LeaseLost):
            finish(*args, **options)
        self._held.discard(claim)
        self._room.set()


@contextmanager
def dramatiqs_errors() -> Iterator[None]:
    """Raise the error after which dramatiq tries again."""
    try:
        yield
    except (errors.Conflict, errors.ConnectionLost, errors.Locked, errors.Unreachable) as error:
        raise ConnectionClosed(error) from error
