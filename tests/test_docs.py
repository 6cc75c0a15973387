"""The documents: their Python blocks run, and what they link to and the tests that the guarantees name are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tablequeue.definition import ORDERS

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def blocks(text: str) -> list[tuple[int, str]]:
    """Each Python block, with the number of the line where it begins."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, block.start()) + 2, block[1]) for block in found]


PAGES = [page for page in (ROOT / "README.md", *DOCS) if blocks(page.read_text("utf-8"))]


def headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    for line, program in blocks(page.read_text("utf-8")):
        # The empty lines make a traceback point to the line of the page.
        exec(compile("\n" * (line - 1) + program, str(page), "exec"), namespace)


def test_the_readme_names_every_order() -> None:
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert set(rows) == set(ORDERS)


def test_there_is_something_to_run() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "orders.md", "delivery.md", "keeping.md"}


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *DOCS], ids=lambda page: page.name)
def test_a_page_links_to_what_is_there(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!\w+:)([^)#]*)(?:#([^)]+))?\)", page.read_text("utf-8")):
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
