"""`tablequeue push`."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from tablequeue import Database
from tests.cli.support import Run, lines

pytestmark = pytest.mark.quick


def test_push_one(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    assert run("push", "emails", '{"to": "ada"}', "--header", "k=v=w", "--header", "l=").stdout == "1\n"
    assert lines(run("--name", "me", "--json", "push", "emails", '"x"')) == [{"id": 2}]
    first, second = emails.peek()
    assert (first.payload, first.headers) == ({"to": "ada"}, {"k": "v=w", "l": ""})
    assert second.producer == "me"


def test_push_what_waits(run: Run, db: Database, tmp_path: Path) -> None:
    jobs = db.create_queue("jobs", dependencies=True)
    assert run("push", "jobs", "1").stdout == "1\n"
    assert run("push", "jobs", "2", "--after", 1).stdout == "2\n"
    (tmp_path / "lines").write_text("3\n4\n")
    assert (
        run("push", "jobs", "--file", tmp_path / "lines", "--after", 1, "--after", 2).stdout == "2 pushed, ids 3 to 4\n"
    )
    assert run("push", "jobs", "--file", tmp_path / "lines", "--after", 9, code=1).stdout == ""
    for expected in ([1], [2], [3, 4]):
        messages = jobs.pop_many(9)
        assert [message.payload for message in messages] == expected
        jobs.complete_many(messages)


def test_push_later(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    run("push", "emails", "1", "--delay", 60)
    run("push", "emails", "2", "--due", "2999-01-01T00:00:00+02:00")
    _, due = emails.peek(state="scheduled")
    assert due.due_at is not None
    assert due.due_at.isoformat() == "2998-12-31T22:00:00+00:00"


def test_push_a_file(run: Run, db: Database, tmp_path: Path) -> None:
    emails = db.create_queue("emails")
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\n  \n"two"\n[3]')
    assert run("push", "emails", "--file", path).stdout == "3 pushed, ids 1 to 3\n"
    pushed = lines(run("push", "emails", "--json", input="4\n5\n"))
    assert pushed == [{"pushed": 2, "skipped": 0, "duplicates": 0, "first": 4, "last": 5}]
    assert lines(run("push", "emails", "--file", "-", "--json", input=""))[0]["pushed"] == 0
    assert [message.payload for message in emails.peek()] == [{"n": 1}, "two", [3], 4, 5]


def test_push_a_file_in_several_chunks(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    emails = db.create_queue("emails")
    monkeypatch.setattr(sys.modules["tablequeue.cli.push"], "CHUNK", 2)
    pushed = lines(run("push", "emails", "--json", input="\n".join("12345")))
    assert pushed == [{"pushed": 5, "skipped": 0, "duplicates": 0, "first": 1, "last": 5}]
    assert [message.payload for message in emails.peek()] == [1, 2, 3, 4, 5]


def test_text_and_bytes(run: Run, db: Database, tmp_path: Path) -> None:
    texts, blobs = db.create_queue("texts", payload="text"), db.create_queue("blobs", payload="bytes")
    run("push", "texts", "not {json")
    run("push", "texts", input=" a \r\nb\n")
    assert [message.payload for message in texts.peek()] == ["not {json", " a ", "b"]
    run("push", "blobs", "é")
    path = tmp_path / "blob"
    path.write_bytes(b"\xff\n\n\x00")
    assert run("push", "blobs", "--file", path).stdout == "2\n"
    assert [message.payload for message in blobs.peek()] == ["é".encode(), b"\xff\n\n\x00"]
    popped = lines(run("pop", "blobs", "-n", 5, "--json"))
    assert base64.b64decode(popped[1]["payload_base64"]) == b"\xff\n\n\x00"
    assert "payload" not in popped[1]


def test_a_key(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    assert run("push", "emails", "1", "--key", "k").stdout == "1\n"
    assert "'k'" in run("push", "emails", "2", "--key", "k", code=1).stderr
    skipped = run("push", "emails", "2", "--key", "k", "--on-conflict", "skip")
    assert (skipped.stdout, skipped.stderr) == ("", "1 duplicate skipped\n")
    assert lines(run("push", "emails", "2", "--key", "k", "--on-conflict", "skip", "--json")) == [{"id": None}]
    assert run("push", "emails", "2", "--key", "k", "--on-conflict", "return").stdout == "1\n"
    assert [(message.id, message.payload, message.key) for message in emails.peek()] == [(1, 1, "k")]


def test_priority_and_group(run: Run, db: Database) -> None:
    urgent, groups = db.create_queue("urgent", order="priority"), db.create_queue("groups", groups=True)
    run("push", "urgent", "1", "--priority", -3)
    run("push", "urgent", "--priority", 5, input="2\n3\n")
    assert [claim.payload for claim in urgent.pop_many(3)] == [2, 3, 1]
    run("push", "groups", "1", "--group", "eu")
    run("push", "groups", "--group", "us", input="2\n3\n")
    assert [(claim.payload, claim.group) for claim in groups.pop_many(3)] == [(1, "eu"), (2, "us")]


ROWS = """
{"id": 7, "customer": "ada", "urgency": 1, "at": "2999-01-01T00:00:00Z"}
{"id": "seven", "customer": 12, "urgency": -5, "at": "2999-01-01T00:00:00+02:00"}
"""


def test_options_from_fields(run: Run, db: Database) -> None:
    groups = db.create_queue("groups", groups=True)
    urgent, later = db.create_queue("urgent", order="priority"), db.create_queue("later", order="due")
    run("push", "groups", "--key-field", "id", "--group-field", "customer", input=ROWS)
    run("push", "urgent", "--priority-field", "urgency", input=ROWS)
    run("push", "later", "--due-field", "at", input=ROWS)
    assert [(each.payload["id"], each.key, each.group) for each in groups.peek()] == [
        (7, "7", "ada"), ("seven", "seven", "12")
    ]  # fmt: skip
    assert [each.priority for each in urgent.peek()] == [1, -5]
    dues = [each.due_at.isoformat() for each in later.peek(state="scheduled") if each.due_at]
    assert dues == ["2999-01-01T00:00:00+00:00", "2998-12-31T22:00:00+00:00"]


def test_options_beside_fields(run: Run, db: Database) -> None:
    emails = db.create_queue("emails", groups=True)
    run("push", "emails", "--key-field", "id", "--group", "eu", "--header", "k=v", "--delay", 60, input=ROWS)
    assert [(each.key, each.group, each.headers, each.state) for each in emails.peek(state="scheduled")] == [
        ("7", "eu", {"k": "v"}, "scheduled")
    ]
    assert [(each.key, each.group) for each in emails.peek(state="blocked")] == [("seven", "eu")]


def test_duplicates_in_a_file(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    emails = db.create_queue("emails")
    monkeypatch.setattr(sys.modules["tablequeue.cli.push"], "CHUNK", 2)
    emails.push("there", key="3")
    rows = "".join(f'{{"id": {n}}}\n\n' for n in (1, 2, 4, 3, 2, 5))
    refused = run("push", "emails", "--key-field", "id", input=rows, code=1).stderr
    assert refused.startswith("error: Line 7: ")
    assert "'3'" in refused
    assert emails.stats().ready == 1
    skipped = run("push", "emails", "--key-field", "id", "--on-conflict", "skip", "--json", input=rows)
    assert lines(skipped) == [{"pushed": 4, "skipped": 0, "duplicates": 2, "first": 2, "last": emails.peek()[-1].id}]
    assert skipped.stderr == "2 duplicates skipped\n"
    assert [each.key for each in emails.peek()] == ["3", "1", "2", "4", "5"]


def test_bytes_have_a_key_too(run: Run, db: Database) -> None:
    blobs = db.create_queue("blobs", payload="bytes")
    run("push", "blobs", "--key", "k", input=b"\xff\n")
    assert run("push", "blobs", "--key", "k", "--on-conflict", "return", input=b"other").stdout == "1\n"
    assert [message.payload for message in blobs.peek()] == [b"\xff\n"]
