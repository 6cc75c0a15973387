"""Programs without the right to create tables: existing tables are enough for every verb. The grants come from the
pages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.engines.engine import Engine
from tablequeue.engines.runner import Runner
from tablequeue.errors import NoRights, QueueDiffers
from tablequeue.ext import context_of
from tablequeue.model.names import CATALOGUE
from tablequeue.verbs import progress
from tablequeue.worker.schedule import Schedule, push_due
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, counts, design_group, refuses, with_parts

DOCS = Path(__file__).parents[1] / "docs" / "engines"
PASSWORD = secrets.token_hex(8)
HOURLY = Schedule("hourly", "fifo", "0 * * * *", "x")
GONE = {
    "postgresql": ("drop owned by {role} cascade", "drop role {role}"),
    "mariadb": ("drop user {role}",),
}
CREATORS = {
    "postgresql": ("grant create on schema {schema} to {role}",),
    "mariadb": ("grant create, drop, alter, index, trigger on {schema}.* to {role}",),
}

servers = only("postgresql", "mariadb")


def documented(kind: Kind) -> list[str]:
    """Return the statements from the engine's page that create such a user."""
    page = (DOCS / f"{kind.name}.md").read_text("utf-8")
    (block,) = re.findall(r"^```text\n(create (?:role|user) .*?)^```$", page, re.DOTALL | re.MULTILINE)
    words = block.replace("shop", "{schema}").replace("program", "{role}").replace("...", PASSWORD)
    return [statement for statement in words.split(";\n") if statement]


@contextmanager
def program(place: Place, kind: Kind, grants: list[str]) -> Iterator[sa.Engine]:
    """An Engine for a new user with these rights."""
    role = f"program_{secrets.token_hex(4)}"
    for statement in grants:
        place.execute(statement.format(role=role, schema=place.schema))
    url = sa.make_url(place.url).set(username=role, password=PASSWORD)
    engine = sa.create_engine(url if kind.name == "postgresql" else url.set(database=""))
    try:
        yield engine
    finally:
        engine.dispose()
        for statement in GONE[kind.name]:
            place.execute(statement.format(role=role))


@contextmanager
def opened(engine: sa.Engine, place: Place) -> Iterator[Database]:
    with tablequeue.connect(engine, schema=place.schema) as database:
        yield database


def make_everything(owner: Database) -> None:
    for name, design in DESIGNS.items():
        queue = owner.create_queue(name, **design)
        Stream(queue, "owner")
        staging.prepare(queue)
        progress.make(context_of(queue))
    push_due(owner, HOURLY, datetime(2040, 1, 1, tzinfo=UTC))


def use_everything(database: Database) -> None:
    """Call every operation that might create, and every verb that writes, on a queue of each design."""
    assert database.upgrade() == dict.fromkeys(database.queues(), database.schema_version)
    for name, design in DESIGNS.items():
        queue = database.create_queue(name, **design)
        group = design_group(queue, "g")
        queue.push("a", **group)
        queue.push_many(["b"] * 3, **group)
        claimed(queue).fail("why", retry_in=0)
        claimed(queue).release()
        message = claimed(queue)
        message.extend(60)
        message.progress(0.5)
        assert queue.progress(message.id) is not None
        queue.complete_many(queue.pop_many(1, completing=[message]))
        with database.engine.begin() as connection:
            assert queue.take(connection) is not None
        columns: dict[str, Any] = {"payload": ["1"]} | {option: [value] for option, value in group.items()}
        staging.prepare(queue)
        staged = staging.stage(queue, "write", f"attempt of {name}", 0, [pa.RecordBatch.from_pydict(columns)])
        assert staging.publish(queue, "write", [staged], writer="writer", batch=1) == 1
        stream = Stream(queue, "program")
        assert stream.advance(0, 10) == 1
        stream.complete(1)
        queue.stats(window=60)
        queue.purge_history(0)
    push_due(database, HOURLY, datetime(2040, 1, 1, 1, tzinfo=UTC))
    assert counts(database.queue("fifo"))["ready"] == 1


