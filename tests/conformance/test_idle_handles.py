"""A handle that was not used for a while knows, before it acts, what others have made of its queue."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Barrier, Thread
from typing import Any

import pytest

from tablequeue import ALL, Claim, Consumer, Database, Queue, Subscription, TablequeueError, Topic, aio
from tablequeue.bulk.stream import Stream
from tablequeue.verbs.batches import Batch
from tablequeue.verbs.context import Context
from tests.servers import Place
from tests.support import claimed, idle

pytestmark = [pytest.mark.quick, pytest.mark.designs("distinct")]

TOKEN = "0" * 32


def lost(queue: Any) -> Any:
    """Return a claim that is not held."""
    if isinstance(queue, aio.AsyncConsumer):
        return aio.AsyncClaim(queue, Claim.of(queue._own, 1, TOKEN))
    return Claim.of(queue, 1, TOKEN)


def each_of(blocks: Any) -> None:
    with blocks as block:
        block.push("x")


# Each verb with arguments of which some are refused: it looks before it does so.
QUEUE: dict[str, Callable[[Any], Any]] = {
    "push": lambda queue: queue.push("x"),
    "push_many": lambda queue: queue.push_many(["x"]),
    "batch": lambda queue: each_of(queue.batch()),
    "batch_of": lambda queue: each_of(queue.batch_of(lost(queue))),
    "batches": lambda queue: queue.batches(),
    "pop": lambda queue: queue.pop(),
    "pop_many": lambda queue: queue.pop_many(2),
    "pop_group": lambda queue: queue.pop_group("a"),
    "receive": lambda queue: queue.receive().__enter__(),
    "consume": lambda queue: next(queue.consume(wait=0)),
    "take": lambda queue: queue.take(None),
    "take_many": lambda queue: queue.take_many(2, None),
    "complete": lambda queue: queue.complete(lost(queue)),
    "complete_many": lambda queue: queue.complete_many([lost(queue)]),
    "fail": lambda queue: queue.fail(lost(queue)),
    "fail_many": lambda queue: queue.fail_many([lost(queue)]),
    "release": lambda queue: queue.release(lost(queue)),
    "release_many": lambda queue: queue.release_many([lost(queue)]),
    "extend": lambda queue: queue.extend(lost(queue)),
    "extend_many": lambda queue: queue.extend_many([lost(queue)]),
    "extend_held": lambda queue: queue.extend_held(1, 5),
    "report_progress": lambda queue: queue.report_progress(lost(queue), 0.5),
    "is_cancelled": lambda queue: queue.is_cancelled(lost(queue)),
    "result": lambda queue: queue.result(1),
    "peek": lambda queue: queue.peek(),
    "find": lambda queue: queue.find(1),
    "progress": lambda queue: queue.progress(1),
    "stats": lambda queue: queue.stats(),
    "history": lambda queue: queue.history(),
    "history_bounds": lambda queue: queue.history_bounds(),
    "lost": lambda queue: queue.lost(),
    "dead": lambda queue: queue.dead(),
    "cancel": lambda queue: queue.cancel(1),
    "reschedule": lambda queue: queue.reschedule(1, delay=1),
    "alter": lambda queue: queue.alter(max_attempts=3),
    "pause": lambda queue: queue.pause(),
    "resume": lambda queue: queue.resume(),
    "redrive": lambda queue: queue.redrive(ALL),
    "purge": lambda queue: queue.purge(),
    "purge_dead": lambda queue: queue.purge_dead(ALL),
    "purge_history": lambda queue: queue.purge_history(1),
    "move": lambda queue: queue.move(ALL, to=queue),
    "move_batches": lambda queue: queue.move_batches(to=queue),
    "drop": lambda queue: queue.drop(),
}
SUBSCRIPTION = {name: call for name, call in QUEUE.items() if hasattr(Subscription, name)} | {
    "seek": lambda subscription: subscription.seek("end"),
    "lag": lambda subscription: subscription.lag(),
}
TOPIC: dict[str, Callable[[Any], Any]] = {
    "push": lambda topic: topic.push("x"),
    "push_many": lambda topic: topic.push_many(["x"]),
    "subscribe": lambda topic: topic.subscribe("other"),
    "subscription": lambda topic: topic.subscription("mail"),
    "subscriptions": lambda topic: topic.subscriptions(),
    "trim": lambda topic: topic.trim(),
    "drop": lambda topic: topic.drop(),
}


def verbs_of(opened: type) -> set[str]:
    found = inspect.getmembers_static(opened, lambda member: not isinstance(member, property))
    return {name for name, _ in found if not name.startswith("_")}


@pytest.fixture(params=[False, True], ids=["", "mutant"])
def looks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a handle looks; one that does not at its first call is the mutant."""
    if request.param:

        def current(context: Context, connection: Any = None) -> Context:
            return context

        monkeypatch.setattr(Context, "current", current)
    return not request.param


