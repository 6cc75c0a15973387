"""The lake: each message once, however often, and however interrupted, it is read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tablequeue import Claim, Database, connect
from tablequeue.bulk.archive import archive, files_in
from tablequeue.errors import BadInput
from tablequeue.spark.reports import job, messages
from tablequeue.spark.reports.cluster import Spark
from tablequeue.spark.reports.duck import Duck
from tablequeue.spark.reports.engine import Engine
from tablequeue.spark.reports.lake import Lake, Window, open_lake
from tests.archiving import target
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place
from tests.spark.named import by_options
from tests.support import claimed, refuses

NOW = datetime.now(UTC).replace(microsecond=0)
PAGE = Path(__file__).parents[2] / "docs" / "report.md"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@dataclass
class Reading:
    """A queue, and what one read of it into a lake needs."""

    engine: Engine
    folder: Path
    queue: Any

    def read(self) -> int:
        with open_lake(self.folder, "here") as lake:
            return job.read(self.engine, lake, self.queue)

    def rows(self, window: Window = Window()) -> list[dict[str, Any]]:  # noqa: B008 (it is immutable)
        with open_lake(self.folder, "here") as lake:
            lake.read(self.engine, [self.queue.name], window)
            return lake.write(self.engine, "rows", "select * from messages")

    def ids(self, window: Window = Window()) -> dict[str, list[int]]:  # noqa: B008
        """The ids of the messages in the lake, by their state."""
        rows = self.rows(window)
        return {
            state: sorted(row["id"] for row in rows if row["state"] == state)
            for state in sorted({row["state"] for row in rows})
        }

    def finish(self, number: int, seconds_ago: float) -> list[int]:
        """Push, pop and complete; the ids."""
        ids = self.queue.push_many(range(number), now=ago(seconds_ago + 2))
        self.queue.complete_many(self.pop(number, seconds_ago + 1), now=ago(seconds_ago))
        return ids

    def pop(self, number: int, seconds_ago: float) -> list[Claim]:
        claims = self.queue.pop_many(number, now=ago(seconds_ago))
        assert len(claims) == number
        return claims


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Engine]:
    with closing(Duck(tmp_path / "scratch")) as engine:
        yield engine


@pytest.fixture(params=["duck", "spark"])
def engine(request: pytest.FixtureRequest, place: Place) -> Engine:
    """DuckDB, and Spark, which reads the history by its data source."""
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, Duck) else Spark(found, by_options(place))


# Spark reads by its data source, which is tested on each engine: by day from one of them, or from a named server.
on_each_engine = pytest.mark.parametrize(
    ("engine", "kind"),
    by_night(
        [*product(("duck", "spark"), KINDS)], lambda case: case[0] == "duck" or case[1].name in ("postgresql", "mssql")
    ),
    ids=lambda value: value.name if isinstance(value, Kind) else value,
    indirect=["engine"],
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture
def reading(duck: Engine, url: str, tmp_path: Path) -> Reading:
    return Reading(duck, tmp_path / "lake", connect(url).create_queue("work", lease=1e6))


# -- what is read ------------------------------------------------------------------------------------------------------


@on_each_engine
def test_every_message_with_its_state_on_every_engine(engine: Engine, db: Database, tmp_path: Path) -> None:
    queue = db.create_queue("work", max_attempts=2, lease=1e6)
    reading = Reading(engine, tmp_path / "lake", queue)
    ids = queue.push_many(range(6), now=ago(100))
    done, dead, busy = reading.pop(3, 90)
    done.fail('once "quoted" \\ \u6f22', retry_in=0, now=ago(85))
    queue.pop(now=ago(84)).complete(now=ago(80))  # type: ignore[union-attr]  # the failed one again
    dead.fail("never", retry_in=0, now=ago(79))
    queue.pop(now=ago(78)).fail("never", now=ago(77))  # type: ignore[union-attr]
    later = queue.push("later", delay=1000, now=ago(60))
    gone = queue.push("gone", now=ago(60))
    queue.cancel(gone, now=ago(50))
    assert reading.read() == 2
    assert reading.ids() == {
        "finished": [done.id],
        "cancelled": [gone],
        "dead": [dead.id],
        "in_progress": [busy.id],
        "ready": ids[3:],
        "scheduled": [later],
    }
    for row in reading.rows():
        message = queue.find(row["id"])
        assert message is not None
        for name in ("state", "attempts", "pushed_at", "due_at", "first_popped_at", "popped_at", "finished_at"):
            assert row[name] == getattr(message, name), name
        assert [(error["attempt"], utc(error["at"]), error["consumer"], error["error"]) for error in row["errors"]] == [
            (error.attempt, error.at, error.consumer, error.error) for error in message.errors
        ]


def utc(time: datetime) -> datetime:
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


@on_each_engine
def test_a_subscription_is_read_as_a_queue(engine: Engine, db: Database, tmp_path: Path) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail", max_attempts=2, lease=1e6)
    reading = Reading(engine, tmp_path / "lake", mail)
    ids = topic.push_many(range(8), now=ago(100))
    done, dead, again = reading.pop(3, 90)
    dead.fail("never", retry=False, now=ago(85))
    again.fail("once", retry_in=0, now=ago(85))
    done.complete(now=ago(80))
    assert [claim.id for claim in reading.pop(1, 84)] == [again.id]
    early, busy = reading.pop(2, 70)
    early.complete(now=ago(69))
    assert reading.read() == 1, "when the others of its claim are finished, too, the time of the finish is final"
    expected = {"finished": [done.id], "dead": [dead.id], "in_progress": [again.id, busy.id], "ready": ids[5:]}
    assert reading.ids() == expected
    busy.complete(now=ago(60))
    assert reading.read() == 2
    assert reading.ids() == expected | {"finished": [done.id, early.id, busy.id], "in_progress": [again.id]}
    assert reading.read() == 0


def test_lost_messages(reading: Reading, url: str) -> None:
    reading.queue = connect(url).create_queue("calls", delivery="at_most_once", lease=3600)
    ids = reading.queue.push_many(range(4), now=ago(10_000))
    reading.pop(1, 9000)[0].complete(now=ago(8999))
    reading.pop(1, 8000)
    reading.pop(1, 0)
    assert reading.read() == 1
    assert reading.ids() == {"finished": ids[:1], "lost": ids[1:2], "in_progress": ids[2:3], "ready": ids[3:]}


def test_a_message_that_was_live_is_finished_once(reading: Reading) -> None:
    (id,) = reading.queue.push_many(["x"], now=ago(20))
    reading.read()
    assert reading.ids() == {"ready": [id]}
    reading.pop(1, 10)[0].complete(now=ago(9))
    reading.read()
    assert reading.ids() == {"finished": [id]}


def test_what_is_finished_between_the_two_reads_is_finished(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.queue.push("x", now=ago(20))
    (claim,) = reading.pop(1, 10)

    def read_live(queue: Any) -> Any:
        found = read_first(queue)
        claim.complete(now=ago(9))
        return found

    read_first = messages.live
    monkeypatch.setattr(messages, "live", read_live)
    reading.read()
    assert reading.ids() == {"finished": [claim.id]}


# -- incremental -------------------------------------------------------------------------------------------------------


def test_only_what_is_new_is_added(reading: Reading) -> None:
    first = reading.finish(5, 100)
    assert reading.read() == 5
    second = reading.finish(3, 50)
    assert [reading.read(), reading.read()] == [3, 0]
    assert reading.ids() == {"finished": first + second}


def low_id_finished_last(reading: Reading) -> None:
    slow = (reading.queue.push("slow", now=ago(9000)), reading.pop(1, 9000)[0])[1]
    others = reading.finish(3, 100)
    reading.read()
    slow.complete(now=ago(50))
    reading.read()
    assert reading.ids() == {"finished": [slow.id, *others]}


def committed_late(reading: Reading) -> None:
    """Finished before the last one that was read, by a transaction that committed after it."""
    late = (reading.queue.push("late", now=ago(200)), reading.pop(1, 190)[0])[1]
    others = reading.finish(3, 100)
    reading.read()
    late.complete(now=ago(150))
    reading.read()
    assert reading.ids() == {"finished": [late.id, *others]}


def finished_in_the_future(reading: Reading) -> None:
    (ahead,) = reading.finish(1, -1e6)
    reading.read()
    others = reading.finish(3, -1)
    reading.read()
    assert reading.ids() == {"finished": [ahead, *others]}


CASES: dict[str, Callable[[Reading], None]] = {
    case.__name__: case for case in (low_id_finished_last, committed_late, finished_in_the_future)
}


@pytest.mark.parametrize("case", CASES)
def test_no_message_is_missed(reading: Reading, case: str) -> None:
    CASES[case](reading)


note = Lake._save_read_until


def no_overlap(lake: Lake, queue: str) -> datetime | None:
    return lake.read_until.get(queue)


def the_last_one(lake: Lake, queue: str, until: datetime) -> None:
    note(lake, queue, ago(-1e6))


@pytest.mark.parametrize(
    ("case", "method", "mutant"),
    [("committed_late", "since", no_overlap), ("finished_in_the_future", "_save_read_until", the_last_one)],
)
def test_a_mutant_that_misses_messages_is_caught(
    reading: Reading, case: str, method: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lake, method, mutant)
    with pytest.raises(AssertionError):
        CASES[case](reading)


def test_the_lake_knows_what_a_retention_has_deleted(reading: Reading) -> None:
    first = reading.finish(3, 500)
    reading.read()
    assert reading.queue.purge_history(100) == 3
    second = reading.finish(2, 50)
    reading.read()
    assert reading.ids() == {"finished": first + second}


def test_the_lake_has_what_was_archived_in_it(reading: Reading) -> None:
    """Before the first report, between two, while one reads; and what is in a file and still in the history."""
    queue, emails = reading.queue, reading.folder / "emails"
    first = reading.finish(3, 500)
    last = queue.history(1)[0]
    assert archive(queue, emails, 100) == 3
    shutil.copytree(emails, reading.folder / "another")  # as two archives that ran at once
    reading.finish(2, 50)
    assert reading.read() == 5
    second = reading.finish(2, 40)
    assert archive(queue, emails, 0) == 4
    assert reading.read() == 2
    third = reading.finish(2, 30)
    with pytest.MonkeyPatch.context() as patch:
        append = Lake._append

        def then_archived(lake: Lake, *args: Any) -> int:
            added = append(lake, *args)
            archive(queue, emails, 0)
            return added

        patch.setattr(Lake, "_append", then_archived)
        assert reading.read() == 2
    assert reading.read() == 0
    assert reading.ids() == {"finished": [*range(1, third[-1] + 1)]}
    assert [first[-1], second[0]] == [last.id, 6]
    (reading.folder / "lake.json").unlink()
    assert reading.read() == 0, "each was counted once"


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def lake_of(request: pytest.FixtureRequest, reading: Reading) -> tuple[str, dict[str, Any]]:
    """Where an archive goes, and its options: a folder in the lake, or a table of Iceberg."""
    return target(reading.folder / "emails", request.param)


def test_spark_reads_archives(spark: Any, url: str, reading: Reading, lake_of: tuple[str, dict[str, Any]]) -> None:
    reading.engine = Spark(spark, {"url": url})
    to, options = lake_of
    ids = reading.finish(3, 500)
    archive(reading.queue, to, 0, **options)
    if options["format"] == "parquet":
        shutil.copytree(reading.folder / "emails", reading.folder / "another")
    ids += reading.finish(1, 50)
    assert reading.read() == 4
    assert reading.ids() == {"finished": ids}


def test_tables_are_read(reading: Reading, lake_of: tuple[str, dict[str, Any]], url: str) -> None:
    """Before the first report and after it; not those of another queue, nor other tables."""
    to, options = lake_of
    other = connect(url).create_queue("other")
    other.push("x")
    other_to, _ = target(reading.folder / "other", options["format"])
    claimed(other).complete()
    assert archive(other, other_to, 0, **options) == 1
    write_deltalake(reading.folder / "orders", pa.table({"n": [1]}))
    ids = reading.finish(3, 500)
    assert archive(reading.queue, to, 0, **options) == 3
    assert reading.read() == 3
    ids += reading.finish(2, 50)
    assert archive(reading.queue, to, 0, **options) == 2
    assert (reading.read(), reading.read()) == (2, 0)
    assert reading.ids() == {"finished": ids}


def test_the_metadata_of_another_queues_table_is_read_once(reading: Reading, url: str) -> None:
    """As long as nothing is added to the table, which another file of metadata would tell."""
    other = connect(url).create_queue("other")
    to, options = target(reading.folder / "other", "iceberg")
    for _ in range(2):
        other.push("x")
        claimed(other).complete()
        archive(other, to, 0, **options)
        assert files_in(reading.folder, reading.queue) == []
    read = [*reading.folder.rglob("*.metadata.json")]
    assert len(read) > 2
    for file in read:
        file.unlink()
    assert files_in(reading.folder, reading.queue) == []


def test_the_archive_of_another_queue_is_not_read(reading: Reading, url: str) -> None:
    first = reading.finish(2, 500)
    archive(reading.queue, reading.folder / "emails", 0)
    reading.queue.drop()
    reading.queue = connect(url).create_queue("work", lease=1e6)
    assert reading.finish(1, 50) == first[:1]
    assert reading.read() == 1


def test_a_lake_is_not_mixed_with_an_archive(reading: Reading, tmp_path: Path) -> None:
    reading.finish(1, 50)
    archive(reading.queue, reading.folder, 0)
    assert "archive" in refuses(BadInput, open_lake(reading.folder, "here").__enter__).cause
    archive(reading.queue, tmp_path / "other" / "messages", 0)
    assert "archive" in refuses(BadInput, open_lake(tmp_path / "other", "here").__enter__).cause
    with open_lake(tmp_path / "third", "here") as lake:
        assert "no archive" in refuses(BadInput, archive, reading.queue, lake.folder, 0).cause


def test_a_queue_that_was_dropped_and_made_again(reading: Reading, url: str) -> None:
    first = reading.finish(2, 500)
    reading.read()
    reading.queue.drop()
    reading.queue = connect(url).create_queue("work", lease=1e6)
    assert reading.finish(2, 50) == first
    assert reading.read() == 2
    assert reading.ids() == {"finished": sorted(first * 2)}


# -- interrupted -------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def test_a_read_that_was_killed_is_repeated(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[Any, str, int]] = [
        (Path, "replace", 0),  # the messages are written, and not in their place
        (Lake, "_save_read_until", 0),  # the messages are in their place, the time is not written
        (Path, "replace", 1),  # the time is written, and not in its place
        (shutil, "rmtree", 3),  # the live messages are written, and not in their place
    ]
    ids = reading.finish(3, 500)
    for place, broken, calls in places:
        ids += reading.finish(2, 100)
        with monkeypatch.context() as patch:
            patch.setattr(place, broken, killed_after(getattr(place, broken), calls))
            with pytest.raises(Killed):
                reading.read()
        reading.read()
        assert reading.ids() == {"finished": ids}


def killed_after(method: Callable[..., Any], calls: int) -> Callable[..., Any]:
    left = iter(range(calls))

    def call(*args: Any, **named: Any) -> Any:
        if next(left, None) is None:
            raise Killed
        return method(*args, **named)

    return call


@pytest.mark.parametrize("kind", ["messages", "live"])
def test_what_a_killed_write_left_is_not_read(reading: Reading, kind: str) -> None:
    """Neither of DuckDB, nor of Spark, whose files wait in `_temporary`."""
    ids = reading.finish(3, 500)
    reading.read()
    there = reading.folder / kind
    for place in (
        "_queue=work/day=2026-01-01",
        "queue=work/_temporary/0/task/day=2026-01-01",
        "_temporary/0/queue=work",
    ):
        (there / place).mkdir(parents=True)
        (there / place / "part-0.parquet").write_bytes(b"PAR1 half a file")
    assert reading.read() == 0
    assert reading.ids() == {"finished": ids}


@pytest.mark.parametrize("name", ["ab=c %41 + \u6f22 'x' \"y\" [z] * ? {} \\", "1"])
def test_a_lake_of_spark_and_of_duckdb_is_one(spark: Any, duck: Engine, url: str, tmp_path: Path, name: str) -> None:
    """Each reads what the other one wrote, whatever the name of the queue, and adds no message again."""
    queue = connect(url).create_queue(name, lease=1e6)
    folder = tmp_path / "a lake of '1' %41"
    one, other = Reading(duck, folder, queue), Reading(Spark(spark, {"url": url}), folder, queue)
    ids = one.finish(2, 86_500)
    for reading in (one, other):
        assert reading.read() == (len(ids) if reading is one else 0)
        assert reading.ids() == {"finished": ids}
    ids += one.finish(2, 50)
    live = queue.push("x", now=ago(40))
    assert [other.read(), one.read()] == [2, 0]
    for reading in (one, other):
        assert reading.ids() == {"finished": ids, "ready": [live]}
        assert {row["queue"] for row in reading.rows()} == {name}
    with open_lake(folder, "here") as lake:
        assert lake.size([name]) == 4


def test_a_report_of_ones_own(spark: Any, environment: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the page."""
    queue = environment.create_queue("emails")
    queue.push("x")
    claimed(queue).complete()
    (example,) = re.findall(
        r"by tests/spark/test_report_lake.py -->\n```py\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M
    )
    exec(example, {"spark": spark})
    assert {"producer", "consumer"} <= {*re.findall(r"\w+", capsys.readouterr().out)}


