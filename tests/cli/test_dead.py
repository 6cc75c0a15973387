"""`tablequeue dead`, `lost` and `history`."""

from __future__ import annotations

import sys

import pytest

from tablequeue import Database, NewMessage, Queue
from tests.cli.support import Run, lines
from tests.support import claimed

pytestmark = pytest.mark.quick


@pytest.fixture
def dead(db: Database) -> Queue:
    emails = db.create_queue("emails", max_attempts=1)
    emails.push_many(["a", "b", "c"])
    for claim in emails.pop_many(3):
        claim.fail(f"Traceback\nValueError: [bold]{claim.payload}[/bold]")
    return emails


def test_move(run: Run, dead: Queue, db: Database) -> None:
    db.create_queue("Old emails")
    dead.push("d")
    assert lines(run("move", "emails", "Old emails", 2, 4, "--json")) == [
        {"id": 2, "moved_to": 1},
        {"id": 4, "moved_to": 2},
    ]
    assert "nothing was moved" in run("move", "emails", "Old emails", 2, 3, code=1).stderr
    run("move", "emails", "Old emails", 3, "--state", "dead", code=2)
    assert run("move", "emails", "Old emails", "--state", "dead").stdout == "2 moved\n"
    assert len(db.queue("Old emails").dead()) == 3


def test_dead_list(run: Run, dead: Queue) -> None:
    assert "ValueError: [bold]b[/bold]" in run("dead", "list", "emails").stdout
    listed = lines(run("dead", "list", "emails", "--json"))
    assert [each["id"] for each in listed] == [1, 2, 3]
    assert listed[0]["errors"][0]["error"].startswith("Traceback")
    assert len(lines(run("dead", "list", "emails", "-n", 2, "--json"))) == 2
    one = run("dead", "list", "emails", "--id", 2).stdout
    assert "Traceback" in one
    assert "[bold]b[/bold]" in one
    assert "[bold]a[/bold]" not in one


def test_dead_redrive_and_purge(run: Run, dead: Queue) -> None:
    assert run("dead", "redrive", "emails", "--id", 1, "--id", 99).stdout == "1 redriven\n"
    assert lines(run("dead", "purge", "emails", "--id", 2, "--json")) == [{"purged": 1}]
    assert lines(run("dead", "--json", "redrive", "emails")) == [{"redriven": 1}]
    assert run("dead", "purge", "emails", "--yes").stdout == "0 purged\n"
    assert dead.stats().ready == 2
    assert run("dead", "list", "emails").stdout == ""


@pytest.fixture
def grouped(db: Database) -> Queue:
    """Dead letters 1 to 4: in the groups a and b in turn, with the keys k1 to k4, the last one poison."""
    queue = db.create_queue("grouped", groups=True, max_attempts=1)
    queue.push_many([NewMessage(n, group="ab"[n % 2], key=f"k{n + 1}") for n in range(4)])
    for claim in queue.consume(wait=0):
        claim.fail("[no] such host" if claim.id < 3 else "lease expired")
    assert queue.stats().dead == 4
    return queue


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ("", [1, 2, 3, 4]),
        ("--error [no]", [1, 2]),
        ("--error host --group a", [1]),
        ("--group b", [2, 4]),
        ("--key k3", [3]),
        ("--key k3 --id 4", []),
        ("--group a --id 1 --id 2 --id 99", [1]),
        ("--group none", []),
    ],
)
def test_filters(run: Run, grouped: Queue, filters: str, ids: list[int]) -> None:
    words = filters.split()
    assert [each["id"] for each in lines(run("dead", "list", "grouped", "--json", *words))] == ids
    assert run("dead", "redrive", "grouped", *words).stdout == f"{len(ids)} redriven\n"
    left = [message.id for message in grouped.dead()]
    assert left == sorted({1, 2, 3, 4} - {*ids})
    assert run("dead", "purge", "grouped", *words, "--yes").stdout == "0 purged\n"
    assert run("dead", "purge", "grouped", "--yes").stdout == f"{len(left)} purged\n"


def test_a_filter_that_is_empty_is_not_all(run: Run, grouped: Queue) -> None:
    for option in ("--error", "--group", "--key"):
        for verb in ("list", "redrive", "purge"):
            run("dead", verb, "grouped", option, "", code=2)
    assert grouped.stats().dead == 4


def test_filters_look_at_every_dead_letter(run: Run, grouped: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tablequeue.cli.dead"], "CHUNK", 1)
    assert [each["id"] for each in lines(run("dead", "list", "grouped", "--json", "--group", "b"))] == [2, 4]
    assert len(lines(run("dead", "list", "grouped", "--json", "-n", 3))) == 3
    table = run("dead", "list", "grouped").stdout
    assert "group" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "k2" in run("dead", "list", "grouped", "--id", 2).stdout


def test_lost(run: Run, db: Database) -> None:
    once = db.create_queue("once", delivery="at_most_once")
    once.push_many(["a", "b", "c"])
    done, failed, _ = (claimed(once) for _ in range(3))
    done.complete()
    failed.fail("too\n[bad]")
    assert run("lost", "once").stdout == ""
    assert "[bad]" in run("lost", "once", "--older-than", 0).stdout
    assert [each["payload"] for each in lines(run("lost", "once", "--older-than", 0, "--json"))] == ["b", "c"]
    assert [each["id"] for each in lines(run("lost", "once", "--older-than", 0, "--json", "-n", 1))] == [2]


def test_history(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many(["a", "b"])
    emails.complete_many(emails.pop_many(2))
    table = run("history", "list", "emails").stdout
    assert "run" in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert [each["id"] for each in lines(run("history", "list", "emails", "--json"))] == [2, 1]
    assert [each["id"] for each in lines(run("history", "list", "emails", "-n", 1, "--json"))] == [2]
    assert run("history", "purge", "emails", "--older-than", 3600, "--yes").stdout == "0 purged\n"
    assert lines(run("history", "purge", "emails", "--older-than", 0, "--yes", "--json")) == [{"purged": 2}]
    assert run("history", "list", "emails").stdout == ""
