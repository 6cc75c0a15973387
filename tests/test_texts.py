"""Rules for the texts in the .sql files, which people read and other languages run."""

from __future__ import annotations

import inspect
import re
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Definition
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.catalogue import UPGRADES, created_by
from tablequeue.engines.columns import LISTS, listed
from tablequeue.engines.engine import OPERATIONS
from tablequeue.engines.operation import Effect, declaration
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.printed_values import parameters
from tablequeue.engines.texts import chosen, filled_in, operations_of, parts_of, sql_text, statements_in, texts_in
from tablequeue.model.definition import HISTORIES, PAYLOADS
from tests.checks import check_plan_of_a_new_queue, check_plan_of_times, check_plans
from tests.rendering import rendered
from tests.servers import ELSEWHERE, KINDS, Kind, Place, only
from tests.support import DESIGNS, designs_with, rewritten

pytestmark = pytest.mark.quick

# Every payload with every history in one design. In the others two of each: no text has lines for three of them.
DEFINITIONS = [Definition(payload=payload, history=history) for payload in PAYLOADS for history in HISTORIES]
DEFINITIONS += [
    each
    for name, design in DESIGNS.items()
    if name != "fifo"
    for each in (Definition(**design), Definition(payload="bytes", history="none", **design))
]
# An engine may serve several dialects. Its SQL is under its own name.
FOLDERS = [name for name in ENGINES if engine_class(name).name == name]
TEXTS = [(name, operation) for name in FOLDERS for operation in operations_of(name)]


def dialect_of(name: str) -> Any:
    """Return the dialect without its driver, which need not be installed."""
    return sa.URL.create(name).get_dialect()()


def test_every_engine_is_tested() -> None:
    assert {kind.name for kind in KINDS} | ELSEWHERE == set(ENGINES)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_operation_is_declared(name: str) -> None:
    """Also those that an engine overrides, and no engine has one of its own."""
    parts = [part for _, part in inspect.getmembers(engine_class(name), lambda one: isinstance(one, Part))]
    methods = [method for part in parts for method in inspect.getmembers(part, inspect.ismethod)]
    called = ["cursor", "table", "params"]
    operations = {it for name, it in methods if name[0] != "_" and [*inspect.signature(it).parameters] == called}
    assert not [one for one in operations if declaration(one) is None]
    assert {*OPERATIONS} == {declared.name for _, it in methods if (declared := declaration(it))}


@pytest.mark.parametrize("name", FOLDERS)
def test_the_table_has_every_text(name: str) -> None:
    rows = OPERATIONS.items()
    used = {text for operation, row in rows for text in (*(row.texts or [operation]), *row.others.split())}
    used |= {text for texts in UPGRADES.values() for text in texts}
    used |= {check.operation for check in engine_class(name).checks.all}
    assert {*operations_of(name)} <= used


@pytest.mark.parametrize("name", FOLDERS)
def test_what_runs_in_autocommit(name: str) -> None:
    """On an engine with one writer, no operation that writes."""
    effects = {*engine_class(name).autocommit}
    assert effects == {Effect.READ} if name == "sqlite" else effects >= {Effect.READ, Effect.WRITE}
    assert Effect.STEP not in effects
    assert Effect.DDL not in effects


def files_of(name: str) -> list[Path]:
    """The files of an engine, and those that engines share."""
    engines = Path(inspect.getfile(Part)).parent
    every = sorted(file for folder in (engines, engines / name) for file in folder.glob("*/*.sql"))
    return [file for file in every if file.name != "parameters.sql"]


def statements_of(folder: str) -> dict[str, str]:
    """The texts in a folder of engines by name, without their headers."""
    files = Path(inspect.getfile(Part)).parent.joinpath(folder).glob("*/*.sql")
    named = [text.partition("\n")[::2] for file in files for text in file.read_text("utf-8").split("\n-- name: ")[1:]]
    return {name: re.sub(r"(?m)^\s*(-- [^\[].*)?\n", "", f"{text}\n") for name, text in named}


