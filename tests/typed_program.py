# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A program as a user writes it, every value typed: test_typing.py has pyright and mypy check it, and runs it.

`assert_type` says what a checker must know a value to be. A line that must be refused ends with `type: ignore`, which
is an error itself where nothing is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import tablequeue
from tablequeue import (
    Activity,
    AttemptError,
    Backoff,
    Batch,
    BatchProgress,
    Claim,
    Consumer,
    Database,
    Definition,
    Delivery,
    Duration,
    FailedState,
    Finding,
    History,
    Keep,
    Lag,
    LiveState,
    Message,
    NewMessage,
    OnConflict,
    OnDead,
    OpenBatch,
    Order,
    PayloadType,
    Queue,
    QueueOptions,
    Start,
    State,
    Stats,
    Subscription,
    SubscriptionDefinition,
    SubscriptionOptions,
    TableSize,
    Times,
    Topic,
    TopicDefinition,
    TopicOptions,
    Window,
)
from tablequeue.aio import AsyncClaim, AsyncDatabase, AsyncQueue, AsyncSubscription, AsyncTopic
from tablequeue.aio import connect as connect_async
from tablequeue.bulk.stream import Stream, StreamState, streams
from tablequeue.errors import (
    BadDefinition,
    BadInput,
    DuplicateKey,
    Empty,
    LeaseLost,
    QueueDiffers,
    SeekRefused,
    TablequeueError,
)
from tablequeue.ext import waiter_of
from tablequeue.testing import Clock, Drained, Performed, assert_pushed, drain, killed_after, perform
from tablequeue.worker import DeadLetter, Handler, Outcome, Retry, Snooze, Worker

MINUTE: Duration = timedelta(minutes=1)


def define(db: Database) -> Queue:
    backoff = Backoff(base=timedelta(seconds=5), cap=60, jitter=0)
    options: QueueOptions = {"order": "fifo", "lease": MINUTE, "backoff": backoff, "history": timedelta(days=7)}
    assert_type(db.create_queue("emails", payload="json", max_attempts=3, groups=False, strict=False), Queue).drop()
    emails = assert_type(db.create_queue("emails", **options), Queue)
    assert_type(db.queue("emails"), Queue)
    assert_type(db.queues(), list[str])
    assert_type(db.upgrade(), dict[str, int])
    assert_type(db.doctor(), list[Finding])
    assert_type(db.sizes(), list[TableSize])
    definition: Definition = emails.definition
    assert_type(definition.order, Order)
    assert_type(definition.payload, PayloadType)
    assert_type(definition.delivery, Delivery)
    assert_type(definition.lease, float)
    assert_type(definition.backoff.cap, float)
    history: History = definition.history
    assert (definition.lease, definition.backoff.base, history) == (60, 5, 7 * 86400)
    return emails


def push(db: Database, emails: Queue) -> None:
    id = assert_type(emails.push({"to": "ada"}, key="a", headers={"trace": "1"}), int)
    assert_type(emails.push({"to": "ada"}, key="a", on_conflict="return"), int)
    assert assert_type(emails.push({"to": "ada"}, key="a", on_conflict="skip"), int | None) is None
    words: OnConflict = "skip"
    assert_type(emails.push({"to": "ada"}, key="a", on_conflict=words), int | None)
    try:
        emails.push({"to": "ada"}, key="a")
    except DuplicateKey as error:
        print(assert_type(error.keys, tuple[str, ...]))
    later = NewMessage({"to": "bob"}, delay=MINUTE, key="b", headers={"trace": "2"})
    assert_type(emails.push_many([later, {"to": "cyd"}], delay=0.5), list[int])
    assert_type(emails.push_many([later], on_conflict="skip"), list[int | None])
    with db.engine.begin() as connection:
        assert_type(connection, sa.Connection)
        emails.push({"to": "dan"}, connection=connection)
    with Session(db.engine) as session:
        emails.push({"to": "eve"}, due=datetime.now(UTC), connection=session)
        session.commit()
    registry = scoped_session(sessionmaker(db.engine))
    emails.push({"to": "fay"}, connection=registry)
    registry.remove()
    message = assert_type(emails.find(id), Message | None)
    assert message is not None
    assert_type(message.state, State)
    assert_type(message.headers, dict[str, Any])
    assert_type(message.errors, tuple[AttemptError, ...])
    assert_type(message.wait_time, timedelta | None)
    state: LiveState = "scheduled"
    assert_type(emails.peek(10, state=state), list[Message])