def test_a_folder_with_any_name(duck: Engine, url: str, tmp_path: Path) -> None:
    reading = Reading(duck, tmp_path / "a [lake] * of '1' {%41} \"?\"", connect(url).create_queue("[a] * ?", lease=1e6))
    ids = reading.finish(2, 50)
    assert [reading.read(), reading.read()] == [2, 0]
    assert reading.ids() == {"finished": ids}


def test_a_commit_of_spark_that_was_killed_is_made_whole(spark: Any, url: str, reading: Reading) -> None:
    """Spark's commit moves one file after the other to its place: some may be missing, and with them whole days."""
    reading.engine = Spark(spark, {"url": url})
    before = reading.finish(3, 86_400)
    reading.read()
    state = (reading.folder / "lake.json").read_text()
    there = {*reading.folder.rglob("*.parquet")}
    after = [id for seconds in (50, 3000) for id in reading.finish(4, seconds)]
    reading.read()
    (reading.folder / "lake.json").write_text(state)
    for file in sorted({*(reading.folder / "messages").rglob("*.parquet")} - there)[:1]:
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink()
    assert reading.ids() != {"finished": before + after}
    assert reading.read() > 0
    assert reading.ids() == {"finished": before + after}


# -- windows and refusals ----------------------------------------------------------------------------------------------


