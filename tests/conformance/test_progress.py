"""Progress: what consumers report of the messages that they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import tablequeue.aio
from tablequeue import Database, LeaseLost, Progress
from tablequeue.engines.progress import ProgressReports
from tablequeue.errors import BadInput, BadPayload
from tablequeue.verbs import progress
from tests.async_support import claimed as claimed_async
from tests.async_support import in_loop
from tests.async_support import refuses as refuses_async
from tests.batches import ENGINES
from tests.callers import Caller
from tests.progress import always, check_forgotten, check_progress, fraction, reports, started
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, refuses

pytestmark = [pytest.mark.quick, only(*ENGINES)]


@pytest.mark.parametrize("design", ["fifo", "groups", "fair"])
@pytest.mark.parametrize("history", ["keep", "none"])
def test_a_claim_reports_while_it_is_held(db: Database, design: str, history: Any) -> None:
    check_progress(db, history=history, **DESIGNS[design])


def test_reports_of_claims_that_ended_are_deleted(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forgotten(db, monkeypatch)


def test_what_is_reported(db: Database) -> None:
    queue, message = started(db)
    message.release()
    message = claimed(queue)
    detail = {"row": 4000, "text": "é\N{SNOWMAN}\0"}
    message.progress(0.4, detail, now=at(7))
    assert queue.progress(message.id) == Progress(0.4, detail, at(7), 1)
    message.fail("no", retry_in=0)
    message = claimed(queue)
    message.progress(1, now=at(9))
    assert queue.progress(message.id) == Progress(1.0, None, at(9), 2)
    assert queue.progress(message.id + 1) is None
    message.complete()
    assert queue.progress(message.id) is None
    refuses(LeaseLost, message.queue.report_progress, claimed_again(message), 0.5)


def claimed_again(message: Any) -> Any:
    """Return the same claim, which knows of no report."""
    return type(message).of(message.queue, message.id, message.token)


def test_one_write_a_second(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first report is written, then one a second, and that all is done."""
    clock = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: clock[0])
    queue, message = started(db)
    seen = []
    for moment, done in ((100.0, 0.1), (100.9, 0.2), (101.0, 0.3), (101.5, 0.4), (101.6, 1), (102.0, 0.5), (102.6, 1)):
        clock[0] = moment
        message.progress(done, now=at(moment))
        found = queue.progress(message.id)
        assert found is not None
        seen.append((found.fraction, found.at))
    assert seen == [
        (0.1, at(100.0)), (0.1, at(100.0)), (0.3, at(101.0)), (0.3, at(101.0)), (1, at(101.6)), (1, at(101.6)),
        (1, at(102.6)),
    ]  # fmt: skip


def test_a_report_that_is_dropped_does_nothing(db: Database) -> None:
    _, message = started(db)
    message.progress(0.5)
    message.release()
    message.progress(0.75, object())
    refuses(BadInput, message.progress, 2)


def test_refusals(db: Database) -> None:
    queue, message = started(db)
    for bad in (-0.1, 1.1, math.nan, math.inf, True, "0.5", None):
        refuses(BadInput, message.progress, bad)
    refuses(BadPayload, message.progress, 0.5, object())
    refuses(BadInput, queue.report_progress, "a", 0.5)
    refuses(BadInput, queue.progress, "a")
    once = db.create_queue("once", payload="text", delivery="at_most_once")
    once.push("a")
    refuses(BadInput, claimed(once).progress, 0.5)
    assert once.progress(1) is None


def test_subscriptions(db: Database) -> None:
    topic = db.create_topic("events", payload="text", groups=True)
    log, ordered = topic.subscribe("log"), topic.subscribe("ordered", ordered=True)
    topic.push("a", group="g")
    refuses(BadInput, claimed(log).progress, 0.5)
    message = claimed(ordered)
    message.progress(0.5)
    found = ordered.progress(message.id)
    assert found is not None
    assert found.fraction == 0.5


def test_in_a_callers_transaction(db: Database, caller: Caller) -> None:
    """A report that was rolled back makes no later one dropped."""
    queue, message = started(db)
    for end, after in ((caller.rollback, None), (caller.commit, 0.5)):
        message.progress(0.5, now=at(1), connection=caller.connection)
        message.progress(0.5, now=at(1), connection=caller.connection)
        assert fraction(queue, message.id) is None
        end()
        assert fraction(queue, message.id) == after
    assert reports(queue) == 1
    message.release()
    refuses(LeaseLost, message.progress, 0.75, connection=caller.connection)
    caller.rollback()