@pytest.mark.parametrize(
    ("opened", "calls"), [(Queue, QUEUE), (Subscription, SUBSCRIPTION), (Topic, TOPIC)], ids=lambda each: ""
)
def test_no_verb_is_forgotten(opened: type, calls: Mapping[str, Any]) -> None:
    assert verbs_of(opened) == calls.keys()


def test_each_verb_of_a_queue_looks_first(place: Place) -> None:
    queue = place.open().create_queue("q0", batches=True)
    assert unknowing(place, queue, place.open().queue("q0"), QUEUE) == []


def test_each_verb_of_a_subscription_looks_first(place: Place) -> None:
    subscription = place.open().create_topic("events").subscribe("q0")
    assert unknowing(place, subscription, place.open().subscription("events/q0"), SUBSCRIPTION) == []


def unknowing(place: Place, queue: Consumer, other: Any, calls: Mapping[str, Callable[[Any], Any]]) -> list[str]:
    """Return the verbs at which a handle did not know a new name and a new lease."""
    db, found = place.open(), []
    for number, verb in enumerate(sorted(calls, key="drop".__eq__), start=1):
        name = f"{queue.name[: -len(str(number - 1))]}{number}"
        queue.alter(lease=number)
        db.rename(queue.name, name)
        idle(queue).find(1)
        with suppress(TablequeueError, StopIteration):
            calls[verb](idle(other))
        if (other.name, other.definition.lease) != (name, number):
            found.append(verb)
    return found


@pytest.mark.parametrize("verb", TOPIC)
def test_each_verb_of_a_topic_looks_first(place: Place, verb: str) -> None:
    db = place.open()
    db.create_topic("events").subscribe("mail")
    other = place.open().topic("events")
    db.rename("events", "facts")
    with suppress(TablequeueError):
        TOPIC[verb](idle(other))
    assert other.name == "facts"


def test_each_async_verb_looks_first(place: Place) -> None:
    queue = place.open().create_queue("q0", batches=True)

    async def act() -> list[str]:
        async with await aio.connect(place.url, schema=place.schema) as program:
            other = await program.queue("q0")
            loop = asyncio.get_running_loop()

            def called(verb: str) -> Callable[[Any], None]:
                def call(_: Queue) -> None:
                    asyncio.run_coroutine_threadsafe(_called(other, verb), loop).result(60)

                return call

            verbs = verbs_of(aio.AsyncQueue) - {"take", "take_many"}  # refused at once without a connection
            calls = {verb: called(verb) for verb in verbs}
            return await asyncio.to_thread(unknowing, place, queue, other._own, calls)

    assert asyncio.run(act()) == []


async def _called(queue: Any, verb: str) -> None:
    if verb in ("batch", "batch_of", "receive"):
        async with getattr(queue, verb)(*([lost(queue)] if verb == "batch_of" else [])):
            return
    called = QUEUE[verb](queue) if verb != "consume" else queue.consume(wait=0)
    if inspect.isawaitable(called):
        await called
    else:
        with suppress(StopAsyncIteration):
            await anext(called)