@pytest.mark.parametrize("name", FOLDERS)
def test_each_file_is_a_subject_with_named_texts(name: str) -> None:
    for file in files_of(name):
        subject, *texts = file.read_text("utf-8").split("\n\n-- name: ")
        assert re.fullmatch(r"-- [A-Z].*\.", subject), f"{file}: a sentence about its subject"
        assert texts, f"{file}: an empty line before each name"
        for text in texts:
            named = re.findall(r"(?m)^-- name: (.*)", f"-- name: {text}")
            assert all(re.fullmatch(r"\w+(\.\w+)?", one) for one in named), f"{file}: {named}"
            assert {one.partition(".")[0] for one in named} == {named[0]}, f"{file}: sections are in their text"


def test_each_purpose_is_that_of_texts() -> None:
    """It is said once, and stands at the head of each text of its name."""
    purposes = Path(inspect.getfile(Part)).parent.joinpath("purposes.sql").read_text("utf-8")
    named = re.findall(r"(?m)^-- ([\w.]+): (.*)", purposes)
    assert len(named) == len(dict(named))
    assert len(named) > 100
    for name, first in named:
        texts = [texts_in(engine, "sql").get(name, "") for engine in FOLDERS]
        assert [text.startswith(f"-- {first}\n") for text in texts if text].count(True) >= 2, name


def test_a_name_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x" / "sql").mkdir(parents=True)
    (tmp_path / "x" / "sql" / "one.sql").write_text("-- Some.\n\n-- name: claim\n-- One.\nselect 1;\n", "utf-8")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    assert texts_in.__wrapped__("x", "sql") == {"claim": "-- One.\nselect 1;\n"}
    (tmp_path / "x" / "sql" / "two.sql").write_text("-- More.\n\n-- name: claim\n-- Two.\nselect 2;\n", "utf-8")
    with pytest.raises(ValueError, match="two texts 'claim'"):
        texts_in.__wrapped__("x", "sql")


def test_an_engine_has_its_own_text_instead_of_the_shared_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, text in ("sql", "-- Shared.\nselect 1;"), ("x/sql", "-- Own.\nselect 2;"), ("y/sql", None):
        (tmp_path / folder).mkdir(parents=True)
        if text is not None:
            (tmp_path / folder / "one.sql").write_text(f"-- Some.\n\n-- name: claim\n{text}\n", "utf-8")
    monkeypatch.setattr(resources, "files", lambda _: tmp_path)
    assert texts_in.__wrapped__("x", "sql") == {"claim": "-- Own.\nselect 2;\n"}
    assert texts_in.__wrapped__("y", "sql") == {"claim": "-- Shared.\nselect 1;\n"}


def test_a_text_that_several_engines_have_is_shared() -> None:
    """If all have a text of that name: else the others would have it too. And but for texts with sections."""
    own = [statements_of(engine_class(name).name) for name in FOLDERS]
    shared = statements_of("")
    for called in {*chain(*own)}:
        those = [texts[called] for texts in own if texts.get(called)]
        assert shared.get(called) not in those, called
        if len(those) == len(own) and not re.search(rf"(?m)^{called.partition('.')[0]}\.", "\n".join(chain(*own))):
            assert len({*those}) == len(own), called


@pytest.mark.parametrize(
    ("met", "lines"),
    [("", "b d"), ("keep", "a d"), ("keep fair", "b d"), ("keep fair rate", "a d"), ("rate", "a c d")],
)
def test_lines_are_for_the_queues_that_meet_their_conditions(met: str, lines: str) -> None:
    text = "-- [keep not fair or rate]\na\n-- [else]\nb\n-- [rate not keep]\nc\n-- [end]\nd"
    assert " ".join(chosen(text, {*met.split()})) == lines


