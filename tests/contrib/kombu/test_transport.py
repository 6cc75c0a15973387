"""The transport for kombu: its promises, and the faults that the checks of them find."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from kombu import Connection, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu.exceptions import ChannelError

import tablequeue.contrib.kombu  # noqa: F401  (it makes the transport known)
from tablequeue.contrib.kombu import channel, store, transport
from tablequeue.contrib.kombu.channel import Receiver
from tablequeue.contrib.kombu.holdings import Holdings
from tablequeue.contrib.kombu.registry import Registry
from tablequeue.contrib.kombu.settings import Transient
from tablequeue.contrib.kombu.store import stored
from tablequeue.errors import Unreachable
from tablequeue.model.names import check_name
from tests.contrib.kombu.checks import (
    CHECKS,
    bodies,
    check_a_cancelled_consumer_gives_back_what_it_has_not_seen,
    check_a_killed_consumer_loses_nothing,
    check_acknowledgements,
    check_close_gives_back,
    check_closing_in_a_callback_gives_back,
    check_control_comes_before_tasks,
    check_eta,
    check_fanout,
    check_messages_live_as_long_as_their_queue,
    check_nothing_else_is_due,
    check_prefetch,
    check_priority,
    check_the_other_consumer_of_a_queue_goes_on,
    check_the_time_to_live_begins_with_the_eta,
    check_transient_queues_share_a_table,
    check_what_comes_to_a_deleted_queue_goes_too,
    check_without_answers_only_what_is_delivered_is_given_up,
    connect,
    consumer,
    drain,
    publish,
    store_of,
)
from tests.servers import Place, only

# MariaDB by hand: tests/contrib/kombu/others.py and crashes.py.
BOTH, ONE = only("sqlite", "postgresql"), only("sqlite")


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    query = f"?options=-csearch_path%3D{place.schema}" if place.schema else ""
    if place.schema:
        place.execute(f"create schema if not exists {place.schema}")
    yield f"tablequeue+{place.url}{query}"
    for opened in store._stores.values():
        opened.db.close()
        opened.db.engine.dispose()
    store._stores.clear()


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    with connect(url) as connection:
        yield connection


@BOTH
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_promises(url: str, check: Callable[[str], None]) -> None:
    check(url)


def _deliver_without_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.Transport, "receiver", lambda self, queue: Receiver(self._callbacks[queue], True))


def _one_queue_only(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup = channel.Channel._lookup
    monkeypatch.setattr(channel.Channel, "_lookup", lambda *args: sorted(lookup(*args))[:1])


def _hold_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.QoS, "restore_unacked_once", lambda self: None)


def _forget_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holdings, "complete", lambda self, tag: None)


def _a_table_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "transient", lambda *args: None)


def _no_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.Channel, "_get_message_priority", lambda *args: 0)


def _no_eta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_eta", lambda headers: None)


def _no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.Channel, "capacity", lambda self: 100)


def _tasks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    in_turn = transport.Transport._in_turn
    monkeypatch.setattr(transport.Transport, "_in_turn", lambda self: in_turn(self)[::-1])


def _watch_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        transport.Transport,
        "_consumed",
        lambda self: [(each, name, self._watch(name)) for each in self.channels for name in each.queues],
    )


def _complete_at_the_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = channel.Channel.fetch

    def fetched(self: Any, queue: str, n: int) -> int:
        number = fetch(self, queue, n)
        for each in self._fetched:
            self.holdings.complete(each.tag)
        monkeypatch.setattr(self.holdings, "holds", lambda tag: True)
        monkeypatch.setattr(self.holdings, "complete", lambda tag: True)
        return number

    monkeypatch.setattr(channel.Channel, "fetch", fetched)


def _reject_what_nobody_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: Holdings, tags: list[str]) -> None:
        for held in filter(None, map(self.take, tags)):
            held.claim.fail("requeued", retry_in=0)

    monkeypatch.setattr(Holdings, "release", release)


def _give_back_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel.Channel, "_give_back", lambda self, queue=None: None)


def _cancel_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport.Transport, "receives_no_more", lambda self, queue, tag: self._receivers.pop(queue))


def _from_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "seconds_until", lambda self, due: 0.0)


def _for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "NEVER", 86400.0)


def _delete_only_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    delete = Registry.delete
    monkeypatch.setattr(Registry, "delete", lambda self, name, later=False: delete(self, name))


MUTANTS = [
    (_complete_at_the_fetch, check_without_answers_only_what_is_delivered_is_given_up),
    (_reject_what_nobody_has_seen, check_a_cancelled_consumer_gives_back_what_it_has_not_seen),
    (_give_back_late, check_a_cancelled_consumer_gives_back_what_it_has_not_seen),
    (_give_back_late, check_closing_in_a_callback_gives_back),
    (_cancel_all, check_the_other_consumer_of_a_queue_goes_on),
    (_from_the_push, check_the_time_to_live_begins_with_the_eta),
    (_for_a_day, check_messages_live_as_long_as_their_queue),
    (_delete_only_what_is_there, check_what_comes_to_a_deleted_queue_goes_too),
    (_deliver_without_lease, check_a_killed_consumer_loses_nothing),
    (_one_queue_only, check_fanout),
    (_hold_on, check_close_gives_back),
    (_forget_answers, check_acknowledgements),
    (_a_table_for_each, check_transient_queues_share_a_table),
    (_no_priority, check_priority),
    (_no_eta, check_eta),
    (_no_limit, check_prefetch),
    (_tasks_first, check_control_comes_before_tasks),
    (_watch_for_ever, check_nothing_else_is_due),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda value: value.__name__)
@ONE
def test_the_check_finds_the_fault(url: str, monkeypatch: pytest.MonkeyPatch, mutant: Any, check: Any) -> None:
    mutant(monkeypatch)
    monkeypatch.setattr("tests.contrib.kombu.checks.PATIENCE", 0.3)
    with pytest.raises((AssertionError, AttributeError, KeyError, TypeError, ValueError)):
        check(url)


@BOTH
def test_a_wait_ends_with_a_push(connection: Connection, url: str) -> None:
    queue = Queue("woken")
    with consumer(connection, queue) as got:
        drain(connection)
        with connect(url) as other:
            push = Thread(target=publish, args=(other, 1, queue))
            push.start()
            drain(connection, lambda: len(got) == 1)
            push.join()


@ONE
def test_an_event_loop_delivers_and_waits(connection: Connection) -> None:
    hub, queue = Hub(), Queue("looped")
    publish(connection, 1, queue)
    try:
        with consumer(connection, queue, prefetch_count=1) as got:
            connection.register_with_event_loop(hub)
            while len(got) < 1:
                hub.run_once()
            publish(connection, 2, queue)
            hub.call_soon(got[0].ack)
            while len(got) < 2:
                hub.run_once()
            assert bodies(got) == [1, 2]
        connection.close()
        assert not hub.readers
    finally:
        hub.close()


@ONE
def test_what_is_no_message_becomes_a_dead_letter(connection: Connection) -> None:
    queue = Queue("hostile")
    publish(connection, "good", queue)
    table = store_of(connection).db.queue("hostile")
    for payload in ("no json", "[]", "{}", '{"properties": 1}', "null"):
        table.push(payload, priority=9)
    with consumer(connection, queue) as got:
        drain(connection, lambda: len(got) == 1)
    assert bodies(got) == ["good"]
    assert len(table.dead()) == 5


@ONE
@pytest.mark.parametrize("body", ["text", b"\x00\xff", {"a": [1, None]}, "\0 \U0001f600"])
def test_bodies_arrive_as_they_were_sent(connection: Connection, body: Any) -> None:
    queue = Queue("bodies")
    publish(connection, body, queue, serializer="raw" if isinstance(body, bytes) else "json", headers={"ä": "\0"})
    with consumer(connection, queue) as got:
        drain(connection, lambda: len(got) == 1)
    assert got[0].payload == body
    assert got[0].headers["ä"] == "\0"


def test_names_are_kept_apart_and_can_be_stored() -> None:
    names = ["celery", "celery@host.dq", "a/b", "a%2Fb", "a%2fb", " a", "a ", ".", "..", "\n", "ä", "kombu.transient"]
    kept = [check_name(stored(name)) for name in names]
    assert len({*kept, "kombu.transient"}) == len(names) + 1
    assert kept[:2] == names[:2]


@ONE
def test_a_queue_of_somebody_else_is_refused(connection: Connection, url: str) -> None:
    store_of(connection).db.create_queue("mails")
    with pytest.raises(connection.channel_errors, match="not made by kombu"):
        publish(connection, 1, Queue("mails"))


@ONE
def test_a_dropped_queue_is_made_again_by_its_consumer(connection: Connection) -> None:
    queue = Queue("dropped")
    with consumer(connection, queue) as got:
        drain(connection)
        store_of(connection).db.queue("dropped").drop()
        publish(connection, 0, Queue("bell"))  # a look, which finds nothing there
        connection.transport.consumes("dropped")
        drain(connection)
        publish(connection, 1, queue)
        drain(connection, lambda: len(got) == 1)


@ONE
def test_a_queue_stays_one_object(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while another thread looks it up again: consumers wait at that object."""
    opened, seen = store_of(connection), []
    Queue("one")(connection.default_channel).declare()
    known, find = opened.queue("one"), opened.db.queue

    def found(name: str) -> Any:
        monkeypatch.setattr(opened.db, "queue", find)
        seen.append(opened.queue("one"))
        return find(name)

    monkeypatch.setattr(opened.db, "queue", found)
    assert opened.current("one") is known
    assert seen == [known]


