"""The metrics, read by the parser of Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from threading import Event, current_thread
from time import time

import pytest
import sqlalchemy as sa
from prometheus_client.parser import text_string_to_metric_families

from tablequeue import Database
from tablequeue.bulk.stream import Stream
from tablequeue.errors import Unreachable
from tests.support import at, claimed
from tests.web.support import Client


def scrape(client: Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = client.get("/metrics", accept="*/*")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    return {
        (sample.name.removeprefix("tablequeue_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_labels_are_quoted(client: Client, queues: Database) -> None:
    names = ['a "b" {c=d}', "a\\b\\n", "订单"]
    for name in names:
        queues.create_queue(name)
    assert {labels[0][1] for name, labels in scrape(client) if name == "up"} == {*names}


def test_the_numbers_of_every_queue(client: Client, queues: Database) -> None:
    work = queues.create_queue("work")
    work.push_many(range(6))
    claimed(work).complete()
    claimed(work)
    once = queues.create_queue("once", delivery="at_most_once")
    once.push("x", now=at(-1e9))
    once.pop(now=at(-1e9))
    queues.create_queue("bare", history="none")
    found = scrape(client)
    queue = ("queue", "work")
    assert found["up", (queue,)] == 1
    assert found["messages", (queue, ("state", "ready"))] == 4
    assert found["messages", (queue, ("state", "in_progress"))] == 1
    assert found["history_messages", (queue,)] == 1
    assert found["push_rate", (queue,)] == 6 / 300
    assert found["completion_rate", (queue,)] == 1 / 300
    assert found["redeliveries", (queue,)] == 0
    assert found["wait_time_seconds", (("quantile", "0.99"), queue)] >= 0
    assert found["lost_messages", (("queue", "once"),)] == 1
    assert ("lost_messages", (queue,)) not in found
    assert ("push_rate", (("queue", "bare"),)) not in found


def test_the_open_batches_of_queues_that_have_batches(client: Client, queues: Database) -> None:
    queues.create_queue("plain")
    with queues.create_queue("work", batches=True).batch() as batch:
        batch.push("a")
    found = scrape(client)
    assert found["open_batches", (("queue", "work"),)] == 1
    assert ("open_batches", (("queue", "plain"),)) not in found


def test_the_lag_of_every_subscription(client: Client, queues: Database) -> None:
    topic = queues.create_topic("events")
    mail = topic.subscribe("mail")
    topic.subscribe("done", start="end")
    topic.push_many(range(6), now=at(-1e9))
    topic.subscription("done").seek("end")
    mail.complete_many(mail.pop_many(2))
    mail.pop_many(1)
    found = scrape(client)
    queue = ("queue", "events/mail")
    assert found["lag_messages", (queue,)] == 3
    assert found["lag_seconds", (queue,)] > 1e8
    assert found["messages", (queue, ("state", "in_progress"))] == 1
    assert found["history_messages", (queue,)] == 2
    assert found["completion_rate", (queue,)] == 2 / 300
    assert found["lag_messages", (("queue", "events/done"),)] == 0
    assert found["lag_seconds", (("queue", "events/done"),)] == 0
    assert ("lag_messages", (("queue", "events"),)) not in found


def test_a_bad_queue_does_not_hide_the_others(client: Client, queues: Database) -> None:
    for name in ("bad", "good"):
        queues.create_queue(name)
    with queues.engine.begin() as connection:
        connection.execute(sa.text("alter table tq_bad rename column pushed_at to other"))
    found = scrape(client)
    assert (found["up", (("queue", "bad"),)], found["up", (("queue", "good"),)]) == (0, 1)
    assert ("messages", (("queue", "bad"), ("state", "ready"))) not in found
    page = client.get("/").text
    assert "no such column" in page
    assert "/queues/good" in page


def test_the_help_says_what_is_an_estimate(client: Client, queues: Database) -> None:
    queues.create_queue("work")
    text = client.get("/metrics", accept="*/*").text
    assert "# HELP tablequeue_history_messages Finished messages in the history; an estimate from 100,000 on.\n" in text
    for name in ("push_rate", "completion_rate", "redeliveries", "wait_time_seconds", "run_time_seconds"):
        (line,) = re.findall(f"# HELP tablequeue_{name} (.*)\n", text)
        assert "or of the last 50,000 messages if there were more" in line


def test_the_open_batch_of_a_stream(client: Client, queues: Database) -> None:
    work = queues.create_queue("work")
    work.push_many(range(5))
    Stream(work, "numbers/doubled").advance(0, 3)
    found = scrape(client)
    labels = (("queue", "work"), ("stream", "numbers/doubled"))
    assert found["stream_messages", labels] == 3
    assert abs(found["stream_claimed_time_seconds", labels] - time()) < 3600


def test_a_database_that_is_away_has_metrics_too(
    client: Client, queues: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.create_queue("work").push("x")
    assert client.get("/readyz").status == 200

    def away(*args: object) -> list[str]:
        raise Unreachable("It is away.", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr("tablequeue.verbs.catalogue.names", away)
        patch.setattr("tablequeue.observe.health.FRESH", -1)
        assert [client.get(path).status for path in ("/healthz", "/readyz")] == [200, 503]
        found = scrape(client)
    assert found["connected", ()] == 0
    assert found["pushed_messages_total", (("queue", "work"),)] >= 1
    assert not any(name == "messages" for name, _ in found)


def test_a_database_that_hangs_keeps_one_thread_however_many_scrapes_come(
    client: Client, queues: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.create_queue("work")
    asked, gate = Counter[str](), Event()

    def hang(*args: object) -> list[str]:
        asked[current_thread().name] += 1
        gate.wait()
        return []

    monkeypatch.setattr("tablequeue.verbs.catalogue.names", hang)
    monkeypatch.setattr("tablequeue.observe.health.PATIENCE", 0.01)
    try:
        assert [scrape(client)["connected", ()] for _ in range(3)] == [0] * 3
        assert asked == {"check of the database": 1}
    finally:
        gate.set()
