"""The definition of a queue is changed for all who use it; what is in its tables stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Backoff, Database, Definition, NewMessage, Queue, Rate
from tablequeue.errors import BadDefinition, BadInput, QueueDiffers
from tablequeue.ext import context_of
from tests import checks
from tests.servers import Place
from tests.support import DESIGNS, at, claimed, found, idle, refuses

pytestmark = [pytest.mark.quick, pytest.mark.designs("distinct")]


@pytest.mark.needs("plain_push")
def test_it_holds_at_once_in_this_process_and_soon_in_others(place: Place, queue: Queue) -> None:
    other = place.open().queue("work")
    other.push("x", now=at(0))
    queue.alter(lease=7, max_attempts=1)
    assert (queue.definition.lease, place.open().queue("work").definition.max_attempts) == (7, 1)
    idle(other)
    message = claimed(other, now=at(0))
    assert (message.lease_until, other.definition.lease) == (at(7), 7)
    assert message.fail("no") == "dead"


@pytest.mark.needs("plain_push")
def test_a_renamed_queue_is_altered_too(place: Place, queue: Queue) -> None:
    database = place.open()
    database.rename("work", "jobs")
    other = database.create_queue("work")
    queue.alter(lease=7)
    assert (database.queue("jobs").definition.lease, other.definition.lease) == (7, 60)
    database.queue("jobs").alter(lease=8)
    idle(queue)
    queue.push("x", now=at(0))
    assert claimed(queue, now=at(0)).lease_until == at(8)
    assert queue.name == "jobs"


@pytest.mark.needs("plain_push")
def test_other_options_stay(queue: Queue) -> None:
    before = queue.definition
    queue.alter(backoff=Backoff(base=3, jitter=0))
    assert (queue.definition.lease, queue.definition.order) == (before.lease, before.order)
    id = queue.push("x", now=at(0))
    claimed(queue, now=at(0)).fail("no", now=at(0))
    assert found(queue, id).due_at == at(3)


def test_two_that_alter_at_once_both_do(place: Place, queue: Queue) -> None:
    others = [place.open().queue("work") for _ in range(4)]
    options: list[dict[str, Any]] = [{"lease": 7}, {"max_attempts": 9}, {"backoff": Backoff(base=3)}, {"history": 60}]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda pair: pair[0].alter(**pair[1]), zip(others, options, strict=True)))
    now = place.open().queue("work").definition
    assert (now.lease, now.max_attempts, now.backoff.base, now.history) == (7, 9, 3, 60)


@pytest.mark.parametrize(
    "options", [{"order": "lifo"}, {"payload": "bytes"}, {"history": "none"}, {"groups": True}], ids=str
)
def test_what_is_in_the_tables_is_refused(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work")
    error = refuses(BadDefinition, queue.alter, **options)
    assert "move" in error.remedy
    assert db.queue("work").definition == queue.definition


def test_impossible_options_are_refused(db: Database) -> None:
    queue = db.create_queue("work")
    refuses(BadDefinition, queue.alter, lease=0)
    refuses(BadInput, queue.alter, colour="red")
    assert db.queue("work").definition == queue.definition


def test_create_may_alter(db: Database) -> None:
    db.create_queue("work", lease=5)
    refuses(QueueDiffers, db.create_queue, "work", lease=6)
    assert db.create_queue("work", lease=6, if_exists="alter").definition.lease == 6
    assert db.queue("work").definition.lease == 6
    assert db.create_queue("work", if_exists="alter").definition.lease == 60
    assert db.create_queue("new", lease=6, if_exists="alter").definition.lease == 6
    refuses(BadDefinition, db.create_queue, "work", order="lifo", if_exists="alter")
    refuses(BadInput, db.create_queue, "work", if_exists="replace")
    db.create_topic("events")
    refuses(QueueDiffers, db.create_queue, "events", if_exists="alter")


def test_features_are_switched_on_and_changed(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push("before", now=at(0))
    queue.alter(expires=60, unique_for=300, results=True)
    id = queue.push("x", key="a", now=at(0))
    assert [message.payload for message in queue.pop_many(5, now=at(100))] == ["before"]
    assert found(queue, id).state in ("ready", "expired")
    assert queue.push("y", key="a", on_conflict="return", now=at(200)) == id
    queue.alter(expires=120)
    assert db.queue("work").definition.expires == 120


def test_the_remedy_is_alter_where_nothing_is_lost(db: Database) -> None:
    """The queue is there with its messages: nobody is told to drop it, or to create another one without need."""
    queue = db.create_queue("work", lease=60)
    queue.push("x")
    claim = claimed(queue)
    db.create_topic("events").subscribe("mail", lease=60)
    for call in (
        lambda: db.create_queue("work", lease=120),
        lambda: db.create_queue("work", lease=120, expires=60, results=True),
        lambda: db.topic("events").subscribe("mail", lease=120),
    ):
        assert refuses(QueueDiffers, call).remedy.endswith("by alter() or `queue alter`: its messages stay.")
    for option, call in {
        "results": lambda: claim.complete(result=3),
        " results": lambda: queue.result(1),
        "expires": lambda: queue.push("x", expires=5),
        " expires": lambda: queue.push_many([NewMessage("x", expires=5)]),
        "unique_for": lambda: queue.push("x", key="k", unique_for=5),
    }.items():
        assert f"by alter({option.strip()}=" in refuses(BadInput, call).remedy


def test_the_remedy_is_another_queue_where_alter_cannot_help(db: Database) -> None:
    queue = db.create_queue("work", history="none")
    db.create_topic("events", keep=60)
    for call in (
        lambda: db.create_queue("work", order="lifo", lease=120, history="none"),
        lambda: db.create_queue("work"),
        lambda: db.create_topic("events"),
        lambda: db.create_queue("events"),
    ):
        words = refuses(QueueDiffers, call).remedy
        assert words.startswith("Open it with ")
        assert "alter" not in words
        assert "drop" not in words
    for verb in (lambda: queue.result(1), lambda: db.topic("events").push_many([NewMessage("x", expires=5)])):
        assert "alter" not in refuses(BadInput, verb).remedy


def test_features_are_switched_off_and_on_again(place: Place) -> None:
    db = place.open()
    options: dict[str, Any] = {"expires": 60, "unique_for": 300, "results": True, "concurrency": 9}
    options["rate"] = Rate(9, burst=9)
    queue = db.create_queue("work", dead_letter_to=db.create_queue("failed").name, **options)
    other = place.open().queue("work")
    id = queue.push("x", key="a", now=at(0))
    queue.alter(expires=None, unique_for=None, results=False, concurrency=None, rate=None, dead_letter_to=None)
    assert queue.definition == db.queue("work").definition == Definition()
    assert other.push("y", key="b", now=at(1)), "what has not looked yet goes on"
    for message in other.pop_many(5, now=at(2)):
        message.complete(result=1, now=at(3))
    assert queue.push("x", key="a", now=at(4)) != id
    late = claimed(queue, now=at(100))
    assert late.payload == "x", "it does not expire"
    late.complete()
    queue.alter(**options, dead_letter_to="failed")
    assert (queue.result(id), place.open().queue("work").definition) == (1, queue.definition)
    queue.push("z", key="c", now=at(200))
    assert queue.pop_many(5, now=at(261)) == []
    queue.alter(results=False, rate=None)
    queue.drop()
    there = sa.inspect(place.sa_engine()).get_table_names(schema=place.schema)
    assert [name for name in there if name.startswith("tq_work")] == []


def test_messages_in_progress_count_for_another_limit(db: Database) -> None:
    checks.check_altered_places(db.create_queue("work", payload="text"))


@pytest.mark.parametrize("order", ["lifo", "priority"])
def test_messages_in_progress_count_in_any_order(db: Database, order: str) -> None:
    checks.check_altered_places(db.create_queue("work", payload="text", **DESIGNS[order]))


def test_claims_of_those_who_do_not_know_of_the_limit_count(place: Place, db: Database) -> None:
    late = place.open().create_queue("work", payload="text")
    checks.check_late_claims_count(db.queue("work"), late)


def test_large_claims_count(place: Place, db: Database) -> None:
    late = place.open().create_queue("work", payload="text")
    queue = db.queue("work")
    queue.push_many(["a"] * 1000)
    before, after = late.pop_many(300), late.pop_many(300)
    queue.alter(concurrency=601)
    assert len(queue.pop_many(1000)) == 1
    queue.complete_many(before)
    after[0].complete()
    assert len(queue.pop_many(250)) == 250


def test_claims_at_once_after_the_limit_has_become_smaller(place: Place, db: Database) -> None:
    queue = db.create_queue("work", payload="text", concurrency=40)
    queue.push_many(["a"] * 200)
    held = queue.pop_many(40)
    queue.alter(concurrency=10)
    consumers = [place.open().queue("work") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        while held:
            some, held = held[-7:], held[:-7]
            queue.complete_many(some)
            for claims in threads.map(lambda queue: queue.pop_many(2), consumers):
                held += claims
            held += queue.pop_many(200) if len(held) < 10 else []
            assert len(held) in range(10, 34)
            assert queue.pop() is None
            if queue.stats().ready < 50:
                break


def test_a_rate_changes(db: Database) -> None:
    checks.check_altered_rate(db.create_queue("work", payload="text", rate=Rate(1, per=3600, burst=3)))


def test_dead_letters_go_elsewhere(place: Place) -> None:
    db = place.open()
    queue, failed = (db.create_queue(name) for name in ("work", "failed"))
    other = place.open().queue("work")
    queue.push_many(["before", "after", "late"])
    claimed(queue).fail("no", retry=False)
    queue.alter(dead_letter_to="failed")
    assert claimed(queue).fail("no", retry=False) == "dead"
    idle(other)
    assert claimed(other).fail("no", retry=False) == "dead"
    assert [message.payload for message in queue.dead()] == ["before"]
    assert [message.payload for message in failed.peek()] == ["after", "late"]
    assert queue.redrive(ALL) == 3
    queue.alter(dead_letter_to=None)
    failed.drop()
    claimed(queue).fail("no", retry=False)
    assert len(queue.dead()) == 1
    claimed(idle(other)).fail("no", retry=False)
    assert len(queue.dead()) == 2


def test_impossible_queues_for_dead_letters_are_refused(db: Database) -> None:
    queue = db.create_queue("work")
    db.create_queue("failed")
    db.create_queue("text", payload="text")
    db.create_queue("strict", strict=True)
    db.create_queue("mail", dead_letter_to="failed")
    for name in ("nowhere", "work", "text", "strict"):
        refuses(BadDefinition, queue.alter, dead_letter_to=name)
    db.queue("failed").alter(dead_letter_to="work")  # a chain: from mail to failed to work
    for name in ("failed", "mail"):
        refuses(BadDefinition, queue.alter, dead_letter_to=name)


def test_a_subscription_is_altered(db: Database) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail")
    mail.alter(lease=5)
    topic.push("x", now=at(0))
    assert claimed(mail, now=at(0)).lease_until == at(5)
    refuses(BadDefinition, mail.alter, history=60)


def test_labels_are_kept_and_altered_one_by_one(db: Database) -> None:
    queue = db.create_queue("labelled", labels={"team": "post", "tier": "1"})
    assert db.queue("labelled").definition.labels == {"team": "post", "tier": "1"}
    queue.alter(labels={"tier": "2", "team": None, "äöü": "ß"})
    assert queue.definition.labels == db.queue("labelled").definition.labels == {"tier": "2", "äöü": "ß"}
    assert db.create_queue("labelled").definition.labels == {"tier": "2", "äöü": "ß"}, "labels are no difference"
    with pytest.raises(BadDefinition):
        queue.alter(labels={"size": "x" * 50_000})


def test_the_queue_for_dead_letters_is_altered(db: Database) -> None:
    queue = db.create_queue("letters", max_attempts=1)
    target = db.create_queue("dead")
    other = db.queue("letters")
    queue.alter(dead_letter_to="dead")
    queue.push("a")
    claim = queue.pop()
    assert claim is not None
    assert claim.fail("no") == "dead"
    assert [message.payload for message in target.peek()] == ["a"]
    queue.alter(dead_letter_to=None)
    queue.push("b")
    claim = queue.pop()
    assert claim is not None
    claim.fail("no")
    assert [message.payload for message in queue.dead()] == ["b"]
    assert db.queue("letters").definition.dead_letter_to is None
    with pytest.raises(BadDefinition):
        other.alter(dead_letter_to="letters")
    with pytest.raises(BadDefinition):
        other.alter(dead_letter_to="nowhere")


def test_dead_letters_of_groups_go_to_groups(db: Database) -> None:
    target = db.create_queue("dead", groups=True)
    queue = db.create_queue("letters", groups=True, max_attempts=1, dead_letter_to="dead")
    for payload in "ab":
        queue.push(payload, group="g")
        claim = queue.pop()
        assert claim is not None
        claim.fail("no")
    first = target.pop()
    assert first is not None
    assert (first.payload, first.group, target.pop()) == ("a", "g", None)
    first.complete()
    second = target.pop()
    assert second is not None
    assert second.payload == "b"


def test_an_old_handle_of_a_queue_whose_table_has_its_first_name(db: Database, queue: Queue) -> None:
    """Of a queue of an early version, whose table is named after it: its name is in the catalogue no more."""
    context = context_of(queue)
    table = context.table
    context.become(context.engine.table("old", table.definition, "tq_old"))
    context.look()
    assert context.table.name == "old"
