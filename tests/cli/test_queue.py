"""Commands about whole queues: queue, stats, upgrade."""

from __future__ import annotations

from pathlib import Path

import pytest

from tablequeue import Database, Definition, Rate
from tablequeue.ext import context_of
from tablequeue.model.definition import ORDERS
from tests.cli.support import Run, lines
from tests.test_upgrade import next_version

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]


def test_create_takes_every_option(run: Run, db: Database) -> None:
    options = "--order heap --payload text --lease 5 --max-attempts 2 --history none --backoff-base 2 "
    options += "--backoff-factor 3 --backoff-cap 4 --backoff-jitter 0"
    created = lines(run("queue", "create", "emails", *options.split(), "--json"))[0]
    shown = lines(run("queue", "show", "emails", "--json"))[0]
    assert created["definition"] == shown["definition"]
    definition = db.queue("emails").definition
    assert (definition.order, definition.payload, definition.lease) == ("heap", "text", 5)
    assert (definition.max_attempts, definition.history, definition.backoff.cap) == (2, "none", 4)
    assert shown["stats"]["finished"] is None


def test_limits(run: Run, db: Database) -> None:
    run("queue", "create", "calls", *"--concurrency 2 --rate 100 --rate-per 60 --rate-burst 20".split())
    queue = db.queue("calls")
    assert (queue.definition.concurrency, queue.definition.rate) == (2, Rate(100, per=60, burst=20))
    queue.push_many(range(3))
    queue.pop_many(3)
    assert "2/2" in run("stats").stdout
    assert lines(run("stats", "--json"))[0]["concurrency"] == 2
    assert "rate_burst" in run("queue", "show", "calls").stdout
    refused = run("queue", "create", "calls", "--rate-burst", 2, "--concurrency", 2, code=1)
    assert "rate" in refused.stderr


def test_limits_of_groups(run: Run, db: Database) -> None:
    options = "--groups fair --per-group 2 --group-rate 100 --group-rate-per 60 --group-rate-burst 20"
    run("queue", "create", "calls", *options.split())
    definition = db.queue("calls").definition
    assert (definition.per_group, definition.group_rate) == (2, Rate(100, per=60, burst=20))
    assert lines(run("stats", "--json"))[0]["per_group"] == 2
    assert "group_rate_burst" in run("queue", "show", "calls").stdout
    assert "groups" in run("queue", "create", "other", "--per-group", 2, code=1).stderr


def test_create_twice_is_a_no_op_and_differing_is_refused(run: Run) -> None:
    assert run("queue", "create", "emails").stdout == "emails\n"
    run("queue", "create", "emails")
    refused = run("queue", "create", "emails", "--lease", 5, code=1)
    assert refused.stdout == ""
    assert "lease" in refused.stderr


def test_any_printable_name(run: Run, db: Database) -> None:
    for name in ("Orders-EU.v2", "celery@host.pidbox", "[red]a b", "订单"):
        run("queue", "create", name)
        id = run("push", name, "1").stdout.split()[0]
        assert run("pop", name, "--json").stdout.startswith('{"id": ' + id)
        assert name in run("stats", name).stdout
        assert name in run("queue", "list").stdout
        assert context_of(db.queue(name)).table.table_name in run("queue", "show", name).stdout
    assert "'Orders-EU.v2'" in run("push", "orders-eu.v2", "1", code=1).stderr
    refused = run("queue", "create", "a/b", code=1)
    assert "separates a topic" in refused.stderr
    run("queue", "drop", "[red]a b", "--yes")


def test_rename(run: Run, db: Database) -> None:
    db.create_queue("old").push(1)
    db.create_topic("events").subscribe("mail")
    assert run("queue", "rename", "old", "New one").stdout == "old is now New one\n"
    assert lines(run("queue", "rename", "events", "log", "--json")) == [{"queue": "log", "renamed": "events"}]
    run("queue", "rename", "log/mail", "log/letters")
    assert (db.queues(), db.topics(), db.subscriptions()) == (["New one"], ["log"], ["log/letters"])
    assert "Choose another name" in run("queue", "rename", "log", "New one", code=1).stderr


def test_list_show_stats(run: Run) -> None:
    assert run("queue", "list").stdout == ""
    assert run("stats").stdout == ""
    run("queue", "create", "b")
    run("queue", "create", "a")
    run("push", "a", "1")
    assert run("queue", "list").stdout == "a\nb\n"
    assert lines(run("queue", "list", "--json")) == [{"queue": "a"}, {"queue": "b"}]
    assert "max_attempts" in run("queue", "show", "a").stdout
    assert [each["ready"] for each in lines(run("stats", "--json"))] == [1, 0]
    assert [each["queue"] for each in lines(run("stats", "a", "--json"))] == ["a"]
    table = run("stats").stdout
    assert "oldest age" in table
    assert all(len(line) <= 80 for line in table.splitlines())


