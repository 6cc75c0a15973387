"""The table of states agrees with the SQL of every engine, and with the messages in real databases.

    TABLEQUEUE_WRITE_DOCS=1 pytest tests/test_states.py

writes the diagram and the table of ARCHITECTURE.md again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Definition
from tablequeue.engines import ENGINES, engine_class, procedures
from tablequeue.engines.conditions import conditions
from tablequeue.engines.engine import OPERATIONS, Engine
from tablequeue.engines.table import Table
from tablequeue.engines.texts import operations_of, statements_in, texts_for
from tablequeue.model.states import STATES, TRANSITIONS, VERBS, Transition
from tests.servers import Kind, Place
from tests.transitions import check_states, moves_of

pytestmark = pytest.mark.quick

DESIGNS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "due": {"order": "due"},
    "groups": {"groups": True},
    "fair": {"groups": "fair"},
    "strict": {"strict": True},
    "at_most_once": {"delivery": "at_most_once"},
    "no_history": {"history": "none"},
    "due_no_history": {"order": "due", "history": "none"},
    "groups_no_history": {"groups": True, "history": "none"},
    "expires": {"expires": 500_000_000},
    "expires_no_history": {"expires": 500_000_000, "history": "none"},
    "groups_expire": {"groups": True, "expires": 500_000_000},
}


# The folders of the engines: one may serve several dialects.
FOLDERS = [name for name in ENGINES if engine_class(name).name == name]
# Texts that write a state and make no transition: what creates a table on PostgreSQL fills it for its first statistics.
STILL = {"create"}


@pytest.mark.parametrize("design", DESIGNS)
def test_messages_do_what_the_table_has(place: Place, kind: Kind, design: str) -> None:
    check_states(place.open(), **DESIGNS[design])


def states_written(engine: Engine, file: str, table: Table) -> set[str]:
    """The states that a file gives to messages: those in it but for what it compares with."""
    text = "\n".join(statements_in(engine.render(file, table)))
    if not re.search(rf"\bset\s+state\b|insert into {engine.words(table)['queue']}\b(?!\.)", text):
        return set()
    text = re.sub(r"\bset\s+state =", "set", text)
    text = re.sub(r"\bstate( \|\| '')? (=|<>) '\w+'|\bstate( \|\| '')? in \([^)]*\)|\bdefault '\w+'", "", text)
    return {*re.findall(r"'(\w+)'", text)} & {*STATES}


def files_of(engine: Engine, operation: str, true: Set[str]) -> set[str]:
    row = OPERATIONS[operation]
    files = {*texts_for(engine.name, row.texts or {operation: ""}, true), *row.others.split()}
    if operation == "promote" and not engine.promotes:
        files.add("create_heads")
    if operation == "block_fronts" and "dependencies" not in true:
        files = set()  # no sweep runs it
    return files & {*operations_of(engine.name)} - STILL


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("name", FOLDERS)
def test_the_texts_write_what_the_table_has(name: str, design: str) -> None:
    engine = engine_class(name)(sa.URL.create(name).get_dialect()())
    table = engine.table("work", Definition(**DESIGNS[design]))
    true = conditions(table.definition)
    moves = moves_of(table.definition)
    for verb, operations in VERBS.items():
        targets = {target for _, by, target in moves if by == verb} & {*STATES}
        files = {file for operation in operations.split() for file in files_of(engine, operation, true)}
        written = {state for file in files for state in states_written(engine, file, table)}
        if "at_most_once" in true:
            # A claim writes none to the history. The sweep's text is that of all queues, and finds no lease.
            written = written | {"in_progress"} if verb == "claim" else written & targets
        assert written == targets or not targets, verb


@pytest.mark.parametrize("name", FOLDERS)
def test_no_other_text_writes_a_state(name: str) -> None:
    engine = engine_class(name)(sa.URL.create(name).get_dialect()())
    table = engine.table("work", Definition(groups=True))
    known = {
        file
        for operations in VERBS.values()
        for operation in operations.split()
        for file in (operation, *OPERATIONS[operation].texts, *OPERATIONS[operation].others.split())
    }
    others = {*operations_of(name)} - known - STILL - {"create_heads"}
    assert not [file for file in others if states_written(engine, file, table)]
    for template in procedures.templates(name) if engine.procedure_syntax else ():
        assert not re.search(r"\bset\s+state\s*=", procedures.template(name, template)), template


# The words of a row's `queues`, for people. Most queues deliver at least once, and are not grouped.
IN_WORDS = {
    "not grouped": "",
    "at_least_once": "",
    "grouped": "in a grouped queue",
    "grouped dependencies": "in a grouped queue with dependencies",
    "keep": "with a history",
    "none": "without a history",
    "due": "in a `due` queue",
    "due keep": "in a `due` queue with a history",
    "expires keep": "with a history",
    "expires none": "without a history",
    "expires keep grouped": "with a history",
    "expires none grouped": "without a history",
    "due none": "in a `due` queue without a history",
    "at_most_once": "at most once",
    "dead_letter_to": "it moves to another queue",
}


def diagram() -> str:
    edges: dict[tuple[str, str], list[str]] = {}
    for one in TRANSITIONS:
        edges.setdefault((one.source, one.target), []).append(one.verb)
    lines = [f"    {source} --> {target}: {', '.join(verbs)}" for (source, target), verbs in edges.items()]
    return "```mermaid\nstateDiagram-v2\n" + "\n".join(lines).replace(" new ", " [*] ") + "\n```\n"


def rows() -> str:
    """For each state, the verbs that end it, with the next states and when each comes."""

    def target(one: Transition) -> str:
        name = "deleted" if one.target == "deleted" else f"`{one.target}`"
        queues = "" if one.source == "blocked" else IN_WORDS.get(one.queues, one.queues)
        when = ", ".join(filter(None, [one.when, queues]))
        return f"{name} ({when})" if when else name

    lines = ["| state | how a message leaves it |", "|---|---|"]
    for source in dict.fromkeys(one.source for one in TRANSITIONS):
        ways: dict[str, list[str]] = {}
        for one in TRANSITIONS:
            if one.source == source:
                ways.setdefault(one.verb, []).append(target(one))
        name = source if source in ("new", "deleted") else f"`{source}`"
        lines.append(f"| {name} | {'; '.join(f'{verb} → ' + ', '.join(to) for verb, to in ways.items())} |")
    return "\n".join(lines) + "\n"


def test_the_architecture_shows_the_table() -> None:
    page = Path(__file__).parents[1] / "ARCHITECTURE.md"
    text = page.read_text("utf-8")
    begin, end = "<!-- from tablequeue.model.states -->\n", "<!-- end -->\n"
    head, rest = text.split(begin)
    current = f"{head}{begin}{diagram()}\n{rows()}{rest[rest.index(end) :]}"
    if os.environ.get("TABLEQUEUE_WRITE_DOCS"):
        page.write_text(current, "utf-8")
    else:
        assert text == current, "The states have changed: TABLEQUEUE_WRITE_DOCS=1 pytest tests/test_states.py"
