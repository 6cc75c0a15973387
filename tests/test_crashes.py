"""Producers, consumers and servers die: no acknowledged message is lost, held by two, or finished twice.

Clients die by SIGKILL. A server ends all its processes at once, and recovers from its log when it starts again
(`Server.kill`). The crash of a machine is not tested: it also loses data that was not synced, for which the database
makes its own promise.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import ALL, Database, Message, Queue
from tablequeue.engines import engine_class
from tablequeue.errors import ConnectionLost, TablequeueError, Unreachable
from tablequeue.model.states import STATES
from tests import crashes
from tests.checks import await_a_wait
from tests.crashes import ALL_STEPS, CORE, MOST, POINTS, VERBS, Steps, Verb, begin, go_through, open_stepping, spread
from tests.crowd import PATIENCE, answer, started
from tests.load import Load, end_all, reconcile
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place, Server
from tests.support import DESIGNS, at, claimed, counts, design_group, idle_for_long, ids_of, refuses

# Kills of a server under load.
KILLS = 3
# A server dies, by day, in one verb of each kind.
SERVER_CORE = (
    *("push in a transaction", "push_many of many", "push_many to groups", "pop_many", "pop_many within limits"),
    *("sweep of spent attempts in groups", "take", "complete in a transaction", "complete_and_claim"),
    *("complete of the head of a group", "fail_many for the last time", "redrive to a group"),
)
# Queues that are created, dropped and emptied: one with groups has the most tables.
DEFINITIONS = by_night([{"groups": True}, {}, {"order": "due"}], {"groups": True}.__eq__)


@dataclass(frozen=True)
class Point:
    """A step of a verb, and the queue that others see while the process stays there."""

    number: int
    words: str
    shape: list[Message]


# -- clients die ---------------------------------------------------------------------------------------------------


# A verb, and at how many of its steps clients die.
DEATHS = [*((name, POINTS) for name in CORE), *((name, ALL_STEPS) for name in VERBS)]


@pytest.mark.parametrize(("name", "most"), by_night(DEATHS, lambda death: death[1] == POINTS))
def test_a_client_killed_at_any_step(place: Place, kind: Kind, name: str, most: int) -> None:
    """A process dies at one step; at all of them at once, in a thread each, where sessions can write side by side."""
    points = chosen(walk(place, name), most)
    database = place.open("the living")
    for some in [points] if kind.side_by_side else [[point] for point in points]:
        queues = [prepared(database, VERBS[name], f"at_{point.number}") for point in some]
        stands = [(queue.name, point.number) for queue, point in zip(queues, some, strict=True)]
        with standing(crashes.stop_in_a_verb, place, name, stands) as pipe:
            assert answer(pipe) == [(point.number, point.words) for point in some]
        for queue, point in zip(queues, some, strict=True):
            check_recovered(queue, VERBS[name], point)


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("definition", DEFINITIONS, ids=str)
def test_a_creator_killed_at_any_step_leaves_a_queue_or_none(
    place: Place, definition: dict[str, Any], most: int
) -> None:
    definition = {**definition, "payload": "text"}
    place.open().create_queue("another")  # the catalogue exists, so the steps are the same each time
    words = steps_of(place, lambda database: database.create_queue("made", **definition))
    database = place.open()
    for number in spread(len(words), most):
        database.queue("made").drop()
        with standing(crashes.stop_in_create, place, definition, number) as pipe:
            assert answer(pipe) == words[number - 1]
        if number == len(words):
            assert database.queues() == ["another", "made"]
        if "made" in database.queues():
            check_works(database.queue("made"))
        check_works(database.create_queue("made", **definition))


@pytest.mark.parametrize("most", MOST)
def test_the_first_creator_killed_at_any_step(place: Place, kind: Kind, most: int) -> None:
    """Also the catalogue, the schema and the file are complete, or the next creator creates them."""
    words = steps_of(place, lambda database: database.create_queue("made"))
    for number in spread(len(words), most):
        _make_anew(place, kind)
        with standing(crashes.stop_in_create, place, {}, number) as pipe:
            assert answer(pipe) == words[number - 1]
        check_works(place.open().create_queue("made"))


def _make_anew(place: Place, kind: Kind) -> None:
    """As if there had never been a queue."""
    place.close()
    if place.schema:
        place.execute((kind.drop_schema or "").format(place.schema))
    else:
        path = Path(sa.make_url(place.url).database or "")
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("definition", DEFINITIONS, ids=str)
def test_a_drop_killed_at_any_step_can_be_done_again(place: Place, definition: dict[str, Any], most: int) -> None:
    definition = {**definition, "payload": "text"}
    database = place.open()
    database.create_queue("made", **definition)
    words = steps_of(place, lambda database: database.queue("made").drop())
    for number in spread(len(words), most):
        queue = database.create_queue("made", **definition)
        queue.push("old", **design_group(queue, "g"))
        with standing(crashes.stop_in_drop, place, number) as pipe:
            assert answer(pipe) == words[number - 1]
        if number == len(words):
            assert database.queues() == []
        if "made" in database.queues():
            database.queue("made").drop()
        queue = database.create_queue("made", **definition)
        assert counts(queue) == {}, "nothing of the old queue comes back"
        check_works(queue)


@pytest.mark.parametrize("most", MOST)
@pytest.mark.parametrize("definition", DEFINITIONS[:2], ids=str)
def test_a_move_killed_at_any_step_moves_all_or_nothing(place: Place, definition: dict[str, Any], most: int) -> None:
    database = place.open()
    queue, other = (database.create_queue(name, payload="text", **definition) for name in "ab")
    everything = ["a", "b", "c"]
    queue.push_many(everything, **design_group(queue, "g"))
    words = steps_of(place, lambda database: database.queue("a").move(ALL, to=database.queue("b")))
    for number in spread(len(words), most):
        other.move(ALL, to=queue)
        with standing(crashes.stop_in_move, place, number) as pipe:
            assert answer(pipe) == words[number - 1]
        found = [sorted(message.payload for message in shape(each)) for each in (queue, other)]
        assert found in ([everything, []], [[], everything])
    assert found == [[], everything], "after the last step"


def test_clients_killed_at_random_under_load(place: Place, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    chance = random.Random(seed)
    queue = place.open().create_queue("load", payload="text", lease=3600, history="keep")
    with Load(place, tmp_path) as load:
        for _ in range(12):
            load.go_on(chance.randint(1, 60))
            load.kill_one(chance)
        load.go_on(30)
    reconcile(queue, load.books)


# -- servers die ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind.server], ids=lambda kind: kind.name)
def own_kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture(scope="module")
def own_server(own_kind: Kind) -> Iterator[Server]:
    """A private server for this module."""
    assert own_kind.server
    manager = own_kind.server()
    if manager is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("The server is not installed.")
    with manager as server:
        yield server


@pytest.fixture
def own_place(own_server: Server) -> Iterator[Place]:
    with place_on(own_server) as place:
        yield place


@contextmanager
def place_on(server: Server) -> Iterator[Place]:
    place = Place(server.url, f"test_{secrets.token_hex(8)}")
    yield place
    place.close()


@dataclass
class Survivor:
    """A client that stayed at a point while the server died and came back, and then continued."""

    point: Point
    last: Point
    after: list[Message]
    """The queue when the server was back."""
    ended: list[Message]
    """The queue when the client had continued: what is safe to run twice, as a read, has run again."""
    outcome: BaseException | None
    """The outcome of the verb."""
    database: Database
    queue: str


@pytest.mark.parametrize("names", by_night([[*SERVER_CORE], [*VERBS]], [*SERVER_CORE].__eq__), ids=["core", "all"])
def test_a_server_killed_at_any_step(own_server: Server, own_place: Place, names: list[str]) -> None:
    """It dies once, while there are clients at all points of these verbs."""
    failed = []
    for name, survivors in survive(own_place, own_server, names).items():
        for survivor in survivors:
            try:
                check_survivor(survivor, VERBS[name])
            except AssertionError as error:
                failed.append(f"{name}, {survivor.point.words}: {error}")
    assert not failed, "\n".join(failed)


def check_survivor(survivor: Survivor, verb: Verb) -> None:
    assert survivor.after == survivor.point.shape, "what was committed is there, and no more"
    check_outcome(survivor, verb)
    queue = survivor.database.queue(survivor.queue)
    check_recovered(queue, verb, replace(survivor.point, shape=survivor.ended), survivor.ended)


def test_a_server_that_dies_in_the_middle_of_a_statement(own_kind: Kind, own_server: Server, own_place: Place) -> None:
    # The statement has removed the message. Its row of the history waits for another session that has written one with
    # the same id. So the server dies inside the statement, and not between two statements.
    queue = own_place.open().create_queue("work", payload="text", lease=3600)
    id = queue.push("x")
    claim = claimed(queue)
    history = f"{own_place.table('work')}_history"
    with own_place.sa_engine().connect() as other, ThreadPoolExecutor(1) as threads:
        other.exec_driver_sql(
            f"insert into {history} (id, attempts, pushed_at, payload) "  # noqa: S608 (a name of ours)
            f"values ({id}, 1, '2040-01-01 00:00:00', 'not committed')"
        )
        call = threads.submit(claim.complete)
        await_a_wait(own_place, own_kind)
        own_server.kill()
        error = call.exception(PATIENCE)
        own_server.start()
        other.invalidate()
    assert isinstance(error, ConnectionLost)
    assert counts(queue) == {"in_progress": 1}
    claim.complete()
    (done,) = queue.history()
    assert (done.id, done.payload) == (id, "x")


@pytest.mark.parametrize("design", DESIGNS)
def test_calls_while_the_server_is_down(own_server: Server, own_place: Place, design: str) -> None:
    database = own_place.open()
    queue = database.create_queue("work", payload="text", lease=3600, **DESIGNS[design])
    for group in "abc":
        queue.push("x", **design_group(queue, group))
    claim = claimed(queue)
    other = claim if design == "strict" else claimed(queue)
    calls: list[Callable[[], Any]] = [
        claim.complete,
        lambda: queue.push("x", **design_group(queue, "d")),
        lambda: queue.push_many([*"xyz"], **design_group(queue, "d")),
        lambda: queue.pop(),
        lambda: next(queue.consume()),
        lambda: other.fail("why"),
        lambda: queue.stats(),
        lambda: database.create_queue("another"),
        lambda: tablequeue.connect(own_place.url),
    ]
    own_server.kill()
    idle_for_long(database)
    try:
        errors = [refuses(TablequeueError, call) for call in calls]
    finally:
        own_server.start()
    assert {type(error) for error in errors} == {Unreachable}, "none of them may have taken effect"
    assert all("\n" not in str(error) for error in errors)
    claim.complete()
    queue.push("x", **design_group(queue, "d"))
    assert counts(queue)["finished"] == 1
    assert len(end_all(queue)) == 3


def test_connections_of_the_applications_pool_that_broke_cost_nothing(own_server: Server, own_place: Place) -> None:
    sa_engine = own_place.sa_engine()
    idle = [sa_engine.connect() for _ in range(3)]
    for connection in idle:
        connection.close()
    own_server.kill()
    own_server.start()
    with tablequeue.connect(sa_engine, schema=own_place.schema) as database:
        check_works(database.create_queue("work", payload="text"))


def test_a_server_killed_at_random_under_load(own_server: Server, own_place: Place, tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    print("seed", seed)
    chance = random.Random(seed)
    own_place.open().create_queue("load", payload="text", lease=3600, history="keep")
    with Load(own_place, tmp_path) as load:
        for _ in range(KILLS):
            load.go_on(chance.randint(50, 400))
            own_server.kill()
            own_server.start()
        load.go_on(200)
    refused = [line for book in load.books for line in book.read() if line[0] == "refused"]
    assert len(refused) >= KILLS, "each kill broke connections in use; idle ones are looked at before their use"
    reconcile(own_place.open().queue("load"), load.books)


# -- private -------------------------------------------------------------------------------------------------------


@contextmanager
def standing(work: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Run a process that stays at the point that it reports on the pipe. It is killed at the end of the block."""
    with started(1, work, lambda n: arguments) as (pipe,):
        yield pipe


