"""The script for a test server with SQL Server: its batches pass the parser. It has not run on a server yet."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.test_mssql_texts import parses
from tests.tsql import parse_errors

FOLDER = Path(__file__).parents[1] / "examples" / "sqlserver"
GOLDEN = Path(__file__).parent / "golden" / "mssql" / "fifo"
SCRIPT = (FOLDER / "check.sh").read_text("utf-8")


@parses
@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.sql")), ids=lambda file: file.name)
def test_each_batch_parses(file: Path) -> None:
    text = file.read_text("utf-8")
    assert text.endswith("\ngo\n")
    assert parse_errors(text) == []
    assert file.name in SCRIPT, "it runs"


@parses
def test_the_statements_whose_plans_are_read_parse() -> None:
    """The script declares every parameter of the printed statement."""
    plans = re.findall(r'plan "(.*?)"[ \\\n]+"\$golden/(\w+\.sql)"', SCRIPT, re.DOTALL)
    assert [name for _, name in plans] == ["pop.sql", "complete.sql"]
    for declared, name in plans:
        printed = (GOLDEN / name).read_text("utf-8")
        used = {*re.findall(r"@p_\w+", re.sub(r"(?m)^--.*$", "", printed))}
        assert {*re.findall(r"@p_\w+", declared)} == used
        assert parse_errors(f"{declared}\n{printed}") == []


def test_the_script_is_bash_and_its_files_are_there() -> None:
    subprocess.run(["bash", "-n", FOLDER / "check.sh"], check=True)
    for name in re.findall(r"\$golden/(\w+\.sql)", SCRIPT):
        assert (GOLDEN / name).exists(), name
    for name in re.findall(r"-i (\w+\.sql)", SCRIPT):
        assert (FOLDER / name).exists(), name
    procedures = (GOLDEN / "procedures.sql").read_text("utf-8")
    called = {each for file in FOLDER.glob("*.sql") for each in re.findall(r"exec (tq_\w+)", file.read_text("utf-8"))}
    assert len(called) == 4
    for name in called:
        assert f"create or alter procedure {name}\n" in procedures
