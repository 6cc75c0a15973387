"""`tablequeue sql`."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tablequeue import connect
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.texts import operations_of
from tests.cli.support import Run, lines

DESIGNS = ["", "--history none", "--order due", "--order priority", "--strict", "--groups", "--delivery at_most_once"]


@pytest.mark.parametrize("dialect", ENGINES)
def test_every_operation_has_its_sql(run: Run, dialect: str) -> None:
    """Each operation, and each file by its name, for each kind of queue that has it."""
    names = run("sql", "--dialect", dialect).stdout.split()
    assert {"create", "drop", "push", "pop", "take", "complete", "fail", "stats", "lost"} <= set(names)
    engine = engine_class(dialect)(sa.URL.create(dialect).get_dialect()())
    for name in {*names, *operations_of(engine.name)}:
        for design in DESIGNS:
            text = run("sql", name, "emails", "--dialect", dialect, *design.split()).stdout
            assert text.startswith("--")
            assert not re.search(r"\{\w+\}", text)


FILES = [
    ("create", "", "create_history", "create_groups"),
    ("create", "--groups", "create_groups", ""),
    ("create", "--strict --history none", "create_groups", "create_history"),
    ("create", "--history 3600", "create_history", "create_groups"),
    ("drop", "--history none", "drop", "drop_history"),
    ("pop", "", "claim", "take_keep"),
    ("pop", "--delivery at_most_once", "take_keep", "claim"),
    ("take", "", "take_keep", "take_none"),
    ("take", "--history none", "take_none", "take_keep"),
    ("complete", "", "complete_keep", "complete_none"),
    ("complete", "--history 60", "complete_keep", "complete_none"),
    ("complete", "--history none", "complete_none", "complete_keep"),
    ("complete", "--delivery at_most_once", "complete_at_most_once", "complete_keep"),
    ("fail", "", "fail", "fail_at_most_once"),
    ("fail", "--delivery at_most_once", "fail_at_most_once", ""),
    ("stats", "--history none", "stats", "stats_history"),
]


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize(("operation", "options", "there", "not_there"), FILES)
def test_an_operation_is_the_files_that_the_queue_needs(
    run: Run, dialect: str, operation: str, options: str, there: str, not_there: str
) -> None:
    def printed(name: str) -> str:
        return run("sql", name, "emails", "--dialect", dialect, *options.split()).stdout.strip()

    assert printed(there) in printed(operation)
    if not_there:
        assert printed(not_there) not in printed(operation)


def test_sql_drops_what_groups_have(run: Run) -> None:
    words = "sql drop emails --dialect postgresql".split()
    assert "tq_emails__turns" in run(*words, "--groups").stdout
    assert "tq_emails__turns" not in run(*words).stdout


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_sql_upgrade(run: Run, dialect: str) -> None:
    text = run("sql", "upgrade", "emails", "--dialect", dialect).stdout
    assert f"set schema_version = {engine_class(dialect).schema_version} where name = 'emails'" in text
    places = [text.index(f"alter table {table} add") for table in ("tq_emails", "tq_emails_history")]
    assert places == sorted(places)
    assert text.index("update tq_queues") > places[-1]
    assert "tq_emails_history" not in run("sql", "upgrade", "emails", "--dialect", dialect, "--history", "none").stdout


def test_sql_create_is_what_a_dba_runs(run: Run) -> None:
    words = "sql create emails --dialect postgresql --schema work --payload text".split()
    text = run(*words).stdout
    tables = [
        "create schema",
        "work.tq_queues",
        "work.tq_emails (",
        "work.tq_emails_history",
        "insert into work.tq_queues",
    ]
    places = [text.index(each) for each in tables]
    assert places == sorted(places)
    assert '"payload": "text"' in text
    assert run(*words).stdout == text
    assert lines(run(*words, "--json"))[0]["sql"] + "\n" == text
    assert "tq_emails_history" not in run(*words, "--history", "none").stdout
    assert "create schema" not in run(*words[:-4]).stdout


def test_sql_create_makes_a_queue(run: Run, url: str, tmp_path: Path) -> None:
    text = run("sql", "create", "emails", "--dialect", "sqlite", "--lease", 7).stdout
    with closing(sqlite3.connect(tmp_path / "work.db")) as connection:
        connection.executescript(text)
    made = connect(url).create_queue("emails", lease=7)
    assert made.push(1) == 1


def test_sql_says_what_a_parameter_is(run: Run) -> None:
    words = "sql pop emails --dialect postgresql".split()
    text, example = run(*words).stdout, run(*words, "--values").stdout
    assert ("limit :n" in text, "limit 10" in example) == (True, True)
    assert "--values" in text.splitlines()[0]
    assert "Claim up to :n ready messages" in example, "a comment is about the parameter"
    assert "statement_timestamp() + cast(60.0 as float8)" in example
    assert "limit 10" in run(*words, "--values", "--json").stdout
    once = run("sql", "create", "emails", "--dialect", "postgresql").stdout
    assert once == run("sql", "create", "emails", "--dialect", "postgresql", "--values").stdout


def test_sql_refuses(run: Run) -> None:
    assert "complete" in run("sql", "nonsense", "--dialect", "sqlite", code=2).stderr
    run("sql", "create", "emails", code=2)
    run("sql", "create", "Emails", "--dialect", "sqlite", code=1)
    run("--schema", "work", "sql", "create", "emails", "--dialect", "sqlite", code=1)