def test_a_limit_holds_for_the_first_claim(place: Place, looks: bool) -> None:
    queue = place.open().create_queue("work")
    queue.push_many(range(10))
    other = idle(place.open().queue("work"))
    queue.alter(concurrency=2, lease=7)
    assert (len(other.pop_many(10)) == 2) is looks


def test_a_limit_holds_for_the_first_batch_of_a_stream(place: Place, looks: bool) -> None:
    queue = place.open().create_queue("work")
    queue.push_many(range(10))
    other = place.open().queue("work")
    stream = Stream(other, "spark")
    queue.alter(concurrency=2)
    idle(other)
    stream.advance(0, 10)
    assert (queue.stats().in_progress == 2) is looks


def test_a_result_is_taken_by_the_first_completion(place: Place, looks: bool) -> None:
    queue = place.open().create_queue("work")
    id = queue.push("x")
    other = place.open().queue("work")
    claim = claimed(other)
    idle(other)
    queue.alter(results=True)
    if not looks:
        with pytest.raises(TablequeueError):
            claim.complete(result=5)
        return
    claim.complete(result=5)
    assert idle(place.open().queue("work")).result(id) == 5


def test_a_claim_names_its_queue_by_its_table(db: Database, place: Place) -> None:
    """And not by a name that another queue has by now."""
    parents = db.create_queue("parents")
    parent = parents.push("parent")
    claim = claimed(place.open().queue("parents"))
    db.rename("parents", "elders")
    db.create_queue("parents", order="heap", history="none")
    jobs = db.create_queue("jobs", dependencies=True)
    child = jobs.push("child", after=[claim])
    assert jobs.pop() is None
    elders = db.queue("elders")
    elders.cancel(parent)
    claim.complete()
    assert claimed(jobs).id == child


def test_a_pair_names_the_queue_that_has_the_name_now(db: Database, place: Place) -> None:
    jobs = place.open().create_queue("jobs", dependencies=True)
    jobs.push("of the first queue")
    db.rename("jobs", "old")
    second = db.create_queue("jobs")
    awaited = [second.push("x") for _ in range(3)][-1]
    child = jobs.push("child", after=[("jobs", awaited)])  # it knows the old name still: nothing was idle
    claimed(jobs).complete()
    assert jobs.pop() is None
    second.cancel(awaited)
    assert claimed(jobs).id == child


def test_a_callback_names_the_queue_as_it_is_called_by_then(db: Database, place: Place) -> None:
    callbacks = db.create_queue("callbacks")
    work = db.create_queue("work", batches=True)
    with work.batch(then=("callbacks", "done")) as batch:
        batch.push("x")
    other = place.open().queue("work")
    claim = claimed(other)
    db.rename("work", "jobs")
    claim.complete()  # it knows the old name still
    assert claimed(callbacks).headers["tablequeue-batch"]["queue"] == "jobs"


@pytest.mark.parametrize("verb", ["progress", "results", "cancel"])
def test_a_batch_looks_first(db: Database, place: Place, verb: str) -> None:
    work = db.create_queue("work", batches=True)
    with work.batch() as batch:
        batch.push("x")
    other: Batch = place.open().batch(batch.id)
    idle(other)
    work.alter(results=True)
    db.rename("work", "jobs")
    getattr(other, verb)()
    assert other.queue == "jobs"


def test_all_threads_of_an_idle_handle_know(place: Place) -> None:
    """A thread that comes while another one looks does not go on by what was known before."""
    queue = place.open().create_queue("work")
    queue.push_many(range(20))
    other = idle(place.open().queue("work"))
    queue.alter(lease=7)
    start, known = Barrier(8), []

    def first() -> None:
        start.wait()
        claim = claimed(other)
        assert claim.lease_until is not None
        known.append(round((claim.lease_until - claim.popped_at).total_seconds()))

    threads = [Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert known == [7] * 8
