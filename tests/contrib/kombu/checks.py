"""The promises of the transport, each as a function of a URL of a broker, so that mutants can be checked with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from json import loads
from typing import Any
from uuid import uuid4

from kombu import Connection, Consumer, Exchange, Message, Producer, Queue

from tablequeue.contrib.kombu import registry
from tablequeue.contrib.kombu.settings import Transient
from tablequeue.contrib.kombu.store import Store
from tablequeue.model.message import Claim

PATIENCE = 10.0
"""Seconds in which an expected message comes."""


def connect(url: str, **options: Any) -> Connection:
    return Connection(url, transport_options=options)


def store_of(connection: Connection) -> Store:
    connection.ensure_connection()
    store: Store = connection.transport.store
    return store


def publish(connection: Connection, body: Any, queue: Queue, **options: Any) -> None:
    Producer(connection).publish(body, exchange="", routing_key=queue.name, declare=[queue], **options)


@contextmanager
def consumer(connection: Connection, *queues: Queue, **options: Any) -> Iterator[list[Message]]:
    """Yield the messages that `drain` receives."""
    got: list[Message] = []
    with Consumer(connection, queues, on_message=got.append, **options):
        yield got


def drain(connection: Connection, reached: Callable[[], bool] = bool) -> None:
    """Receive until `reached`; if not given, until nothing comes at once."""
    while not reached():
        try:
            connection.drain_events(timeout=PATIENCE if reached is not bool else 0.05)
        except TimeoutError:
            assert reached is bool, "nothing comes"
            return


def bodies(messages: list[Message]) -> list[Any]:
    return [message.payload for message in messages]


def stored_bodies(connection: Connection, claims: list[Claim]) -> list[Any]:
    """Return the bodies of messages that were claimed from the table, and not by kombu."""
    channel = connection.default_channel
    return bodies([channel.Message(loads(claim.payload), channel=channel) for claim in claims])


def check_a_killed_consumer_loses_nothing(url: str) -> None:
    """A message that was delivered and not acknowledged comes again when the lease is over, and says so."""
    queue = Queue("killed")
    with connect(url) as connection:
        publish(connection, 1, queue)
        with consumer(connection, queue) as got:
            drain(connection, lambda: len(got) == 1)
            assert not got[0].delivery_info["redelivered"]
            # As if the consumer were dead: its lease is over, and nobody extends it.
            held = connection.transport.holdings.take(got[0].delivery_tag)
            assert held is not None
            held.claim.extend(0.01)
            drain(connection, lambda: len(got) == 2)
            assert got[1].payload == 1
            assert got[1].delivery_info["redelivered"]
            got[1].ack()
        connection.transport.holdings.close()
        assert store_of(connection).size("killed") == 0


def check_acknowledgements(url: str) -> None:
    """What is acknowledged is gone; what is rejected is a dead letter; what is requeued comes again, and before."""
    queue = Queue("answers")
    with connect(url) as connection:
        for number in range(4):
            publish(connection, number, queue)
        with consumer(connection, queue) as got:
            drain(connection, lambda: len(got) == 4)
            got[0].ack()
            try:
                raise ValueError("odd")
            except ValueError:
                got[1].reject()
            got[2].requeue()
            drain(connection, lambda: len(got) == 5)
            assert bodies(got) == [0, 1, 2, 3, 2]
            assert [message.delivery_info["redelivered"] for message in got] == [False] * 4 + [True]
        connection.transport.holdings.close()  # what is acknowledged is completed
        stats = store_of(connection).db.queue("answers").stats()
        # The consumer is cancelled, and its messages are still held.
        assert (stats.ready, stats.in_progress, stats.dead) == (0, 2, 1)
        (dead,) = store_of(connection).db.queue("answers").dead()
        assert dead.errors[-1].error == "rejected: ValueError: odd"


def check_close_gives_back(url: str) -> None:
    """A connection that is closed gives back what it holds, at once, and no attempt counts."""
    queue = Queue("closed")
    with connect(url) as connection:
        publish(connection, 1, queue)
        with consumer(connection, queue) as got:
            drain(connection, lambda: len(got) == 1)
    with connect(url) as connection, consumer(connection, queue) as got:
        drain(connection, lambda: len(got) == 1)
        assert not got[0].delivery_info["redelivered"]


def check_fanout(url: str) -> None:
    """Each bound queue gets each message, in other processes' words: from a connection that has declared nothing."""
    exchange = Exchange("news", type="fanout")
    queues = [
        Queue("one", exchange),
        Queue("two", exchange, auto_delete=True),
        Queue("three", exchange, exclusive=True),
    ]
    with connect(url) as connection, consumer(connection, *queues) as got:
        with connect(url) as other:
            Producer(other).publish("hello", exchange="news", routing_key="any")
        drain(connection, lambda: len(got) == 3)
        assert bodies(got) == ["hello"] * 3
        drain(connection)
        assert len(got) == 3
        queues[0](connection.default_channel).unbind_from(exchange)
        with connect(url) as other:
            Producer(other).publish("again", exchange="news", routing_key="any")
        drain(connection, lambda: len(got) == 5)
        drain(connection)
        assert len(got) == 5, "it has no binding any more"


