"""The archive: each finished message is unchanged in the files or in the history, also after a kill."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablequeue import Database, Message, Queue
from tablequeue.bulk import archive as module
from tablequeue.bulk import folder
from tablequeue.bulk.archive import archive
from tablequeue.bulk.identity import identity_of
from tablequeue.errors import ArchiveRefused, BadInput, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.model.attempts import load_errors
from tablequeue.model.payload import load_headers
from tests import archiving
from tests.crowd import answer, started
from tests.servers import Kind, Place
from tests.support import at, claimed, ids_of, refuses, rewritten, with_parts

pytestmark = pytest.mark.quick

PAYLOADS: dict[str, list[Any]] = {
    "text": ["", "a\tb\\N\n", "\U0001f600"],
    "json": [None, {"word": "schön"}, [1.5, "x"]],
    "bytes": [b"", bytes(range(256)), b"\\x00"],
}


@pytest.fixture
def queue(db: Database) -> Queue:
    return filled(db.create_queue("work", payload="text"))


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "work"


def filled(queue: Queue, times: int = 9) -> Queue:
    """Push a message at each second, and finish it at once."""
    for second in range(times):
        queue.push(f"message {second}", now=at(second))
        claimed(queue, now=at(second)).complete(now=at(second))
    return queue


def history(queue: Queue) -> list[Message]:
    return sorted(queue.history(10_000), key=lambda message: message.id)


def archived(lake: Path, queue: Queue) -> list[Message]:
    """The messages in the files, lowest id first, as the queue had them."""
    names = sorted(path for path in lake.iterdir() if not path.name.startswith(("_", ".")))
    rows = [row for path in names for row in pq.read_table(path).to_pylist()]
    load, codec = context_of(queue).engine.load_time, context_of(queue).codec
    found = []
    for row in rows:
        del row["result"]
        row["payload"] = codec.load(row["payload"])
        row["headers"] = load_headers(row["headers"])
        row["errors"] = load_errors(row["errors"], load)
        found.append(Message(**row, lease_until=None))
    return sorted(found, key=lambda message: message.id)


def check_complete(queue: Queue, lake: Path, before: list[Message]) -> None:
    """Each message is in the files once or in the history, and is what it was."""
    there = archived(lake, queue)
    assert len({message.id for message in there}) == len(there), "a message is twice in the files"
    here = [message for message in history(queue) if message.id not in {*ids_of(there)}]
    assert sorted([*there, *here], key=lambda message: message.id) == before


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_files_have_all_that_the_history_had(db: Database, lake: Path, payload: Any) -> None:
    queue = db.create_queue("work", payload=payload, results=True, expires=60, order="priority")
    for number, value in enumerate(PAYLOADS[payload]):
        queue.push(value, headers={"trace": "é"}, priority=number, key=f"key {number}", now=at(number))
    first = claimed(queue, now=at(3))
    first.fail("not yet", retry_in=0, now=at(4))
    claimed(queue, now=at(4)).complete(result={"sum": [1, "ä"]}, now=at(5))
    queue.cancel(queue.peek(1)[0].id, now=at(6))
    assert queue.pop(now=at(100)) is None  # the last one expires
    queue.push(PAYLOADS[payload][1], now=at(100))
    before = history(queue)
    assert sorted(message.state for message in before) == ["cancelled", "expired", "finished"]
    assert archive(queue, lake, 0, now=at(200)) == 3
    assert archived(lake, queue) == before
    assert history(queue) == []
    assert len(queue.peek()) == 1
    results = {row["state"]: row["result"] and json.loads(row["result"]) for row in pq.read_table(lake).to_pylist()}
    assert results == {"finished": {"sum": [1, "ä"]}, "cancelled": None, "expired": None}
    assert archive(queue, lake, 0, now=at(200)) == 0


def test_a_queue_that_was_altered_since_it_was_opened(place: Place, lake: Path) -> None:
    queue = place.open().create_queue("work", payload="text")
    other = place.open().queue("work")
    other.alter(results=True)
    other.push("x", now=at(0))
    claimed(other, now=at(0)).complete(result=7, now=at(0))
    assert archive(queue, lake, 0, now=at(1)) == 1
    assert pq.read_table(lake)["result"].to_pylist() == ["7"]
    other.alter(history=60)
    assert "deletes" in refuses(BadInput, archive, queue, lake, 60).cause


def test_only_what_is_old_goes_and_each_run_adds_a_file(queue: Queue, lake: Path) -> None:
    before = history(queue)
    assert archive(queue, lake, timedelta(seconds=8.000001), now=at(10)) == 2
    assert ids_of(archived(lake, queue)) == ids_of(before)[:2]
    assert archive(queue, lake, 8.000001, now=at(10)) == 0
    assert archive(queue, lake, 8, now=at(10)) == 1
    check_complete(queue, lake, before)
    first, *others = sorted(path.name for path in lake.iterdir())
    assert others == ["_lock", "messages-00000001.parquet", "messages-00000002.parquet"]
    assert first == "_archive-{}-{}".format(*identity_of(queue))
    assert pq.read_table(lake).num_rows == 3
    # polars passes over empty files, and refuses the folder for any other one.
    assert {each.name for each in lake.iterdir() if each.stat().st_size} == {*others[1:]}


def test_a_message_in_progress_of_a_queue_at_most_once_stays(
    db: Database, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_in_progress_stays(db, lake, monkeypatch)


def check_in_progress_stays(db: Database, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.create_queue("once", payload="text", delivery="at_most_once")
    queue.push_many([*"abc"], now=at(0))
    first, second, third = (claimed(queue, now=at(0)) for _ in range(3))
    first.complete(now=at(0))
    third.complete(now=at(0))
    assert archive(queue, lake, 5, now=at(1000)) == 2
    second.complete(now=at(1000))
    assert ids_of(history(queue)) == [second.id]
    assert archive(queue, lake, 0, now=at(1000)) == 1
    assert len(archived(lake, queue)) == 3


def test_files_and_reads_are_bounded(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = history(queue)
    sizes: list[int] = []
    read = type(context_of(queue).reads).archivable

    def archivable(self: Any, cursor: Any, table: Any, params: Any) -> Any:
        sizes.append(params["n"])
        return read(self, cursor, table, params)

    monkeypatch.setattr(type(context_of(queue).reads), "archivable", archivable)
    monkeypatch.setattr(module, "FILE_ROWS", 2)
    monkeypatch.setattr(module, "FIRST_ROWS", 2)
    shares: list[float] = []
    assert archive(queue, lake, 0, now=at(1000), watch=shares.append) == 9
    assert {*sizes} == {2, 8}, "a read is for at most four times the messages of the one before"
    assert len(shares) == 5
    assert shares == sorted(shares)
    assert shares[-1] == 1
    sizes.clear()
    monkeypatch.setattr(module, "READ_BYTES", 1)
    assert archive(filled(queue), lake, 0, now=at(1000)) == 9
    assert {*sizes} == {2, 1}, "large messages are read one by one"
    assert len(archived(lake, queue)) == 18
    assert archived(lake, queue)[:9] == before


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_a_folder_is_of_one_queue(db: Database, queue: Queue, lake: Path) -> None:
    other = filled(db.create_queue("other"))
    archive(queue, lake, 0, now=at(1000))
    assert identity_of(queue).table in refuses(BadInput, archive, other, lake, 0).cause
    assert len(history(other)) == 9
    queue.drop()
    again = filled(db.create_queue("work", payload="text"))
    assert "correct" in refuses(BadInput, archive, again, lake, 0).remedy
    assert len(history(again)) == 9
    refuses(QueueNotFound, archive, queue, lake, 0)
    (lake / "_archive-{}-{}".format(*identity_of(again))).touch()
    assert "two queues" in refuses(BadInput, archive, again, lake, 0).cause
    assert len(history(again)) == 9


def test_a_renamed_queue_goes_on(db: Database, queue: Queue, lake: Path) -> None:
    archive(queue, lake, 7, now=at(10))
    db.rename("work", "works")
    assert archive(db.queue("works"), lake, 0, now=at(10)) == 5
    assert len(archived(lake, queue)) == 9


def test_a_folder_with_other_files_is_left_alone(queue: Queue, lake: Path) -> None:
    lake.mkdir(parents=True)
    (lake / "part-0.parquet").write_bytes(b"")
    assert "no archive" in refuses(BadInput, archive, queue, lake, 0).cause
    assert [path.name for path in lake.iterdir()] == ["part-0.parquet"]
    assert len(history(queue)) == 9


@pytest.mark.parametrize("wrong", [-1, float("nan"), "30d", None, 4e9], ids=repr)
def test_an_age_that_is_none(queue: Queue, lake: Path, wrong: Any) -> None:
    refuses(BadInput, archive, queue, lake, wrong)
    assert not lake.exists()


def test_queues_without_such_messages(db: Database, lake: Path) -> None:
    assert "no history" in refuses(BadInput, archive, db.create_queue("none", history="none"), lake, 0).cause
    short = db.create_queue("short", history=timedelta(days=7))
    assert "deletes" in refuses(BadInput, archive, short, lake, timedelta(days=7)).cause
    assert archive(short, lake, timedelta(days=6)) == 0
    mail = db.create_topic("events").subscribe("mail")
    assert "subscription" in refuses(BadInput, archive, mail, lake, 0).cause


@pytest.mark.parametrize("damage", [b"", b"no parquet", None], ids=repr)
def test_a_damaged_file_is_refused(
    queue: Queue, lake: Path, damage: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its messages is deleted before it is read back as it was written."""
    before = history(queue)

    def change(path: Path) -> None:
        contents = path.read_bytes()
        middle = len(contents) // 2
        path.write_bytes(contents[:middle] + bytes([contents[middle] ^ 255]) + contents[middle + 1 :])

    after_each_file(monkeypatch, change if damage is None else lambda path: path.write_bytes(damage))
    refuses(ArchiveRefused, archive, queue, lake, 0, now=at(1000))
    assert history(queue) == before
    monkeypatch.undo()
    (lake / "messages-00000001.parquet").rename(lake / "_moved away")
    assert archive(queue, lake, 0, now=at(1000)) == 9
    assert archived(lake, queue) == before