@BOTH
def test_a_queue_that_was_dropped_is_declared_again(connection: Connection) -> None:
    queue = Queue("again")(connection.default_channel)
    for number in range(2):
        queue.declare()
        publish(connection, number, queue)
        assert queue.queue_declare(passive=True).message_count == 1
        message = queue.get()
        assert message is not None
        message.ack()
        assert queue.purge() == 0
        store_of(connection).db.queue("again").drop()
        assert queue.get() is None


@BOTH
def test_passive_delete_purge_and_size(connection: Connection) -> None:
    bound = connection.default_channel
    queue = Queue("managed", Exchange("managed"), "key")(bound)
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        queue.queue_declare(passive=True)
    queue.declare()
    assert [*bound.list_bindings()] == [("managed", "managed", "key")]
    publish(connection, 1, queue)
    publish(connection, 2, queue)
    assert queue.queue_declare(passive=True).message_count == 2
    assert queue.purge() == 2
    publish(connection, 3, queue)
    queue.delete(if_empty=True)
    assert queue.queue_declare(passive=True).message_count == 1
    queue.delete()
    assert not bound._has_queue("managed")
    assert [*bound.list_bindings()] == []
    Producer(connection).publish(1, exchange="", routing_key="managed")  # without a route it is dropped, as in AMQP


