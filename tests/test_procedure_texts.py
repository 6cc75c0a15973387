"""The templates of stored procedures: one for each verb, and what Microsoft's parser says of those of SQL Server."""

from __future__ import annotations

import re
import sys
from platform import machine
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Definition
from tablequeue.engines import ENGINES, engine_class, procedures
from tablequeue.message import STATES
from tablequeue.names import table_of
from tests.support import DESIGNS
from tests.tsql import parse_errors

# PostgreSQL would cut off what is longer than 63 characters; MariaDB and MySQL take 64.
LONGEST_NAME = {"mssql": 128}
WITH_PROCEDURES = [name for name in ENGINES if engine_class(name).stored]


@pytest.mark.parametrize("name", WITH_PROCEDURES)
def test_there_is_a_template_for_each_verb(name: str) -> None:
    folder = engine_class(name).name
    engine = engine_class(name)(sa.URL.create(name).get_dialect()())
    words = {*engine.words(engine.table("work", Definition()))}
    missing = {*procedures.VERBS, "grant", "drop"} - set(procedures.templates(folder))
    # On SQL Server a history is a table, so that no procedure can be called so.
    assert missing == ({"history"} if name == "mssql" else {"read_history"})
    for file in procedures.templates(folder):
        text = procedures.template(folder, file)
        made = file not in ("grant", "grant_schema", "drop")
        assert not made or text.startswith("-- {queue}_")
        assert max(map(len, text.splitlines())) <= 120
        assert not made or len(f"{table_of('q' * 47)}_{file}") <= LONGEST_NAME.get(name, 63)
        assert text.count("-- [end]") == len(re.findall(r"-- \[(?!end)", text))
        # `{sql claim ids=found}`: found would be the word, if there were one.
        given = set(re.findall(r"\{sql [^}]*?=([a-z]\w*)", text)) - {*STATES}
        declared = {name for names in re.findall(r"declare ([\w, ]+?) \w+", text) for name in names.split(", ")}
        assert not given & declared & words, file


@pytest.mark.skipif(sys.platform != "linux" or machine() != "x86_64", reason="The parser is for Linux on x86-64.")
@pytest.mark.parametrize("design", [*DESIGNS, "at_most_once", "no_history", "retention", "bytes"])
def test_sql_server_s_parser_takes_them(design: str) -> None:
    more: dict[str, dict[str, Any]] = {
        "at_most_once": {"delivery": "at_most_once"},
        "no_history": {"history": "none"},
        "retention": {"history": 60, "strict": True},
        "bytes": {"payload": "bytes"},
    }
    definition = Definition(**{**DESIGNS, **more}[design])
    engine = engine_class("mssql")(sa.URL.create("mssql").get_dialect()(), "shop")
    roles = {kind: ["web", "CORP\\ada"] for kind in procedures.ROLES}
    table = engine.table("work", definition)
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
            declared = re.findall(
                r"(?:declare |, |\n    )(@\w+) (?=bigint|int|bit|float|uniq|nvar|var|date|table)", batch
            )
            assert len(declared) == len(set(declared)), batch
            if made:
                assert {*re.findall(r"(?<!@)@\w+", batch)} - {"@key", "@value"} <= set(declared), batch