def test_a_part_is_included_with_what_it_knows() -> None:
    parts = {"outer": "{inner}\n{inner taken of='a b'}", "inner": "{of}\n-- [taken]\n{n}\n-- [end]"}
    text = filled_in("if\n    {outer of=x}\nend", {"n": ":n"}, set(), parts.__getitem__)
    assert text == "if\n    x\n    'a b'\n    :n\nend"
    assert filled_in("{n}\n{outer}", {"n": ":n", "outer": ""}, set(), parts.__getitem__) == ":n"


@pytest.mark.parametrize("name", FOLDERS)
def test_each_part_is_included(name: str) -> None:
    programs = Path(inspect.getfile(Part)).parent.glob("*.py")  # of_many joins texts that are given
    texts = "".join(file.read_text("utf-8") for file in [*files_of(name), *programs])
    assert [part for part in parts_of(name) if not re.search(rf"\{{{part}[ }}]", texts)] == []


@pytest.mark.parametrize("name", FOLDERS)
def test_the_sections_of_a_text_are_all_of_it(name: str) -> None:
    """Whatever conditions a definition meets: a section begins and ends outside of lines with a condition."""
    engine = engine_class(name)(dialect_of(name))
    sections = [text for text in texts_in(name, "sql") if "." in text]
    assert sections
    for definition in DEFINITIONS:
        table = engine.table("work", definition)
        for whole in dict.fromkeys(one.partition(".")[0] for one in sections):
            those = [one for one in sections if one.startswith(f"{whole}.")]
            rendered = [one for section in those for one in engine.split(engine.render(section, table))]
            assert rendered == engine.split(engine.render(whole, table)), whole


# A loop, not a test for each text: to make and report hundreds of tests takes longer than to read the texts.
@pytest.mark.parametrize("name", FOLDERS)
def test_each_text_begins_with_what_it_is_for(name: str) -> None:
    assert all(len(line) <= 120 for text in texts_in(name, "parts").values() for line in text.splitlines())
    for operation in operations_of(name):
        text = sql_text(name, operation)
        header = re.match(r"(?:-- [^[].*\n)+", text)
        assert header, f"{operation}: a header of comments"
        assert re.match(r"-- [A-Z]", text), f"{operation}: a sentence"
        assert header[0].rstrip().endswith((".", ":")), f"{operation}: whole sentences"
        assert text.endswith("\n"), operation
        assert max(map(len, text.splitlines())) <= 120, operation
        assert "\t" not in text, operation
        assert statements_in(text), operation


@pytest.mark.parametrize("name", FOLDERS)
def test_each_text_renders_and_compiles_for_every_definition(name: str) -> None:
    engine = engine_class(name)(dialect_of(name))
    tables = [engine.table("work", definition) for definition in DEFINITIONS]
    for operation in operations_of(name):
        texts = {text for table in tables for text in rendered(engine, operation, table)}
        for statement in {statement for text in texts for statement in statements_in(text)}:
            compiled = engine.compile(statement)
            assert compiled, operation
            assert not re.search(r"\{\w+\}", compiled), f"{operation}: a word that stands for nothing"


@pytest.mark.parametrize("name", [name for name in FOLDERS if engine_class(name).has_schemas])
def test_each_text_names_the_schema_everywhere(name: str) -> None:
    engine = engine_class(name)(dialect_of(name), "mine")
    for operation in operations_of(name):
        text = engine.render(operation, engine.table("work", Definition()))
        for statement in statements_in(text.replace("create index if not exists", "create index")):
            bare = re.findall(r"(?:from|into|update|table|exists|on|copy|function) '?(tq_\w+)", statement)
            assert bare == [], f"{operation}: a table without its schema"


# What an engine makes of the parameters that it is given.
OF_ENGINES = {"dues", "due_at", "each_expires", "groups", "noted", "priorities", "session", "timeout"}


def test_each_parameter_of_the_texts_is_in_the_table_of_parameters() -> None:
    named = {name for engine, operation in TEXTS for name in parameters(sql_text(engine, operation))}
    assert named - Params.__annotations__.keys() == OF_ENGINES