def check_transient_queues_share_a_table(url: str) -> None:
    """Queues that go by themselves cost no table, get only their own messages, and go with their last consumer."""
    queues = [Queue(f"celery@host-{uuid4()}.celery.pidbox", auto_delete=True, expires=10) for _ in range(3)]
    with connect(url) as connection:
        before = store_of(connection).db.queues()
        with consumer(connection, *queues, no_ack=True) as got:
            for number, queue in enumerate(queues):
                publish(connection, number, queue)
            drain(connection, lambda: len(got) == 3)
            assert sorted(bodies(got)) == [0, 1, 2]
            assert store_of(connection).db.queues() == before
            assert len(store_of(connection).registry.find([queue.name for queue in queues])) == 3
        assert store_of(connection).registry.find([queue.name for queue in queues]) == []


def check_priority(url: str) -> None:
    """The highest priority comes first, then the oldest."""
    queue = Queue("urgent", max_priority=9)
    with connect(url) as connection:
        for number, priority in enumerate((1, 9, 0, 9)):
            publish(connection, number, queue, priority=priority)
        with consumer(connection, queue) as got:
            drain(connection, lambda: len(got) == 4)
            assert bodies(got) == [1, 3, 0, 2]


def check_eta(url: str) -> None:
    """A task with an ETA is not delivered before it, and waits in the table."""
    queue = Queue("later")
    eta = datetime.now(UTC) + timedelta(hours=1)
    with connect(url) as connection:
        publish(connection, 1, queue, headers={"eta": eta.isoformat()})
        publish(connection, 2, queue, headers={"eta": "tomorrow"})
        with consumer(connection, queue) as got:
            drain(connection, lambda: len(got) == 1)
            drain(connection)
            assert bodies(got) == [2]
        (scheduled,) = store_of(connection).db.queue("later").peek(state="scheduled")
        assert scheduled.due_at == eta
    with connect(url, eta_in_table=False) as connection:
        publish(connection, 3, queue, headers={"eta": eta.isoformat()})
        with consumer(connection, queue) as got:
            drain(connection, lambda: 3 in bodies(got))


def check_prefetch(url: str) -> None:
    """No more messages are held than the prefetch count; an acknowledgement brings the next one, of any queue."""
    queues = [Queue("left"), Queue("right")]
    with connect(url) as connection:
        for number in range(4):
            publish(connection, number, queues[number % 2])
        with consumer(connection, *queues, prefetch_count=2) as got:
            for number in range(4):
                drain(connection, lambda number=number: len(got) == min(number + 2, 4))  # type: ignore[misc]
                drain(connection)
                assert len(got) == min(number + 2, 4)
                got[number].ack()
        assert sorted(bodies(got)) == [0, 1, 2, 3]


def check_nothing_else_is_due(url: str) -> None:
    """A transport looks into what it consumes and nothing else: the time of a look that nobody makes would not pass."""
    queue = Queue("again")
    with connect(url) as connection:
        with consumer(connection, queue):
            drain(connection)
            store_of(connection).db.queue("again").drop()
            queue(connection.default_channel).queue_declare()
            drain(connection)
            assert [*connection.transport._watches] == [store_of(connection).queue("again")]
        drain(connection)
        assert connection.transport._pause() == float("inf")


def check_control_comes_before_tasks(url: str) -> None:
    """What was sent to a transient queue first is delivered before what was sent to another queue then.

    Also if the consumer backs off, because many messages for others woke it.
    """
    tasks, control, other = Queue("tasks"), Queue("control", auto_delete=True), Queue("other", auto_delete=True)
    with connect(url) as connection, connect(url) as sender:
        other(sender.default_channel).declare()
        with consumer(connection, tasks, control, no_ack=True) as got:
            drain(connection)
            for number in range(8):
                publish(sender, "for others", other)
                drain(connection)
                publish(sender, ("control", number), control)
                publish(sender, ("task", number), tasks)
                drain(connection, lambda number=number: len(got) == 2 * (number + 1))  # type: ignore[misc]
        assert bodies(got) == [[word, number] for number in range(8) for word in ("control", "task")]


def check_without_answers_only_what_is_delivered_is_given_up(url: str) -> None:
    """With `no_ack`, a callback that raises loses no other message: those behind its own come again, as if new."""
    queue = Queue("given_up")
    seen = []

    def callback(body: int, message: Message) -> None:
        seen.append((body, message.delivery_info["redelivered"]))
        if body % 3 == 0:
            raise ValueError(body)

    with connect(url) as connection:
        for number in range(10):
            publish(connection, number, queue)
        with Consumer(connection, [queue], callbacks=[callback], no_ack=True):
            for _ in range(20):
                with suppress(TimeoutError, ValueError):
                    connection.drain_events(timeout=PATIENCE if len(seen) < 10 else 0.05)
        assert seen == [(number, False) for number in range(10)]
        connection.transport.holdings.close()
        stats = store_of(connection).db.queue("given_up").stats()
        assert (stats.ready, stats.in_progress, stats.dead) == (0, 0, 0)