def test_a_window_has_what_was_live_in_it(reading: Reading) -> None:
    early, late = reading.finish(2, 1000), reading.finish(2, 100)
    live = reading.queue.push("x", now=ago(500))
    reading.read()
    assert reading.ids(Window(since=ago(999))) == {"finished": late, "ready": [live]}
    assert reading.ids(Window(until=ago(200))) == {"finished": early, "ready": [live]}
    assert reading.ids(Window(ago(1000), ago(600))) == {"finished": early}


def test_a_lake_of_another_database(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text('{"version": 1, "database": "postgresql://there/db", "read_until": {}}')
    error = refuses(BadInput, open_lake(tmp_path, "sqlite:///here.db").__enter__)
    assert "postgresql://there/db" in error.cause


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "database": "here", "read_until": {"work": "x"}}'])
def test_a_state_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "lake.json").write_text(text)
    assert "cannot be read" in refuses(BadInput, open_lake(tmp_path, "here").__enter__).cause


def test_a_lake_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "lake.json").write_text(json.dumps({"version": 2, "database": "here", "read_until": {}}))
    assert "version" in refuses(BadInput, open_lake(tmp_path, "here").__enter__).cause


def test_one_report_at_a_time(tmp_path: Path) -> None:
    with open_lake(tmp_path, "here"):
        assert "Another report" in refuses(BadInput, open_lake(tmp_path, "here").__enter__).cause
    with open_lake(tmp_path, "here"):
        pass
