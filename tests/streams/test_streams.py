"""Streams: batches that can be read again until they are safe elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tablequeue import Consumer, Database, NewMessage, Queue
from tablequeue.bulk import arrow, stream
from tablequeue.bulk.failures import Failures, grouped
from tablequeue.bulk.stream import Stream
from tablequeue.engines.engine import Engine
from tablequeue.engines.rows import StreamRow
from tablequeue.errors import BadInput, StreamNotFound, StreamRefused, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.attempts import LONGEST_ERROR
from tablequeue.verbs.after import follow
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, design_group, refuses, with_parts
from tests.test_mutants import TOKEN, rewritten

pytestmark = pytest.mark.quick

MANY = [design for design in DESIGNS if design not in ("strict", "groups")]


def filled(db: Database, messages: int = 10, **options: Any) -> Queue:
    queue = db.create_queue("work", payload="text", max_attempts=1, **options)
    queue.push_many([NewMessage(f"{n}", **design_group(queue, f"g{n % 3}")) for n in range(messages)], now=at(0))
    return queue


def read(run: Stream, batch: int) -> list[str]:
    """Return the payloads of a batch, as an executor reads them."""
    token, ids = run.batch(batch)
    schema = arrow.columns(run.queue, "stream")
    rows = [row for each in arrow.stream_batches(run.queue, token, ids, schema) for row in each.to_pylist()]
    assert [row["id"] for row in rows] == ids
    return [row["payload"] for row in rows]


def check_replay(queue: Queue) -> None:
    """A batch stays the same until it is completed, in every run of the stream."""
    first = Stream(queue, "lake")
    assert first.advance(0, 4, now=at(1)) == 1
    payloads = read(first, 1)
    assert len(payloads) == 4
    queue.push_many(["more"] * 4, now=at(2))
    again = Stream(queue, "lake")
    assert again.advance(0, 4, now=at(1e6)) == 1, "no lease has ended, and nothing else was claimed"
    assert read(again, 1) == payloads


def check_fence(queue: Consumer) -> None:
    """An older run can no longer claim or complete messages. It may read the batch that it has begun."""
    older = Stream(queue, "lake")
    older.advance(0, 4, now=at(1))
    newer = Stream(queue, "lake")
    for act in (lambda: older.advance(0, 4), lambda: older.advance(1, 4), lambda: older.complete(1)):
        refuses(StreamRefused, act)
    assert len(read(newer, 1)) == 4
    assert read(older, 1) == read(newer, 1)
    newer.complete(1, now=at(2))
    assert queue.stats(now=at(2)).in_progress == 0, "so a pipeline stops: nothing that was begun stays"


def check_completed_once(queue: Queue) -> None:
    """Messages of a safe batch are in the history once. All others stay, also those of another stream."""
    run, other = Stream(queue, "lake"), Stream(queue, "other")
    other.advance(0, 1, now=at(1))
    assert run.advance(run.advance(0, 4, now=at(1)), 4, now=at(2)) == 2
    run.complete(1, now=at(3))
    assert run.advance(1, 4, now=at(3)) == 2, "an open batch is handed out again"
    assert len(queue.history()) == 4
    assert queue.stats(now=at(3)).in_progress == 5


def check_between(queue: Queue) -> None:
    """A batch has its own messages, also where another stream holds one with an id between theirs."""
    low, between, high = queue.pop_many(3, now=at(1))
    run, other = Stream(queue, "lake"), Stream(queue, "other")
    low.release(now=at(1))
    high.release(now=at(1))
    assert run.advance(0, 2, now=at(2)) == 1
    between.release(now=at(2))
    assert other.advance(0, 1, now=at(3)) == 1
    assert (len(read(run, 1)), len(read(other, 1))) == (2, 1)


def check_no_lease(queue: Queue) -> None:
    """Nobody can end the lease of a message of a batch, as an old handle of the SQS endpoint does: it has none."""
    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    payloads, (_, ids) = read(run, 1), run.batch(1)
    assert not any(queue.extend_held(id, lease, now=at(2)) for id, lease in zip(ids, (0, 60, 0, 60), strict=True))
    assert read(Stream(queue, "lake"), 1) == payloads
    assert not {claim.id for claim in queue.pop_many(10, now=at(100))} & {*ids}


def check_failures(queue: Queue) -> None:
    """A failed message becomes a dead letter with its error when the batch is completed. Until then it is read with the
    batch."""
    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    payloads, (_, ids) = read(run, 1), run.batch(1)
    stream.fail(queue, "lake", {ids[0]: "first words", ids[2]: "no number"})
    stream.fail(queue, "lake", {ids[0]: "bad row"})
    assert read(run, 1) == payloads
    run.complete(1, now=at(2))
    assert {letter.id: [error.error for error in letter.errors] for letter in queue.dead()} == {
        ids[0]: ["bad row"],
        ids[2]: ["no number"],
    }
    assert {message.id for message in queue.history()} == {ids[1], ids[3]}


def check_begun(queue: Queue) -> None:
    """It is counted how many runs began a batch. A message that is set apart is not read again, and becomes a dead
    letter with the batch."""

    def begun() -> int:
        return stream.change(queue, "lake").failures.begun

    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    _, ids = run.batch(1)
    run.batch(1)
    assert begun() == 1
    again = Stream(queue, "lake")
    again.batch(1)
    again.batch(1)
    assert begun() == 2
    stream.fail(queue, "lake", {ids[1]: "it ends the process"}, exclude=True)
    last = Stream(queue, "lake")
    assert last.batch(1)[1] == [ids[0], *ids[2:]]
    assert begun() == 3
    last.complete(1, now=at(2))
    assert [letter.id for letter in queue.dead()] == [ids[1]]
    assert {message.id for message in queue.history()} == {ids[0], *ids[2:]}
    last.advance(1, 4, now=at(3))
    assert begun() == 1


def check_long_failures(queue: Queue) -> None:
    """Of a long error the ends are kept."""
    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    stream.fail(queue, "lake", {run.batch(1)[1][0]: "x" * 3_000_000})
    run.complete(1, now=at(2))
    assert len(queue.dead()[0].errors[0].error) <= LONGEST_ERROR


def test_the_errors_of_a_whole_batch_fit_a_packet(db: Database) -> None:
    """A bad release of a stage fails every message, each with a traceback of its own: 24 MB in all."""
    queue = filled(db, 3000)
    run = Stream(queue, "lake")
    run.advance(0, 3000, now=at(1))
    _, ids = run.batch(1)
    quotes = '"\n' * 4000
    stream.fail(queue, "lake", {id: quotes + f"é no number: {id}" for id in ids})
    stream.fail(queue, "lake", {ids[0]: "the last one wins"})
    run.complete(1, now=at(2))
    errors = {letter.id: letter.errors[0].error for letter in queue.dead(3000)}
    assert errors.pop(ids[0]) == "the last one wins"
    assert len(errors) == 2999
    assert all(error.endswith(f"é no number: {id}") for id, error in errors.items())


def test_errors_of_any_number_of_messages_are_one_short_text() -> None:
    errors = {id: "\x01" * 50 + f"{id}" for id in range(100_000)}
    text = Failures(errors=grouped(errors)).dump()
    assert len(json.dumps(text).encode()) < 16 << 20, "as a value in a statement"
    loaded = Failures.load(text).by_id()
    assert loaded.keys() == errors.keys()
    assert loaded[7] == errors[7]
    assert loaded[99_999].startswith("One of 100000 errors")
    few = {1: "no number", 2: "x" * 7000, 3: "no number"}
    assert Failures.load(Failures(errors=grouped(few)).dump()).by_id() == few


def check_one_batch_is_open(queue: Queue) -> None:
    """If a batch cannot be completed, the next one is not claimed, also where both are done at once."""
    other = claimed(queue, now=at(1))
    other.complete(now=at(1))
    run = Stream(queue, "lake")
    payloads, id = read(run, run.advance(0, 4, now=at(1))), run.batch(1)[1][0]
    rename_in_history(queue, other.id, id)
    refuses(TablequeueError, run.advance, 1, 4, now=at(2))
    assert queue.stats(now=at(2)).in_progress == 4
    rename_in_history(queue, id, other.id)
    again = Stream(queue, "lake")
    assert read(again, again.advance(0, 4, now=at(3))) == payloads
    assert len(read(again, again.advance(1, 4, now=at(3)))) == 4
    assert len(queue.history()) == 5


def rename_in_history(queue: Queue, id: int, to: int) -> None:
    """Give a finished message the id of another one, which cannot be completed then."""
    context = context_of(queue)
    history = context.engine.words(context.table)["history"]
    with context.runner.sa_engine.begin() as connection:
        connection.exec_driver_sql(f"update {history} set id = {to} where id = {id}")  # noqa: S608 (a checked name)


CHECKS = [
    check_replay,
    check_fence,
    check_completed_once,
    check_no_lease,
    check_between,
    check_failures,
    check_begun,
    check_long_failures,
    check_one_batch_is_open,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("design", MANY)
def test_promises(db: Database, design: str, check: Callable[[Queue], None]) -> None:
    check(filled(db, **DESIGNS[design]))


def test_a_crash_before_the_stream_knows_of_its_batch_claims_none(place: Place, kind: Kind) -> None:
    """Messages in progress that belong to no stream would stay so forever, because they have no lease."""

    class Crashes(type(kind.engine_class.streams)):  # type: ignore[misc]
        def stream_set(self, cursor: Any, table: Any, params: Any) -> None:
            raise KeyboardInterrupt

    run = Stream(filled(place.open_with(with_parts(kind.engine_class, {"streams": Crashes}))), "lake")
    with pytest.raises(KeyboardInterrupt):
        run.advance(0, 4, now=at(1))
    stats = place.open().queue("work").stats(now=at(1))
    assert (stats.ready, stats.in_progress) == (10, 0)


@pytest.mark.parametrize("history", ["keep", "none"])
def test_every_message_is_in_one_batch(db: Database, history: str) -> None:
    queue = filled(db, 25, history=history)
    run, seen, batch = Stream(queue, "lake"), [], 0
    while (last := run.advance(batch, 10, now=at(1))) > batch:
        seen.append(read(run, last))
        batch = last
    assert [len(each) for each in seen] == [10, 10, 5]
    assert [int(one) for each in seen for one in each] == list(range(25)), "in the order of the queue"
    stats = queue.stats(now=at(1))
    assert (stats.ready, stats.in_progress, stats.finished) == (0, 0, 25 if history == "keep" else None)
    assert stream.streams(queue)[0].open == 0


@pytest.mark.parametrize("design", ["strict", "groups"])
def test_a_group_has_one_message_in_a_batch(db: Database, design: str) -> None:
    queue = filled(db, 7, **DESIGNS[design])
    run, batch, sizes = Stream(queue, "lake"), 0, []
    while (last := run.advance(batch, 10, now=at(1))) > batch:
        sizes.append(len(read(run, last)))
        batch = last
    assert sizes == ([1] * 7 if design == "strict" else [3, 3, 1])


def test_consumers_and_other_streams_get_the_rest(db: Database) -> None:
    queue = filled(db)
    lake, other = Stream(queue, "lake"), Stream(queue, "other")
    lake.advance(0, 4, now=at(1))
    other.advance(0, 3, now=at(1))
    popped = queue.pop_many(10, now=at(1))
    assert [int(claim.payload) for claim in popped] == [7, 8, 9]
    assert [*map(int, read(lake, 1) + read(other, 1))] == list(range(7))
    assert [(state.stream, state.open) for state in stream.streams(queue)] == [("lake", 4), ("other", 3)]


def test_no_later_ids_than_asked_for(db: Database) -> None:
    queue = filled(db, 5)
    last = queue.peek(10)[-1].id
    queue.push("late", now=at(0))
    run = Stream(queue, "lake")
    assert run.advance(0, 100, last_id=last, now=at(1)) == 1
    assert len(read(run, 1)) == 5
    assert run.advance(1, 100, last_id=last, now=at(1)) == 1, "nothing else is claimed"


def test_released_messages_are_ready_and_the_stream_begins_anew(db: Database) -> None:
    queue = filled(db)
    run = Stream(queue, "lake")
    run.advance(run.advance(0, 4, now=at(1)), 4, now=at(1))
    assert stream.release(queue, "lake") == 4
    assert (queue.stats(now=at(1)).ready, queue.stats(now=at(1)).in_progress) == (6, 0)
    assert queue.peek(1)[0].attempts == 0, "the attempt does not count"
    refuses(StreamRefused, run.advance, 2, 4)
    new = Stream(queue, "lake")
    refuses(StreamRefused, new.advance, 1, 4)
    refuses(StreamRefused, new.batch, 2)
    assert new.found.completed == 2
    assert new.advance(new.found.completed, 4, now=at(2)) == 3


def check_batch_of_messages(db: Database) -> None:
    """Who ends the last message of a batch pushes the callback, also a stream that nobody advances after it."""
    db.create_queue("called", payload="text")
    queue = db.create_queue("work", payload="text", batches=True)
    run = Stream(queue, "lake")
    for number in (1, 2):
        with queue.batch(then=("called", f"{number}"), on_dead="continue") as batch:
            batch.push_many(["a", "b"])
        assert run.advance(number - 1, 4) == number
        if number == 1:
            stream.fail(queue, "lake", {run.batch(1)[1][0]: "bad row"})
            run.complete(1)
        else:
            queue.cancel(run.batch(2)[1])
            stream.release(queue, "lake")
        assert [message.payload for message in db.queue("called").peek()] == ["1", "2"][:number]


def test_a_batch_of_messages_ends_with_the_batch_of_a_stream(db: Database) -> None:
    check_batch_of_messages(db)


@pytest.mark.parametrize("verb", ["_complete", "release"])
def test_a_stream_that_ends_no_batch_of_messages_is_noticed(
    db: Database, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def follows_others(*given: Any) -> None:
        if sys._getframe(1).f_code.co_name != verb:
            follow(*given)

    monkeypatch.setattr("tablequeue.bulk.stream.follow", follows_others)
    with pytest.raises(AssertionError):
        check_batch_of_messages(db)


@pytest.mark.parametrize("upto", [0, 5])
def test_a_checkpoint_that_does_not_fit_is_refused(db: Database, upto: int) -> None:
    queue = filled(db)
    run = Stream(queue, "lake")
    run.complete(run.advance(0, 4, now=at(1)), now=at(1))
    error = refuses(StreamRefused, run.advance, upto, 4)
    assert "checkpoint" in str(error)
    assert queue.stats(now=at(1)).ready == 6


def test_a_completed_batch_cannot_be_read_again(db: Database) -> None:
    queue = filled(db)
    run = Stream(queue, "lake")
    run.complete(run.advance(0, 4, now=at(1)), now=at(1))
    refuses(StreamRefused, run.batch, 1)


def test_completing_for_a_stream_that_does_not_run(db: Database) -> None:
    queue = filled(db)
    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    stream.complete(queue, "lake", 1)
    stream.complete(queue, "lake", 1)
    assert len(queue.history()) == 4
    assert run.advance(1, 4, now=at(2)) == 2, "the run itself goes on"


def test_refusals(db: Database) -> None:
    queue = filled(db)
    assert stream.streams(queue) == []
    refuses(StreamNotFound, stream.release, queue, "lake")
    refuses(StreamNotFound, stream.complete, queue, "lake", 1)
    refuses(BadInput, Stream, queue, "")
    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    refuses(BadInput, stream.fail, queue, "lake", {10**6: "not there"})
    refuses(BadInput, run.advance, 1, 0)
    once = db.create_queue("once", delivery="at_most_once")
    refuses(BadInput, Stream, once, "lake")


def test_a_name_is_what_was_given(db: Database) -> None:
    queue = filled(db)
    names = ["A", "a", "a ", "\u00e4"]
    for name in names:
        assert Stream(queue, name).epoch == 1
    assert sorted(state.stream for state in stream.streams(queue)) == names


def test_drop_takes_the_streams_along(db: Database) -> None:
    queue = filled(db)
    Stream(queue, "lake").advance(0, 4, now=at(1))
    queue.drop()
    again = filled(db)
    assert stream.streams(again) == []
    assert Stream(again, "lake").found.batch == 0


def test_a_run_does_not_take_its_last_claim_for_that_of_a_later_run(db: Database) -> None:
    queue = filled(db)
    older = Stream(queue, "lake")
    older.advance(0, 4, now=at(1))
    assert read(older, 1) == ["0", "1", "2", "3"]
    newer = Stream(queue, "lake")
    assert newer.advance(1, 4, now=at(2)) == 2, "it has completed the batch of the older one"
    assert len(queue.history()) == 4
    assert read(older, 2) == read(newer, 2) == ["4", "5", "6", "7"]


@only("postgresql")
def test_a_batch_is_claimed_while_the_one_before_is_completed(place: Place, kind: Kind) -> None:
    """Also if somebody waits for the claim with a lock for which the completion waits in turn."""
    has_claimed, completes = Event(), Event()

    class Claims(type(kind.engine_class.streams)):  # type: ignore[misc]
        def stream_claim(self, cursor: Any, table: Any, params: Any) -> list[int]:
            ids: list[int] = super().stream_claim(cursor, table, params)
            has_claimed.set()
            return ids

    class Completes(type(kind.engine_class.messages)):  # type: ignore[misc]
        def complete_stream(self, cursor: Any, table: Any, params: Any) -> None:
            assert has_claimed.wait(60), "the next batch is not claimed yet"
            completes.set()
            while not watch.exec_driver_sql(waits).all():
                pass
            super().complete_stream(cursor, table, params)

    queue = filled(place.open_with(with_parts(kind.engine_class, {"streams": Claims, "messages": Completes})))
    name = context_of(queue).engine.words(context_of(queue).table)["queue"]
    waits = f"select 1 from pg_locks where relation = cast('{name}' as regclass) and not granted"  # noqa: S608

    def lock() -> None:
        assert completes.wait(60)
        with place.sa_engine().begin() as connection:
            connection.exec_driver_sql(f"lock table {name} in access exclusive mode")

    run = Stream(queue, "lake")
    run.advance(0, 4, now=at(1))
    has_claimed.clear()
    with (
        place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch,
        ThreadPoolExecutor(1) as threads,
    ):
        locked = threads.submit(lock)
        assert run.advance(1, 4, now=at(1)) == 2
        locked.result()
    assert read(run, 2) == ["4", "5", "6", "7"]


@only("postgresql")
def test_a_batch_is_read_and_completed_without_a_look_at_what_waits(db: Database, kind: Kind) -> None:
    queue = filled(db, 20_000)
    run = Stream(queue, "s")
    run.advance(0, 5000)
    token, ids = run.batch(1)
    table = context_of(queue).table
    with db.engine.begin() as connection:
        connection.exec_driver_sql(f"{kind.analyze} {table.engine.words(table)['queue']}")
        for operation in ("stream_ids", "stream_rows", "complete_stream"):
            statement = f"{kind.explain}{table.statement(operation)}"
            values = {"token": token, "low": ids[0], "high": ids[-1], "now": None}
            plan = str(list(connection.exec_driver_sql(statement, values)))
            assert "tq_work__in_progress" in plan


# -- mutants ------------------------------------------------------------------------------------------------------


def forgets_the_epoch(engine: Any) -> Any:
    class Forgets(type(engine.streams)):  # type: ignore[misc]
        def stream_lock(self, cursor: Any, table: Any, params: Any) -> Any:
            row = super().stream_lock(cursor, table, params)

            class AnyEpoch(int):
                def __ne__(self, other: object) -> bool:
                    return False

            return row and StreamRow(AnyEpoch(row.epoch), *row[1:])

    return with_parts(engine, {"streams": Forgets})


def gives_a_lease(engine: Any) -> Any:
    class Leases(type(engine.streams)):  # type: ignore[misc]
        def stream_claim(self, cursor: Any, table: Any, params: Any) -> list[int]:
            return [row[0] for row in engine.messages.claim(cursor, table, {**params, "lease": 60})]

    return with_parts(engine, {"streams": Leases})


def takes_a_stream_for_a_holder(engine: Any) -> Any:
    class Takes(type(engine.messages)):  # type: ignore[misc]
        def holder(self, cursor: Any, table: Any, params: Any) -> Any:
            return engine.streams.stream_lock(cursor, table, {"stream": "lake"}).token

    return with_parts(engine, {"messages": Takes})


def forgets_failures(engine: Any) -> Any:
    class Forgets(type(engine.streams)):  # type: ignore[misc]
        def stream_set(self, cursor: Any, table: Any, params: Any) -> None:
            super().stream_set(cursor, table, {**params, "failures": json.dumps({})})

    return with_parts(engine, {"streams": Forgets})


def claims_again(engine: Any) -> Any:
    class Again(type(engine.streams)):  # type: ignore[misc]
        def stream_lock(self, cursor: Any, table: Any, params: Any) -> Any:
            row = super().stream_lock(cursor, table, params)
            return row and row._replace(batch=row.completed, token=None)

    return with_parts(engine, {"streams": Again})


def claims_too_early(engine: Any) -> Any:
    class Early(type(engine.streams)):  # type: ignore[misc]
        def stream_lock(self, cursor: Any, table: Any, params: Any) -> Any:
            row = super().stream_lock(cursor, table, params)
            return row and (row._replace(token=None) if "n" in params else row)

    return with_parts(engine, {"streams": Early})


completes_what_others_hold = rewritten(TOKEN, "", "complete_stream", "complete")

reads_what_others_hold = rewritten(TOKEN, "", "stream_rows")

MUTANTS = [
    (forgets_the_epoch, check_fence),
    (gives_a_lease, check_replay),
    (takes_a_stream_for_a_holder, check_no_lease),
    (forgets_failures, check_failures),
    (forgets_failures, check_begun),
    (claims_again, check_replay),
    (claims_too_early, check_one_batch_is_open),
    (completes_what_others_hold, check_completed_once),
    (reads_what_others_hold, check_between),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_mutant_is_caught(
    place: Place, kind: Kind, mutant: Callable[[type[Engine]], type[Engine]], check: Callable[[Queue], None]
) -> None:
    if mutant in (claims_too_early, completes_what_others_hold, reads_what_others_hold) and kind.name != "postgresql":
        pytest.skip("The others complete and read by the ids, and claim after that.")
    queue = filled(place.open_with(mutant(kind.engine_class)))
    with pytest.raises((AssertionError, pytest.fail.Exception, StreamRefused)):
        check(queue)