def test_a_file_with_other_columns_or_none_is_refused(queue: Queue, lake: Path) -> None:
    archive(queue, lake, 7, now=at(10))
    before, path = history(queue), lake / "messages-00000001.parquet"
    table = pq.read_table(path)
    for changed in (table.drop_columns("id"), table.slice(0, 0)):
        pq.write_table(changed, path)
        assert "other contents" in refuses(ArchiveRefused, archive, queue, lake, 0).cause
    assert history(queue) == before


def after_each_file(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]) -> None:
    """Do something between the moment at which a file is there and the look at it."""
    add = folder.Folder.add

    def then(self: folder.Folder, number: int, table: pa.Table) -> None:
        add(self, number, table)
        last = self.last()
        assert last is not None
        act(last.path)

    monkeypatch.setattr(folder.Folder, "add", then)


def check_compared(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that differs from the history in one value deletes nothing."""
    before = history(queue)

    def change(path: Path) -> None:
        table = pq.read_table(path)
        payloads = table["payload"].to_pylist()
        pq.write_table(table.set_column(1, "payload", pa.array([*payloads[:-1], "other"])), path)

    after_each_file(monkeypatch, change)
    with suppress(ArchiveRefused):
        archive(queue, lake, 0, now=at(1000))
    assert history(queue) == before
    assert "other contents" in refuses(ArchiveRefused, archive, queue, lake, 0).cause


def test_a_file_that_differs_is_refused(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compared(queue, lake, monkeypatch)


# -- what happens meanwhile --------------------------------------------------------------------------------------------


def check_late_commits(db: Database, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes to the history with an earlier time, when the file is there, stays until the next run."""
    queue = filled(db.create_queue("work", payload="text"))
    late = queue.push("late", now=at(0))
    claim = claimed(queue, now=at(0))
    filled(queue, 2)
    finished: list[Path] = []

    def finish(path: Path) -> None:
        if not finished:
            finished.append(path)
            claim.complete(now=at(1))

    after_each_file(monkeypatch, finish)
    archive(queue, lake, 0, now=at(1000))
    assert [*ids_of(history(queue)), *ids_of(archived(lake, queue))].count(late) == 1, "a message is missing"


def test_a_message_that_was_finished_late_is_not_missing(
    db: Database, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_late_commits(db, lake, monkeypatch)
    queue = db.queue("work")
    archive(queue, lake, 0, now=at(1000))
    assert len(archived(lake, queue)) == 12


def test_a_purge_meanwhile(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a retention deletes is in the file already, or is not in any."""
    before = history(queue)
    after_each_file(monkeypatch, lambda path: queue.purge_history(6, now=at(10)))
    assert archive(queue, lake, 2, now=at(10)) == 4
    assert archived(lake, queue) == before


def test_while_consumers_work(place: Place, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_ROWS", 20)
    queue, other = place.open().create_queue("work", payload="text"), place.open().queue("work")

    def work() -> dict[int, str]:
        pushed: dict[int, str] = {}
        for number in range(100):
            pushed |= dict.fromkeys(other.push_many([f"message {number}"] * 3), f"message {number}")
            other.complete_many(other.pop_many(3))
        return pushed

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        while not working.done():
            archive(queue, lake, 0)
    archive(queue, lake, 0)
    assert [(one.id, one.payload) for one in archived(lake, queue)] == sorted(working.result().items())
    assert history(queue) == []


def test_one_archive_at_a_time(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_each_file(monkeypatch, lambda path: refuses(BadInput, archive, queue, lake, 0))
    assert archive(queue, lake, 0, now=at(1000)) == 9


def check_two_without_a_lock(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk whose locks do not reach the other machine, a number is still that of one file."""
    before = history(queue)
    monkeypatch.setattr(fcntl, "flock", lambda lock, operation: None)
    monkeypatch.setattr(module, "FILE_ROWS", 2)
    monkeypatch.setattr(module, "FIRST_ROWS", 2)
    add = folder.Folder.add
    others: list[int] = []

    def meanwhile(self: folder.Folder, number: int, table: pa.Table) -> None:
        if not others:
            others.append(number)
            monkeypatch.setattr(module, "FILE_ROWS", 7)
            assert archive(queue, lake, 4, now=at(10)) == 7
        add(self, number, table)

    monkeypatch.setattr(folder.Folder, "add", meanwhile)
    with suppress(BadInput):
        archive(queue, lake, 0, now=at(10))
    archive(queue, lake, 0, now=at(10))
    check_complete(queue, lake, before)


def test_two_without_a_lock(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_two_without_a_lock(queue, lake, monkeypatch)


# -- kills -------------------------------------------------------------------------------------------------------------


def test_an_archive_killed_at_any_step(place: Place, tmp_path: Path) -> None:
    """Nothing is missing, and the next run has each message once."""
    database = place.open("the living")
    words = archiving.steps_of(place, filled(database.create_queue("walked", payload="text")).name, tmp_path / "walked")
    for number in archiving.chosen(words):
        queue = filled(database.create_queue(f"at_{number}", payload="text"))
        before, lake = history(queue), tmp_path / queue.name
        with started(1, archiving.stop_in_archive, lambda _: (place, queue.name, lake, "parquet", number)) as (pipe,):  # noqa: B023
            assert answer(pipe) == words[number - 1]
        if lake.exists():
            check_complete(queue, lake, before)
        check_after_a_kill(queue, lake, before)


def check_after_a_kill(queue: Queue, lake: Path, before: list[Message]) -> None:
    archive(queue, lake, 0, now=at(1000))
    assert archived(lake, queue) == before
    assert history(queue) == []
    assert not [*lake.glob(".*")], "what the killed run had begun is gone"


def check_settled_first(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed after its file was there is ended first, also if the age is another one now."""
    before = history(queue)

    class Killed(BaseException):
        pass

    def kill(path: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        after_each_file(patch, kill)
        with pytest.raises(Killed):
            archive(queue, lake, 0, now=at(1000))
    assert archive(queue, lake, 998, now=at(1000)) == 9
    assert archived(lake, queue) == before


def test_a_killed_run_is_ended_first(queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_settled_first(queue, lake, monkeypatch)


# -- mutants -----------------------------------------------------------------------------------------------------------


def deletes_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes without the comparison."""
    monkeypatch.setattr(module, "_check", lambda *given: None)


def goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not look at the file that another run has left."""
    add, settle, own = folder.Folder.add, module._settle, set()

    def noted(self: folder.Folder, number: int, table: pa.Table) -> None:
        own.add((self, number))
        add(self, number, table)

    def of_this_run(queue: Queue, files: folder.Folder) -> tuple[int, int]:
        last = files.last()
        return settle(queue, files) if last is None or (files, last.number) in own else (last.number, 0)

    monkeypatch.setattr(folder.Folder, "add", noted)
    monkeypatch.setattr(module, "_settle", of_this_run)


def replaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a file its name though another one has it."""
    monkeypatch.setattr(os, "link", os.replace)


FILES = [(deletes_unread, check_compared), (goes_on, check_settled_first), (replaces, check_two_without_a_lock)]


@pytest.mark.parametrize(("mutant", "check"), FILES, ids=lambda one: one.__name__)
def test_a_broken_mutant_is_caught(
    queue: Queue, lake: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., None], check: Callable[..., None]
) -> None:
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ArchiveRefused)):
        check(queue, lake, monkeypatch)


def deletes_what_is_old(engine: Any) -> Any:
    """Deletes by the age, as the purge does, and not what is in the file."""

    class Purges(type(engine.messages)):  # type: ignore[misc]
        def purge_history_ids(self, cursor: Any, table: Any, params: Any) -> Any:
            return self.purge_history(cursor, table, {"age": 0, "n": 1000, "now": engine.dump_time(at(1000))})

    return with_parts(engine, {"messages": Purges})


def archives_what_is_in_progress(engine: Any) -> Any:
    return rewritten(engine, archivable=lambda text: re.sub("finished_at <= [:@]until", "1 = 1", text))


SQL = [(deletes_what_is_old, check_late_commits), (archives_what_is_in_progress, check_in_progress_stays)]


@pytest.mark.parametrize(("mutant", "check"), SQL, ids=lambda one: one.__name__)
def test_a_broken_engine_is_caught(
    place: Place, kind: Kind, lake: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any, check: Callable[..., None]
) -> None:
    database = place.open_with(mutant(kind.engine_class))
    with pytest.raises((AssertionError, TypeError)):
        check(database, lake, monkeypatch)