def test_reports_in_callers_transactions_are_deleted_later(
    db: Database, place: Place, kind: Kind, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside another open transaction that has reported, for which no consumer waits."""
    always(monkeypatch)
    queue, first = started(db)
    queue.push_many([*"bcd"])
    for message in queue.pop_many(2):
        message.progress(0.5, connection=caller.connection)
        message.complete(connection=caller.connection)
        caller.commit()
    first.progress(0.5, connection=caller.connection)
    if kind.side_by_side:
        claimed(place.open().queue("work")).progress(0.5)
    caller.commit()
    assert reports(queue) == 1 + kind.side_by_side


@in_loop
async def test_in_an_async_callers_transaction(place: Place, kind: Kind, db: Database) -> None:
    for driver in kind.engine_class.async_drivers:
        url = sa.make_url(place.url).set(drivername=f"{kind.name}+{driver}")
        async with await tablequeue.aio.connect(place.url, schema=place.schema) as aio:
            queue = await aio.create_queue(driver, payload="text")
            await queue.push("a")
            message = await claimed_async(queue)
            engine = create_async_engine(url)
            async with engine.connect() as connection:
                await message.progress(0.5, {"row": 1}, connection=connection)
                assert fraction(db.queue(driver), message.id) is None
                await connection.commit()
                await message.release()
                await refuses_async(LeaseLost, message.progress, 0.75, connection=connection)
            await engine.dispose()


def test_a_queue_without_reports_has_no_table(db: Database, place: Place) -> None:
    queue, message = started(db)
    message.complete()
    assert queue.progress(message.id) is None
    names = db.engine.dialect.get_table_names
    with db.engine.connect() as connection:
        assert not [name for name in names(connection, schema=place.schema) if name.endswith("__progress")]


def test_a_renamed_queue_and_one_that_was_dropped(db: Database, place: Place) -> None:
    queue, message = started(db)
    message.progress(0.5)
    db.rename("work", "new")
    other = place.open().queue("new")
    assert fraction(other, message.id) == 0.5
    other.drop()
    queue, message = started(db)
    assert queue.progress(message.id) is None
    message.progress(0.25)
    assert fraction(queue, message.id) == 0.25
    queue.drop()
    names = db.engine.dialect.get_table_names
    with db.engine.connect() as connection:
        assert not [name for name in names(connection, schema=place.schema) if name.endswith("__progress")]


def _without(operation: str, pattern: str) -> Callable[..., Any]:
    """Return an operation whose statement lacks what the pattern finds."""

    def mutant(original: Callable[..., Any], part: ProgressReports, cursor: Any, table: Any, params: Any) -> Any:
        texts = table.engine.split(table.engine.render(operation, table))
        changed = [re.sub(pattern, "", text) for text in texts]
        assert changed != texts, "the mutant is no mutant"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(table), "statements", lambda *_: [*map(table.engine.compile, changed)])
            return original(part, cursor, table, params)

    return mutant


@pytest.mark.parametrize(
    ("operation", "mutant"),
    [
        ("report_progress", _without("report_progress", r" and token = (cast\(\S+ as uuid\)|\S+)")),
        ("reported_progress", _without("reported_progress", r" and report.token = message.token")),
        ("reported_progress", lambda *_: []),
        ("forget_progress", lambda *_: 0),
        ("forget_progress", _without("forget_progress", r"where (message.id is null|\(id, token\) not in .*)")),
    ],
    ids=["of_any_claim", "of_another_claim", "never_shown", "never_deleted", "deleted_too_early"],
)
def test_mutants(
    db: Database, kind: Kind, monkeypatch: pytest.MonkeyPatch, operation: str, mutant: Callable[..., Any]
) -> None:
    part = type(kind.engine_class.progress)
    original = getattr(part, operation)
    monkeypatch.setattr(part, operation, lambda *given: mutant(original, *given))
    forgets = operation == "forget_progress"
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_forgotten(db, monkeypatch) if forgets else check_progress(db)


def test_a_mutant_that_writes_each_report(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_is_dropped", lambda *_: False)
    with pytest.raises(AssertionError):
        test_one_write_a_second(db, monkeypatch)


def test_a_mutant_that_counts_what_a_rollback_undoes(
    db: Database, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = progress.report

    def counting(context: Any, claim: Any, fraction: float, *given: Any) -> None:
        report(context, claim, fraction, *given)
        claim.reported = monotonic(), fraction

    monkeypatch.setattr(progress, "report", counting)
    with pytest.raises(AssertionError):
        test_in_a_callers_transaction(db, caller)


@in_loop
async def test_the_async_verbs(place: Place) -> None:
    async with await tablequeue.aio.connect(place.url, schema=place.schema) as db:
        queue = await db.create_queue("work", payload="text")
        await queue.push("a")
        message = await claimed_async(queue)
        await message.progress(0.5, {"row": 1})
        found = await queue.progress(message.id)
        assert found is not None
        assert (found.fraction, found.detail) == (0.5, {"row": 1})
        await message.complete()
        await queue.report_progress(message, 0.75)  # dropped