def consume(emails: Queue) -> None:
    claim = assert_type(emails.pop(lease=MINUTE), Claim | None)
    assert claim is not None
    assert_type(claim.queue, Consumer)
    assert_type(claim.id, int)
    assert_type(claim.attempt, int)
    assert_type(claim.lease_until, datetime | None)
    assert_type(claim.extend(timedelta(minutes=2)), datetime)
    assert_type(claim.fail("mailbox full", retry_in=0), FailedState)
    try:
        claim.complete()
    except LeaseLost as error:
        print(assert_type(error.ids, tuple[int, ...]))
    batch = assert_type(emails.pop_many(2, lease=30), list[Claim])
    batch[0].release(delay=timedelta(seconds=30))
    emails.release_many(batch[1:], delay=30)
    with emails.receive(wait=timedelta(0)) as message:
        assert_type(message, Claim)
        print(message.payload["to"])
    for message in emails.consume(wait=0, lease=MINUTE):
        assert_type(message, Claim)
        message.complete()
    try:
        with emails.receive(wait=0):
            raise AssertionError("there is nothing to receive")
    except Empty as error:
        assert_type(error.remedy, str)
    with waiter_of(emails, longest_pause=timedelta(seconds=1)) as waiter:
        waiter.wait(timedelta(0))
    assert_type(emails.history(), list[Message])
    assert_type(emails.dead(), list[Message])
    assert_type(emails.redrive(lambda message: message.attempts > 1), int)
    assert_type(emails.purge_history(timedelta(days=30)), int)


def batches(db: Database) -> None:
    reports = db.create_queue("reports", batches=True)
    wait: OnDead = "wait"
    with reports.batch(then=("emails", {"day": 1}), failed=None, on_dead=wait) as batch:
        assert_type(batch, OpenBatch)
        batch.push({"carrier": "AA"})
        batch.push_many([NewMessage({"carrier": "DL"}, delay=0)])
    found = assert_type(db.batch(batch.id), Batch)
    message = reports.pop()
    assert message is not None
    with reports.batch_of(message) as more:
        more.push({"carrier": "UA"})
    progress = assert_type(found.progress(), BatchProgress)
    assert_type(progress.ended_at, datetime | None)
    assert (progress.total, progress.waiting, found.cancel()) == (3, 2, 3)
    reports.drop()


def take(db: Database, emails: Queue) -> None:
    emails.push("x")
    with db.engine.begin() as connection:
        assert_type(emails.take(connection), Claim | None)
        assert_type(emails.take_many(3, connection), list[Claim])


def look(emails: Queue) -> None:
    stats = assert_type(emails.stats(window=timedelta(hours=1)), Stats)
    assert_type(stats.oldest_age, float | None)
    assert_type(stats.estimated, tuple[str, ...])
    window = assert_type(stats.window, Window | None)
    assert window is not None
    assert_type(window.producers, tuple[Activity, ...])
    times = assert_type(window.queue.run_time, Times | None)
    print(stats.ready, None if times is None else times.p95)


def stream(emails: Queue) -> None:
    lake = Stream(emails, "lake")
    lake.complete(assert_type(lake.advance(0, 10), int))
    assert_type(streams(emails), list[StreamState])


def publish(db: Database) -> None:
    keep: Keep = timedelta(days=7)
    options: TopicOptions = {"payload": "json", "keep": keep}
    events = assert_type(db.create_topic("events", **options), Topic)
    assert_type(db.topic("events"), Topic)
    assert_type(db.topics(), list[str])
    assert_type(events.definition, TopicDefinition)
    own: SubscriptionOptions = {"ordered": False, "lease": MINUTE, "max_attempts": 3, "backoff": Backoff()}
    start: Start = "beginning"
    mail = assert_type(events.subscribe("mail", start=start, **own), Subscription)
    assert_type(events.subscription("mail"), Subscription)
    assert_type(events.subscriptions(), list[str])
    assert_type(events.push({"order": 7}, group="ada", headers={"trace": "1"}), int)
    assert_type(events.push_many([NewMessage({"order": 8}, group="bob"), {"order": 9}]), list[int])
    lag = assert_type(mail.lag(), Lag)
    assert_type(lag.seconds, float | None)
    definition = mail.definition
    assert isinstance(definition, SubscriptionDefinition)
    assert (lag.messages, definition.ordered) == (3, False)
    batch = assert_type(mail.pop_many(2), list[Claim])
    try:
        mail.seek(datetime.now(UTC))
    except SeekRefused as error:
        print(error.remedy)
    mail.complete_many(batch)
    mail.seek("end", force=True)
    assert_type(db.subscription("events/mail"), Subscription)
    assert isinstance(assert_type(db.consumer("events/mail"), Consumer), Subscription)
    events.drop()


def work(db: Database) -> None:
    worker = Worker(maximum=2, shutdown_timeout=MINUTE, longest_pause=timedelta(seconds=1))

    @worker.handler("emails", timeout=MINUTE)
    def send(message: Claim) -> Outcome | None:
        if message.attempt > 1:
            return DeadLetter("never")
        if message.payload is None:
            return Snooze(MINUTE)
        return Retry(after=timedelta(0), error="busy") if message.payload == "busy" else None

    assert_type(worker.run(db, drain=True), Mapping[str, int])
    assert callable(send)


