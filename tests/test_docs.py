"""The documentation: its Python blocks run, its SQL is what the library emits, and its links lead somewhere.

    TABLEQUEUE_WRITE_DOCS=1 pytest tests/test_docs.py

writes the SQL of the pages again. The comment before each block, such as `<!-- sql: pop emails --dialect postgresql
-->`, has the arguments of `tablequeue sql`.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tablequeue
from tablequeue.cli import main
from tablequeue.engines import ENGINES
from tablequeue.model.definition import ORDERS
from tablequeue.testing import temporary_database
from tests import mssql
from tests.servers import KINDS, Kind

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
# Pages of the site alone: docs/conf.py.
SITE = {*(ROOT / "docs").glob("reference/*"), *(ROOT / "docs").glob("project/*")}
SITE |= {ROOT / "docs" / name for name in ("index.md", "commands.md")}
ALL = [*sorted(ROOT.glob("*.md")), *DOCS]
RECIPES = [page for page in DOCS if page.parent.name in ("recipes", "coming-from")]
# A block of SQL, and the comment before it if there is one.
SQL = re.compile(r"(?:^<!-- sql: ([^\n]+) -->\n)?^```sql\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WRITES = "TABLEQUEUE_WRITE_DOCS"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def emitted(arguments: list[str]) -> str:
    """Return the output of `tablequeue sql`."""
    result = CliRunner().invoke(main, ["sql", *arguments])
    assert result.exit_code == 0, f"tablequeue sql {shlex.join(arguments)}: {result.output}"
    return result.output


def dialect(arguments: list[str]) -> str:
    return arguments[arguments.index("--dialect") + 1]


def blocks(text: str) -> list[tuple[int, str]]:
    """Return each Python block with the number of its first line."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, block.start()) + 2, block[1]) for block in found]


# What a page needs besides the packages of `make check`.
NEEDS = {
    "docs/dramatiq.md": "dramatiq",
    "docs/fastapi.md": "fastapi",
    "docs/flask.md": "flask",
    "docs/taskiq.md": "taskiq",
    "docs/webhooks.md": "standardwebhooks",
}
PAGES = [page for page in (ROOT / "README.md", *DOCS) if blocks(page.read_text("utf-8"))]


def prose(text: str) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub makes them from its headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDS.get(name_of(page), "tablequeue"))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    for line, program in blocks(page.read_text("utf-8")):
        # Empty lines make the line numbers of a traceback those of the page.
        exec(compile("\n" * (line - 1) + program, str(page), "exec"), namespace)


