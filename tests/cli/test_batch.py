"""`tablequeue batch`: list, show, results and cancel."""

from __future__ import annotations

import pytest

from tablequeue import Database
from tests.cli.support import Run, lines
from tests.support import claimed

pytestmark = pytest.mark.quick


def test_show_and_cancel(run: Run, db: Database) -> None:
    ended, reports = db.create_queue("ended"), db.create_queue("reports", batches=True)
    with reports.batch(then=("ended", "all")) as batch:
        batch.push_many([*"abcd"])
    claimed(reports).complete()
    held = claimed(reports)
    (shown,) = lines(run("batch", "show", batch.id, "--json"))
    assert [shown[name] for name in ("batch", "queue", "total", "waiting", "in_progress")] == [
        batch.id,
        "reports",
        4,
        2,
        1,
    ]
    assert "in_progress  1\n" in run("batch", "show", batch.id).stdout
    assert run("batch", "cancel", batch.id, "--yes").stdout == "3 cancelled or told to stop\n"
    assert ended.pop() is None, "a consumer has one of its messages"
    held.fail("stopped")
    assert claimed(ended).headers["tablequeue-batch"]["cancelled"] == 3
    assert lines(run("batch", "cancel", batch.id, "--yes", "--json")) == [{"batch": batch.id, "cancelled": 0}]


def test_results(run: Run, db: Database) -> None:
    totals = db.create_queue("totals", batches=True, results=True)
    with totals.batch() as batch:
        batch.push_many([[1, 2], ["ä"], None])
    first, second = claimed(totals), claimed(totals)
    first.complete(result=3)
    second.complete(result={"of": "ä"})
    shown = [{"id": first.id, "result": 3}, {"id": second.id, "result": {"of": "ä"}}]
    assert lines(run("batch", "results", batch.id, "--json")) == shown
    assert lines(run("batch", "results", batch.id, "--after", first.id, "-n", 1, "--json")) == shown[1:]
    assert '{"of": "ä"}' in run("batch", "results", batch.id).stdout


def test_a_list_has_the_open_batches(run: Run, db: Database) -> None:
    reports = db.create_queue("reports", batches=True)
    ids = []
    for payloads in ("ab", "c", ""):
        with reports.batch() as batch:
            batch.push_many([*payloads])
        ids.append(batch.id)
    claimed(reports).complete()
    shown = lines(run("batch", "list", "reports", "--json"))
    assert [(one["batch"], one["total"], one["waiting"]) for one in shown] == [(ids[0], 2, 1), (ids[1], 1, 1)]
    assert lines(run("batch", "list", "reports", "--after", ids[0], "-n", 1, "--json")) == shown[1:]
    assert f"{ids[1]}" in run("batch", "list", "reports").stdout
    assert "batches" in run("stats").stdout
    db.create_queue("plain")
    assert "batches" not in run("stats", "plain").stdout
    assert "has no batches" in run("batch", "list", "plain", code=1).stderr


def test_a_batch_that_is_not_there(run: Run, db: Database) -> None:
    db.create_queue("reports", batches=True)
    for words in ("show", "cancel", "results"):
        assert "There is no batch 7." in run("batch", words, 7, code=1).stderr
    db.queue("reports").drop()
    assert "There is no batch 7." in run("batch", "show", 7, code=1).stderr
