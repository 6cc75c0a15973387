"""The templates of stored procedures: one for each verb. Microsoft's parser checks those of SQL Server."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from platform import machine
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Definition, Rate
from tablequeue.engines import ENGINES, engine_class, procedures
from tablequeue.engines.engine import Engine
from tablequeue.engines.procedure_list import PROCEDURES
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput
from tablequeue.model.names import table_of
from tablequeue.model.states import STATES
from tests import mssql_rules as rules
from tests.support import DESIGNS, refuses
from tests.tsql import parse_errors

# PostgreSQL truncates names longer than 63 characters; MariaDB and MySQL allow 64.
LONGEST_NAME = {"mssql": 128}
WITH_PROCEDURES = [name for name in ENGINES if engine_class(name).procedure_syntax]


@pytest.mark.parametrize("name", WITH_PROCEDURES)
def test_there_is_a_template_for_each_verb(name: str) -> None:
    folder = engine_class(name).name
    engine = engine_class(name)(sa.URL.create(name).get_dialect()())
    words = {*engine.words(engine.table("work", Definition()))}
    missing = {*procedures.VERBS, "grant", "drop"} - set(procedures.templates(folder))
    # On SQL Server a history is a table, so that no procedure can be called so. There the wait is that of a
    # notification of the server; on MariaDB and MySQL, one procedure looks and waits.
    others = {"mssql": {"history", "look", "wait"}, "postgresql": {"read_history"}}
    assert missing == others.get(name, {"read_history", "look"})
    for file in procedures.templates(folder):
        text = procedures.template(folder, file)
        made = file in PROCEDURES
        assert not made or text.startswith(f"-- {{queue}}_{procedures.verb_of(file)}:"), "a drop finds it by its name"
        assert max(map(len, text.splitlines())) <= 120
        assert not made or len(f"{table_of('q' * 47)}_{procedures.verb_of(file)}") <= LONGEST_NAME.get(name, 63)
        assert re.findall(r"-- \[([\w ]+)\]", text)[-1:] in ([], ["end"])
        # `{sql claim ids=found}`: found would be the word, if there were one.
        given = set(re.findall(r"\{sql [^}]*?=([a-z]\w*)", text)) - {*STATES}
        declared = {name for names in re.findall(r"declare ([\w, ]+?) \w+", text) for name in names.split(", ")}
        assert not given & declared & words, file


@pytest.mark.parametrize("feature", ["batches", "dependencies"])
@pytest.mark.parametrize("name", WITH_PROCEDURES)
def test_queues_with_these_features_have_none(name: str, feature: str) -> None:
    engine = engine_class(name)(sa.URL.create(name).get_dialect()())
    options: dict[str, Any] = {feature: True}
    table = engine.table("work", Definition(**options))
    refuses(BadInput, procedures.procedures, engine, table)
    assert procedures.procedure_for(engine, table, "pop") is None
    assert "drop" not in procedures.dropping(engine, table)


MORE: dict[str, dict[str, Any]] = {
    "at_most_once": {"delivery": "at_most_once"},
    "no_history": {"history": "none"},
    "no_history_groups": {"history": "none", "groups": True},
    "retention": {"history": 60, "strict": True},
    "bytes": {"payload": "bytes"},
    "text": {"payload": "text"},
    "limited": {"concurrency": 20, "rate": Rate(100, per=60, burst=20)},
    "concurrency": {"concurrency": 20, "history": "none"},
    "rate_at_most_once": {"rate": Rate(100), "delivery": "at_most_once"},
    "group_limited": {"groups": "fair", "per_group": 2, "group_rate": Rate(100)},
    "group_rate_at_most_once": {"groups": "fair", "group_rate": Rate(100), "delivery": "at_most_once"},
    "fair_limited": {"groups": "fair", "concurrency": 20, "rate": Rate(100)},
}
EVERY = {**DESIGNS, **MORE}


def on_sql_server(design: str) -> tuple[Engine, Table]:
    engine = engine_class("mssql")(sa.URL.create("mssql").get_dialect()(), "shop")
    plain = design.removesuffix("_dead_letters")
    if plain == design:
        return engine, engine.table("work", Definition(**EVERY[design]))
    table = engine.table("work", Definition(dead_letter_to="failed", **EVERY[plain]))
    table.dead_letters = engine.table("failed", Definition(**EVERY[plain]))
    return engine, table


def bodies(design: str) -> dict[str, str]:
    """Return the SQL that creates each procedure, by its name without that of the queue."""
    engine, table = on_sql_server(design)
    made = (re.search(r"create or alter procedure shop\.tq_work_(\w+)\n[\s\S]*", batch) for batch in
            engine.split(procedures.procedures(engine, table)))  # fmt: skip
    return {found[1]: found[0] for found in made if found}


parses = pytest.mark.skipif(
    sys.platform != "linux" or machine() != "x86_64", reason="The parser is for Linux on x86-64."
)


@parses
def test_the_examples_of_sql_server_fit_the_procedures() -> None:
    page = (Path(__file__).parent.parent / "docs" / "procedures.md").read_text("utf-8")
    examples = re.findall(r"```tsql\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    called = bodies("fifo")
    for example in examples:
        assert parse_errors(example) == []
        for verb, given in re.findall(r"exec tq_orders_(\w+)(.*?);\n", example):
            declared = re.findall(r"(?m)^    (@p_\w+) ", called[verb].partition("\nas\n")[0])
            assert {*re.findall(r"@p_\w+", given)} <= {*declared}
    (kept,) = re.findall(r"declare @popped table \((.*?)\n\);", examples[1], re.DOTALL)
    answered = called["pop"].rpartition("        select\n")[2].partition("from @claimed")[0]
    names = [re.findall(r"\w+", column)[-1] for column in answered.split(",")]
    assert re.findall(r"(\w+) (?:n?varchar|bigint|int|datetime2|uniqueidentifier)\b", kept) == names


@parses
@pytest.mark.parametrize("design", EVERY)
def test_sql_server_s_parser_takes_them(design: str) -> None:
    engine, table = on_sql_server(design)
    roles = {kind: ["web", "CORP\\ada"] for kind in procedures.ROLES}
    for text in (
        procedures.procedures(engine, table),
        procedures.dropping(engine, table),
        procedures.grants(engine, table, roles),
    ):
        for batch in engine.split(text):
            assert parse_errors(batch) == [], batch
            made = re.search(r"create or alter procedure (\S+)", batch)
            assert made is None or (made[1].startswith("shop.tq_work_") and batch.count("create or alter") == 1)
            # A variable is declared once, and before it is used.
            declared = re.findall(r"(?:declare |\n    )(@\w+) (?=bigint|int|bit|float|uniq|nvar|var|date|table)", batch)
            assert len(declared) == len(set(declared)), batch
            if made:
                assert {*re.findall(r"(?<!@)@\w+", batch)} - {"@key", "@value"} <= set(declared), batch


DEAD_LETTERS = ("fifo", "groups", "strict")


@pytest.mark.parametrize("design", [*EVERY, *(f"{design}_dead_letters" for design in DEAD_LETTERS)])
def test_a_procedure_executes_those_that_the_queue_has(design: str) -> None:
    """Otherwise it fails when it runs (error 2812), and the server says nothing when it is created."""
    found = bodies(design)
    there = {f"tq_work_{name}" for name in found}
    for name, body in found.items():
        missing = {*rules.executed(body, rules.Layout())} - there
        assert not missing, name
        assert rules.identities(body, rules.Layout()) == [], name
        assert rules.hints(body, rules.Layout()) == [], name
    broken = found["_sweep"].replace("__due", "__overdue")
    assert {*rules.executed(broken, rules.Layout())} - there, "the check must notice a procedure that is not there"


@pytest.mark.parametrize("design", ["strict", "groups", "strict_dead_letters", "groups_dead_letters"])
def test_a_procedure_notes_the_groups_that_it_changes(design: str) -> None:
    for name, body in bodies(design).items():
        plain = re.sub(r"(?m)^ +", "", body)
        assert rules.notes(plain, ("shop.tq_work", "shop.tq_failed")) == [], name


def misfits(body: str) -> list[str]:
    """Return table variables whose number of values differs from that of the columns (error 213)."""
    tables = re.findall(r"declare (@\w+) table \((.*?)\);\n", body, re.DOTALL)
    sizes = {name: len(rules._listed(columns)) for name, columns in tables}
    outputs = re.findall(
        r"^ *output\b((?:(?!^ *output\b).)*?)\binto (@\w+)(?: \((.*?)\))?\s*(?:;|$)", body, re.M | re.S
    )
    selects = re.findall(r"^ *insert into (@\w+)(?: \((.*?)\))?\s+select\b(.*?);\n", body, re.M | re.S)
    given = [(name, columns, values) for values, name, columns in outputs] + selects
    return [
        f"{len(rules._listed(_flat(values)))} values into {name}"
        for name, columns, values in given
        if len(rules._listed(_flat(values))) != (len(rules._listed(columns)) if columns else sizes[name])
    ]


def _flat(select: str) -> str:
    """Return the list of a select or an OUTPUT with its parentheses emptied."""
    while "(" in select:
        select = re.sub(r"\([^()]*\)", "", select)
    return re.split(r"\b(?:from|where)\b", select)[0]


@pytest.mark.parametrize("design", EVERY)
def test_a_table_variable_gets_as_many_columns_as_it_has(design: str) -> None:
    found = bodies(design)
    assert sum("declare @" in body and " table (" in body for body in found.values()) > 5
    for body in found.values():
        # The ring of a fair queue is filled from variables, not by a select.
        assert [misfit for misfit in misfits(body) if "into @ring" not in misfit] == []
    for name, old, new in (
        ("complete", "select message.id", "select message.attempts, message.id"),
        ("push_many", "(id bigint not null primary key)", "(id bigint not null primary key, place int)"),
    ):
        assert old in found[name]
        assert misfits(found[name].replace(old, new)), f"the check must notice a wrong {name}"


@pytest.mark.parametrize("design", EVERY)
def test_each_answers_once_so_that_others_can_keep_its_rows(design: str) -> None:
    """INSERT ... EXEC cannot be nested (8164), takes one shape of rows (213), and must not be rolled back in (3915)."""
    for name, body in bodies(design).items():
        assert not re.search(r"insert into \S+( \(.*\))?\s+exec\b", body), name
        statements = [textwrap.dedent(part).strip() for part in re.split(r";\s*\n", body)]
        kept = [part for part in statements if re.match(r"(select|update|delete|insert|with)\b", part)]
        answers = [part for part in kept if rules.says(part) and not re.match(r"select @\w+ = ", part)]
        assert not any(re.search(r"(?m)^output\b", part) for part in answers), name
        public = name in procedures.VERBS
        assert len(answers) == (0 if name == "peek" else int(public or name.startswith("_peek_"))), name
        for undone in re.findall(r"(?m)^.*\brollback\b.*$", body):
            assert name == "_move_on" or undone.strip().startswith("if @alone = 1 and "), name
        if public:
            assert (
                "set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on" in body
            )
            assert "set numeric_roundabort off" in body
            assert "set transaction isolation level read committed" in body
        assert "execute as" not in body, "whose schema a role owns could not make it"


@pytest.mark.parametrize("design", EVERY)
def test_blanks_count_and_characters_are_counted(design: str) -> None:
    """`=` and LEN ignore trailing blanks, and LEN counts UTF-16 code units unless the collation has _SC."""
    for name, body in bodies(design).items():
        compared = re.sub(r"nvarchar\(max\) = N''|set @p_group = N''", "", body)
        assert not re.search(r"(?:=|<>) N''", compared), name
        for counted in re.findall(r"(?<![a-z])len\(.*", body):
            assert re.match(r"len\(\((\S+) \+ N'\.'\) collate Latin1_General_100_CI_AS_SC\) - 1 ", counted), name
        # A parameter that is too long would be truncated silently.
        for parameter, size in re.findall(r"(?m)^    (@p_\w+) n?varchar\((\w+)\)", body):
            assert size == "max" or parameter in ("@p_on_conflict", "@p_state"), name


@pytest.mark.parametrize("design", EVERY)
def test_those_for_the_others_have_names_that_no_queue_has(design: str) -> None:
    for name in bodies(design):
        assert name in procedures.VERBS or name.startswith("_")
    engine, table = on_sql_server(design)
    for line in procedures.dropping(engine, table).splitlines()[1:]:
        assert re.fullmatch(r"if object_id\(N'(\S+)', N'P'\) is not null drop procedure \1;", line)


@pytest.mark.parametrize("design", EVERY)
def test_a_transaction_of_the_callers_is_swept_for_what_it_wants(design: str) -> None:
    """Messages that it makes ready are invisible to others until its commit."""
    found = bodies(design)
    for verb in ("pop", "take"):
        assert found[verb].count("case @alone when 1 then 1000 else @p_n end") == 2
        assert found[verb].count("__sweep 1000, @most, @p_now") == found[verb].count("__sweep 0, @most, @p_now") == 1
    for name in ("_due", "_expired", "_promote"):
        assert name not in found or "declare @n bigint = @p_n;" in found[name]
    assert all("if @alone = 1 " in found[verb].partition("move_on")[0][-80:] for verb in ("complete", "fail")
               if "move_on" in found[verb])  # fmt: skip