@contextmanager
def apart(kind: Kind, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a schema, or on SQL Server of a database, with nothing in it."""
    if kind.name == "mssql":  # whose URL names no schema
        with mssql.database() as url:
            yield url
        return
    with temporary_database(kind.url(request)) as url:
        yield url


@pytest.mark.parametrize("server", [kind for kind in KINDS if kind.name != "sqlite"], ids=lambda kind: kind.name)
@pytest.mark.parametrize("page", RECIPES, ids=name_of)
def test_a_recipe_runs_on_a_server(page: Path, server: Kind, request: pytest.FixtureRequest) -> None:
    namespace: dict[str, Any] = {"__name__": page.stem}
    with apart(server, request) as url:
        try:
            for line, program in blocks(page.read_text("utf-8")):
                there = re.sub(r"sqlite:///\w+\.db", lambda found: url, program)
                exec(compile("\n" * (line - 1) + there, str(page), "exec"), namespace)
        finally:
            for name in ("db", "engine"):
                opened = namespace.get(name)
                if isinstance(opened, tablequeue.Database):
                    opened.close()
                    opened = opened.engine
                if opened is not None:
                    opened.dispose()


def test_the_readme_names_every_order() -> None:
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(rows) == set(ORDERS)


def test_there_is_something_to_run() -> None:
    pages = {name_of(page) for page in PAGES}
    assert pages >= {"README.md", "docs/orders.md", "docs/delivery.md", "docs/retention.md"}
    assert pages >= {name_of(page) for page in RECIPES}
    assert len(RECIPES) > 10


@pytest.mark.parametrize("page", [page for page in ALL if SQL.search(page.read_text("utf-8"))], ids=name_of)
def test_the_sql_of_a_page_is_what_is_emitted(page: Path) -> None:
    text = page.read_text("utf-8")

    def block(match: re.Match[str]) -> str:
        assert match[1], f"no comment says where this SQL comes from: {match[2]}"
        arguments = shlex.split(match[1])
        if dialect(arguments) not in ENGINES:
            return match[0]
        return f"<!-- sql: {match[1]} -->\n```sql\n{emitted(arguments)}```"

    current = SQL.sub(block, text)
    if os.environ.get(WRITES):
        page.write_text(current, "utf-8")
    else:
        assert text == current, f"The SQL has changed: {WRITES}=1 pytest {name_of(Path(__file__))} writes it anew."


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_the_commands_that_print_sql_print_some(page: Path) -> None:
    for arguments in map(shlex.split, re.findall(r"^tablequeue sql ([^#|\n]+)", page.read_text("utf-8"), re.MULTILINE)):
        assert dialect(arguments) not in ENGINES or emitted(arguments).strip()


def test_the_index_names_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    links = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)\)", index.read_text("utf-8"))}
    assert links >= {page for page in DOCS if page.parent.name != "adr"} - SITE - {index}


def test_the_site_has_every_page_in_an_index() -> None:
    """Sphinx refuses a page that no index has, which `make check` does not run."""
    found = {ROOT / "docs" / "index.md"}
    for page in (ROOT / "docs").rglob("*.md"):
        for entries in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            for entry in entries.split("\n"):
                name = re.sub(r"^.*<(.*)>$", r"\1", entry)
                if name and not name.startswith(":"):
                    there = {*page.parent.glob(f"{name}.md")}
                    assert there, f"{page.name}: {name}"
                    found |= {each.resolve() for each in there}
    outside = {ROOT / "docs" / "README.md", ROOT / "docs" / "adr" / "README.md"}
    assert found | outside == {*(ROOT / "docs").rglob("*.md")}


def test_the_page_of_extras_names_each_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "extras.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(extras)


def test_the_reference_names_everything_public() -> None:
    text = "\n".join(page.read_text("utf-8") for page in SITE)
    named = {*re.findall(r"(?:auto\w+|py:data):: tablequeue\.(\w+)$", text, re.MULTILINE)}
    assert named | {*vars(tablequeue.errors)} >= {*tablequeue.__all__}


def test_decisions_are_numbered_listed_and_complete() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("0*.md"))
    index = (ROOT / "docs" / "adr" / "README.md").read_text("utf-8")
    for number, page in enumerate(pages, 1):
        title, status, *sections = re.findall(r"^(?:#.*|Status: .*)$", page.read_text("utf-8"), re.MULTILINE)
        assert page.name.startswith(f"{number:04}-")
        assert f"| {number} | [{title.removeprefix(f'# {number}. ')}]({page.name}) |" in index, page.name
        assert re.fullmatch(r"Status: (proposed|accepted|superseded by \[.+\]\(.+\))\.", status), page.name
        assert sections == ["## Context", "## Decision", "## Figures", "## Rejected"], page.name


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_a_page_links_to_what_is_there(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!\w+:)([^)#]*)(?:#([^)]+))?\)", prose(page.read_text("utf-8"))):
        there = page.parent / target if target else page
        assert there.exists(), target
        if heading:
            assert heading in headings(there.read_text("utf-8")), f"{target}#{heading}"


def test_the_guarantees_name_tests_that_are_there() -> None:
    rows = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    links = [link for row in rows for link in re.findall(r"\]\((\.\./tests/[^)]+)\)(?::((?: `\w+`,?)+))?", row)]
    assert len(links) > 10
    for path, names in links:
        text = (ROOT / "docs" / path).read_text()
        for name in re.findall(r"\w+", names):
            assert f"def {name}(" in text, f"{name} is not in {path}"
