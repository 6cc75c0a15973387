"""The page for reviewers of the SQL for SQL Server is what the texts say.

    TABLEQUEUE_WRITE_DOCS=1 pytest tests/test_mssql_review.py

writes it again.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tablequeue import Definition
from tests import mssql_review as review
from tests.mssql_rules import statements
from tests.test_docs import ROOT, WRITES, name_of
from tests.test_mssql_texts import ENGINE

pytestmark = pytest.mark.quick

PAGE = ROOT / "docs" / "engines" / "sql-server-review.md"


def test_the_page_is_current() -> None:
    """A text without an index or locks in its header has no section: `page` raises."""
    current = review.page()
    if os.environ.get(WRITES):
        PAGE.write_text(current, "utf-8")
    assert PAGE.read_text("utf-8") == current, (
        f"It is stale: {WRITES}=1 pytest {name_of(Path(__file__))} writes it anew."
    )


@pytest.mark.parametrize("gone", ["Index", "Locks"])
def test_a_header_without_an_index_or_locks_is_refused(gone: str) -> None:
    header = review.header_of(ENGINE.render("take", ENGINE.table("work", Definition())))
    index, locks = review.promises(header)
    assert index.startswith("tq_work__ready, forced")
    assert locks.startswith("the rows, until the transaction ends")
    with pytest.raises(ValueError, match=gone.lower()):
        review.promises(header.replace(f"{gone}:", "So:"))


def test_each_statement_has_its_hints_and_what_it_rests_on() -> None:
    claim = {row: where for row, where in review.rows_of("claim").items() if row.action == "UPDATE tq_work"}
    (ordered,) = (row for row, where in claim.items() if "fifo" in where)
    assert "`tq_work` (index (tq_work__ready), rowlock, readpast, updlock, readcommittedlock)" in ordered.tables
    subjects = [review.FACTS[int(number) - 1].subject for number in ordered.facts.split()]
    assert {"INDEX", "READPAST", "UPDLOCK", "ROWLOCK", "READCOMMITTEDLOCK", "TOP with ORDER BY", "OUTPUT"} <= {
        *subjects
    }
    (strict,) = (row for row, where in claim.items() if where == ["strict"])
    assert "readpast" not in strict.tables


@pytest.mark.parametrize(
    "name", ["claim", "take", "complete", "fail", "release", "extend", "sweep", "promote", "sequence"]
)
def test_no_statement_that_changes_a_table_is_left_out(name: str) -> None:
    """Each UPDATE, DELETE and INSERT of the texts is in a row."""
    rows = review.rows_of(name)
    for _, text in review.every_text(name):
        for batch in ENGINE.split(text):
            for statement in statements(batch):
                if changed := re.search(r"^(update|delete|insert into)\b", statement, re.MULTILINE):
                    found = review.row_of(statement)
                    assert found in rows or (found is None and "@" in statement), changed[0]


def test_each_fact_is_a_sentence_with_its_page_and_is_used() -> None:
    used = {number for text in texts() for row in review.rows_of(text) for number in row.facts.split()}
    for number, fact in enumerate(review.FACTS, 1):
        assert fact.says.endswith((".", ".”")), fact.subject
        assert fact.page.startswith("https://learn.microsoft.com/sql/")
        assert str(number) in used, f"no statement rests on {fact.subject}"


def texts() -> list[str]:
    return list(dict.fromkeys(text for operations in review.GROUPS.values() for text in review.texts_of(operations)))
