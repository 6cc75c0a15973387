"""The transport: looks for messages when there may be some, and waits without a look when there are none."""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Callable
from importlib.metadata import version
from time import monotonic
from typing import Any

import sqlalchemy as sa
from kombu.transport import virtual

from tablequeue.contrib.kombu.channel import Channel, Receiver
from tablequeue.contrib.kombu.holdings import Holdings
from tablequeue.contrib.kombu.settings import Settings
from tablequeue.contrib.kombu.store import store_of
from tablequeue.errors import TRANSIENT, QueueNotFound, TablequeueError
from tablequeue.ext import waiter_of
from tablequeue.model.pacing import backoff
from tablequeue.queue import Queue

logger = logging.getLogger("tablequeue.contrib.kombu")

INFINITE = float("inf")
LONGEST_POLL = 3600.0
# Seconds between the first answer of a full channel and the next look, unless half of its messages are answered by
# then: a claim of several messages takes as long as a claim of one.
GATHERING = 0.01


class Watch:
    """The time of the next look into one table."""

    def __init__(self, queue: Queue, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiter = waiter_of(queue, on_push=self._on_push)
        self._pushed = False
        self.called = False
        """Whether a push came since the last look began: the next push may still back off."""
        self.at = 0.0
        """The monotonic time of the next look."""

    def _on_push(self) -> None:
        self._pushed = self.called = True
        self._wake()

    def is_due(self) -> bool:
        if self._pushed:
            self._pushed = False
            self.at = min(self.at, monotonic() + self._waiter.back_off(INFINITE))
        return monotonic() >= self.at

    def found(self) -> None:
        self._waiter.found()
        self.at = 0.0

    def found_nothing(self) -> None:
        pause = self._waiter.pause(INFINITE)
        self.at = 0.0 if pause is None else monotonic() + pause

    def close(self) -> None:
        self._waiter.leave()


class Transport(virtual.Transport):
    Channel = Channel
    can_parse_url = True
    polling_interval = None
    driver_type = "tablequeue"  # with "sql" Celery would send no events
    driver_name = "tablequeue"
    connection_errors = (*virtual.Transport.connection_errors, *TRANSIENT, sa.exc.OperationalError)
    channel_errors = (*virtual.Transport.channel_errors, TablequeueError)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.settings = Settings.of(client.transport_options)
        self.store: Any = None
        self.holdings = Holdings(self.settings.lease, self._alive)
        self._receivers: dict[str, dict[str, Receiver]] = {}
        """The receivers of each queue's consumers, by their tags, in the order in which they came."""
        self._watches: dict[Queue, Watch] = {}
        self._blocked: set[Watch] = set()
        """The tables that are not read until a channel has room again."""
        self._has_room = False
        self._failures = 0
        self._first = 0
        self._wakeup = Wakeup()
        self._loop: Any = None
        self._timer: Any = None

    def driver_version(self) -> str:
        return version("tablequeue")

    # -- connecting --------------------------------------------------------------------------------------------------

    def establish_connection(self) -> Any:
        self.store = store_of(self.client.hostname, self.settings)
        self.store.open(self)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        if self.holdings.inherited:
            return
        self._leave_loop()
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()
        self.holdings.close()
        if self.store is not None:
            self.store.close(self)

    def _alive(self) -> bool:
        alive = [channel.alive() for channel in [*self.channels]]
        if any(alive):
            self.store.registry.read_clock()
            self.store.delete_expired()
        return any(alive)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def receives(self, queue: str, consumer_tag: str, no_ack: bool) -> None:
        """Note the receiver of a new consumer, which kombu has made."""
        self._receivers.setdefault(queue, {})[consumer_tag] = Receiver(self._callbacks[queue], no_ack)

    def receives_no_more(self, queue: str, consumer_tag: str) -> None:
        """Forget the receiver of a consumer. Kombu has forgotten the receivers of the queue's other consumers too."""
        self._receivers.get(queue, {}).pop(consumer_tag, None)

    def receiver(self, queue: str) -> Receiver:
        """Return the receiver of a consumed queue's messages: the receiver of its last consumer, as in kombu."""
        return [*self._receivers[queue].values()][-1]

    def consumes(self, queue: str) -> None:
        """Look into a queue that has a new consumer."""
        self._watch(queue).at = 0.0
        self._wakeup.set()

    def answered(self) -> None:
        """Look for messages, if a channel had no room. Any thread may call."""
        self._has_room = True
        self._wakeup.set()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver messages, or wait for them. `socket.timeout` if nothing comes in `timeout` seconds."""
        end = INFINITE if timeout is None else monotonic() + timeout
        while not self.deliver():
            left = end - monotonic()
            if left <= 0:
                raise TimeoutError
            self._wakeup.wait(min(left, self._pause()))

    def deliver(self) -> bool:
        """Look into the tables that are due, once. Return whether a message was delivered.

        An error of a consumer goes on to the caller. During an outage of the database nothing is delivered: the
        messages that are held stay held, because their leases last longer than a restart of the database.
        """
        try:
            in_turn = self._begun()
        except TRANSIENT as error:
            return self._away(error)
        looked, found = set[Watch](), set[Watch]()
        for channel, queue, watch in in_turn:
            room = channel.capacity()
            if not room:
                self._blocked.add(watch)
                continue
            looked.add(watch)
            watch.called = False  # first: a push may come during the look
            if queue not in channel.queues:
                continue
            try:
                fetched = self._fetched(channel, queue, room)
            except TRANSIENT as error:
                return self._away(error)
            if fetched:
                found.add(watch)
                channel.hand_over()
        self._failures = 0
        for watch in looked.intersection(self._watches.values()):
            if watch in found:
                watch.found()
            else:
                watch.found_nothing()
        for watch in self._blocked - found:
            watch.at = INFINITE
        return bool(found)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._loop = loop
        loop.add_reader(self._wakeup.fileno(), self._on_event)
        self._wakeup.set()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        self._leave_loop()

    # -- private -----------------------------------------------------------------------------------------------------

    def _begun(self) -> list[tuple[Any, str, Watch]]:
        """Begin a look: return the queues of `_in_turn`."""
        self._wakeup.clear()
        if self._has_room:
            self._has_room = False  # first: another thread may set it again from now on
            much = any(channel.has_much_room() for channel in self.channels)
            for watch in self._blocked:
                watch.at = 0.0 if much else monotonic() + GATHERING
            self._blocked.clear()
        return self._in_turn()

    def _away(self, error: Exception) -> bool:
        """Look again after a pause: the database is away."""
        self._failures += 1
        pause = backoff(self._failures)
        logger.warning("%s Trying again in %.1f s.", error, pause)
        for watch in self._watches.values():
            watch.at = monotonic() + pause
        return False

    def _in_turn(self) -> list[tuple[Any, str, Watch]]:
        """Return the consumed queues that are due, in the order in which they are looked into, with their channels.

        Remote control comes before tasks: a program that revokes a task and then sends it expects that order. So a look
        for tasks, unless it follows a look that found tasks, looks for remote control first: the look may come before
        the wake-ups of both pushes. When there are tasks, remote control does not back off.
        """
        queues = self._consumed()
        self._first += 1  # so that no queue is always the last one when a channel has room for few messages
        first = self._first % len(queues) if queues else 0
        due = {watch for watch in self._watches.values() if watch.is_due()}
        control = self._watches.get(self.store.transient)
        if control is not None and due and (control.called or any(watch.at > 0.0 for watch in due)):
            due.add(control)
        in_turn = [each for each in queues[first:] + queues[:first] if each[2] in due]
        return sorted(in_turn, key=lambda each: each[2] is not control)

    def _fetched(self, channel: Any, queue: str, room: int) -> int:
        try:
            return channel.fetch(queue, room)
        except QueueNotFound:
            channel.make_again(queue)
            self._consumed()
            return 0

    def _consumed(self) -> list[tuple[Any, str, Watch]]:
        """Return the consumed queues, with their channels. Look no more into tables without a consumed queue.

        A queue that was dropped and made again has another table. A table without such a queue would be due for ever.
        """
        queues = [(channel, name, self._watch(name)) for channel in [*self.channels] for name in channel.queues]
        consumed = {watch for _, _, watch in queues}
        if len(consumed) < len(self._watches):
            for queue, watch in [*self._watches.items()]:
                if watch not in consumed:
                    del self._watches[queue]
                    self._blocked.discard(watch)
                    watch.close()
        return queues

    def _watch(self, name: str) -> Watch:
        queue = self.store.queue(name) or self.store.transient
        if queue not in self._watches:
            self._watches[queue] = Watch(queue, self._wakeup.set)
        return self._watches[queue]

    def _pause(self) -> float:
        """Return the seconds until the next look, if no wake-up comes."""
        return max(0.0, min((watch.at for watch in self._watches.values()), default=INFINITE) - monotonic())

    def _on_event(self) -> None:
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delivered = True
        try:
            delivered = self.deliver()
        finally:
            if self._loop is not None:  # a message may have closed the connection
                if delivered:
                    self._wakeup.set()
                elif (pause := self._pause()) < INFINITE:
                    self._timer = self._loop.call_later(pause, self._on_event)

    def _leave_loop(self) -> None:
        loop, self._loop = self._loop, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if loop is not None:
            loop.remove_reader(self._wakeup.fileno())


class Wakeup:
    """Ends a wait: a pipe, so that an event loop can wait for it beside other pipes. Any thread may call `set`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)

    def __del__(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        try:
            os.write(self._write, b"x")
        except BlockingIOError:
            pass  # it is set often enough

    def clear(self) -> None:
        try:
            os.read(self._read, 65536)
        except BlockingIOError:
            pass  # it was not set

    def wait(self, seconds: float) -> None:
        """Wait until it is set, or for these seconds."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.poll(min(seconds, LONGEST_POLL) * 1000)
