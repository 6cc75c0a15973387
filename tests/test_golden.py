"""The exact output of `tablequeue sql`, in files under tests/golden/, so that a review shows each change.

The text for a fifo queue is stored whole, those for other queues as differences from it. The texts of topics, and of
their subscriptions, are in one file.

After an intended change, run `TABLEQUEUE_REWRITE_GOLDEN=1 .venv/bin/pytest tests/test_golden.py`, and read the diff.
"""

from __future__ import annotations

import os
import re
from difflib import unified_diff
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tablequeue.cli import main
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import SubscriptionDefinition, TopicDefinition

pytestmark = pytest.mark.quick

GOLDEN = Path(__file__).parent / "golden"
REWRITE = bool(os.environ.get("TABLEQUEUE_REWRITE_GOLDEN"))

DESIGNS = {
    "fifo": "",
    "due": "--order due",
    "groups": "--groups",
    "fair": "--groups fair",
    "at_most_once": "--delivery at_most_once",
    "no_history": "--history none --payload bytes",
}
OPERATIONS = ("create", "drop", "push", "pop", "take", "complete")
# Long, and nearly the same in all designs.
STORED = {"fifo": ("procedures", "grant"), "groups": ("procedures",)}
ROLES = "--producer web --consumer worker --observer board"

TOPICS = "topics"
TOPIC_FILES = r"(create_|drop_|publish_)?(topic|range)|sequence"

CASES = [
    (dialect, design, operation)
    for dialect in ENGINES
    for design in DESIGNS
    for operation in (*OPERATIONS, *(STORED.get(design, ()) if engine_class(dialect).procedure_syntax else ()))
] + [(dialect, "fifo", TOPICS) for dialect in ENGINES]


# The text of fifo is stored whole. Others are stored as differences from it, and MySQL's as those from MariaDB's.
PARENTS = {"mysql": "mariadb"}


def topics(dialect: str) -> str:
    """Return all texts of a topic and of a subscription, which have names of their own."""
    engine = engine_class(dialect)(sa.URL.create(dialect).get_dialect()())
    topic = engine.table("events", TopicDefinition())
    mail = engine.table("events/mail", SubscriptionDefinition(topic="events"), "tq_events__s1", topic)
    files = [file for file in operations_of(engine.name) if re.match(TOPIC_FILES, file)]
    texts = [(file, engine.render(file, topic if "topic" in file else mail)) for file in files]
    return "".join(f"-- {file}\n{text}\n" for file, text in texts)


def printed(dialect: str, design: str, operation: str) -> str:
    if operation == TOPICS:
        return topics(dialect)
    words = f"sql {operation} emails --dialect {dialect} {DESIGNS[design]} {ROLES if operation == 'grant' else ''}"
    result = CliRunner().invoke(main, words.split(), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    return result.output  # a refusal is stored too


def golden(dialect: str, design: str, operation: str) -> tuple[Path, str]:
    """Return the file of a text and its content. The content is empty, and there is no file, if the text does not
    differ."""
    text = printed(dialect, design, operation)
    folder = GOLDEN / dialect / design
    if design != "fifo":
        whole = printed(dialect, "fifo", operation)
    elif dialect in PARENTS:
        whole = printed(PARENTS[dialect], design, operation)
    else:
        return folder / f"{operation}.sql", text
    lines = unified_diff(whole.splitlines(), text.splitlines(), n=1, lineterm="")
    return folder / f"{operation}.diff", "".join(f"{line.rstrip()}\n" for line in [*lines][2:])


@pytest.mark.parametrize(("dialect", "design", "operation"), CASES)
def test_the_printed_sql(dialect: str, design: str, operation: str) -> None:
    assert printed(dialect, design, operation) == printed(dialect, design, operation), "the same text every time"
    file, text = golden(dialect, design, operation)
    if REWRITE:
        file.unlink(missing_ok=True)
        if text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    assert (file.read_text("utf-8") if file.exists() else "") == text, "see the head of this module"


def test_no_golden_file_is_left_over() -> None:
    wanted = {golden(*case)[0] for case in CASES}
    assert {file for file in GOLDEN.rglob("*") if file.is_file()} <= wanted


@pytest.mark.parametrize("dialect", ENGINES)
def test_nothing_is_left_to_fill_in(dialect: str) -> None:
    for file in (GOLDEN / dialect).rglob("*.*"):
        assert not re.search(r"\{(sql )?[a-z_]+\}|-- \[", file.read_text("utf-8")), file
