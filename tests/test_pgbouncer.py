"""Through PgBouncer in transaction mode, where each statement may run in another session of the server."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import tablequeue.aio
from tablequeue import Queue
from tablequeue.errors import BadUrl
from tablequeue.ext import context_of
from tests.servers import Place, free_port, only
from tests.support import claimed, counts, refuses
from tests.worker.support import until
from tests.worker.test_wake import waiting

pytestmark = only("postgresql")

# More calls than psycopg makes before it prepares a statement, and fewer sessions than threads.
CALLS, THREADS, SESSIONS = 20, 6, 2


@pytest.fixture
def pooled(place: Place) -> Iterator[Place]:
    """The URL of the same database through PgBouncer."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("PgBouncer is not installed.")
    server, port = sa.make_url(place.url), free_port()
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": SESSIONS,
    }
    to_server = f"host={server.host} port={server.port} user={server.username}"
    lines = ["[databases]", f"{server.database} = {to_server}", "[pgbouncer]"]
    folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-"))
    file = folder / "pgbouncer.ini"
    file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]) + "\n")
    user = None
    if os.getuid() == 0:
        user = "postgres"  # PgBouncer refuses to run as root
        shutil.chown(folder, user)
    with subprocess.Popen([program, "--quiet", str(file)], user=user, stderr=subprocess.DEVNULL) as process:
        through = Place(server.set(host="127.0.0.1", port=port).render_as_string(hide_password=False), place.schema)
        try:
            until(lambda: answers(through), "PgBouncer answers")
            yield through
        finally:
            through.close()
            process.terminate()
    shutil.rmtree(folder)


def answers(place: Place) -> bool:
    try:
        return bool(place.execute("select 1"))
    except sa.exc.OperationalError:
        return False


@pytest.fixture
def queue(pooled: Place) -> Queue:
    return pooled.open().create_queue("work", payload="text", lease=3600)


def test_every_session_serves_every_call(queue: Queue) -> None:
    def work(_: int) -> None:
        for _ in range(CALLS):
            queue.push("x")
            claimed(queue).complete()

    queue.push_many(["x"] * 1500)
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(work, range(THREADS)))
    assert counts(queue) == {"finished": CALLS * THREADS, "ready": 1500}


def test_a_session_of_the_pooler_keeps_its_plans(queue: Queue) -> None:
    cursor = context_of(queue).runner.pool._idle[-1].cursor
    assert cursor.execute("select current_setting('plan_cache_mode')").fetchone() == ("auto",)


def test_who_waits_finds_what_was_pushed(pooled: Place, queue: Queue) -> None:
    with waiting(queue):
        pooled.open().queue("work").push("x")


def test_a_push_through_it_wakes_a_consumer_with_a_direct_connection(place: Place, queue: Queue) -> None:
    with waiting(place.open().queue("work")):
        queue.push("x")


def test_transactions_of_the_caller(pooled: Place, queue: Queue) -> None:
    queue.push_many(["x"] * 2 * CALLS)
    engine = pooled.sa_engine()
    for _ in range(CALLS):
        with engine.begin() as connection:
            assert queue.take(connection) is not None
            queue.push("y", connection=connection)

    async def take() -> None:
        async_engine = create_async_engine(pooled.url)
        async with await tablequeue.aio.connect(async_engine, schema=pooled.schema) as database:
            there = await database.queue("work")
            for _ in range(CALLS):
                async with async_engine.begin() as connection:
                    assert await there.take(connection) is not None
        await async_engine.dispose()

    asyncio.run(take())
    assert counts(queue) == {"finished": 2 * CALLS, "ready": CALLS}


def test_another_isolation_is_refused(pooled: Place) -> None:
    with pooled.sa_engine().begin() as first, pooled.sa_engine().begin() as second:
        for each in (first, second):  # both sessions, which keep the setting
            each.exec_driver_sql("set default_transaction_isolation = 'serializable'")
    assert "through a pooler" in refuses(BadUrl, pooled.open).cause


@pytest.mark.parametrize(("options", "prepared"), [({}, True), ({"prepare_threshold": None}, False)])
def test_without_it_a_statement_is_prepared_at_its_first_run(
    place: Place, options: dict[str, Any], prepared: bool
) -> None:
    engine = sa.create_engine(place.url, connect_args=options)
    with tablequeue.connect(engine, schema=place.schema) as database:
        database.create_queue("work", payload="text").push("x")
        looks = "select count(*) from pg_prepared_statements where statement like 'with pushed as%'"
        found = database._runner.pool._idle[-1].cursor.execute(looks).fetchone()
        assert found == (int(prepared),), "unless the caller wants none"
    engine.dispose()
