"""Archives that are tables of Delta and Iceberg: each finished message is unchanged there or in the history, also after
a kill, and whoever else writes to the table. test_archive.py has what is the same for Parquet files."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tablequeue import Database, Message, Queue
from tablequeue.bulk import archive as module
from tablequeue.bulk import catalogue, delta, iceberg, tables
from tablequeue.bulk.archive import archive
from tablequeue.bulk.identity import identity_of
from tablequeue.errors import ArchiveRefused, BadInput, DriverMissing
from tablequeue.ext import context_of
from tablequeue.model.attempts import load_errors
from tablequeue.model.payload import load_headers
from tests import archiving
from tests.crowd import answer, started
from tests.servers import Place, only
from tests.streams.test_archive import PAYLOADS, filled, history
from tests.support import at, claimed, ids_of, refuses

ARCHIVES = {"delta": delta.DeltaArchive, "iceberg": iceberg.IcebergArchive}


class Lake:
    """An archive that is a table."""

    def __init__(self, format: str, folder: Path, place: Place) -> None:
        self.format, self.folder, self.place = format, folder, place
        self.to, self.options = archiving.target(folder, format)
        self.kind: Any = ARCHIVES[format]

    def archive(self, queue: Queue, older_than: float = 0, seconds: float = 1000) -> int:
        return archive(queue, self.to, older_than, now=at(seconds), **self.options)

    def catalogue(self) -> SqlCatalog:
        """As its users open it."""
        url = sa.make_url(self.place.url)
        if self.place.schema and url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"options": f"-csearch_path={self.place.schema}"})
        elif self.place.schema:
            url = url.set(database=self.place.schema)
        return SqlCatalog("tablequeue", uri=url.render_as_string(hide_password=False))

    def rows(self) -> pa.Table:
        if self.format == "delta":
            return DeltaTable(self.folder).to_pyarrow_table()
        return self.iceberg(lambda table: table.scan().to_arrow())

    def iceberg(self, act: Callable[[Table], Any]) -> Any:
        opened = self.catalogue()
        try:
            return act(opened.load_table(self.to))
        finally:
            opened.close()

    def exists(self) -> bool:
        if self.format == "delta":
            return DeltaTable.is_deltatable(str(self.folder))
        opened = self.catalogue()
        try:
            return opened.table_exists(self.to)
        finally:
            opened.close()

    def messages(self, queue: Queue) -> list[Message]:
        """The messages in the table, lowest id first, as the queue had them."""
        load, codec = context_of(queue).engine.load_time, context_of(queue).codec
        found = []
        for row in self.rows().to_pylist():
            del row["result"], row["batch"]
            row["payload"] = codec.load(row["payload"])
            row["headers"] = load_headers(row["headers"])
            row["errors"] = load_errors(row["errors"], load)
            found.append(Message(**row, lease_until=None))
        return sorted(found, key=lambda message: message.id)

    def rewrite(self, change: Callable[[pa.Table], pa.Table] = lambda rows: rows) -> None:
        """Write the table anew in one file, and delete all others of it, as a compaction does."""
        rows = change(self.rows())
        if self.format == "delta":
            write_deltalake(self.folder, rows, mode="overwrite")
            DeltaTable(self.folder).vacuum(0, enforce_retention_duration=False, dry_run=False)
        else:
            self.iceberg(lambda table: table.overwrite(rows))


@pytest.fixture
def queue(db: Database) -> Queue:
    return filled(db.create_queue("work", payload="text"))


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, place: Place, tmp_path: Path) -> Lake:
    return Lake(request.param, tmp_path / "lake" / "work", place)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three messages."""
    monkeypatch.setattr(module, "FILE_ROWS", 3)
    monkeypatch.setattr(module, "FIRST_ROWS", 3)


def check_complete(queue: Queue, lake: Lake, before: list[Message]) -> None:
    there = lake.messages(queue)
    assert len({*ids_of(there)}) == len(there), "a message is twice in the table"
    here = [message for message in history(queue) if message.id not in {*ids_of(there)}]
    assert sorted([*there, *here], key=lambda message: message.id) == before


