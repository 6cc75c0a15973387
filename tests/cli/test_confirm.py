"""What deletes messages that the command line does not name one by one asks before, and lists say if they are empty."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from tablequeue import Database, Queue
from tablequeue.cli import main
from tests.cli.support import Run
from tests.support import claimed, counts

pytestmark = pytest.mark.quick

# The first words of the help of a command that deletes.
DELETES = ("Delete", "Drop", "Cancel", "Purge")
# It names each message.
NAMED = {"cancel"}
# Each command that asks, and the question.
ASKING = {
    "queue drop emails": "Drop the queue 'emails' with all its messages and its history?",
    "queue purge emails": "Delete every message of the queue 'emails' that waits?",
    "topic drop events": "Drop the topic 'events' with all its messages and subscriptions?",
    "topic unsubscribe events/mail": "Drop the subscription 'events/mail' with its dead letters and its history?",
    "dead purge emails": "Delete every dead letter of the queue 'emails'?",
    "dead purge emails --error full --key k": "Delete the dead letters with error 'full' and key 'k' of the queue",
    "history purge emails --older-than 30d": "Delete every message of the history of 'emails' that ended 30 d ago or",
    "batch cancel 1": "Cancel every message of the batch 1 of the queue 'parts'?",
}


def commands(group: click.Group, *before: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        else:
            yield " ".join((*before, name)), command


def test_each_command_that_deletes_can_be_told_not_to_ask() -> None:
    deleting = {name for name, command in commands(main) if (command.help or "").startswith(DELETES)}
    asking = {name for name, command in commands(main) if any(param.name == "yes" for param in command.params)}
    assert asking == deleting - NAMED
    assert asking == {" ".join(words.split()[:2]) for words in ASKING}


@pytest.fixture
def emails(db: Database) -> Queue:
    """A queue with a message in each state; and a topic, and a batch."""
    emails = db.create_queue("emails", max_attempts=1)
    emails.push_many([*"abc"])
    claimed(emails).complete()
    claimed(emails).fail("full")
    db.create_topic("events").subscribe("mail")
    with db.create_queue("parts", batches=True).batch() as batch:
        batch.push(1)
    assert batch.id == 1
    return emails


@pytest.mark.parametrize("command", ASKING)
def test_it_asks_before(run: Run, db: Database, emails: Queue, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    before = {"ready": 1, "dead": 1, "finished": 1}

    def untouched() -> bool:
        there = (db.queues(), db.topics(), db.subscriptions())
        return there == (["emails", "parts"], ["events"], ["events/mail"]) and counts(emails) == before

    refused = run(*command.split(), code=1).stderr
    assert ASKING[command] in refused
    assert "write --yes" in refused
    assert untouched()
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    assert ASKING[command] in run(*command.split(), input="n\n", code=1).stderr
    assert untouched()
    assert ASKING[command] in run(*command.split(), input="y\n").stderr


def test_messages_that_are_named_are_no_question(run: Run, emails: Queue) -> None:
    assert run("dead", "purge", "emails", "--id", 2).stdout == "1 purged\n"
    assert run("cancel", "emails", 3).stdout == "1 cancelled, 0 told to stop\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("queue list", "There is no queue."),
        ("topic list", "There is no topic."),
        ("stats", "There is no queue."),
        ("top", "There is no queue."),
    ],
)
def test_there_is_no_queue(run: Run, command: str, said: str) -> None:
    assert run(*command.split()).output == f"{said}\n"
    assert run(*command.split(), "--json").stdout == ""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("dead list once", "'once' has no dead letter."),
        ("dead list once --id 1", "'once' has no dead letter of these."),
        ("history list once", "No message is in the history of 'once'."),
        ("lost once", "No message of 'once' is lost."),
        ("stream list once", "'once' has no stream."),
        ("batch list parts", "'parts' has no open batch."),
        ("batch results 1", "The batch 1 has no result."),
    ],
)
def test_a_list_that_is_empty(run: Run, db: Database, command: str, said: str) -> None:
    db.create_queue("once", delivery="at_most_once")
    parts = db.create_queue("parts", batches=True, results=True)
    with parts.batch() as batch:
        batch.push(1)
    claimed(parts).complete()
    for options in ((), ("--json",)):
        shown = run(*command.split(), *options)
        assert (shown.stdout, shown.stderr) == ("", f"{said}\n")


def test_the_options_of_all_commands_stand_anywhere(run: Run, url: str, db: Database) -> None:
    elsewhere = {"TABLEQUEUE_URL": "sqlite:///nowhere/work.db"}
    db.create_queue("emails")
    for words in (
        ("--url", url, "queue", "list"),
        ("queue", "--url", url, "list"),
        ("queue", "list", "--url", url),
        ("--url", "sqlite:///nowhere/work.db", "queue", "list", "--url", url),
    ):
        assert run(*words, env=elsewhere).stdout == "emails\n"
    run("push", "emails", 1, "--name", "me", "--url", url, env=elsewhere)
    (message,) = db.queue("emails").peek()
    assert message.producer == "me"
    assert "has no schemas" in run("peek", "emails", "--schema", "other", code=1).stderr
    # An argument NAME, and an option --schema of its own, are what they were.
    assert run("queue", "create", "more", "--url", url, env=elsewhere).stdout == "more\n"
    assert "tq_x" in run("sql", "create", "x", "--dialect", "postgresql", "--schema", "own").stdout
