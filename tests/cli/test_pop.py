"""`tablequeue pop`, `complete`, `fail`, `peek`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tablequeue import Backoff, Database, NewMessage
from tests.cli.support import Run, lines
from tests.support import claimed

pytestmark = pytest.mark.quick


def test_pop_and_complete(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many([{"to": "ada"}, 2], headers={"k": "v"})
    first, second = lines(run("--json", "pop", "emails", "-n", 10, "--lease", 30))
    assert list(first)[:5] == ["id", "token", "payload", "headers", "attempt"]
    assert (first["id"], first["payload"], first["headers"], first["attempt"]) == (1, {"to": "ada"}, {"k": "v"}, 1)
    assert run("complete", "emails", 1, first["token"]).stdout == "finished\n"
    assert lines(run("complete", "emails", 2, second["token"], "--json")) == [{"id": 2, "state": "finished"}]
    assert emails.stats().finished == 2
    assert "lost" in run("complete", "emails", 1, first["token"], code=1).stderr


def test_pop_prints_id_token_and_payload(run: Run, db: Database) -> None:
    db.create_queue("emails").push("x" * 200)
    fields = dict(line.split(maxsplit=1) for line in run("pop", "emails").stdout.splitlines())
    assert (fields["id"], fields["payload"]) == ("1", f'"{"x" * 200}"')
    run("complete", "emails", 1, fields["token"])


def test_pop_several_of_a_group(run: Run, db: Database) -> None:
    work = db.create_queue("work", groups=True)
    work.push_many([NewMessage(number, group="ab"[number % 2]) for number in range(6)])
    got = lines(run("--json", "pop", "work", "-n", 2, "--same-group"))
    assert [(one["payload"], one["group"]) for one in got] == [(0, "a"), (2, "a")]
    db.create_queue("emails")
    assert "same_group" in run("pop", "emails", "--same-group", code=1).stderr


def test_nothing_to_pop_or_peek(run: Run, db: Database) -> None:
    db.create_queue("emails")
    for command in ("pop", "peek"):
        result = run(command, "emails", "--json", code=3)
        assert result.stdout == ""
        assert "'emails'" in result.stderr


def test_fail_prints_the_new_state(run: Run, db: Database) -> None:
    emails = db.create_queue("emails", max_attempts=2)
    emails.push(1)
    token = lines(run("pop", "emails", "--json"))[0]["token"]
    assert run("fail", "emails", 1, token, "--error", "why", "--retry-in", 0).stdout == "ready\n"
    token = lines(run("pop", "emails", "--json"))[0]["token"]
    assert lines(run("fail", "emails", 1, token, "--json")) == [{"id": 1, "state": "dead"}]
    assert [error.error for error in emails.dead()[0].errors] == ["why", ""]
    assert "lost" in run("fail", "emails", 1, token, code=1).stderr
    assert "lost" in run("fail", "emails", 99, token, code=1).stderr


def test_fail_waits_the_longer_the_more_attempts_there_were(run: Run, db: Database) -> None:
    emails = db.create_queue("emails", backoff=Backoff(base=10, factor=100, jitter=0))
    emails.push(1)
    waits = []
    for retry in (["--retry-in", 0], []):
        token = lines(run("pop", "emails", "--json"))[0]["token"]
        run("fail", "emails", 1, token, *retry)
        message = emails.find(1)
        assert message is not None
        if message.due_at and message.popped_at:
            waits.append((message.due_at - message.popped_at).total_seconds())
    assert 1000 <= waits[-1] < 1100  # 10 * 100 ** (2 - 1), and not 10


HOSTILE = "[red]x[/red] [/] \x1b[2J\x07 \u202e line\nnext " + "y" * 200


def test_peek_cuts_the_table_and_never_the_json(run: Run, db: Database) -> None:
    db.create_queue("texts", payload="text").push(HOSTILE)
    table = run("peek", "texts").stdout
    assert "[red]x[/red]" in table
    assert not {"\x1b", "\x07", "\u202e"} & set(table)
    assert all(len(line) <= 80 for line in table.splitlines())
    assert lines(run("peek", "texts", "--json"))[0]["payload"] == HOSTILE
    popped = run("pop", "texts").stdout
    assert "\\x1b[2J\\x07 \\u202e line\\nnext" in popped
    assert "\x1b" not in popped


def test_peek_in_a_state(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many([1, 2, 3])
    emails.push(4, delay=60)
    emails.pop()
    assert [each["id"] for each in lines(run("peek", "emails", "-n", 1, "--json"))] == [2]
    assert [each["id"] for each in lines(run("peek", "emails", "--state", "scheduled", "--json"))] == [4]
    assert [each["id"] for each in lines(run("peek", "emails", "--state", "in_progress", "--json"))] == [1]


def test_peek_shows_what_waits_for_others(run: Run, db: Database) -> None:
    queue = db.create_queue("jobs", dependencies=True)
    first, second = queue.push_many([1, 2])
    queue.push(3, after=[first, second])
    queue.push(4, due=datetime(2999, 1, 1, tzinfo=UTC))
    table = run("peek", "jobs", "--state", "scheduled").stdout
    assert "waits for 2 messages" in table
    assert "2999-01-01" in table
    assert "9999" not in table
    claimed(queue).complete()
    queue.pop_many(9)
    assert "waits for 1 message " in run("peek", "jobs", "--state", "scheduled").stdout
    shown = lines(run("peek", "jobs", "--state", "scheduled", "--json"))
    assert [each.get("waits_for") for each in shown] == [1, None]


def test_peek_shows_progress(run: Run, db: Database) -> None:
    queue = db.create_queue("emails")
    queue.push_many([1, 2, 3])
    claimed(queue).progress(0.299, {"row": 3})
    claimed(queue)
    table = run("peek", "emails", "--state", "in_progress").stdout
    assert "progress" in table
    assert "29 %" in table
    reported, other = lines(run("peek", "emails", "--state", "in_progress", "--json"))
    assert {**reported["progress"], "at": None} == {"fraction": 0.299, "detail": {"row": 3}, "at": None, "attempt": 1}
    assert "progress" not in other
    assert "progress" not in run("peek", "emails", "--state", "ready").stdout


def test_what_few_messages_have_is_shown_where_it_is(run: Run, db: Database) -> None:
    db.create_queue("groups", groups=True).push("x", group="eu", key="k" * 40)
    db.create_queue("urgent", order="priority").push_many([NewMessage("x", priority=7), "y"])
    db.create_queue("plain").push("x")
    for queue, there in {"groups": {"group", "key"}, "urgent": {"priority"}, "plain": set[str]()}.items():
        header, *rest = run("peek", queue).stdout.splitlines()
        assert set(header.split()) & {"group", "key", "priority"} == there
        assert all(len(line) <= 80 for line in rest)
        peeked = lines(run("peek", queue, "--json"))[0]
        fields = {line.split()[0] for line in run("pop", queue).stdout.splitlines()}
        assert fields & {"group", "key", "priority", "headers"} == there
        assert {"group", "key", "priority", "due_at"} <= set(peeked)
    popped = lines(run("pop", "urgent", "--json"))[0]
    assert (popped["priority"], popped["group"], popped["key"]) == (0, None, None)


def test_peek_shows_when_it_is_due(run: Run, db: Database) -> None:
    db.create_queue("later", order="due").push(1)
    db.create_queue("emails").push(1, due=datetime(2999, 1, 1, tzinfo=UTC))
    assert "due" in run("peek", "later").stdout.split()
    assert "2999-01-01 00:00:00Z" in run("peek", "emails", "--state", "scheduled").stdout


def test_at_most_once(run: Run, db: Database) -> None:
    once = db.create_queue("once", delivery="at_most_once")
    once.push_many([1, 2])
    first, second = lines(run("pop", "once", "-n", 2, "--json"))
    assert first["lease_until"] is None
    run("complete", "once", 1, first["token"])
    assert lines(run("fail", "once", 2, second["token"], "--error", "why", "--json")) == [{"id": 2, "state": "lost"}]
    once.push(3)
    assert "lease" not in run("pop", "once").stdout
