"""Keys that stay taken for a time after the push, finished or not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from time import time
from typing import Any

import pyarrow as pa
import pytest

from tablequeue import Database, NewMessage, Queue
from tablequeue.bulk import staging
from tablequeue.engines.engine import Engine
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.ext import context_of
from tests.checks import await_a_wait, check_unique_for
from tests.crashes import Steps, stepping
from tests.servers import Kind, Place
from tests.support import at, claimed, design_group, found, ids_of, refuses
from tests.test_mutants import rewritten

pytestmark = [pytest.mark.quick, pytest.mark.variants("newer")]


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", unique_for=300)


def test_a_key_stays_taken_after_its_message_is_finished(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, unique_for=300)
    check_unique_for(queue, **design_group(queue, "a"))


def test_raise_skip_return(queue: Queue) -> None:
    first = queue.push(1, key="k", now=at(0))
    claimed(queue, now=at(0)).complete(now=at(1))
    assert refuses(DuplicateKey, queue.push, 2, key="k", now=at(299)).keys == ("k",)
    assert queue.push(2, key="k", on_conflict="skip", now=at(299)) is None
    assert queue.push(2, key="k", on_conflict="return", now=at(299)) == first
    second = queue.push(2, key="k", now=at(300))
    assert second > first
    assert queue.push(3, key="k", on_conflict="return", now=at(301)) == second


def begins_with_the_push(place: Place, engine: type[Engine]) -> None:
    """A key is taken one statement before its message is inserted, and each statement has a time of its own."""

    def tick(number: int, words: str) -> None:
        now = time()
        while time() < now + 0.001:  # the resolution of SQLite's clock
            pass

    steps = Steps(tick)
    queue = place.open_with(stepping(engine, steps)).create_queue("work", unique_for=300)
    steps.armed = True
    for key, seconds in (("a", None), ("b", 2.5)):
        id = queue.push("x", key=key, unique_for=seconds)
        ends = f"select taken_until from {place.table('work')}__keys where id = {id}"  # noqa: S608 (our own words)
        ((until,),) = place.execute(ends)
        begins = found(queue, id).pushed_at
        assert context_of(queue).engine.load_time(until) >= begins + timedelta(seconds=seconds or 300)


def test_the_time_of_a_key_begins_with_the_push(place: Place, kind: Kind) -> None:
    begins_with_the_push(place, kind.engine_class)


def test_a_key_whose_time_begins_before_the_push_is_detected(place: Place, kind: Kind) -> None:
    mutant = rewritten(r"coalesce\((.*), 300\)", r"coalesce(\1, 300) * 0.9", "name_keys")
    with pytest.raises(AssertionError, match="timedelta"):
        begins_with_the_push(place, mutant(kind.engine_class))


def test_a_waiting_message_holds_its_key_beyond_that_time(queue: Queue) -> None:
    id = queue.push(1, key="k", now=at(0))
    assert queue.push(2, key="k", on_conflict="return", now=at(400)) == id
    claimed(queue, now=at(400)).complete(now=at(400))
    assert queue.push(2, key="k", now=at(400)) > id, "the refused push took nothing"


def test_renew_takes_a_key_whose_time_is_over_from_a_message_that_waits(queue: Queue) -> None:
    first = queue.push(1, key="k", now=at(0))
    assert queue.push(2, key="k", on_conflict="renew", now=at(299)) == first
    second = queue.push(2, key="k", on_conflict="renew", now=at(300))
    assert ids_of(queue.peek()) == [first, second], "neither is lost"
    assert [message.key for message in queue.peek()] == [None, "k"]
    assert queue.push(3, key="k", on_conflict="renew", now=at(599)) == second
    held = queue.pop_many(2, now=at(599), lease=1000)
    batch = [NewMessage(key, key=key) for key in ("a", "k", None, "k", "a")]
    a, third, none, *again = queue.push_many(batch, on_conflict="renew", now=at(600))
    assert again == [third, a]
    assert ids_of(queue.peek()) == [a, third, none], "of one in progress too"
    queue.complete_many(held, now=at(600))
    assert queue.push(4, key="k", on_conflict="renew", now=at(899)) == third, "a completion frees no key of another"


def test_renew_takes_a_key_of_which_nothing_is_noted_any_more(queue: Queue) -> None:
    first = queue.push(1, key="k", now=at(0))
    context = context_of(queue)
    assert context.run(context.messages.forget_keys, {"n": 9, "now": context.time(at(300))}) == 1
    assert queue.push(2, key="k", on_conflict="return", now=at(300)) == first
    assert queue.push(2, key="k", on_conflict="renew", now=at(300)) > first


def test_renew_is_return_where_keys_have_no_time(db: Database) -> None:
    queue = db.create_queue("plain")
    assert queue.push(1, key="k", now=at(0)) == queue.push(2, key="k", on_conflict="renew", now=at(1000))


def test_of_renewals_of_one_key_at_once_one_wins(place: Place) -> None:
    place.open().create_queue("work", unique_for=300, groups=True)
    queues = [place.open().queue("work") for _ in range(4)]
    keys = [f"k{number}" for number in range(5)]
    old = queues[0].push_many([NewMessage(0, key=key, group="g") for key in keys], now=at(0))
    together = Barrier(len(queues), timeout=60)

    def push(number: int) -> list[int]:
        together.wait()
        batch = [NewMessage(1, key=key, group="g") for key in keys]
        # In different orders: they must not deadlock.
        return sorted(queues[number].push_many(batch[number:] + batch[:number], on_conflict="renew", now=at(300)))

    with ThreadPoolExecutor(len(queues)) as threads:
        first, *others = threads.map(push, range(len(queues)))
    assert others == [first] * 3
    assert not {*first} & {*old}
    assert len(queues[0].peek(99, state="ready") + queues[0].peek(99, state="blocked")) == 10


def test_each_message_may_have_its_own_time(queue: Queue) -> None:
    queue.push(1, key="short", unique_for=timedelta(seconds=10), now=at(0))
    messages = [NewMessage(2, key="long", unique_for=1000), NewMessage(3, key="usual"), NewMessage(4)]
    queue.push_many(messages, unique_for=20, now=at(0))
    queue.purge()

    def free(seconds: float) -> list[str]:
        keys = ["short", "usual", "long"]
        ids = queue.push_many([NewMessage(0, key=key) for key in keys], on_conflict="skip", now=at(seconds))
        queue.purge()
        return [key for key, id in zip(keys, ids, strict=True) if id is not None]

    assert free(9) == []
    assert free(10) == ["short"]
    assert free(20) == ["usual"]
    assert free(1000) == ["short", "usual", "long"]


def test_a_batch_is_aligned_and_whole(queue: Queue) -> None:
    first = queue.push(0, key="a")
    queue.purge()
    batch = [NewMessage(key, key=key) for key in ("a", "b", "b", None, "c")]
    refused = refuses(DuplicateKey, queue.push_many, batch)
    assert set(refused.keys) == {"a", "b"}
    assert queue.peek() == []
    a, b, again, none, c = queue.push_many(batch, on_conflict="return")
    assert (a, again) == (first, b)
    assert ids_of(queue.peek()) == [b, none, c]
    assert queue.push_many(batch, on_conflict="skip")[:3] == [None] * 3


def test_a_rollback_frees_the_key(queue: Queue, db: Database) -> None:
    with db.engine.connect() as connection:
        queue.push(1, key="k", connection=connection)
        assert refuses(DuplicateKey, queue.push, 1, key="k", connection=connection).keys == ("k",)
        assert queue.push(2, key="l", connection=connection), "the transaction goes on"
        connection.rollback()
    assert queue.push(1, key="k")
    assert queue.push(2, key="l")


def test_of_pushes_of_one_key_at_once_one_wins(place: Place) -> None:
    place.open().create_queue("work", unique_for=300)
    queues = [place.open().queue("work") for _ in range(4)]
    together = Barrier(len(queues))

    def push(queue: Queue) -> list[int | None]:
        together.wait()
        return [queue.push(0, key=f"k{number}", on_conflict="skip") for number in range(5)]

    with ThreadPoolExecutor(len(queues)) as threads:
        for ids in zip(*threads.map(push, queues), strict=True):
            assert len([id for id in ids if id is not None]) == 1
    assert queues[0].stats().ready == 5


def test_a_push_waits_for_a_transaction_that_takes_its_key(place: Place, kind: Kind) -> None:
    if kind.blocked is None:
        pytest.skip("the server cannot be asked which sessions wait")
    database = place.open()
    queue = database.create_queue("work", unique_for=300)
    for commits in (True, False):
        key = f"k{commits}"
        with ThreadPoolExecutor(1) as thread, database.engine.connect() as connection:
            id = queue.push(1, key=key, connection=connection)
            other = thread.submit(place.open().queue("work").push, 2, key=key, on_conflict="return")
            await_a_wait(place, kind)
            if commits:
                connection.commit()
            else:
                connection.rollback()
            assert (other.result(60) == id) is commits


def test_keys_whose_time_is_over_are_deleted(queue: Queue) -> None:
    queue.push_many([NewMessage(0, key=str(number)) for number in range(5)], now=at(0))
    context = context_of(queue)
    params = {"n": 3, "now": context.time(at(300))}
    assert [context.run(context.messages.forget_keys, params) for _ in range(3)] == [3, 2, 0]  # type: ignore[arg-type]
    queue.push(1, key="k", now=at(0))
    queue.pop(now=at(1000))
    assert context.run(context.messages.forget_keys, params) == 0, "a claim did it"  # type: ignore[arg-type]


def test_what_a_queue_cannot_do_is_refused(db: Database, queue: Queue) -> None:
    plain = db.create_queue("plain")
    assert "until their messages are finished" in refuses(BadInput, plain.push, 1, key="k", unique_for=60).cause
    refuses(BadInput, queue.push, 1, key="k", unique_for=0)
    staging.prepare(queue)
    batch = pa.RecordBatch.from_pydict({"payload": ["1"], "key": ["k"]})
    staged = staging.stage(queue, "0" * 32, "1" * 32, 0, [batch])
    refuses(BadInput, staging.publish, queue, "0" * 32, [staged])


def test_its_table_goes_with_the_queue(db: Database, queue: Queue) -> None:
    queue.push(1, key="k")
    assert db.doctor("work") == db.doctor("work")
    assert not [finding for finding in db.doctor("work") if "index" in finding.cause]
    queue.drop()
    assert db.create_queue("work", unique_for=300).push(1, key="k")
