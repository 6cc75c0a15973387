"""A rename changes the name in the catalogue, and nothing else."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from tablequeue import ALL, Database, TablequeueError, aio
from tablequeue.errors import BadInput, BadName, QueueDiffers, QueueNotFound
from tablequeue.ext import context_of
from tests.servers import Place
from tests.support import claimed, counts, refuses

pytestmark = pytest.mark.quick


def test_what_has_the_queue_open_goes_on(db: Database, place: Place) -> None:
    old = db.create_queue("old", payload="text")
    old.push("done")
    claimed(old).complete()
    held, waits = old.push("held", key="k"), old.push("waits")
    claim = claimed(old)
    place.open().rename("old", "New one")
    assert db.queues() == ["New one"]
    assert "create_queue" in refuses(QueueNotFound, db.queue, "old").remedy
    new = db.queue("New one")
    assert new.definition == old.definition
    assert claim.id == held
    claim.complete()
    assert claimed(old).id == waits
    after = old.push("after")
    assert [message.id for message in new.peek()] == [after]
    assert counts(new) == {"ready": 1, "in_progress": 1, "finished": 2}


def test_a_new_queue_of_the_old_name_has_a_table_of_its_own(db: Database) -> None:
    first = db.create_queue("a")
    first.push("first")
    db.rename("a", "b")
    second = db.create_queue("a")
    second.push("second")
    db.rename("a", "c")
    third = db.create_queue("a")
    third.push("third")
    assert [claimed(db.queue(name)).payload for name in ("a", "b", "c")] == ["third", "first", "second"]
    assert len({context_of(db.queue(name)).table.table_name for name in "abc"}) == 3
    first.drop()  # by the object that was opened under the old name
    assert db.queues() == ["a", "c"]
    first.drop()
    assert db.queues() == ["a", "c"]
    assert counts(db.queue("a")) == {"in_progress": 1}
    db.rename("c", "b")
    db.queue("a").drop()
    assert context_of(db.create_queue("a")).table.table_name != "tq_a", "that of a queue that was dropped"


def test_dead_letters_and_their_queue_know_each_other_by_their_tables(db: Database, place: Place) -> None:
    failed = db.create_queue("failed")
    work = db.create_queue("work", dead_letter_to="failed")
    other = place.open().queue("work")
    work.push_many([*"ab"])
    claimed(work).fail(retry=False)
    db.rename("work", "renamed")
    claimed(other).fail(retry=False)  # it was opened under the old name
    new = db.create_queue("work", dead_letter_to="failed")
    assert new.redrive(ALL) == 0
    assert db.queue("renamed").redrive(ALL) == 2
    work.fail_many(work.pop_many(2), retry=False)
    db.rename("failed", "letters")
    db.create_queue("failed")
    assert failed.redrive(ALL) == 2
    assert (counts(work), counts(new)) == ({"ready": 2}, {})
    assert "'renamed'" in refuses(BadInput, failed.drop).cause
    assert "letters" in db.queues()


def test_what_is_refused_changes_nothing(db: Database) -> None:
    db.create_queue("a")
    db.create_topic("events").subscribe("mail")
    db.create_topic("other")
    for old, new in (("a", "a"), ("a", "events"), ("events", "a"), ("events/mail", "events/mail")):
        refuses(QueueDiffers, db.rename, old, new)
    refuses(QueueNotFound, db.rename, "b", "c")
    refuses(QueueNotFound, db.rename, "events/b", "events/c")
    wrong: list[tuple[str, Any]] = [("a", " b"), ("a", ""), ("a", None), ("a", "a/b"), ("events/mail", "other/mail")]
    wrong += [("events/mail", "mail"), ("events", "events/mail"), ("events", "e" * 251)]
    for old, new in wrong:
        refuses(BadName, db.rename, old, new)
    assert (db.queues(), db.topics(), db.subscriptions()) == (["a"], ["events", "other"], ["events/mail"])
    assert context_of(db.subscription("events/mail")).table.topic is not None


def test_the_subscriptions_of_a_topic_go_with_it(db: Database) -> None:
    topic = db.create_topic("events", payload="text", keep="consumed")
    mail, log = topic.subscribe("mail"), topic.subscribe("log")
    topic.push("one")
    db.rename("events", "Log 2030")
    db.rename("Log 2030/mail", "Log 2030/letters")
    assert db.subscriptions() == ["Log 2030/letters", "Log 2030/log"]
    assert topic.subscriptions() == ["letters", "log"]
    assert db.topic("Log 2030").subscriptions() == ["letters", "log"]
    assert claimed(mail).payload == "one"
    assert topic.subscribe("late").name == "Log 2030/late"
    # A new topic of the old name, whose subscription needs nothing, is not asked what the old one may drop.
    again = db.create_topic("events", payload="text", keep="consumed")
    again.subscribe("mail", start="end")
    again.push("other")
    assert topic.subscribe("late").name == topic.subscription("late").name == "Log 2030/late"
    topic.trim()
    assert [claim.payload for claim in log.pop_many(10)] == ["one"]
    topic.drop()
    assert (db.topics(), db.subscriptions()) == (["events"], ["events/mail"])
    assert [claim.payload for claim in db.subscription("events/mail").pop_many(10)] == ["other"]


def test_of_several_renames_at_once_one_is_done(place: Place) -> None:
    db = place.open()
    db.create_queue("a").push(1)
    barrier = Barrier(4)

    def rename(number: int) -> bool:
        with place.open() as own:
            barrier.wait()
            try:
                own.rename("a", f"b{number}")
            except TablequeueError:
                return False
            return True

    with ThreadPoolExecutor(4) as pool:
        done = [*pool.map(rename, range(4))]
    assert db.queues() == [f"b{done.index(True)}"]
    assert sum(done) == 1
    assert counts(db.queue(db.queues()[0])) == {"ready": 1}


def test_procedures_keep_their_names(db: Database) -> None:
    if context_of(db.create_queue("a")).engine.procedure_syntax is None:
        pytest.skip("the database has no procedures")
    made = db.install_procedures("a")
    db.rename("a", "b")
    assert db.install_procedures("b") == made
    assert "tq_a_push" in made
    db.queue("b").drop()
    db.create_queue("a")
    assert not {*db.install_procedures("a")} & {*made}, "who calls those of a dropped queue reaches no other one"


def test_an_async_rename(place: Place) -> None:
    async def rename() -> list[str]:
        db = await aio.connect(place.url, schema=place.schema)
        await db.create_queue("a")
        await db.rename("a", "b")
        try:
            return await db.queues()
        finally:
            await db.close()

    assert asyncio.run(rename()) == ["b"]
