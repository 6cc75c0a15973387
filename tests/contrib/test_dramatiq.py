"""The broker for dramatiq, with a worker of dramatiq; tests/contrib/brokers.py runs dramatiq's own tests with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dramatiq
import pytest

from tablequeue.contrib.dramatiq import Broker, Consumer
from tablequeue.errors import QueueNotFound


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(f"sqlite:///{tmp_path / 'work.db'}", max_attempts=2)
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def worker(broker: Broker) -> Iterator[Any]:
    worker = dramatiq.Worker(broker, worker_timeout=20, worker_threads=2)
    worker.start()
    yield worker
    worker.stop()


def test_importing_actors_connects_nowhere(tmp_path: Path) -> None:
    broker = Broker("postgresql+psycopg://nobody@127.0.0.1:1/nothing")
    dramatiq.actor(lambda: None, actor_name="act", broker=broker)
    with pytest.raises(dramatiq.errors.ConnectionClosed):
        broker.actors["act"].send()
    broker.close()


def test_a_worker_runs_what_was_sent(broker: Broker, worker: Any) -> None:
    done = []
    ended = threading.Event()

    @dramatiq.actor(max_retries=1, min_backoff=1, max_backoff=1)
    def act(n: int) -> None:
        done.append(n)
        if n == 7 and done.count(7) == 1:
            raise RuntimeError("once")
        if len(done) == 22:
            ended.set()

    for n in range(20):
        act.send(n)
    act.send_with_options(args=(20,), delay=1)
    assert ended.wait(60)
    broker.join("default", timeout=60_000)
    worker.join()
    assert sorted(done) == sorted([*range(21), 7])
    assert broker.queue("default").stats().finished == 22  # the retry is a message of its own


def test_a_queue_that_was_dropped_is_made_again(broker: Broker) -> None:
    @dramatiq.actor
    def act() -> None: ...

    for _ in range(2):
        act.send()
        consumer = broker.consume("default", prefetch=2)
        assert next(consumer) is not None
        broker.database.queue("default").drop()
        with pytest.raises(QueueNotFound):  # then dramatiq consumes anew
            next(consumer)
        consumer.close()
    act.send()
    assert broker.queue("default").stats().ready == 1


def test_a_failed_message_is_a_dead_letter_with_its_error(broker: Broker, worker: Any) -> None:
    @dramatiq.actor(max_retries=0)
    def act() -> None:
        raise RuntimeError("no luck")

    act.send()
    broker.join("default", timeout=60_000)
    worker.join()
    [dead] = broker.queue("default").dead()
    assert "no luck" in dead.errors[-1].error


def test_a_delayed_message_waits_in_the_table(broker: Broker) -> None:
    act = dramatiq.actor(lambda: None, actor_name="act")
    act.send_with_options(delay=60_000)
    queue = broker.queue("default")
    assert next(broker.consume("default", timeout=1)) is None
    [message] = queue.peek(state="scheduled")
    assert message.due_at is not None
    assert message.due_at > datetime.now(UTC) + timedelta(seconds=30)


def test_a_message_of_a_killed_worker_is_delivered_again_and_then_dead(broker: Broker) -> None:
    act = dramatiq.actor(lambda: None, actor_name="act")
    act.send()
    consumer = broker.consume("default", timeout=1)
    first = next(consumer)  # and this worker is never heard of again
    queue = broker.queue("default")
    later = datetime.now(UTC) + timedelta(hours=1)
    again = queue.pop(now=later)
    assert again is not None
    assert again.payload == first.claim.payload
    consumer.ack(first)  # changes nothing: the lease is lost
    assert queue.peek(state="in_progress")
    assert queue.pop(now=later + timedelta(hours=1)) is None
    assert [message.state for message in queue.dead()] == ["dead"]


def test_leases_are_extended_while_a_worker_is_busy(broker: Broker) -> None:
    act = dramatiq.actor(lambda: None, actor_name="act")
    act.send()
    consumer = broker.consume("default", timeout=1)
    message = next(consumer)
    message.claim.extend(5)
    queue = broker.queue("default")
    before = queue.peek(state="in_progress")[0].lease_until
    consumer._extended_at -= 31
    assert next(consumer) is None
    after = queue.peek(state="in_progress")[0].lease_until
    assert before is not None
    assert after is not None
    assert after > before
    consumer.requeue([message])
    assert queue.peek()[0].attempts == 0


def test_a_closed_consumer_keeps_only_what_is_in_work(broker: Broker) -> None:
    act = dramatiq.actor(lambda: None, actor_name="act")
    for _ in range(3):
        act.send()
    consumer = broker.consume("default", prefetch=3, timeout=1)
    message = next(consumer)
    consumer.close()
    stats = broker.queue("default").stats()
    assert (stats.ready, stats.in_progress) == (2, 1)
    consumer.ack(message)


def test_a_mutant_that_acknowledges_at_delivery_is_caught(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    class Early(Consumer):
        def __next__(self) -> Any:
            message = super().__next__()
            self.ack(message)
            return message

    monkeypatch.setattr("tablequeue.contrib.dramatiq.Consumer", Early)
    with pytest.raises(AssertionError):
        test_a_message_of_a_killed_worker_is_delivered_again_and_then_dead(broker)
