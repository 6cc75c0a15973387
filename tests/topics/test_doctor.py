"""What `doctor` says of topics and subscriptions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from tablequeue import Database
from tablequeue.errors import QueueNotFound
from tablequeue.ext import context_of
from tablequeue.verbs import doctor
from tablequeue.verbs.doctor import Finding
from tests.servers import Kind, Place

pytestmark = pytest.mark.quick


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def found(db: Database, name: str | None = None) -> list[Finding]:
    return [finding for finding in db.doctor(name) if finding.queue]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("keep", ["forever", "consumed", 3600])
def test_a_new_topic_is_healthy(db: Database, ordered: bool, keep: str) -> None:
    topic = db.create_topic("events", groups=True, keep=keep)  # type: ignore[arg-type]
    topic.subscribe("mail", ordered=ordered)
    topic.push("x", group="ada")
    assert found(db) == []


def test_a_name_may_be_that_of_a_topic_or_of_a_subscription(db: Database) -> None:
    db.create_topic("events").subscribe("mail")
    assert found(db, "events") == found(db, "events/mail") == []
    with pytest.raises(QueueNotFound):
        db.doctor("events/letters")


@pytest.mark.parametrize(
    ("of", "table", "index"),
    [
        ("events/mail", "tq_events__s1__ranges", "tq_events__s1__lease"),
        ("events/mail", "tq_events__s1__ranges", "tq_events__s1__token"),
        ("events", "tq_events__runs", "tq_events__last_id"),
    ],
)
def test_a_missing_index(db: Database, place: Place, kind: Kind, of: str, table: str, index: str) -> None:
    if kind.name == "sqlite" and of == "events":
        pytest.skip("the log has none beside its primary key")
    db.create_topic("events").subscribe("mail")
    schema = f"{place.schema}." if place.schema else ""
    with db.engine.begin() as connection:
        drop = f"{index} on {schema}{table}" if kind.name in ("mariadb", "mssql") else f"{schema}{index}"
        connection.execute(sa.text(f"drop index {drop}"))
    findings = found(db)
    assert {finding.queue for finding in findings} == {of}
    assert any(f"The index {index} is missing" in finding.cause for finding in findings)


def test_a_subscription_that_holds_its_topic_back(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    topic.subscribe("mail")
    slow = topic.subscribe("slow")
    topic.push_many([*"abc"], now=ago(3))
    db.subscription("events/mail").complete_many(db.subscription("events/mail").pop_many(3))
    slow.complete_many(slow.pop_many(1))
    (finding,) = found(db)
    assert finding.queue == "events/slow"
    assert "holds back the last 2 messages" in finding.cause
    assert "72.0 h" in finding.cause
    assert "The log has 3 messages" in finding.cause


def test_a_subscription_with_many_messages_before_it(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = db.create_topic("events", keep="consumed")
    topic.subscribe("mail")
    topic.push_many([*"abc"])
    topic.subscriptions()
    db.subscription("events/mail").pop()
    monkeypatch.setattr(doctor, "MANY", 2)
    (finding,) = found(db, "events/mail")
    assert "holds back the last 3 messages" in finding.cause


def test_a_subscription_that_will_lose_messages(db: Database) -> None:
    topic = db.create_topic("events", keep=86400)
    topic.subscribe("mail")
    topic.push("x", now=ago(0.75))
    (finding,) = found(db)
    assert (finding.queue, "18.0 h behind" in finding.cause) == ("events/mail", True)


def test_messages_that_could_not_be_dropped(db: Database) -> None:
    topic = db.create_topic("events", keep=3600)
    context_of(topic).table.next_purge = float("inf")
    topic.push("x", now=ago(2))
    (finding,) = found(db)
    assert finding.queue == "events"
    assert "48.0 h ago" in finding.cause
    assert "MB" in finding.cause
    topic.trim()
    topic.trim()
    assert found(db) == []


def test_a_log_that_nobody_reads(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    topic.push("x", now=ago(2))
    (finding,) = found(db)
    assert (finding.queue, "no subscription" in finding.cause) == ("events", True)


def test_what_every_subscription_has_finished_and_is_still_there(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    mail = topic.subscribe("mail")
    context_of(topic).table.next_purge = context_of(mail).table.next_purge = float("inf")
    topic.push("x", now=ago(2))
    mail.complete_many(mail.pop_many(1))
    (finding,) = found(db)
    assert (finding.queue, "need not keep" in finding.cause) == ("events", True)
