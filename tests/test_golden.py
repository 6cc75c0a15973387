"""What `tablequeue sql` prints, word for word: files under tests/golden/, so that a review shows what changes.

After a change that is meant: `TABLEQUEUE_REWRITE_GOLDEN=1 .venv/bin/pytest tests/test_golden.py`, and read the diff.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tablequeue.cli import main
from tablequeue.engines import ENGINES, engine_class

GOLDEN = Path(__file__).parent / "golden"
REWRITE = bool(os.environ.get("TABLEQUEUE_REWRITE_GOLDEN"))

DESIGNS = {
    "fifo": "",
    "due": "--order due",
    "groups": "--groups",
    "at_most_once": "--delivery at_most_once",
    "no_history": "--history none --payload bytes",
}
OPERATIONS = ("create", "upgrade", "drop", "push", "pop", "take", "complete")
# Long, and much the same in all designs.
STORED = {"fifo": ("procedures", "grant"), "groups": ("procedures",)}
ROLES = "--producer web --consumer worker --observer board"

CASES = [
    (dialect, design, operation)
    for dialect in ENGINES
    for design in DESIGNS
    for operation in (*OPERATIONS, *(STORED.get(design, ()) if engine_class(dialect).stored else ()))
    if operation != "upgrade" or dialect in ("sqlite", "postgresql", "mssql")  # the others begin with version 2
]


@pytest.mark.parametrize(("dialect", "design", "operation"), CASES)
def test_the_printed_sql(dialect: str, design: str, operation: str) -> None:
    words = f"sql {operation} emails --dialect {dialect} {DESIGNS[design]} {ROLES if operation == 'grant' else ''}"
    printed = CliRunner().invoke(main, words.split(), catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    assert CliRunner().invoke(main, words.split()).stdout == printed.stdout, "the same text every time"
    file = GOLDEN / dialect / design / f"{operation}.sql"
    if REWRITE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(printed.stdout, "utf-8")
    assert file.exists(), "no golden file: see the head of this module"
    assert printed.stdout == file.read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    wanted = {GOLDEN / dialect / design / f"{operation}.sql" for dialect, design, operation in CASES}
    assert {*GOLDEN.rglob("*.sql")} <= wanted


@pytest.mark.parametrize("dialect", ENGINES)
def test_nothing_is_left_to_fill_in(dialect: str) -> None:
    for file in (GOLDEN / dialect).rglob("*.sql"):
        assert not re.search(r"\{(sql )?[a-z_]+\}|-- \[", file.read_text("utf-8")), file