def check_a_cancelled_consumer_gives_back_what_it_has_not_seen(url: str) -> None:
    """A consumer that is cancelled in its callback: what was claimed with that message waits again, and is new."""
    queue = Queue("stepwise")
    seen: list[int] = []
    with connect(url) as connection:
        for number in range(6):
            publish(connection, number, queue)
        table = store_of(connection).db.queue("stepwise")
        for step in range(6):
            taking = Consumer(connection, [queue], prefetch_count=50)

            def callback(body: int, message: Message, taking: Consumer = taking) -> None:
                seen.append(body)
                taking.cancel()
                assert table.stats().ready == 5 - body, "what no callback has seen is given back at once"
                message.ack()

            taking.callbacks = [callback]
            taking.consume()
            drain(connection, lambda step=step: len(seen) > step)  # type: ignore[misc]
            assert not any(message.attempts for message in table.peek(10))
        assert seen == [*range(6)]


def check_closing_in_a_callback_gives_back(url: str) -> None:
    """A connection that is closed in a callback gives back its message, and those that no callback has seen."""
    queue = Queue("closing")
    with connect(url) as outer:
        for number in range(3):
            publish(outer, number, queue)
        connection = connect(url)
        with suppress(TimeoutError), Consumer(connection, [queue], callbacks=[lambda *args: connection.release()]):
            connection.drain_events(timeout=PATIENCE)
        waiting = store_of(outer).db.queue("closing").peek(10)
        assert [message.attempts for message in waiting] == [0, 0, 0]


def check_the_other_consumer_of_a_queue_goes_on(url: str) -> None:
    """Of two consumers of a queue one is cancelled: the other gets its messages, and none is rejected."""
    queue = Queue("shared")
    with connect(url) as connection:
        with consumer(connection, queue) as first:
            with consumer(connection, queue) as second:
                publish(connection, 1, queue)
                drain(connection, lambda: len(second) == 1)
                second[0].ack()
            publish(connection, 2, queue)
            drain(connection, lambda: len(first) == 1)
        assert bodies(first) == [2]


def check_the_time_to_live_begins_with_the_eta(url: str) -> None:
    """A task is not older than its ETA; the `expires` of a task counts from its push, whatever its ETA."""
    eta = datetime.now(UTC) + timedelta(hours=1)
    queues = [Queue("brief", message_ttl=60.0), Queue("brief.transient", message_ttl=60.0, auto_delete=True)]
    with connect(url) as connection:
        opened = store_of(connection)
        for queue in queues:
            publish(connection, "task", queue, headers={"eta": eta.isoformat()})
            publish(connection, "old", queue, headers={"eta": eta.isoformat()}, expiration=60)
            at = eta + timedelta(seconds=30)
            of = opened.queue(queue.name) or opened.transient
            for sweeping in range(2):
                claims = of.pop_many(10, now=at) if of is not opened.transient else of.pop_group(queue.name, 10, now=at)
                assert stored_bodies(connection, claims) == ["task"][sweeping:]


def check_messages_live_as_long_as_their_queue(url: str) -> None:
    """The `expires` of a queue says when the queue goes, unused; its messages wait for years, and go with it."""
    kept, unused = Queue("monthly", expires=30 * 86400.0), Queue("hourly", expires=3600.0)
    eta = datetime.now(UTC) + timedelta(days=300)
    with connect(url) as connection:
        opened = store_of(connection)
        for queue in (kept, unused):
            publish(connection, queue.name, queue)
            publish(connection, queue.name, queue, headers={"eta": eta.isoformat()})
        opened.registry.declare(Transient("hourly", None, -1, False, True))  # its time is over
        opened.delete_expired()
        publish(connection, "late", kept)
        now = eta + timedelta(days=300)
        assert opened.transient.pop_group("hourly", 10, now=now) == []
        claims = opened.transient.pop_group("monthly", 10, now=now)
        assert sorted(stored_bodies(connection, claims)) == ["late", "monthly", "monthly"]


def check_what_comes_to_a_deleted_queue_goes_too(url: str) -> None:
    """A message that is on its way while its queue is deleted goes some time later, and not with the first look."""
    queue = Queue("late", auto_delete=True)
    with connect(url) as connection, connect(url) as deleter:
        opened = store_of(connection)
        queue(connection.default_channel).declare()
        find = opened.registry.find

        def deleted_meanwhile(names: Collection[str]) -> list[Transient]:
            found = find(names)
            deleter.default_channel.queue_delete("late")
            return found

        opened.registry.find = deleted_meanwhile  # type: ignore[method-assign]
        Producer(connection).publish("late", exchange="", routing_key="late")
        opened.registry.find = find  # type: ignore[method-assign]
        assert find(["late"]) == []
        opened.delete_expired()
        assert opened.size("late") == 1, "it is looked for when no message can be on its way any more"
        opened.registry._ahead += 2 * registry.ON_THE_WAY
        opened.delete_expired()
        assert opened.size("late") == 0
        assert opened.registry.expired() == []


CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]
