"""`tablequeue cancel` and `reschedule`."""

from __future__ import annotations

import pytest

from tablequeue import Database, Queue
from tests.cli.support import Run, lines
from tests.support import claimed, found


@pytest.fixture
def emails(db: Database) -> Queue:
    return db.create_queue("emails", order="priority")


def test_cancel(run: Run, emails: Queue) -> None:
    first, second, third = emails.push_many([*"abc"])
    message = claimed(emails)
    assert run("cancel", "emails", first, second).stdout == "1 cancelled, 1 told to stop\n"
    assert message.cancelled
    assert lines(run("cancel", "emails", third, "--json")) == [{"cancelled": [third], "in_progress": [], "unknown": []}]


def test_cancel_of_no_message(run: Run, emails: Queue) -> None:
    id = emails.push("a")
    result = run("cancel", "emails", id, 99, code=1)
    assert result.stdout == "1 cancelled, 0 told to stop\n"
    assert "99" in result.stderr


def test_reschedule(run: Run, emails: Queue) -> None:
    id = emails.push("a")
    assert run("reschedule", "emails", id, "--delay", 60, "--priority", 3).stdout == "rescheduled\n"
    assert (found(emails, id).state, found(emails, id).priority) == ("scheduled", 3)
    assert lines(run("reschedule", "emails", id, "--delay", 0, "--json")) == [{"rescheduled": id}]
    assert found(emails, id).state == "ready"
    run("reschedule", "emails", id, code=1)
    claimed(emails)
    assert "in progress" in run("reschedule", "emails", id, "--delay", 5, code=1).stderr