def test_a_list_of_columns_is_named_and_not_repeated() -> None:
    """A column is added to the list, then; see columns.py. The columns of a push are spelled out: few texts push."""
    for name, operation in TEXTS:
        text = re.sub(r"\s+", " ", sql_text(name, operation))
        for names in LISTS.values():
            runs = [", ".join(names[start : start + 11]) for start in range(len(names) - 10)]
            assert not [run for run in runs if run in text], f"{name}/{operation}"


def test_a_word_for_no_column_is_refused() -> None:
    assert listed("{claimed of new with\n    id = 1}", {}).startswith("1, new.payload, new.headers, ")
    with pytest.raises(ValueError, match="no column 'attempt'"):
        listed("{claimed with attempt = 1}", {})


def test_a_table_has_one_column_in_a_line_with_its_type() -> None:
    columns = LISTS["moving_table"]
    types = {column: f"{column} text" for column in columns}
    text = listed("create table {moving} (\n    {moving_table}\n);", {"moving_table": types})
    assert text.splitlines()[1:-1] == [f"    {column} text," for column in columns[:-1]] + [f"    {columns[-1]} text"]
    with pytest.raises(KeyError, match="errors"):  # and not a table without that column
        listed("    {moving_table}", {"moving_table": {column: types[column] for column in columns[:-1]}})


def test_claims_pass_over_locked_rows() -> None:
    for operation in ("claim", "sweep", "purge", "redrive"):
        text = sql_text("postgresql", operation)
        assert text.count("for update skip locked") == len(re.findall(r"\blimit [:\d{]", text)) > 0
    for operation in ("claim", "claim_many", "take", "sweep", "purge", "redrive"):
        assert sql_text("mysql", operation).count("for update skip locked") == 1
    assert sql_text("mysql", "promote").count("for update skip locked") == 2, "of the notes and of the messages"


@pytest.mark.parametrize("operation", ["complete", "fail", "release", "extend"])
@pytest.mark.parametrize("name", FOLDERS)
def test_every_finishing_statement_asks_for_the_token(name: str, operation: str) -> None:
    for statement in engine_class(name)(dialect_of(name)).split(sql_text(name, operation)):
        assert re.search(r"\btoken = (cast\(:token as \w+\)|[:@]token)", statement)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_plan_uses_the_index(db: Database, kind: Kind, design: str) -> None:
    check_plans(db, kind, db.create_queue("work", **DESIGNS[design]))


@pytest.mark.parametrize("design", designs_with(["plain_push"]))
def test_a_new_queue_claims_by_the_index(db: Database, kind: Kind, design: str) -> None:
    check_plan_of_a_new_queue(db, kind, db.create_queue("work", **DESIGNS[design]))


def test_ids_of_an_interval_are_found_by_its_index(db: Database, kind: Kind) -> None:
    check_plan_of_times(db, kind, db.create_queue("work"))


@only("postgresql")
def test_a_walk_by_id_is_noticed(place: Place, kind: Kind) -> None:
    mutant = rewritten(kind.engine_class, finished_bounds=lambda text: text.replace("id + 0", "id"))
    database = place.open_with(mutant)
    with pytest.raises(AssertionError):
        check_plan_of_times(database, kind, database.create_queue("work"))


@only("postgresql")
def test_a_new_queue_without_statistics_is_noticed(place: Place, kind: Kind) -> None:
    mutant = rewritten(kind.engine_class, create=lambda text: re.sub("analyze .*;", "", text))
    database = place.open_with(mutant)
    queue = database.create_queue("work")
    with pytest.raises(AssertionError):
        check_plan_of_a_new_queue(database, kind, queue)


def test_identifiers_fit_into_63_characters(kind: Kind) -> None:
    """PostgreSQL silently truncates longer names."""
    longest = "q" * 48
    engine = kind.engine_class(dialect_of(kind.name))
    for operation in created_by(engine.name, Definition()):
        text = engine.render(operation, engine.table(longest, Definition()))
        assert max(map(len, re.findall(r"\w+", "\n".join(statements_in(text))))) <= 63
