"""Specific to SQLite: each statement reads the clock by itself, and the library flushes the commits."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

import tablequeue
from tablequeue import Database, Queue, aio
from tablequeue.engines.sqlite import connection
from tablequeue.errors import BadInput, DatabaseError
from tests.crowd import PATIENCE
from tests.support import at, claimed, counts, ids_of, refuses

pytestmark = pytest.mark.quick


def test_a_message_that_becomes_due_in_the_middle_of_a_take_is_not_lost(tmp_path: Path) -> None:
    """A take is two statements. The second one must not remove a message that became due after the first one."""
    path = tmp_path / "queues.db"
    with tablequeue.connect(f"sqlite:///{path}") as db:
        queue = db.create_queue("work", order="due")
        ids = [queue.push(number, due=at(number), now=at(0)) for number in range(100)]
        connection = sqlite3.connect(path)
        # A clock that advances by a second whenever it is read.
        moments = count(at(0).timestamp() + 20)
        connection.create_function("julianday", 1, lambda now: next(moments) / 86400 + 2440587.5)
        messages = queue.take_many(50, connection)
        connection.commit()
        connection.close()
        assert 0 < len(messages) < 100
        assert ids_of(queue.history()) == ids_of(reversed(messages)), "whatever was removed is in the history"
        assert ids_of(messages) == ids[: len(messages)]


# -- flushes -----------------------------------------------------------------------------------------------------------

# Verbs that acknowledge, and what must exist after a power cut at the moment of their return.
LASTING: dict[str, tuple[Callable[[Queue], object], dict[str, int]]] = {
    "push": (lambda queue: queue.push("b"), {"ready": 2}),
    "push_many": (lambda queue: queue.push_many([*"bc"]), {"ready": 3}),
    "pop": (lambda queue: queue.pop(), {"in_progress": 1}),
    "complete": (lambda queue: claimed(queue).complete(), {"finished": 1}),
    "fail": (lambda queue: claimed(queue).fail("why"), {"scheduled": 1}),
    "purge": (lambda queue: queue.purge(), {}),
}


class Disk:
    """The part of a database that is on the disk: everything written before the last flush began."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "queues.db"
        self._lasting = folder / "lasting"
        self._lasting.mkdir()

    def flush(self, file: int) -> None:
        for name in (self.path.name, f"{self.path.name}-wal"):
            shutil.copy(self.path.with_name(name), self._lasting)
        os.fsync(file)

    def after_a_power_cut(self) -> dict[str, int]:
        with tablequeue.connect(f"sqlite:///{self._lasting / self.path.name}") as database:
            return counts(database.queue("work"))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(tmp_path)
    monkeypatch.setattr(connection, "fdatasync", disk.flush)
    return disk


def lasts(disk: Disk, verb: str) -> bool:
    with tablequeue.connect(f"sqlite:///{disk.path}") as database:
        queue = database.create_queue("work", payload="text")
        queue.push("a")
        call, expected = LASTING[verb]
        call(queue)
        assert counts(queue) == expected
        return disk.after_a_power_cut() == expected


@pytest.mark.parametrize("verb", LASTING)
def test_the_effect_of_a_call_lasts(disk: Disk, verb: str) -> None:
    assert lasts(disk, verb)


def test_without_the_flush_it_does_not_last(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant that leaves out the last flush."""
    flush = connection.SQLiteConnection._flush
    flushes = iter((flush, flush))  # flushes of create_queue and the first push
    monkeypatch.setattr(connection.SQLiteConnection, "_flush", lambda held: next(flushes, lambda held: None)(held))
    assert not lasts(disk, "push")


def test_the_changes_of_others_that_a_call_has_read_last_too(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that a key exists must last, although the process that pushed it may not have flushed it yet."""
    url = f"sqlite:///{disk.path}"
    with tablequeue.connect(url) as ours, tablequeue.connect(url) as theirs:
        queue = ours.create_queue("work", payload="text")
        with monkeypatch.context() as unflushed:
            unflushed.setattr(connection, "fdatasync", lambda file: None)
            theirs.queue("work").push("a", key="k")
        assert queue.push("b", key="k", on_conflict="skip") is None
        assert disk.after_a_power_cut() == {"ready": 1}


def test_a_flush_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = Event(), Event()

    def slow(file: int) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)

    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database, ThreadPoolExecutor() as pool:
        queue = database.create_queue("work", payload="text")
        with monkeypatch.context() as patched:
            patched.setattr(connection, "fdatasync", slow)
            push = pool.submit(queue.push, "a")
            assert begun.wait(PATIENCE)
        try:
            claimed(queue).complete()
            assert not push.done(), "a push returns when it is on the disk"
        finally:
            go_on.set()
        assert push.result(PATIENCE) == 1


def test_a_disk_that_fails_at_the_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        queue = database.create_queue("work", payload="text")
        read, write = os.pipe()
        with monkeypatch.context() as patched:
            patched.setattr(connection, "fdatasync", lambda file: os.fsync(write))  # EINVAL
            assert "power cut" in refuses(DatabaseError, queue.push, "a").remedy
        os.close(read)
        os.close(write)
        assert counts(queue) == {"ready": 1}
        queue.push("b")


@pytest.mark.parametrize(("synchronous", "flushed"), [("off", False), ("normal", False), ("full", True)])
def test_an_engine_that_flushes_less_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str, flushed: bool
) -> None:
    flushes: list[int] = []
    monkeypatch.setattr(connection, "fdatasync", flushes.append)
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'queues.db'}")
    sa.event.listen(engine, "connect", lambda dbapi, _: dbapi.execute(f"pragma synchronous = {synchronous}"))
    with tablequeue.connect(engine) as database:
        database.create_queue("work").push(1)
        assert bool(flushes) == flushed
        assert ("power cut" in words_of(database)) == (not flushed)


def words_of(database: Database) -> str:
    return " ".join(finding.cause for finding in database.doctor())


def test_a_connection_to_another_file_is_refused(tmp_path: Path) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'one.db'}") as one:
        queue = one.create_queue("work")
    with tablequeue.connect(f"sqlite:///{tmp_path / 'two.db'}") as two:
        other = two.create_queue("work")  # of the same name
    (tmp_path / "link.db").symlink_to(tmp_path / "one.db")
    for path in (str(tmp_path / "two.db"), ":memory:"):
        for theirs in (sqlite3.connect(path), sa.create_engine(f"sqlite:///{path}").connect()):
            assert "one.db" in refuses(BadInput, queue.take, theirs).cause
            assert "the database of the queue" in refuses(BadInput, queue.push, 1, connection=theirs).remedy
            if isinstance(theirs, sqlite3.Connection):
                assert not theirs.in_transaction, "it was refused before it began one"
            theirs.close()
    for path in ("one.db", "link.db"):
        raw = sqlite3.connect(tmp_path / path)
        queue.push(path, connection=raw)
        raw.commit()
        raw.close()
    assert (counts(queue), counts(other)) == ({"ready": 2}, {})


def test_an_async_connection_to_another_file_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        one, two = (f"sqlite+aiosqlite:///{tmp_path / name}" for name in ("one.db", "two.db"))
        async with await aio.connect(one) as database, await aio.connect(two) as another:
            queue, other = [await each.create_queue("work") for each in (database, another)]
            engine = create_async_engine(two)
            async with engine.connect() as connection:
                with pytest.raises(BadInput, match=r"one\.db"):
                    await queue.push(1, connection=connection)
                await other.push(1, connection=connection)
                await connection.commit()
            await engine.dispose()
            assert [(await each.stats()).ready for each in (queue, other)] == [0, 1]

    asyncio.run(main())
