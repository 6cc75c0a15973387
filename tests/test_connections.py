"""Connections that a server closes or that become read-only: while they are idle, this costs no call that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

import tablequeue
import tablequeue.aio
from tablequeue import ALL, Batch, Claim, Consumer, Database, Queue, Subscription, TablequeueError, Topic
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.operation import Effect, declaration
from tablequeue.errors import ConnectionLost, ReadOnly
from tablequeue.ext import context_of
from tests.checks import PATIENCE
from tests.servers import Kind, Place, Server, only
from tests.sqs.support import client, serving
from tests.support import claimed, counts, idle_for_long, refuses
from tests.test_crashes import own_kind, own_place, own_server  # noqa: F401  (fixtures)

servers = only("postgresql", "mariadb", "mssql")
# What limits the seconds of an idle session; PostgreSQL counts milliseconds.
IDLE_LIMITS = {"postgresql": "idle_session_timeout", "mariadb": "wait_timeout"}


class Scene:
    """A Database with connections of its own, and what the verb of that name acts on."""

    def __init__(self, place: Place, verb: str, name: str, elsewhere: Database) -> None:
        self.place, self.name = place, name
        self.database = place.open()
        owner = verb.partition(".")[0]
        if owner in ("Consumer", "Queue", "Database") or verb == "Claim.progress":
            self.queue = self.database.create_queue(name, payload="text", lease=3600, max_attempts=1, results=True)
            self.queue.push_many([*"abcde"])
            self.done = claimed(self.queue)
            self.done.complete()
            claimed(self.queue).fail("why")
            self.claim = claimed(self.queue)
        if owner not in ("Consumer", "Queue", "Batch"):
            self.topic = self.database.create_topic(f"{name}_topic", payload="text")
            self.subscription = self.topic.subscribe("mail")
            self.topic.push_many([*"abc"])
            self.part = claimed(self.subscription)
        if verb == "Queue.pop_group":
            self.fair = self.database.create_queue(f"{name}_fair", payload="text", groups="fair")
            self.fair.push("x", group="a")
        if owner == "Batch" or "batch" in verb.partition(".")[2].split("_")[0]:
            self.batches = self.database.create_queue(f"{name}_batches", batches=True, results=True)
            with self.batches.batch() as batch:
                batch.push_many([*"ab"])
            self.batch = self.database.batch(batch.id)
            self.member = claimed(self.batches)
        if verb == "Queue.lost":
            self.lossy = self.database.create_queue(f"{name}_lossy", delivery="at_most_once")
        if verb.startswith("Queue.move"):
            database = elsewhere if verb.endswith("_batches") else self.database
            self.other = database.create_queue(f"{name}_other", payload="text", max_attempts=1, results=True)

    def take(self) -> Any:
        with self.place.sa_engine().begin() as connection:
            return self.queue.take(connection)

    def push_batch(self) -> Any:
        with self.batches.batch() as batch:
            batch.push("x")

    def push_more(self) -> Any:
        with self.batches.batch_of(self.member) as batch:
            batch.push("x")

    def take_many(self) -> Any:
        with self.place.sa_engine().begin() as connection:
            return self.queue.take_many(2, connection)


Verb = Callable[[Scene], Any]

VERBS: dict[str, Verb] = {
    "Queue.push": lambda scene: scene.queue.push("x"),
    "Queue.push_many": lambda scene: scene.queue.push_many([*"xyz"]),
    "Queue.batch": Scene.push_batch,
    "Queue.batch_of": Scene.push_more,
    "Queue.batches": lambda scene: scene.batches.batches(),
    "Batch.progress": lambda scene: scene.batch.progress(),
    "Batch.results": lambda scene: scene.batch.results(),
    "Batch.cancel": lambda scene: scene.batch.cancel(),
    "Consumer.pop": lambda scene: Consumer.pop(scene.queue),
    "Consumer.pop_many": lambda scene: Consumer.pop_many(scene.queue, 2)[1],
    "Consumer.purge": lambda scene: Consumer.purge(scene.queue),
    "Queue.pop": lambda scene: claimed(scene.queue),
    "Queue.pop_many": lambda scene: scene.queue.pop_many(2)[1],
    "Queue.pop_group": lambda scene: scene.fair.pop_group("a", 1)[0],
    "Queue.take": Scene.take,
    "Queue.take_many": Scene.take_many,
    "Consumer.complete": lambda scene: scene.queue.complete(scene.claim),
    "Consumer.complete_many": lambda scene: scene.queue.complete_many([scene.claim]),
    "Queue.result": lambda scene: scene.queue.result(scene.done.id),
    "Consumer.fail": lambda scene: scene.queue.fail(scene.claim, "why"),
    "Consumer.fail_many": lambda scene: scene.queue.fail_many([scene.claim], "why"),
    "Consumer.release": lambda scene: scene.queue.release(scene.claim),
    "Consumer.release_many": lambda scene: scene.queue.release_many([scene.claim]),
    "Consumer.extend": lambda scene: scene.queue.extend(scene.claim, 60),
    "Consumer.extend_many": lambda scene: scene.queue.extend_many([scene.claim], 60),
    "Consumer.extend_held": lambda scene: scene.queue.extend_held(scene.claim.id, 60),
    "Consumer.report_progress": lambda scene: scene.queue.report_progress(scene.claim, 0.5),
    "Consumer.progress": lambda scene: scene.queue.progress(scene.claim.id),
    "Consumer.is_cancelled": lambda scene: scene.queue.is_cancelled(scene.claim),
    "Consumer.receive": lambda scene: received(scene.queue),
    "Consumer.consume": lambda scene: next(scene.queue.consume(wait=0)).complete(),
    "Consumer.peek": lambda scene: scene.queue.peek()[0],
    "Consumer.find": lambda scene: scene.queue.find(scene.claim.id),
    "Consumer.stats": lambda scene: scene.queue.stats(window=60),
    "Queue.lost": lambda scene: scene.lossy.lost(60),
    "Consumer.history": lambda scene: scene.queue.history()[0],
    "Consumer.history_bounds": lambda scene: scene.queue.history_bounds(),
    "Consumer.cancel": lambda scene: scene.queue.cancel(scene.claim.id),
    "Consumer.reschedule": lambda scene: scene.queue.reschedule(scene.queue.peek()[0].id, delay=60),
    "Consumer.alter": lambda scene: scene.queue.alter(lease=30),
    "Consumer.pause": lambda scene: scene.queue.pause(),
    "Consumer.resume": lambda scene: scene.queue.resume(),
    "Consumer.dead": lambda scene: scene.queue.dead()[0],
    "Consumer.redrive": lambda scene: scene.queue.redrive(ALL),
    "Queue.move": lambda scene: scene.queue.move(ALL, to=scene.other),
    "Queue.move_batches": lambda scene: [*scene.queue.move_batches(to=scene.other)],
    "Consumer.purge_dead": lambda scene: scene.queue.purge_dead(ALL),
    "Consumer.purge_history": lambda scene: scene.queue.purge_history(0),
    "Queue.purge": lambda scene: scene.queue.purge(),
    "Consumer.drop": lambda scene: scene.queue.drop(),
    "Topic.push": lambda scene: scene.topic.push("x"),
    "Topic.push_many": lambda scene: scene.topic.push_many([*"xyz"]),
    "Topic.subscribe": lambda scene: scene.topic.subscribe("audit"),
    "Topic.subscription": lambda scene: scene.topic.subscription("mail"),
    "Topic.subscriptions": lambda scene: scene.topic.subscriptions()[0],
    "Topic.trim": lambda scene: scene.topic.trim(),
    "Topic.drop": lambda scene: scene.topic.drop(),
    "Subscription.pop_many": lambda scene: scene.subscription.pop_many(2)[1],
    "Subscription.seek": lambda scene: scene.subscription.seek("beginning", force=True),
    "Subscription.purge": lambda scene: scene.subscription.purge(),
    "Subscription.lag": lambda scene: scene.subscription.lag(),
    "Claim.complete": lambda scene: scene.part.complete(),
    "Claim.fail": lambda scene: scene.part.fail("why"),
    "Claim.release": lambda scene: scene.part.release(),
    "Claim.extend": lambda scene: scene.part.extend(60),
    "Claim.progress": lambda scene: scene.claim.progress(0.5),
    "Claim.raise_if_cancelled": lambda scene: scene.part.raise_if_cancelled(),
    "Database.create_queue": lambda scene: scene.database.create_queue(f"{scene.name}_new"),
    "Database.queue": lambda scene: scene.database.queue(scene.name),
    "Database.subscription": lambda scene: scene.database.subscription(f"{scene.name}_topic/mail"),
    "Database.consumer": lambda scene: scene.database.consumer(scene.name),
    "Database.batch": lambda scene: scene.database.batch(scene.batch.id),
    "Database.queues": lambda scene: scene.database.queues()[0],
    "Database.subscriptions": lambda scene: scene.database.subscriptions()[0],
    "Database.create_topic": lambda scene: scene.database.create_topic(f"{scene.name}_new"),
    "Database.topic": lambda scene: scene.database.topic(f"{scene.name}_topic"),
    "Database.topics": lambda scene: scene.database.topics()[0],
    "Database.rename": lambda scene: scene.database.rename(scene.name, f"{scene.name}_renamed"),
    "Database.has_schema": lambda scene: scene.database.has_schema(),
    "Database.upgrade": lambda scene: scene.database.upgrade(),
    "Database.identity": lambda scene: scene.database.identity(),
    "Database.renew_identity": lambda scene: scene.database.renew_identity(),
    "Database.sizes": lambda scene: scene.database.sizes(),
    "Database.doctor": lambda scene: scene.database.doctor(scene.name),
    "Database.install_procedures": lambda scene: scene.database.install_procedures(scene.name),
}
# Methods that make no call to the database.
SILENT = {"Claim.of", "Database.close"}


def received(queue: Queue) -> None:
    with queue.receive() as message:
        assert message.payload


def test_every_verb_is_here() -> None:
    public = {
        f"{owner.__name__}.{name}"
        for owner in (Consumer, Queue, Batch, Topic, Subscription, Claim, Database)
        for name, value in vars(owner).items()
        if isfunction(getattr(value, "__wrapped__", value)) and not name.startswith("_")
    }
    assert public - SILENT == {*VERBS}


# -- connections that end while they are idle --------------------------------------------------------------------------


def test_no_verb_fails_after_a_restart_of_the_server(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
    tmp_path: Path,
) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'elsewhere.db'}") as elsewhere:
        scenes = {name: Scene(own_place, name, f"q{number}", elsewhere) for number, name in enumerate(VERBS)}
        own_server.kill()
        own_server.start()
        failed: dict[str, TablequeueError] = {}
        for name, scene in scenes.items():
            idle_for_long(scene.database)
            try:
                VERBS[name](scene)
            except TablequeueError as error:
                failed[name] = error
    assert not failed


def test_the_sqs_endpoint_answers_after_a_restart_of_the_database(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
) -> None:
    from tablequeue.sqs import app

    database = own_place.open()
    with serving(app(database)) as address:
        sqs = client(address)
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="a")
        for _ in range(2):
            own_server.kill()
            own_server.start()
            (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
            own_server.kill()
            own_server.start()
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            own_server.kill()
            own_server.start()
            sqs.send_message(QueueUrl=url, MessageBody="b")


def test_no_async_verb_fails_after_a_restart_of_the_server(own_server: Server, own_place: Place) -> None:  # noqa: F811
    own_place.open().create_queue("work").push_many([*"ab"])

    def restart() -> None:
        own_server.kill()
        own_server.start()

    async def calls() -> int:
        async with await tablequeue.aio.connect(own_place.url, schema=own_place.schema) as database:
            queue = await database.queue("work")
            async with queue.receive():
                await asyncio.to_thread(restart)
            await asyncio.to_thread(restart)
            await queue.push("c")
            return (await queue.stats()).finished or 0

    assert asyncio.run(calls()) == 1


@servers
def test_work_that_outlives_its_connection_is_finished(place: Place, kind: Kind) -> None:
    """A long block: its session was ended by a time-out of the server, or by an administrator."""
    check_long_work(place.open(), place, kind)


def check_long_work(database: Database, place: Place, kind: Kind) -> None:
    queue = database.create_queue("work", payload="text")
    topic = database.create_topic("events", payload="text")
    subscription = topic.subscribe("mail")
    for each in (queue, topic):
        each.push("x")
    consumers: list[Consumer] = [queue, subscription]
    for one in consumers:
        try:
            with one.receive():
                end_sessions(database, place, kind)
        except TablequeueError as error:
            raise AssertionError("the work is done, and its message comes again") from error
    assert counts(queue) == {"finished": 1}
    assert subscription.lag().messages == 0


@servers
def test_the_check_notices_connections_that_are_not_looked_at(place: Place, kind: Kind) -> None:
    class Trusting(kind.engine_class):  # type: ignore[name-defined]
        def adopt(self, dbapi: Any) -> RawConnection:
            raw: Any = super().adopt(dbapi)
            raw.is_open = lambda: True
            return raw

    with pytest.raises(AssertionError):
        check_long_work(place.open_with(Trusting), place, kind)


@only(*IDLE_LIMITS)
def test_an_idle_connection_that_the_server_times_out(place: Place, kind: Kind) -> None:
    database = place.open()
    queue = database.create_queue("work")
    (raw,) = database._runner.pool._idle
    raw.cursor.execute(f"set session {IDLE_LIMITS[kind.name]} = 1")
    await_end(place, kind, [kind.number(raw.dbapi)])
    idle_for_long(database)
    assert queue.push("x")


@servers
def test_a_connection_that_is_open_is_kept(place: Place) -> None:
    database = place.open()
    queue = database.create_queue("work")
    for _ in range(3):
        (raw,) = database._runner.pool._idle
        idle_for_long(database)
        queue.push("x")
        assert [*database._runner.pool._all] == [raw]


@pytest.mark.parametrize("recycle", [-1, 600])
def test_a_connection_lives_as_long_as_pool_recycle_says(place: Place, recycle: int) -> None:
    sa_engine = sa.create_engine(place.url, pool_recycle=recycle)
    with tablequeue.connect(sa_engine, schema=place.schema) as database:
        queue = database.create_queue("work")
        (raw,) = database._runner.pool._idle
        raw.opened_at -= 601
        queue.push("x")
        assert (raw in database._runner.pool._all) == (recycle == -1)
    sa_engine.dispose()


# -- connections that end in a call ------------------------------------------------------------------------------------


class Words(NamedTuple):
    """What the tests say to a server."""

    lock: str
    """Makes every call on a table wait, those that read too."""
    waiting: str
    """The numbers of the sessions that wait for that."""
    end: str
    """Ends the session of a number."""
    there: str
    """The numbers of all sessions."""


WORDS = {
    "postgresql": Words(
        "lock table {} in access exclusive mode",
        "select pid from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0",
        "select pg_terminate_backend({})",
        "select pid from pg_stat_activity",
    ),
    "mariadb": Words(
        "lock tables {} write",
        "select id from information_schema.processlist where state like 'Waiting for table%%'",
        "kill {}",
        "select id from information_schema.processlist",
    ),
    "mssql": Words(
        # Reads wait for a change of the table, not for a lock on it: under READ_COMMITTED_SNAPSHOT they take none.
        "alter table {} set (lock_escalation = disable)",
        "select session_id from sys.dm_exec_requests where blocking_session_id <> 0 and database_id = db_id()",
        "kill {}",
        "select session_id from sys.dm_exec_sessions",
    ),
}


@contextmanager
def watching(place: Place) -> Iterator[Callable[[str], list[int]]]:
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def asked(text: str) -> list[int]:
            result = connection.exec_driver_sql(text)
            return [row[0] for row in result] if result.returns_rows else []

        yield asked


def await_end(place: Place, kind: Kind, numbers: Sequence[int]) -> None:
    """Wait until the server has no session of these numbers."""
    with watching(place) as asked:
        while {*numbers} & {*asked(WORDS[kind.name].there)}:
            pass


def end_sessions(database: Database, place: Place, kind: Kind) -> None:
    numbers = [kind.number(raw.dbapi) for raw in database._runner.pool._all]
    with watching(place) as asked:
        for number in numbers:
            asked(WORDS[kind.name].end.format(number))
    await_end(place, kind, numbers)
    idle_for_long(database)


def broken(place: Place, kind: Kind, queue: Queue, call: Callable[[], Any]) -> Future[Any]:
    """Make a call whose session is ended while its statement waits; then let the next one through."""
    words = WORDS[kind.name]
    with place.sa_engine().connect() as holder, ThreadPoolExecutor(1) as threads, watching(place) as asked:
        holder.exec_driver_sql(words.lock.format(place.table(queue.name)))
        future = threads.submit(call)
        while not (waiting := asked(words.waiting)):
            assert not future.done(), "it waits for nothing"
        asked(words.end.format(waiting[0]))
        while waiting[0] in asked(words.waiting):
            pass
        if kind.name == "mariadb":
            holder.exec_driver_sql("unlock tables")
        holder.rollback()
        future.exception(PATIENCE)
        return future


# What is called with a queue and a claim of it, and whether it runs again by itself.
CALLS: dict[str, tuple[Callable[[Queue, Claim], Any], bool]] = {
    "peek": (lambda queue, claim: queue.peek(), True),
    "find": (lambda queue, claim: queue.find(claim.id), True),
    "stats": (lambda queue, claim: queue.stats(), True),
    "extend": (lambda queue, claim: claim.extend(60), True),
    "push": (lambda queue, claim: queue.push("x"), False),
    "push_many": (lambda queue, claim: queue.push_many([*"xyz"]), False),
    "pop": (lambda queue, claim: queue.pop(), False),
    "complete": (lambda queue, claim: claim.complete(), False),
    "fail": (lambda queue, claim: claim.fail("why"), False),
    "release": (lambda queue, claim: claim.release(), False),
    "cancel": (lambda queue, claim: queue.cancel(claim.id), False),
    "purge": (lambda queue, claim: queue.purge(), False),
}


def check_broken_call(database: Database, place: Place, kind: Kind, name: str) -> None:
    call, repeated = CALLS[name]
    queue = database.create_queue("work", payload="text", lease=3600)
    queue.push_many([*"ab"])
    claim = claimed(queue)
    context_of(queue).table.next_sweep = float("inf")  # its statement is the first one of a pop
    before = counts(queue)
    error = broken(place, kind, queue, lambda: call(queue, claim)).exception()
    if repeated:
        assert error is None
    else:
        assert isinstance(error, ConnectionLost), "it may have taken effect, and would take effect twice"
        assert counts(queue) == before
        call(queue, claim)


@servers
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_connection_breaks_runs_again_if_that_is_safe(place: Place, kind: Kind, name: str) -> None:
    check_broken_call(place.open(), place, kind, name)


@servers
@pytest.mark.parametrize(
    ("name", "effect"), [("push", Effect.UPKEEP), ("peek", Effect.WRITE)], ids=["a push runs again", "a read does not"]
)
def test_the_check_notices_another_rule(
    place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch, name: str, effect: Effect
) -> None:
    for part in (kind.engine_class.messages, kind.engine_class.reads):
        if changed := declaration(getattr(part, name, None)):
            method = getattr(part, name).__func__
            monkeypatch.setattr(method, "declared", changed._replace(effect=effect))
    with pytest.raises(AssertionError):
        check_broken_call(place.open(), place, kind, name)


# What is called with a queue, a claim of it, and the caller's connection.
WITHIN: dict[str, Callable[[Queue, Claim, sa.Connection], Any]] = {
    "push": lambda queue, claim, own: queue.push("x", connection=own),
    "push_many": lambda queue, claim, own: queue.push_many([*"xyz"], connection=own),
    "pop": lambda queue, claim, own: queue.pop(connection=own),
    "pop_many": lambda queue, claim, own: queue.pop_many(2, completing=[claim], connection=own),
    "take": lambda queue, claim, own: queue.take(own),
    "take_many": lambda queue, claim, own: queue.take_many(2, own),
    "complete": lambda queue, claim, own: claim.complete(connection=own),
    "fail": lambda queue, claim, own: claim.fail("why", connection=own),
    "release": lambda queue, claim, own: claim.release(connection=own),
    "extend": lambda queue, claim, own: claim.extend(60, connection=own),
    "progress": lambda queue, claim, own: claim.progress(1, connection=own),
    "cancel": lambda queue, claim, own: queue.cancel(claim.id, connection=own),
    "cancel what a function chooses": lambda queue, claim, own: queue.cancel(lambda message: True, connection=own),
    "pause": lambda queue, claim, own: queue.pause(connection=own),
}


@servers
@pytest.mark.parametrize("name", WITHIN)
def test_a_callers_connection_that_the_server_has_closed_is_a_refusal(place: Place, kind: Kind, name: str) -> None:
    queue = place.open().create_queue("work", payload="text", lease=3600)
    queue.push_many([*"ab"])
    claim = claimed(queue)
    before = counts(queue)
    with watching(place) as asked, place.sa_engine().connect() as own:
        number = kind.number(own.connection.dbapi_connection)
        own.exec_driver_sql("select 1")
        asked(WORDS[kind.name].end.format(number))
        await_end(place, kind, [number])
        with pytest.raises(ConnectionLost):
            WITHIN[name](queue, claim, own)
        own.invalidate()
    assert counts(queue) == before


# -- connections that become read-only ---------------------------------------------------------------------------------


@contextmanager
def read_only(place: Place) -> Iterator[tuple[Database, Callable[[], None]]]:
    """Yield a Database whose connection is read-only for good, and what makes new connections writable.

    As after a failover: the server of the old connections was replaced, and what connects anew gets the other one.
    """
    root = place.sa_engine()

    def run(*statements: str) -> None:
        with root.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    user = f"user_{place.schema}"
    if root.dialect.name == "postgresql":
        run(f"create role {user} login superuser", f"alter role {user} set default_transaction_read_only = on")
        end, drop = f"alter role {user} reset default_transaction_read_only", f"drop role {user}"
    else:
        run(f"create user {user}@'%%'", f"grant all on *.* to {user}@'%%'")
        run(f"revoke super, read_only admin, connection admin on *.* from {user}@'%%'")
        run("set global init_connect = 'set session transaction read only'")
        end, drop = "set global init_connect = ''", f"drop user {user}@'%%'"
    database = tablequeue.connect(sa.make_url(place.url).set(username=user), schema=place.schema)
    try:
        yield database, lambda: run(end)
    finally:
        run(end)
        database.close()
        database.engine.dispose()
        run(drop)


@only("postgresql", "mariadb")
def test_a_connection_that_is_read_only_is_made_anew(place: Place) -> None:
    place.open().create_queue("work", payload="text").push("x")
    with read_only(place) as (database, heal):
        queue = database.queue("work")
        assert len(queue.peek()) == 1
        refuses(ReadOnly, queue.push, "y")
        queue.peek()  # keeps a connection that is read-only
        heal()
        assert queue.push("y") > 0
        claimed(queue).complete()


@only("mariadb")
def test_a_server_that_becomes_read_only(place: Place) -> None:
    """The error of a demoted server is another one than that of a session."""
    place.open().create_queue("work", payload="text")
    with read_only(place) as (database, heal):
        heal()
        queue = database.queue("work")
        database.close()
        queue.push("x")
        place.execute("set global read_only = 1")
        try:
            refuses(ReadOnly, queue.push, "y")
            assert not database._runner.pool._idle, "the connection is closed"
        finally:
            place.execute("set global read_only = 0")
        queue.push("y")