def shape(queue: Queue) -> list[Message]:
    """Return every message as others see it."""
    live = [message for state in STATES for message in queue.peek(10_000, state=state)]
    return live + (queue.history(10_000) if queue.definition.keeps_history else [])


def prepared(database: Database, verb: Verb, name: str) -> Queue:
    queue = database.create_queue(name, payload="text", **verb.definition)
    verb.before(queue)
    return queue


def walk(place: Place, name: str) -> list[Point]:
    """Run a verb to its end, and read the queue from outside at every step."""
    verb = VERBS[name]
    queue = prepared(place.open("the living"), verb, "walked")
    points: list[Point] = []
    steps = Steps(lambda number, words: points.append(Point(number, words, shape(queue))))
    database = open_stepping(place, steps)
    moment = begin(verb, database.queue("walked"), database.engine, steps)
    shapes = [shape(queue)]
    go_through(verb, moment)
    shapes += [point.shape for point in points]
    changes = sum(one != next for one, next in pairwise(shapes))
    commits = verb.commits + (verb.promotes and engine_class(database.engine.dialect.name).promotes)
    assert 1 <= changes <= commits, "nothing is seen of what is half done"
    assert points[-1].words == "returned"
    queue.drop()
    return points


def steps_of(place: Place, act: Callable[[Database], Any]) -> list[str]:
    words: list[str] = []
    steps = Steps(lambda number, said: words.append(said))
    database = open_stepping(place, steps)
    steps.armed = True
    act(database)
    steps.step("returned")
    return words


