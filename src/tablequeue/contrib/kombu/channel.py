"""A channel: declares, binds, publishes, consumes and answers, by the store of its connection."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from queue import Empty
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.json import dumps, loads

from tablequeue.contrib.kombu.registry import Binding
from tablequeue.contrib.kombu.settings import Transient, seconds
from tablequeue.contrib.kombu.store import Outgoing, Store
from tablequeue.errors import TRANSIENT, LeaseLost, QueueNotFound
from tablequeue.model.message import Claim
from tablequeue.queue import Queue

logger = logging.getLogger("tablequeue.contrib.kombu")

# Messages that a consumer without a prefetch count gets at once, and the most that any consumer gets at once.
UNLIMITED, AT_ONCE = 10, 100


class QoS(virtual.QoS):
    """Counts messages that are not answered yet. Their claims are in the holdings of the connection."""

    def ack(self, delivery_tag: str) -> None:
        self.channel.holdings.complete(delivery_tag)
        self._answered(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back: the attempt counts. Without `requeue` it becomes a dead letter."""
        held = self.channel.holdings.take(delivery_tag)
        try:
            if held is not None and requeue:
                held.claim.fail("requeued", retry_in=0)
            elif held is not None:
                held.claim.fail(reason(self.get(delivery_tag)), retry=False)
        except LeaseLost:
            pass  # it is delivered again anyway
        except TRANSIENT as error:
            logger.warning("A message is delivered again when its lease ends: %s", error)
        finally:
            self._answered(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        self._flush()
        tags = [*self._delivered]
        self._delivered.clear()
        self.channel.holdings.release(tags)
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self._on_collect.cancel()
        if not self.channel.holdings.inherited:
            self.restore_unacked()

    def _answered(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        if self.channel.connection is not None:  # it may be closed by now
            self.channel.connection.answered()


class Receiver(NamedTuple):
    """The function that receives the messages of a consumer."""

    callback: Callable[[dict[str, Any]], Any]
    no_ack: bool
    """Whether a message needs no answer: it is completed when the callback gets it."""


class Fetched(NamedTuple):
    """A message that is claimed, and that no callback has seen."""

    queue: str
    tag: str
    message: dict[str, Any]


class Channel(virtual.Channel):
    QoS = QoS
    supports_fanout = True
    max_priority = 255
    body_encoding = None  # text stays text in the table; see `encode_body`
    from_transport_options: ClassVar = ("deadletter_queue",)

    closed: bool

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        watch()
        self.store: Store = connection.store
        self.holdings = connection.holdings
        self.transient: dict[str, Transient] = {}
        """The transient queues that this channel has declared, in order to make them again if they have gone."""
        self.consuming: dict[str, str] = {}
        """The ids of this channel's consumers of transient queues, by their tags."""
        self._fetched: deque[Fetched] = deque()

    # -- queues ------------------------------------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **options: Any) -> dict[str, Any]:
        return to_rabbitmq_queue_arguments(arguments, **options)

    def _new_queue(
        self,
        queue: str,
        auto_delete: bool = False,
        exclusive: bool = False,
        arguments: Mapping[str, Any] | None = None,
        passive: bool = False,
        **options: Any,
    ) -> None:
        if passive:
            return
        declared = self.store.declare(queue, auto_delete, exclusive, arguments or {})
        if declared is not None:
            self.transient[queue] = declared

    def _has_queue(self, queue: str, **options: Any) -> bool:
        return self.store.current(queue) is not None or bool(self.store.registry.find([queue]))

    def _size(self, queue: str) -> int:
        return self.store.size(queue)

    def _purge(self, queue: str) -> int:
        return self.store.purge(queue)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """Delete a queue with its messages and bindings; with `if_unused` only if no message of it is held."""
        found = self.store.current(queue)
        held = found is not None and found.stats().in_progress
        if (if_unused and held) or (if_empty and (held or self._size(queue))):
            return
        self.transient.pop(queue, None)
        self.store.delete(queue)

    def after_reply_message_received(self, queue: str) -> None:
        """Keep the queue: it is deleted with its last consumer."""

    # -- exchanges ---------------------------------------------------------------------------------------------------

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        self.store.registry.delete_exchange(exchange)
        self.state.exchanges.pop(exchange, None)

    def queue_bind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        name = exchange or "amq.direct"
        kind = self.state.exchanges.get(name, {}).get("type", "direct")
        self.store.registry.bind(Binding(name, kind, routing_key or "", queue))

    def queue_unbind(
        self, queue: str, exchange: str | None = None, routing_key: str = "", arguments: Any = None, **options: Any
    ) -> None:
        self.store.registry.unbind(exchange or "amq.direct", routing_key or "", queue)

    def list_bindings(self) -> Any:
        return ((each.queue, each.exchange, each.routing_key) for each in self.store.registry.bindings())

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> Any:
        """Return the queues to which a message is routed, by the bindings that all processes have made."""
        bindings = self.store.registry.bindings(exchange) if exchange else []
        if not bindings:
            return super()._lookup(exchange, routing_key, default)
        # The exchange as it was declared here, or by the process that made the bindings.
        kind = self.exchange_types[self.state.exchanges.get(exchange, {}).get("type", bindings[0].kind)]
        table = [kind.prepare_bind(each.queue, exchange, each.routing_key, None) for each in bindings]
        return kind.lookup(table, exchange, routing_key, None) or super()._lookup(exchange, routing_key, default)

    def get_table(self, exchange: str) -> list[Any]:
        """Return nothing: the registry has the routes."""
        return []

    # -- publishing --------------------------------------------------------------------------------------------------

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> None:
        """Publish a message. When this has returned, it is committed in every queue to which it is routed."""
        self._inplace_augment_message(message, exchange, routing_key)
        queues = [queue for queue in self._lookup(exchange, routing_key) if queue]
        if queues:
            self.store.push(self._outgoing(message), queues)

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        self.store.push(self._outgoing(message), [queue])

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        if encoding is None and isinstance(body, str):
            return body, None
        return super().encode_body(body, encoding or "base64")

    def _next_delivery_tag(self) -> str:
        return str(uuid4())

    def _outgoing(self, message: dict[str, Any]) -> Outgoing:
        properties = message.get("properties", {})
        due = _eta(message.get("headers") or {}) if self.connection.settings.eta_in_table else None
        expires = seconds(properties.get("expiration"))
        return Outgoing(dumps(message), self._get_message_priority(message), expires, due)

    # -- consuming ---------------------------------------------------------------------------------------------------

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        self.connection.receives(queue, consumer_tag, no_ack)
        if queue in self.transient or self.store.queue(queue) is None:
            self.consuming[consumer_tag] = uuid4().hex
            self.alive()
            self.holdings.start()
        self.connection.consumes(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self.connection.receives_no_more(queue, consumer_tag)
            if queue not in self._active_queues:
                self._give_back(queue)
        consumer = self.consuming.pop(consumer_tag, None)
        if consumer is None or queue is None or self.holdings.inherited:
            return
        alone = self.store.registry.leave(queue, consumer)
        if alone and queue in self.transient and self.transient[queue].auto_delete:
            self.queue_delete(queue)

    def make_again(self, queue: str) -> None:
        """Make a queue again that was dropped while it is consumed, as a starting worker does."""
        self.store.forget(queue)
        self._new_queue(queue)

    def alive(self) -> bool:
        """Note that the consumers of transient queues are alive. Return whether there are any."""
        for tag, consumer in [*self.consuming.items()]:
            queue = self.transient.get(self._tag_to_queue.get(tag, ""))
            if queue is not None:
                self.store.registry.declare(queue, [consumer])
        return bool(self.consuming)

    @property
    def queues(self) -> list[str]:
        """The queues that the channel consumes."""
        return [*dict.fromkeys(self._active_queues)]

    def capacity(self) -> int:
        """Return how many messages may be delivered now."""
        if not self.qos.prefetch_count:
            return UNLIMITED
        return max(0, min(self.qos.can_consume_max_estimate() - len(self._fetched), AT_ONCE))

    def has_much_room(self) -> bool:
        """Whether it holds at most half of the messages that it may hold."""
        return 2 * self.capacity() >= min(self.qos.prefetch_count, AT_ONCE)

    def fetch(self, queue: str, n: int) -> int:
        """Claim up to `n` messages of a queue, to be handed over. Return their number."""
        of, claims = self.store.pop(queue, n)
        self._fetched += [Fetched(queue, tag, message) for tag, message in self._received(of, claims)]
        return len(claims)

    def hand_over(self) -> None:
        """Hand fetched messages to the consumers. If a callback raises, the later messages, not yet seen, go back."""
        try:
            while self._fetched:
                queue, tag, message = self._fetched.popleft()
                receiver = self.connection.receiver(queue)
                # A message that lost its lease meanwhile is delivered again.
                if self.holdings.complete(tag) if receiver.no_ack else self.holdings.holds(tag):
                    receiver.callback(message)
        finally:
            self._give_back()

    def _give_back(self, queue: str | None = None) -> None:
        """Release fetched messages, of all queues or of one. No attempt counts."""
        fetched, self._fetched = self._fetched, deque()
        back = []
        for each in fetched:
            if queue is None or each.queue == queue:
                back.append(each.tag)
            else:
                self._fetched.append(each)
        self.holdings.release(back)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """Claim one message."""
        while True:
            try:
                of, claims = self.store.pop(queue, 1)
            except QueueNotFound:  # it was dropped, and may have been made again
                self.store.forget(queue)
                of, claims = self.store.pop(queue, 1)
            if not claims:
                raise Empty
            if messages := self._received(of, claims):
                return messages[0][1]

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        message = super().basic_get(queue, no_ack, **options)
        if message is not None and no_ack:
            self.holdings.complete(message.delivery_tag)
        return message

    def _received(self, of: Queue, claims: list[Claim]) -> list[tuple[str, dict[str, Any]]]:
        """Return the messages of claims, with their delivery tags. A payload not of kombu becomes a dead letter."""
        good = [(claim, message) for claim in claims if (message := _message(claim)) is not None]
        tags = self.holdings.add(of, [claim for claim, _ in good])
        for tag, (claim, message) in zip(tags, good, strict=True):
            message["properties"]["delivery_tag"] = tag
            message["properties"].setdefault("delivery_info", {})["redelivered"] = claim.attempt > 1
        return [(tag, message) for tag, (_, message) in zip(tags, good, strict=True)]

    def close(self) -> None:
        """Cancel the consumers, and give back messages that are not answered."""
        if self.holdings.inherited:
            self.closed = True
        super().close()


def _message(claim: Claim) -> dict[str, Any] | None:
    """Return the message of kombu; if the payload is not one, make it a dead letter and return None."""
    try:
        message = loads(claim.payload)
        if isinstance(message, dict) and isinstance(message.get("properties"), dict):
            return message
        cause: str | Exception = "not a message of kombu"
    except Exception as error:
        cause = error
    try:
        claim.fail(cause, retry=False)
    except LeaseLost:
        pass
    return None


def _eta(headers: Mapping[str, Any]) -> datetime | None:
    """Return when a task of Celery is due, if it says so with a zone. The worker judges a time that cannot be read."""
    try:
        eta = headers.get("eta")
        due = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
        return due if isinstance(due, datetime) and due.tzinfo is not None else None
    except ValueError:
        return None


# -- why a message is rejected: AMQP has no field for it, so the caller does not say -----------------------------------

# Tasks of Celery that have raised Reject, with the exception, until their messages are rejected. Some messages were
# answered before and are never rejected, so the oldest entries are removed.
MOST_REASONS = 1000
_rejected: dict[str, str] = {}


def watch() -> None:
    """Note which tasks of Celery raise Reject, if this process has Celery: a worker rejects their messages later."""
    if "celery.signals" in sys.modules:
        sys.modules["celery.signals"].task_failure.connect(_note, weak=False, dispatch_uid=__name__)


def reason(message: Any) -> str:
    """Return why a message is rejected: by the exception that the caller handles, or that its task has raised."""
    raised = _rejected.pop(message.headers.get("id", ""), None)
    if raised is None and (error := sys.exc_info()[1]) is not None:
        raised = _shown(error)
    return "rejected" if raised is None else f"rejected: {raised}"


def _note(task_id: str = "", exception: Any = None, **others: Any) -> None:
    if isinstance(exception, sys.modules["celery.exceptions"].Reject):
        _rejected[task_id] = _shown(exception)
        if len(_rejected) > MOST_REASONS:
            del _rejected[next(iter(_rejected))]


def _shown(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