def check_what_is_there_is_enough(place: Place, kind: Kind, open_program: Callable[..., Any]) -> None:
    make_everything(place.open())
    with program(place, kind, documented(kind)) as engine, open_program(engine, place) as database:
        use_everything(database)
        refuses(QueueDiffers, database.create_queue, "fifo", lease=7)
        refuses(NoRights, database.create_queue, "another")
        with pytest.raises(NoRights, match="As the owner, run: grant "):
            database.create_queue("another")
    assert sorted(place.open().queues()) == sorted(DESIGNS)


@servers
def test_what_is_there_is_enough(place: Place, kind: Kind) -> None:
    check_what_is_there_is_enough(place, kind, opened)


def without_looking(engine: type[Engine]) -> type[Engine]:
    """Run each `create ... if not exists` without a check before."""

    class WithoutLooking(type(engine.catalogue)):  # type: ignore[misc]
        def has_table(self, cursor: Any, table: Any, params: Any) -> bool:
            is_catalogue: bool = params["table"].endswith(CATALOGUE)
            return is_catalogue and super().has_table(cursor, table, params)

    return with_parts(engine, {"catalogue": WithoutLooking})


@servers
def test_the_check_notices_an_engine_that_does_not_check(place: Place, kind: Kind) -> None:
    @contextmanager
    def mutant(engine: sa.Engine, place: Place) -> Iterator[Database]:
        made = without_looking(kind.engine_class)(engine.dialect, place.schema)
        with Database(engine, Runner(engine, made), None) as database:
            yield database

    with pytest.raises(NoRights):
        check_what_is_there_is_enough(place, kind, mutant)


@servers
def test_who_may_create_tables_needs_no_right_to_create_schemas(place: Place, kind: Kind) -> None:
    place.open().create_queue("first")
    grants = [*documented(kind), *CREATORS[kind.name]]
    with program(place, kind, grants) as engine, opened(engine, place) as database:
        make_everything(database)
        use_everything(database)
        for name in DESIGNS:
            database.queue(name).drop()
    assert place.open().queues() == ["first"]


@servers
def test_without_access_to_the_catalogue_nothing_is_created(place: Place, kind: Kind) -> None:
    """The tables of the queue are not enough, because its definition is in the catalogue."""
    place.open().create_queue("work")
    made, *grants = documented(kind)
    grants = [made, *(grant.replace("on all tables in schema {schema}", "on {schema}.tq_work") for grant in grants)]
    grants = [grant.replace("on {schema}.*", "on {schema}.tq_work") for grant in grants]
    with program(place, kind, grants) as engine, pytest.raises(NoRights), opened(engine, place) as database:
        database.create_queue("work")
    assert place.open().queues() == ["work"]


@only("postgresql")
def test_a_search_path_without_a_schema(place: Place, kind: Kind) -> None:
    with program(place, kind, documented(kind)[:1]) as engine:
        url = engine.url.update_query_dict({"options": "-csearch_path=nowhere"})
        nowhere = sa.create_engine(url)
        with tablequeue.connect(nowhere) as database:
            refuses(NoRights, database.create_queue, "work")
        nowhere.dispose()


def test_many_make_the_same_at_once(place: Place) -> None:
    """The first process creates it, and no process is refused."""
    number = 8
    databases = [place.open() for _ in range(number)]
    meet = Barrier(number, timeout=60)

    def make(place_of: int) -> int:
        database = databases[place_of]
        meet.wait()
        queue = database.create_queue("fifo")
        meet.wait()
        stream = Stream(queue, f"stream {place_of}")
        meet.wait()
        staging.prepare(queue)
        meet.wait()
        progress.make(context_of(queue))
        meet.wait()
        push_due(database, HOURLY, at(0))
        return stream.epoch

    with ThreadPoolExecutor(number) as threads:
        assert list(threads.map(make, range(number))) == [1] * number
