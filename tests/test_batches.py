"""Batches under kills, two at once, and on engines with one fault: each promise has a mutant that its check notices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tablequeue import Database, Queue
from tablequeue.errors import BatchNotFound
from tablequeue.ext import context_of
from tablequeue.verbs.batch_ends import settle
from tests import batches
from tests.batches import (
    ACTS,
    ENGINES,
    called,
    completed_without_a_look,
    go_through,
    made,
    opened,
    stop_in_an_act,
)
from tests.checks import await_a_wait
from tests.crashes import MOST, Steps, open_stepping, spread
from tests.crowd import answer, started
from tests.servers import Kind, Place, only
from tests.support import at, claimed, counts, refuses, rewritten

on_engines = only(*ENGINES)


# -- processes die -----------------------------------------------------------------------------------------------------


def prepared(database: Database, name: str, queue_name: str) -> Queue:
    act = ACTS[name]
    # What the dead process holds is redelivered, unless the act is about dead letters.
    queue = database.create_queue(queue_name, payload="text", batches=True, max_attempts=1 if act.failed else 5)
    if act.payloads is not None:
        opened(queue, act.payloads, now=at(0), **act.options)
    return queue


def callbacks(database: Database, queue: Queue) -> Counter[str]:
    messages = database.queue("called").peek(1000)
    return Counter(each.payload for each in messages if each.headers[batches.HEADER]["queue"] == queue.name)


@on_engines
@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("name", ACTS)
def test_a_process_killed_at_any_step_leaves_one_callback(place: Place, kind: Kind, name: str, most: int) -> None:
    """Every statement of an act is a step. The others finish the batch, and it has one callback; or it never was."""
    database = place.open("the living")
    database.create_queue("called", payload="text")
    words: list[str] = []
    steps = Steps(lambda number, said: words.append(said))
    walked = prepared(database, name, "walked")
    go_through(ACTS[name], open_stepping(place, steps).queue(walked.name), steps)
    for number in spread(len(words), most):
        queue = prepared(database, name, f"at_{number}")
        with started(1, stop_in_an_act, lambda _: (place, name, queue.name, number)) as (pipe,):  # noqa: B023
            assert answer(pipe) == words[number - 1]
        with place.sa_engine().begin() as connection:  # the server rolls the dead transaction back a moment later
            connection.exec_driver_sql(kind.lock.format(place.table(queue.name)))
        while messages := queue.pop_many(100, now=at(1000)):
            assert callbacks(database, queue)["ended"] == 0, words[number - 1]
            queue.complete_many(messages, now=at(1000))
        ended = callbacks(database, queue)
        if ACTS[name].payloads is None and not ended:
            assert counts(queue, now=at(1000)) == {}, "it never was"
            assert number < len(words)
        else:
            assert ended == Counter(ended=1, failed=ACTS[name].failed), words[number - 1]


# -- what has ended is forgotten ---------------------------------------------------------------------------------------


@on_engines
def test_no_count_of_a_forgotten_batch_stays(place: Place, db: Database) -> None:
    queue = db.create_queue("work", payload="text", batches=True)
    with queue.batch(on_dead="continue", now=at(0)) as batch:
        batch.push("a")
    claimed(queue, now=at(0)).fail("no", retry=False, now=at(0))
    assert queue.pop(now=at(1)) is None
    queue.cancel([message.id for message in queue.dead()])  # a count for a batch that has ended
    queue.purge_history(0, now=at(2))
    refuses(BatchNotFound, db.batch, batch.id)
    counts_table = place.table("x").replace("tq_x", "tq__batch_counts")
    assert place.execute(f"select batch_id from {counts_table}") == []  # noqa: S608


@only("postgresql", "mariadb", "mssql")
def test_ended_batches_are_forgotten_beside_an_open_transaction_that_adds_to_a_batch(
    place: Place, db: Database
) -> None:
    queue = made(db)
    with queue.batch(now=at(0)) as ended:
        pass
    opened(queue, "a")
    message = claimed(queue)
    with place.sa_engine().begin() as connection:
        with queue.batch_of(message, connection=connection) as more:
            more.push("b")
        queue.purge_history(0, now=at(1))
        refuses(BatchNotFound, db.batch, ended.id)
    assert db.batch(more.id).progress().total == 2


@on_engines
def test_without_a_history_an_ended_batch_is_there_for_a_day(db: Database) -> None:
    queue = db.create_queue("work", payload="text", batches=True, history="none")
    with queue.batch(now=at(0)) as batch:
        pass
    for seconds in (86_000, 86_401):
        assert db.batch(batch.id).progress().total == 0
        context_of(queue).table.next_purge = 0
        assert queue.pop(now=at(seconds)) is None
    refuses(BatchNotFound, db.batch, batch.id)


# -- two at once -------------------------------------------------------------------------------------------------------


@only("postgresql", "mariadb")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_one_of_two_ends_a_batch(place: Place, kind: Kind, mutated: bool) -> None:
    """Who does not lock the row of the batch pushes the callback a second time."""
    unlocked = rewritten(kind.engine_class, lock_batch=lambda text: text.replace(" for update skip locked", ""))
    engine = unlocked if mutated else kind.engine_class
    database = place.open_with(engine)
    queue = made(database)
    id = opened(queue, "a")
    one = context_of(queue)
    completed_without_a_look(queue, claimed(queue))
    with place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        assert one.run(settle(one, id, None), {}, connection), "not committed yet"
        other = context_of(place.open_with(engine).queue("work"))
        ending = threads.submit(lambda: other.run(settle(other, id, None), {}))
        if mutated:
            await_a_wait(place, kind)
        else:
            assert not ending.result(), "it waits for nobody"
        connection.commit()
        ending.result()
    assert len(called(database)) == (2 if mutated else 1)


# -- mutants -----------------------------------------------------------------------------------------------------------


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, by, text)


MUTANTS: dict[str, tuple[dict[str, Callable[[str], str]], Callable[[Database], None]]] = {
    "a completion that does not tell when it is alone": (
        {"complete": replaced(r"then \S+batch_id end", "then null end")},
        batches.check_batch,
    ),
    "a completion with a claim that does not tell": (
        {name: replaced(r"then \S+batch_id end", "then null end") for name in ("complete", "complete_and_claim")},
        batches.check_together,
    ),
    "a sweep that ends a batch too early": (
        {"open_batches": replaced("batch.on_dead = 'wait' or |'in_progress', ", "")},
        batches.check_batch,
    ),
    "a sweep that ends no batch": (
        {"open_batches": replaced("where open_in =", "where 1 = 0 and open_in =")},
        batches.check_repair,
    ),
    "a batch that ends twice": ({"end_batch": replaced("open_in = null", "open_in = open_in")}, batches.check_batch),
    "a batch that does not wait for its dead letters": (
        {"open_batches": replaced(r"batch\.on_dead(,| = 'wait')", r"'continue'\1")},
        batches.check_dead,
    ),
    "a callback for dead letters that is pushed again": (
        {"note_failed": replaced(r"set failed_at = .* where", "set failed_at = null where")},
        batches.check_dead,
    ),
    "a message that leaves uncounted": (
        {"create_batches": replaced(r"(?<=batch_id, 0, )(1(?=\))|count_big\(\*\))", "0")},
        batches.check_withdrawn,
    ),
    "an open batch that is forgotten": (
        {"forget_batches": replaced("ended_at <=", "opened_at <=")},
        batches.check_forgotten,
    ),
    "a batch that is never forgotten": (
        {"forget_batches": replaced("ended_at <=", "opened_at is null and ended_at <=")},
        batches.check_forgotten,
    ),
    "a message that is added uncounted": ({"count_batch": replaced(":pushed", "0")}, batches.check_added),
    "a result without its batch": (
        {"keep_results": replaced(r"(values \(\S+, )\S+,", r"\1null,")},
        batches.check_results,
    ),
    "the results of all batches": ({"batch_results": replaced("batch_id = .* and", "")}, batches.check_results),
    "a list with batches that have ended": (
        {"batches_progress": replaced("where open_in =", "where queue =")},
        batches.check_seen,
    ),
    "a list with the numbers of one batch for all": (
        {"batches_progress": replaced(r"batch_id = batch\.id", "batch_id = 1")},
        batches.check_seen,
    ),
    "a number of batches with those of other queues": (
        {"stats_batches": replaced("where open_in = '.*?'", "where open_in is not null")},
        batches.check_seen,
    ),
}
CHECKS = {check.__name__: check for _, check in MUTANTS.values()}


@on_engines
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_engine_passes(place: Place, kind: Kind, check: Callable[[Database], None]) -> None:
    check(place.open_with(kind.engine_class))


@on_engines
@pytest.mark.parametrize(("texts", "check"), MUTANTS.values(), ids=MUTANTS)
def test_the_mutant_is_noticed(place: Place, kind: Kind, texts: Any, check: Callable[[Database], None]) -> None:
    database = place.open_with(rewritten(kind.engine_class, **texts))
    with pytest.raises(AssertionError) as caught:
        check(database)
    assert "nothing to rewrite" not in str(caught.value)