def chosen(points: list[Point], most: int = POINTS) -> list[Point]:
    return [points[number - 1] for number in spread(len(points), most)]


def check_works(queue: Queue) -> None:
    id = queue.push("x", **design_group(queue, "g"))
    claim = claimed(queue)
    assert claim.id == id
    claim.complete()
    assert queue.history(1)[0].id == id


def check_recovered(queue: Queue, verb: Verb, point: Point, seen: list[Message] | None = None) -> None:
    """The queue is as at the point, nobody gets the messages of the dead process, and every message ends once."""
    assert (shape(queue) if seen is None else seen) == point.shape, point.words
    soon = at(verb.time + 1)
    held = [message.id for message in point.shape if message.lease_until and message.lease_until > soon]
    early = queue.pop_many(10_000, now=soon)
    assert not set(held) & set(ids_of(early)), f"{point.words}: a message is held by two"
    queue.complete_many(early, now=soon)
    drained = [*early, *end_all(queue)]
    before = Counter(message.payload for message in point.shape)
    assert max(before.values(), default=1) == 1
    ended = Counter(message.payload for message in shape(queue))
    if not queue.definition.keeps_history:
        ended += Counter(claim.payload for claim in drained)
    assert ended == before, f"{point.words}: every message ends once"


def survive(place: Place, server: Server, names: Iterable[str]) -> dict[str, list[Survivor]]:
    observer = place.open("the living")
    arrived: SimpleQueue[tuple[str, int, str]] = SimpleQueue()
    resume = threading.Event()

    def stand(name: str, point: Point, queue: Queue) -> tuple[Database, BaseException | None]:
        def reached(number: int, words: str) -> None:
            if number == point.number:
                arrived.put((name, number, words))
                assert resume.wait(PATIENCE)

        steps = Steps(reached)
        database = open_stepping(place, steps)
        moment = begin(VERBS[name], database.queue(queue.name), database.engine, steps)
        try:
            go_through(VERBS[name], moment)
        except (TablequeueError, sa.exc.SQLAlchemyError) as error:
            return database, error
        return database, None

    walks = {name: walk(place, name) for name in names}
    standing: dict[str, list[tuple[Point, Queue, Future[Any]]]] = {}
    with ThreadPoolExecutor(len(walks) * POINTS) as threads:
        for number, (name, points) in enumerate(walks.items()):
            standing[name] = []
            for point in chosen(points):
                queue = prepared(observer, VERBS[name], f"of_{number}_at_{point.number}")
                standing[name].append((point, queue, threads.submit(stand, name, point, queue)))
        expected = {(name, point.number, point.words) for name, row in standing.items() for point, _, _ in row}
        assert {arrived.get(timeout=PATIENCE) for _ in expected} == expected
        server.kill()
        server.start()
        observer = place.open()
        after = {queue.name: shape(observer.queue(queue.name)) for row in standing.values() for _, queue, _ in row}
        resume.set()
    ended = {queue.name: shape(observer.queue(queue.name)) for row in standing.values() for _, queue, _ in row}
    return {
        name: [
            Survivor(point, walks[name][-1], after[queue.name], ended[queue.name], outcome, database, queue.name)
            for point, queue, future in row
            for database, outcome in [future.result()]
        ]
        for name, row in standing.items()
    }


def check_outcome(survivor: Survivor, verb: Verb) -> None:
    """The verb returned if it took effect. Otherwise it reported that the connection broke."""
    point, last, error = survivor.point, survivor.last, survivor.outcome
    if error is None:
        # Whose turn it is in a group may be promoted later, by the next claim.
        assert verb.sweeps_first or turned(survivor.ended) == turned(last.shape), (
            f"{point.words}: it returned, but was not done"
        )
    elif verb.outside and isinstance(error, sa.exc.DBAPIError):
        assert error.connection_invalidated, "the application's own commit"
    else:
        assert isinstance(error, (ConnectionLost, Unreachable)), repr(error)
        assert error.cause
        assert error.remedy
        assert point.number < last.number - 1, f"{point.words}: it was done, and refused"


def turned(messages: list[Message]) -> list[Message]:
    """Return the messages as they are when every group has its head."""
    ready = [replace(message, state="ready") if message.state == "blocked" else message for message in messages]
    return sorted(ready, key=lambda message: message.id)