def test_create_takes_every_option_of_version_2(run: Run, db: Database) -> None:
    for name, options, expected in (
        ("one", "--strict --history 60", Definition(strict=True, history=60)),
        ("two", "--groups", Definition(groups=True)),
        ("three", "--order lifo", Definition(order="lifo")),
        ("four", "--order due --delivery at_most_once", Definition(order="due", delivery="at_most_once")),
        ("five", "--order priority --history none", Definition(order="priority", history="none")),
    ):
        run("queue", "create", name, *options.split())
        assert db.queue(name).definition == expected
        run("queue", "create", name, *options.split())
    for order in ORDERS:
        assert f"{order}:" in run("queue", "create", "--help").stdout
    assert "60.0" in run("queue", "show", "one").stdout


def test_stats_show_blocked_only_where_messages_can_be(run: Run, db: Database) -> None:
    db.create_queue("emails")
    assert "blocked" not in run("stats").stdout
    db.create_queue("a_longer_one", strict=True).push_many([1, 2, 3])
    assert "blocked" in run("stats").stdout
    assert all(len(line) <= 80 for line in run("stats").stdout.splitlines())
    assert "blocked" not in run("stats", "emails").stdout
    assert [each["blocked"] for each in lines(run("stats", "--json"))] == [2, 0]


def test_purge_deletes_blocked_messages_too(run: Run, db: Database) -> None:
    db.create_queue("emails", strict=True).push_many([1, 2, 3])
    assert run("queue", "purge", "emails", "--yes").stdout == "3 purged\n"


def test_upgrade(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    db.create_queue("work").push(1)
    before, now = db.schema_version, db.schema_version + 1
    next_version(monkeypatch)
    assert "tablequeue upgrade" in run("pop", "work", code=1).stderr
    assert run("upgrade").stdout == f"work: schema version {now}, from {before}\n"
    assert run("upgrade").stdout == f"work: schema version {now}, already\n"
    assert lines(run("upgrade", "--json")) == [{"queue": "work", "before": now, "now": now}]
    run("pop", "work")


def test_alter(run: Run) -> None:
    run("queue", "create", "work")
    assert run("queue", "alter", "work", "--lease", "5", "--backoff-base", "9").stdout == "work altered\n"
    shown = lines(run("queue", "show", "work", "--json"))[0]["definition"]
    assert (shown["lease"], shown["backoff"]["base"], shown["backoff"]["factor"]) == (5, 9, 2)
    assert run("queue", "alter", "work", code=2).stderr.endswith("Give at least one option to change.\n")
    assert "cannot be altered" in run("queue", "alter", "work", "--history", "none", code=1).stderr


def test_alter_limits_and_features(run: Run) -> None:
    run("queue", "create", "failed")
    run("queue", "create", "work")
    assert run("queue", "alter", "work", "--rate-burst", 2, code=2).stderr.endswith(
        "Give --rate too: the queue has none.\n"
    )
    run("queue", "alter", "work", "--dependencies")
    run("queue", "alter", "work", *"--concurrency 3 --rate 5 --expires 60 --results --dead-letter-to failed".split())
    run("queue", "alter", "work", "--rate-burst", 2)
    shown = lines(run("queue", "show", "work", "--json"))[0]["definition"]
    assert (shown["concurrency"], shown["rate"]) == (3, {"number": 5, "per": 1, "burst": 2})
    assert (shown["expires"], shown["results"], shown["dead_letter_to"]) == (60, True, "failed")
    run("queue", "alter", "work", *"--off rate --off results --off dead-letter-to --concurrency 4".split())
    shown = lines(run("queue", "show", "work", "--json"))[0]["definition"]
    assert [shown[name] for name in ("concurrency", "rate", "results", "dead_letter_to")] == [4, None, False, None]
    assert run("queue", "alter", "work", "--off", "rate", "--rate", 2, code=2).stderr.endswith("switched off.\n")


def test_pause_and_resume(run: Run) -> None:
    run("queue", "create", "work")
    run("push", "work", "1")
    assert run("queue", "pause", "work", "--for", "100").stdout.startswith("work paused until 20")
    assert run("pop", "work", code=3).stdout == ""
    run("queue", "pause", "work", "--for", "1", "--until", "2030-01-01T00:00:00Z", code=2)
    assert run("queue", "pause", "work").stdout == "work paused\n"
    assert lines(run("queue", "show", "work", "--json"))[0]["stats"]["paused_until"].startswith("9999")
    assert "work is paused." in run("stats", "work").stdout
    assert run("queue", "resume", "work").stdout == "work resumed\n"
    assert "paused" not in run("stats", "work").stdout
    run("pop", "work")


def test_the_identity_of_the_database(run: Run, db: Database) -> None:
    db.create_queue("emails")
    before = db.identity()
    assert run("database", "identity").output == f"{before}\n"
    (renewed,) = lines(run("database", "identity", "--renew", "--json"))
    assert renewed == {"identity": db.identity()}
    assert renewed["identity"] != before
