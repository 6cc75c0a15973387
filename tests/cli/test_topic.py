"""Commands about topics; and the commands of queues, with topics and subscriptions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tablequeue import Backoff, Claim, Database, Subscription, SubscriptionDefinition, Topic, TopicDefinition
from tests.cli.support import Run, lines
from tests.support import counts


def handle(message: Claim) -> None:
    """Do nothing, so that the message is completed."""


HANDLER = f"{__name__}:handle"


@pytest.fixture
def events(db: Database) -> Topic:
    return db.create_topic("events")


@pytest.fixture
def mail(events: Topic) -> Subscription:
    return events.subscribe("mail", max_attempts=2, backoff=Backoff(base=0))


def test_create_takes_every_option(run: Run, db: Database) -> None:
    words = "topic create events --payload text --groups --keep consumed --json".split()
    assert lines(run(*words)) == [
        {"topic": "events", "definition": {"payload": "text", "groups": True, "keep": "consumed"}}
    ]
    assert db.topic("events").definition == TopicDefinition(payload="text", groups=True, keep="consumed")
    assert "groups" in run("topic", "create", "events", code=1).stderr
    assert run("topic", "create", "other", "--keep", 60).stdout == "other\n"
    assert db.topic("other").definition == TopicDefinition(keep=60.0)
    assert "forever, consumed" in run("topic", "create", "wrong", "--keep", "always", code=2).stderr
    options = "--start end --ordered --lease 5 --max-attempts 2 --backoff-base 2 --backoff-jitter 0".split()
    assert run("topic", "subscribe", "events/mail", *options).stdout == "events/mail\n"
    backoff = Backoff(base=2, jitter=0)
    expected = SubscriptionDefinition("fifo", False, True, "text", 5, 2, backoff, "keep", topic="events")
    assert db.subscription("events/mail").definition == expected
    assert "lease" in run("topic", "subscribe", "events/mail", code=1).stderr
    assert "no groups" in run("topic", "subscribe", "other/mail", "--ordered", code=1).stderr


def test_list_and_show(run: Run, db: Database, events: Topic, mail: Subscription) -> None:
    db.create_queue("emails")
    db.create_topic("a")
    events.push_many([1, 2, 3])
    events.subscribe("audit", start="end")
    mail.pop()
    assert run("queue", "list").stdout == "emails\n"
    assert run("topic", "list").stdout == "a\nevents\n"
    assert lines(run("topic", "list", "--json")) == [{"topic": "a"}, {"topic": "events"}]
    (shown,) = lines(run("topic", "show", "events", "--json"))
    assert (shown["messages"], shown["definition"]["keep"]) == (3, "forever")
    found = {each["subscription"]: (each["lag"], each["in_progress"]) for each in shown["subscriptions"]}
    assert found == {"events/audit": (0, 0), "events/mail": (2, 1)}
    text = run("topic", "show", "events").stdout
    assert "events/mail" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert run("topic", "show", "a").stdout.splitlines()[0] == "messages  0"


def test_seek_and_lag(run: Run, db: Database, events: Topic, mail: Subscription) -> None:
    events.push_many([1, 2, 3])
    held = mail.pop_many(3)
    assert run("topic", "lag", "events/mail").stdout == "0 messages behind\n"
    assert "force" in run("topic", "seek", "events/mail", "beginning", code=1).stderr
    mail.complete_many(held)
    run("topic", "seek", "events/mail", "beginning")
    (lag,) = lines(run("topic", "lag", "events/mail", "--json"))
    assert (lag["subscription"], lag["lag"]) == ("events/mail", 3)
    assert lag["seconds"] >= 0
    assert run("topic", "lag", "events/mail").stdout.startswith("3 messages behind, the first of them")
    assert run("topic", "seek", "events/mail", "end").stdout == "0 messages behind\n"
    later = (held[0].pushed_at + timedelta(hours=1)).isoformat()
    assert run("topic", "seek", "events/mail", held[0].pushed_at.isoformat()).stdout.startswith("3 messages")
    run("pop", "events/mail")
    run("topic", "seek", "events/mail", later, "--force")
    assert mail.lag().messages == 0
    for wrong in ("2030-01-31", "start"):
        assert "beginning, end" in run("topic", "seek", "events/mail", wrong, code=2).stderr


def test_drop_and_unsubscribe_want_to_be_confirmed(run: Run, db: Database, events: Topic, mail: Subscription) -> None:
    for words in (["unsubscribe", "events/mail"], ["drop", "events"]):
        assert "--yes" in run("topic", *words, code=1).stderr
    assert events.subscriptions() == ["mail"]
    assert run("topic", "unsubscribe", "events/mail", "--yes").stdout == "events/mail dropped\n"
    assert events.subscriptions() == []
    events.subscribe("audit")
    assert lines(run("topic", "drop", "events", "--yes", "--json")) == [{"topic": "events", "dropped": True}]
    assert db.topics() == []


def test_push_to_a_topic(run: Run, events: Topic, mail: Subscription) -> None:
    assert run("push", "events", '{"n": 1}', "--group", "a", "--header", "k=v").stdout == "1\n"
    file = '{"n": 2, "who": "b"}\n{"n": 3, "who": "c"}\n'
    assert run("push", "events", "--group-field", "who", input=file).stdout == "2 pushed, ids 2 to 3\n"
    assert "Line 2" in run("push", "events", input="1\n{", code=1).stderr
    assert run("push", "events", "--skip-bad", input="4\n{").stdout == "1 pushed, ids 4 to 4\n"
    claims = mail.pop_many(10)
    assert [(claim.group, claim.headers) for claim in claims] == [("a", {"k": "v"}), ("b", {}), ("c", {}), (None, {})]


@pytest.mark.parametrize("option", ["--delay 1", "--due 2030-01-31T12:00:00+00:00", "--priority 1", "--key a"])
def test_a_topic_has_no_such_option(run: Run, events: Topic, option: str) -> None:
    for words in (["push", "events", "1", *option.split()], ["push", "events", *option.split()]):
        refused = run(*words, input="1\n", code=1).stderr
        assert "'events' is a topic, whose messages have no" in refused
        assert "push to a queue" in refused
    assert lines(run("topic", "show", "events", "--json"))[0]["messages"] == 0


def test_fields_that_a_topic_has_not(run: Run, events: Topic) -> None:
    for field in ("key", "priority", "due"):
        assert "is a topic" in run("push", "events", f"--{field}-field", "n", input='{"n": 1}', code=1).stderr


def test_the_commands_of_queues(run: Run, events: Topic, mail: Subscription) -> None:
    """Each with the name of a subscription."""
    events.push_many(range(6))
    assert "'events'" in run("push", "events/mail", "1", code=1).stderr
    first, second = lines(run("pop", "events/mail", "-n", 2, "--json"))
    assert run("complete", "events/mail", first["id"], first["token"]).stdout == "finished\n"
    assert run("fail", "events/mail", second["id"], second["token"], "--error", "why").stdout == "ready\n"
    assert run("complete", "events/mail", first["id"], first["token"], code=1).stdout == ""
    (again,) = lines(run("pop", "events/mail", "--json"))
    assert (again["id"], again["attempt"]) == (second["id"], 2)
    assert run("fail", "events/mail", again["id"], again["token"], "--error", "why").stdout == "dead\n"
    assert "why" in run("dead", "list", "events/mail").stdout
    assert run("dead", "redrive", "events/mail").stdout == "1 redriven\n"
    assert run("work", HANDLER, "--queue", "events/mail:2", "--drain").stdout == "5 completed\n"
    assert run("pop", "events/mail", code=3).stdout == ""
    assert run("stats", "events/mail", "--json").stdout.startswith('{"queue": "events/mail"')
    assert "events/mail" in run("top", "events/mail").stdout
    assert lines(run("queue", "show", "events/mail", "--json"))[0]["stats"]["ready"] == 0
    run("history", "list", "events/mail")
    run("history", "purge", "events/mail", "--older-than", 0, "--yes")
    run("dead", "purge", "events/mail", "--yes")
    run("stream", "list", "events/mail")
    assert "Nothing was found" in run("doctor", "events/mail").stdout
    assert counts(mail) in ({}, {"finished": 5}, {"finished": 6})
    run("queue", "drop", "events/mail", "--yes")
    assert events.subscriptions() == []


def test_purge_skips_what_waits(run: Run, events: Topic, mail: Subscription) -> None:
    events.push_many(range(6))
    mail.pop_many(2)[0].release()
    assert run("queue", "purge", "events/mail", "--yes").stdout == "5 purged\n"
    assert counts(mail) == {"in_progress": 1}
    events.push(7)
    assert [claim.payload for claim in mail.pop_many(10)] == [7]


@pytest.mark.parametrize(
    "words", ["queue show", "queue drop --yes", "queue purge --yes", "pop", "peek", "stats", "top", "dead list"]
)
def test_a_topic_is_no_queue(run: Run, events: Topic, mail: Subscription, words: str) -> None:
    refused = run(*words.split(), "events", code=1).stderr
    assert "'events' is a topic, not a queue." in refused
    assert "events/mail" in refused
    assert "topic" in refused


def test_the_nearest_name_is_suggested(run: Run, events: Topic, mail: Subscription) -> None:
    assert "events/mail" in run("pop", "events/mial", code=1).stderr
    assert "topic subscribe" in run("pop", "events/zzzzzzzzz", code=1).stderr
    assert "events/mail" in run("topic", "lag", "events/mial", code=1).stderr
    assert "'events'" in run("topic", "show", "event", code=1).stderr
    assert "events/mail" in run("topic", "lag", "events", code=1).stderr
    assert "is a topic" in run("queue", "create", "events", code=1).stderr


def test_what_looks_at_a_queue_looks_at_a_subscription(run: Run, events: Topic, mail: Subscription) -> None:
    events.push_many(range(6))
    first, second, third, _ = mail.pop_many(4)
    first.complete()
    second.fail("ValueError: no address", retry=False)
    third.fail("later", retry_in=3600)
    name = "events/mail"
    assert [line["payload"] for line in lines(run("peek", name, "--json"))] == [4, 5]
    assert [line["payload"] for line in lines(run("peek", name, "--state", "in_progress", "--json"))] == [3]
    assert [line["payload"] for line in lines(run("peek", name, "--state", "scheduled", "--json"))] == [2]
    assert [line["payload"] for line in lines(run("dead", "list", name, "--json"))] == [1]
    (finished,) = lines(run("history", "list", name, "--json"))
    assert (finished["payload"], finished["state"], finished["attempts"]) == (0, "finished", 1)
    (stats,) = lines(run("stats", name, "--json"))
    assert (stats["ready"], stats["in_progress"], stats["dead"], stats["finished"]) == (2, 1, 1, 1)
    assert stats["lag"]["messages"] == 2
    assert stats["window"]["queue"]["pushed"] == 6
    shown = run("queue", "show", name).stdout
    assert "lag             2\n" in shown
    assert run("dead", "redrive", name).stdout == "1 redriven\n"
    assert "is a subscription" in run("lost", name, code=1).stderr
    assert run("queue", "purge", name, "--yes").stdout == "4 purged\n"


def test_stats_and_top_show_subscriptions_with_their_lag(
    run: Run, db: Database, events: Topic, mail: Subscription
) -> None:
    db.create_queue("plain").push(1)
    events.push_many(range(6))
    mail.complete_many(mail.pop_many(2))
    table = run("stats").stdout
    assert [line.split()[:3] for line in table.splitlines() if line.startswith((" events/mail", " plain"))][:2] == [
        ["plain", "1", "0"],
        ["events/mail", "4", "4"],
    ]
    head, *rest = [line for line in run("top").stdout.splitlines() if line and not line.startswith("  ")]
    assert head.split()[:2] == ["queue", "ready"]
    assert [line.split()[:2] for line in rest] == [["plain", "1"], ["subscription", "lag"], ["events/mail", "4"]]
    assert "events/mail" not in run("top", "plain").stdout
    assert "lag" not in run("stats", "plain").stdout
