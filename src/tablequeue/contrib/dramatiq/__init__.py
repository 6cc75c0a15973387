"""A broker for dramatiq: see docs/dramatiq.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event
from typing import Any
from weakref import WeakValueDictionary

import dramatiq
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from tablequeue import Claim, Database, Queue, connect, errors
from tablequeue.errors import TRANSIENT
from tablequeue.ext import context_of, waiter_of


class Broker(dramatiq.Broker):
    """Keeps dramatiq's messages in queues of tablequeue with the same names.

    url       the URL for `tablequeue.connect`. The connection is made at the first use, not at import.
    options   options of `Database.create_queue`, for a queue that does not exist yet. `max_attempts` counts the
              deliveries of one message, and not dramatiq's retries, which are messages.
    """

    def __init__(self, url: Any, *, middleware: list[dramatiq.Middleware] | None = None, **options: Any) -> None:
        super().__init__(middleware)
        self._url = url
        self._options = options
        self.queues: dict[str, Queue | None] = {}
        self._work: dict[str, Work] = {}

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
        with dramatiqs_errors():
            queue = self._anew(queue_name)
        work = self._work.get(queue_name)
        if work is None or not context_of(work.queue).table.is_that_of(context_of(queue).table):
            work = self._work[queue_name] = Work(queue)
        return Consumer(queue, work, prefetch, timeout / 1000)

    def flush(self, queue_name: str) -> None:
        self._anew(queue_name).purge()

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until the queue has only dead letters; `QueueJoinTimeout` after `timeout` milliseconds."""
        self._anew(queue_name)
        end = time.monotonic() + (float("inf") if timeout is None else timeout / 1000)
        while (stats := self.queue(queue_name).stats()).ready or stats.scheduled or stats.in_progress:
            if time.monotonic() >= end:
                raise QueueJoinTimeout(queue_name)
            time.sleep(0.05)


class Work:
    """The messages of one queue that this process works on, by their ids, from any consumer.

    After an error dramatiq makes another consumer, and goes on with the messages of the old one. The lease of a dropped
    message is not extended: it is delivered again when its lease ends.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self._messages: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._messages)

    def begin(self, message: Any) -> None:
        self._messages[message.claim.id] = message

    def end(self, message: Any) -> None:
        self._messages.pop(message.claim.id, None)

    def claims(self) -> list[Claim]:
        # Worker threads change it meanwhile; a list of references is made in one step.
        return [message.claim for ref in self._messages.valuerefs() if (message := ref()) is not None]

    def adopts(self, claim: Claim) -> bool:
        """Whether the message is processed here, under a lease that was lost: then it gets the new lease."""
        message = self._messages.get(claim.id)
        if message is not None:
            message.claim = claim
        return message is not None


class Consumer(dramatiq.Consumer):
    """Claims up to `prefetch` messages, and extends their leases while dramatiq's consumer thread asks for more."""

    def __init__(self, queue: Queue, work: Work, prefetch: int, timeout: float) -> None:
        self._queue, self._work, self._prefetch, self._timeout = queue, work, prefetch, timeout
        self._waiter, self._room = waiter_of(queue), Event()
        self._claimed: list[Claim] = []
        # The leases of messages from the consumer before this one are extended before anything is claimed.
        self._extended_at = -float("inf") if work else time.monotonic()

    def __next__(self) -> Any:
        """Return the next message. One that cannot be decoded is an error, and a dead letter after its attempts."""
        with dramatiqs_errors():
            self._extend()
            self._room.clear()
            room = self._prefetch - len(self._work) - len(self._claimed)
            if not self._claimed and room > 0:
                self._claimed += [claim for claim in self._queue.pop_many(room) if not self._work.adopts(claim)]
            if self._claimed:
                self._waiter.found()
                claim = self._claimed.pop(0)
                message: Any = dramatiq.MessageProxy(dramatiq.Message.decode(claim.payload))
                message.claim = claim
                self._work.begin(message)
                return message
            self._waiter.wait(self._timeout) if room > 0 else self._room.wait(self._timeout)
            return None

    def ack(self, message: Any) -> None:
        self._finish(message, Claim.complete)

    def nack(self, message: Any) -> None:
        """Make the message a dead letter."""
        error = message._exception or "rejected by dramatiq"  # noqa: SLF001  (there is no public name)
        self._finish(message, Claim.fail, error, retry=False)

    def requeue(self, messages: Iterable[Any]) -> None:
        for message in messages:
            self._finish(message, Claim.release)

    def close(self) -> None:
        """Release messages that were not handed over. If the database is away, they come back when their leases end."""
        self._waiter.leave()
        claimed, self._claimed = self._claimed, []
        with suppress(errors.TablequeueError):
            self._queue.release_many(claimed)

    def _extend(self) -> None:
        now = time.monotonic()
        if now - self._extended_at > self._queue.definition.lease / 2:
            with suppress(errors.LeaseLost):
                self._queue.extend_many([*self._work.claims(), *self._claimed])
            self._extended_at = now

    def _finish(self, message: Any, finish: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Finish a message. If its lease is lost, it is delivered again."""
        with dramatiqs_errors():
            while True:
                claim = message.claim
                try:
                    finish(claim, *args, **options)
                except errors.LeaseLost:
                    if message.claim is not claim:
                        continue  # it was claimed again meanwhile, by this process
                break
        self._work.end(message)
        self._room.set()


@contextmanager
def dramatiqs_errors() -> Iterator[None]:
    """Raise the error after which dramatiq tries again."""
    try:
        yield
    except TRANSIENT as error:
        raise ConnectionClosed(error) from error