def after_each_batch(lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something between the moment at which a batch is there and the look at it."""
    add = lake.kind.add

    def then(self: Any, number: int, messages: pa.Table) -> None:
        add(self, number, messages)
        act()

    monkeypatch.setattr(lake.kind, "add", then)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_the_table_has_all_that_the_history_had(db: Database, lake: Lake, payload: Any) -> None:
    queue = db.create_queue("work", payload=payload, results=True, order="priority")
    for number, value in enumerate(PAYLOADS[payload]):
        queue.push(value, headers={"trace": "é"}, priority=number, key=f"key {number}", now=at(number))
    claimed(queue, now=at(3)).fail("not yet", retry_in=0, now=at(4))
    claimed(queue, now=at(4)).complete(result={"sum": [1, "ä"]}, now=at(5))
    queue.cancel(queue.peek(1)[0].id, now=at(6))
    before = history(queue)
    assert lake.archive(queue) == 2
    assert lake.messages(queue) == before
    assert history(queue) == []
    rows = {row["state"]: row for row in lake.rows().to_pylist()}
    assert {state: row["result"] and json.loads(row["result"]) for state, row in rows.items()} == {
        "finished": {"sum": [1, "ä"]},
        "cancelled": None,
    }
    assert lake.archive(queue) == 0


def test_each_batch_has_its_number(queue: Queue, lake: Lake, small: None) -> None:
    before = history(queue)
    assert lake.archive(queue, 8, 10) == 3
    assert lake.archive(queue) == 6
    assert lake.messages(queue) == before
    assert lake.rows().sort_by("id")["batch"].to_pylist() == [1] * 3 + [2] * 3 + [3] * 3


def check_synced(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deleted is on the disk."""
    left: list[int] = []
    sync = os.sync

    def noted() -> None:
        left.append(len(history(queue)))
        sync()

    monkeypatch.setattr(os, "sync", noted)
    lake.archive(queue)
    assert left == [9]


def test_what_is_deleted_is_on_the_disk(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    check_synced(queue, lake, monkeypatch)


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_a_table_is_of_one_queue(db: Database, queue: Queue, lake: Lake) -> None:
    lake.archive(queue)
    other = filled(db.create_queue("other", payload="text"))
    error = refuses(BadInput, lake.archive, other)
    assert (identity_of(queue).table in error.cause, "tablequeue.archive" in error.remedy) == (True, True)
    db.rename("work", "works")
    assert lake.archive(filled(db.queue("works"))) == 9
    db.queue("works").drop()
    again = filled(db.create_queue("work", payload="text"))
    refuses(BadInput, lake.archive, again)
    assert (len(history(other)), len(history(again))) == (9, 9)


@only("sqlite")
def test_other_tables_and_folders_are_left_alone(queue: Queue, tmp_path: Path, place: Place) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "part-0.parquet").touch()
    assert "has other files" in refuses(BadInput, archive, queue, tmp_path / "files", 0, format="delta").cause
    write_deltalake(tmp_path / "orders", pa.table({"n": [1]}))
    assert "no archive" in refuses(BadInput, archive, queue, tmp_path / "orders", 0, format="delta").cause
    assert DeltaTable(tmp_path / "orders").version() == 0
    lake = Lake("iceberg", tmp_path / "lake" / "work", place)
    assert "Name the folder" in refuses(BadInput, archive, queue, "lake.work", 0, format="iceberg").remedy
    lake.archive(queue, 999)
    opened = lake.catalogue()
    opened.create_table("lake.orders", pa.schema([("n", pa.int64())]), location=f"file://{tmp_path}/x")
    assert "no archive" in refuses(BadInput, archive, queue, "lake.orders", 0, format="iceberg").cause
    assert opened.load_table("lake.orders").schema().column_names == ["n"]
    opened.close()
    assert len(history(queue)) == 7


@only("sqlite")
def test_a_log_that_is_damaged(queue: Queue, tmp_path: Path) -> None:
    archive(queue, tmp_path / "lake", 999, now=at(1000), format="delta")
    (tmp_path / "lake" / "_delta_log" / f"{0:020}.json").write_text("{")
    assert "cannot be read" in refuses(ArchiveRefused, archive, queue, tmp_path / "lake", 0, format="delta").cause
    assert len(history(queue)) == 7


@only("sqlite")
def test_options_that_do_not_fit(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"format": "csv"}, {"format": "delta", "warehouse": "x"}, {"warehouse": "x"}):
        refuses(BadInput, archive, queue, tmp_path / "lake", 0, **options)
    refuses(BadInput, archive, queue, "orders", 0, format="iceberg", warehouse=tmp_path)
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    for format in ARCHIVES:
        assert f"tablequeue[{format}]" in refuses(DriverMissing, archive, queue, "lake.work", 0, format=format).remedy
    assert not (tmp_path / "lake").exists()