@BOTH
def test_an_unused_transient_queue_goes(connection: Connection) -> None:
    bound = connection.default_channel
    Queue("unused", Exchange("replies"), "key", expires=1)(bound).declare()
    publish(connection, 1, Queue("unused", expires=1))
    opened = store_of(connection)
    assert opened.size("unused") == 1
    registry: Registry = opened.registry
    registry.declare(Transient("unused", None, -1, False, True))  # its time is over
    assert not bound._has_queue("unused")
    opened.delete_expired()
    assert opened.size("unused") == 0
    assert registry.bindings("replies") == []


@ONE
def test_what_is_too_old_is_not_delivered(connection: Connection) -> None:
    queues = [Queue("short", message_ttl=0.001), Queue("brief", expires=60, message_ttl=0.001)]
    for queue in queues:
        publish(connection, "old", queue)
    other = Queue("long")
    publish(connection, "old", other, expiration=0.001)
    publish(connection, "new", other)
    with consumer(connection, *queues, other) as got:
        drain(connection, lambda: len(got) == 1)
        drain(connection)
    assert bodies(got) == ["new"]


def test_a_database_that_is_away_is_an_error_of_the_connection() -> None:
    away = connect("tablequeue+sqlite:////no/such/folder/work.db")
    with pytest.raises(away.connection_errors):
        away.connect()
    assert issubclass(Unreachable, away.connection_errors)


@BOTH
def test_a_fork_leaves_what_its_parent_holds(connection: Connection) -> None:
    queue = Queue("forked")
    publish(connection, 1, queue)
    with consumer(connection, queue) as got:
        drain(connection, lambda: len(got) == 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                connection.collect()  # as Celery does in a child
                got[0].ack()
                with connection.clone() as own:
                    publish(own, 2, queue)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        drain(connection, lambda: len(got) == 2)
        assert bodies(got) == [1, 2]
        got[0].ack()
        connection.transport.holdings.close()
        stats = store_of(connection).db.queue("forked").stats()
        assert (stats.ready, stats.in_progress) == (0, 1)


@ONE
def test_a_closed_connection_leaves_no_thread(url: str) -> None:
    connection = connect(url)
    with consumer(connection, Queue("closing", auto_delete=True)):
        drain(connection)
        thread = connection.transport.holdings._thread
        assert thread is not None
    connection.release()
    thread.join(10)
    assert not thread.is_alive()
    gc.collect()