def mistakes(db: Database, emails: Queue) -> None:
    """Each is refused while it is typed, and when it runs."""
    wrong = (
        lambda: db.create_queue("work", order="random"),  # type: ignore
        lambda: db.create_queue("work", delivery="exactly_once"),  # type: ignore
        lambda: db.create_queue("work", lease="60"),  # type: ignore
        lambda: db.create_queue("work", ordr="fifo"),  # type: ignore
        lambda: emails.push(1, on_conflict="ignore"),  # type: ignore
        lambda: emails.push(1, delay="1"),  # type: ignore
        lambda: emails.peek(state="finished"),  # type: ignore
        lambda: emails.pop(lease="1"),  # type: ignore
        lambda: emails.redrive(None),  # type: ignore
        lambda: emails.push(1, connection="tablequeue.db"),  # type: ignore
        lambda: db.create_topic("events", keep="always"),  # type: ignore
        lambda: db.create_topic("events", order="lifo"),  # type: ignore
    )
    for call in wrong:
        try:
            call()
        except (BadDefinition, BadInput) as error:
            print(assert_type(error, BadDefinition | BadInput))
        else:
            raise AssertionError("it must be refused")
    try:
        db.create_queue("emails", order="lifo")
    except QueueDiffers as error:
        assert_type(error, QueueDiffers)


async def use_async(url: str) -> None:
    async with await connect_async(url, name="ada", threads=2) as db:
        assert_type(db, AsyncDatabase)
        tasks = assert_type(await db.create_queue("tasks", order="priority", lease=MINUTE, payload="text"), AsyncQueue)
        assert_type(await db.queue("tasks"), AsyncQueue)
        assert_type(await tasks.push("a", priority=3, key="a"), int)
        assert_type(await tasks.push("a", key="a", on_conflict="skip"), int | None)
        assert_type(await tasks.push_many([NewMessage("b", delay=timedelta(0)), "c"]), list[int])
        claim = assert_type(await tasks.pop(lease=MINUTE), AsyncClaim | None)
        assert claim is not None
        assert_type(await claim.extend(MINUTE), datetime)
        assert_type(await claim.fail("why", retry_in=timedelta(0)), FailedState)
        batch = assert_type(await tasks.pop_many(2), list[AsyncClaim])
        await tasks.complete_many(batch)
        assert_type(await tasks.find(batch[0].id), Message | None)
        async with tasks.receive(wait=timedelta(seconds=1)) as message:
            assert_type(message, AsyncClaim)
        async for message in tasks.consume(wait=0):
            await message.release(delay=MINUTE)
        assert_type(await tasks.stats(window=MINUTE), Stats)
        assert_type(await tasks.peek(state="ready"), list[Message])
        assert_type(await tasks.redrive([1]), int)
        try:
            await claim.complete()
        except TablequeueError as error:
            assert_type(error.cause, str)
        events = assert_type(await db.create_topic("events", keep="consumed"), AsyncTopic)
        assert_type(await events.push({"order": 7}, group="ada"), int)
        mail = assert_type(await events.subscribe("mail", lease=MINUTE), AsyncSubscription)
        assert_type(await mail.lag(), Lag)
        await mail.complete_many(assert_type(await mail.pop_many(2), list[AsyncClaim]))
        await mail.seek("beginning")
        assert_type(await events.subscription("mail"), AsyncSubscription)
        await assert_type(await db.topic("events"), AsyncTopic).drop()
        try:
            await db.create_queue("work", order="random")  # type: ignore
        except BadDefinition as error:
            print(error.remedy)
        else:
            raise AssertionError("it must be refused")


def kit(db: Database) -> None:
    def handle(message: Claim) -> int:
        return message.attempt

    tested = db.create_queue("tested")
    assert_type(perform(handle, {"n": 1}, queue=tested, attempt=2), Performed)
    tested.push("a", delay=60)
    assert_type(assert_pushed(tested, "a", delay=MINUTE, group=None, count=1), list[Message])
    with Clock() as clock:
        assert_type(clock.advance(MINUTE), datetime)
        drained = assert_type(drain(Handler("tested", killed_after(handle)), db), Drained)
        assert_type(drained[0].message, Message | None)
        assert_type(drained.counts["unfinished"], int)
    assert_pushed(tested, group=1, count=0)  # type: ignore
    tested.drop()


def main(url: str) -> None:
    db = assert_type(tablequeue.connect(url, name="ada"), Database)
    emails = define(db)
    push(db, emails)
    consume(emails)
    batches(db)
    take(db, emails)
    look(emails)
    stream(emails)
    publish(db)
    emails.purge()
    emails.push("busy")
    work(db)
    kit(db)
    mistakes(db, emails)
    db.close()