def check_compared(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that differs from the history in one value deletes nothing."""
    before = history(queue)

    def change(rows: pa.Table) -> pa.Table:
        payloads = rows["payload"].to_pylist()
        return rows.set_column(1, rows.schema.field("payload"), pa.array([*payloads[:-1], "other"]))

    after_each_batch(lake, monkeypatch, lambda: lake.rewrite(change))
    for _ in range(2):
        with suppress(ArchiveRefused):
            lake.archive(queue)
        assert history(queue) == before
    assert "Batch 1 of" in refuses(ArchiveRefused, lake.archive, queue).cause


def test_a_table_that_differs_is_refused(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    check_compared(queue, lake, monkeypatch)


def test_a_batch_that_is_gone_is_refused(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = history(queue)
    after_each_batch(lake, monkeypatch, lambda: lake.rewrite(lambda rows: rows.slice(0, 0)))
    refuses(ArchiveRefused, lake.archive, queue)
    assert history(queue) == before


def test_a_file_that_is_gone_is_refused(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = history(queue)

    def delete() -> None:
        for file in lake.folder.rglob("*.parquet"):
            file.unlink()

    after_each_batch(lake, monkeypatch, delete)
    assert "cannot be read" in refuses(ArchiveRefused, lake.archive, queue).cause
    assert history(queue) == before


# -- what happens meanwhile --------------------------------------------------------------------------------------------


def check_two_at_once(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that add a batch, one is refused; also if the other has added several."""
    before = history(queue)
    add = lake.kind.add
    others: list[int] = []

    def meanwhile(self: Any, number: int, messages: pa.Table) -> None:
        if not others:
            others.append(number)
            assert lake.archive(queue, 4, 10) == 7
        add(self, number, messages)

    monkeypatch.setattr(module, "FILE_ROWS", 2)
    monkeypatch.setattr(module, "FIRST_ROWS", 2)
    monkeypatch.setattr(lake.kind, "add", meanwhile)
    with suppress(BadInput):
        lake.archive(queue, 0, 10)
    check_complete(queue, lake, before)
    lake.archive(queue)
    assert lake.messages(queue) == before


def test_two_at_once(queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    check_two_at_once(queue, lake, monkeypatch)


def test_the_table_is_written_anew_after_a_kill(
    queue: Queue, lake: Lake, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run finds the last batch wherever a compaction has put it."""
    before = history(queue)

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    for _ in range(2):
        with monkeypatch.context() as patch:
            after_each_batch(lake, patch, kill)
            with pytest.raises(Killed):
                lake.archive(queue)
        lake.rewrite()
        check_complete(queue, lake, before)
    assert lake.archive(queue) == 6, "the first batch was settled by the second run"
    assert lake.messages(queue) == before


# -- kills -------------------------------------------------------------------------------------------------------------


@only("sqlite")
def test_an_archive_killed_at_any_step(place: Place, lake: Lake) -> None:
    database = place.open("the living")
    lake.archive(filled(database.create_queue("work", payload="text")))  # the catalogue is there
    words = archiving.steps_of(
        place,
        filled(database.create_queue("walked", payload="text")).name,
        lake.folder.with_name("walked"),
        lake.format,
    )
    assert {"before write_deltalake", "before commit_table"} & {*words}
    deaths = [(f"at_{number}", lake.folder.with_name(f"at_{number}"), number) for number in archiving.chosen(words)]
    queues = [filled(database.create_queue(name, payload="text")) for name, _, _ in deaths]
    before = [history(queue) for queue in queues]
    with started(1, archiving.die_in_archives, lambda _: (place, lake.format, deaths)) as (pipe,):
        assert [answer(pipe) for _ in deaths] == [-signal.SIGKILL] * len(deaths)
    for (_, folder, number), queue, messages in zip(deaths, queues, before, strict=True):
        killed = Lake(lake.format, folder, place)
        if killed.exists():
            check_complete(queue, killed, messages)
        killed.archive(queue)
        assert killed.messages(queue) == messages, words[number - 1]
        assert history(queue) == []


@only("sqlite")
def test_the_page_archives_into_tables(
    db: Database, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "retention.md").read_text("utf-8")
    programs = re.findall(r"executed by tests/streams/test_archive_tables.py -->\n```py\n(.*?)^```", page, re.S | re.M)
    assert len(programs) == 2
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"archive": archive, "timedelta": timedelta}
    for name in ("orders", "sales"):
        queue = names[name] = db.create_queue(name)
        queue.push("x", now=at(-1e9))
        claimed(queue, now=at(-1e9)).complete(now=at(-1e9))
    exec("\n".join(programs).replace("sqlite:///work.db", place.url), names)
    sales = names["catalog"].load_table("lake.sales").scan().to_arrow()
    names["catalog"].close()
    assert (DeltaTable("lake/orders").to_pyarrow_table().num_rows, sales.num_rows) == (1, 1)


# -- mutants -----------------------------------------------------------------------------------------------------------


def deletes_unread(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes without the comparison."""
    monkeypatch.setattr(module, "_check", lambda *given: None)


def commits_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds a batch whose number is there already."""
    monkeypatch.setattr(catalogue.Once, "validate", lambda self, metadata: None)
    add = lake.kind.add

    def anew(self: Any, number: int, messages: pa.Table) -> None:
        self.last()
        add(self, number, messages)

    monkeypatch.setattr(lake.kind, "add", anew)


def does_not_sync(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes what may not be on the disk."""
    monkeypatch.setattr(tables.Batch, "messages", lambda self, schema: self.read().select(schema.names).cast(schema))


MUTANTS = [(deletes_unread, check_compared), (commits_twice, check_two_at_once), (does_not_sync, check_synced)]


@only("sqlite")
@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda one: one.__name__)
def test_a_broken_mutant_is_caught(
    queue: Queue, lake: Lake, monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., None], check: Callable[..., None]
) -> None:
    mutant(lake, monkeypatch)
    with pytest.raises((AssertionError, ArchiveRefused)):
        check(queue, lake, monkeypatch)
