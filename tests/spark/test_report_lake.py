"""The lake: each message once, however often, and however interrupted, it is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Claim, Database, connect
from tablequeue.bulk.archive import archive
from tablequeue.errors import BadInput
from tablequeue.spark.reports import job
from tablequeue.spark.reports import lake as lakes
from tablequeue.spark.reports.lake import Lake, Window, open_lake
from tests.servers import Place
from tests.spark.named import by_options
from tests.support import refuses

NOW = datetime.now(UTC).replace(microsecond=0)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@dataclass
class Reading:
    """A queue, and what one read of it into a lake needs."""

    spark: Any
    folder: Path
    queue: Any
    source: dict[str, str]

    def read(self) -> int:
        with open_lake(self.folder, "here") as lake:
            return job.read(self.spark, lake, self.queue, self.source)

    def ids(self, window: Window = Window()) -> dict[str, list[int]]:  # noqa: B008 (it is immutable)
        """The ids of the messages in the lake, by their state."""
        with open_lake(self.folder, "here") as lake:
            rows = lake.messages(self.spark, [self.queue.name], window).select("id", "state").collect()
        states = sorted({row["state"] for row in rows})
        return {state: sorted(row["id"] for row in rows if row["state"] == state) for state in states}

    def sketched(self) -> int:
        """How many messages are in the sketches."""
        with open_lake(self.folder, "here") as lake:
            lake.update_sketches(self.spark)
            rows = lake.sketches(self.spark, [self.queue.name], Window()).where("time = 'run'").collect()
        return sum(row["messages"] for row in rows)

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
def reading(spark: Any, tmp_path: Path) -> Reading:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    return Reading(spark, tmp_path / "lake", connect(url).create_queue("work", lease=1e6), {"url": url})


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_message_with_its_state_on_every_engine(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    queue = db.create_queue("work", max_attempts=2, lease=1e6)
    reading = Reading(spark, tmp_path / "lake", queue, by_options(place))
    ids = queue.push_many(range(6), now=ago(100))
    done, dead, busy = reading.pop(3, 90)
    done.fail("once", retry_in=0, now=ago(85))
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
    with open_lake(reading.folder, "here") as lake:
        row = lake.messages(spark, ["work"], Window()).where("state = 'finished'").first()
    message = queue.find(done.id)
    assert message is not None
    for name in ("pushed_at", "first_popped_at", "popped_at", "finished_at"):
        assert row[name].astimezone(UTC) == getattr(message, name), name
    assert [(error["attempt"], error["at"].astimezone(UTC), error["error"]) for error in row["errors"]] == [
        (1, ago(85), "once")
    ]


def test_a_subscription_is_read_as_a_queue(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail", max_attempts=2, lease=1e6)
    reading = Reading(spark, tmp_path / "lake", mail, by_options(place))
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
    assert reading.sketched() == 3


def test_lost_messages(reading: Reading) -> None:
    reading.queue = connect(reading.source["url"]).create_queue("calls", delivery="at_most_once", lease=3600)
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

    def read_live(spark: Any, queue: Any) -> Any:
        found = read_first(spark, queue)
        claim.complete(now=ago(9))
        return found

    read_first = job.read_live
    monkeypatch.setattr(job, "read_live", read_live)
    reading.read()
    assert reading.ids() == {"finished": [claim.id]}


# -- incremental -------------------------------------------------------------------------------------------------------


def test_only_what_is_new_is_added(reading: Reading) -> None:
    first = reading.finish(5, 100)
    assert reading.read() == 5
    second = reading.finish(3, 50)
    assert [reading.read(), reading.read()] == [3, 0]
    assert reading.ids() == {"finished": first + second}
    assert reading.sketched() == 8


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


def test_the_archive_of_another_queue_is_not_read(reading: Reading) -> None:
    first = reading.finish(2, 500)
    archive(reading.queue, reading.folder / "emails", 0)
    reading.queue.drop()
    reading.queue = connect(reading.source["url"]).create_queue("work", lease=1e6)
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


def test_a_queue_that_was_dropped_and_made_again(reading: Reading) -> None:
    first = reading.finish(2, 500)
    reading.read()
    reading.queue.drop()
    reading.queue = connect(reading.source["url"]).create_queue("work", lease=1e6)
    assert reading.finish(2, 50) == first
    assert reading.read() == 2
    assert reading.ids() == {"finished": sorted(first * 2)}


# -- interrupted -------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    pass


def killed(*_: Any, **__: Any) -> None:
    raise Killed


def test_a_read_that_was_killed_is_repeated(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[Any, str]] = [
        (Lake, "_save_read_until"),  # the messages are written, the time is not
        (Path, "replace"),  # the new state is written, and not in its place
        (lakes, "sketches"),  # all is read, no sketches are made
    ]
    ids = reading.finish(3, 500)
    for place, broken in places:
        ids += reading.finish(2, 100)
        with monkeypatch.context() as patch:
            patch.setattr(place, broken, killed)
            with pytest.raises(Killed):
                (reading.read(), reading.sketched())
        assert reading.ids()["finished"] == ids
    assert reading.sketched() == len(ids)


def test_a_commit_of_spark_that_was_killed_is_made_whole(reading: Reading) -> None:
    """Spark's commit moves one file after the other to its place: some may be missing, and with them whole days."""
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
    assert reading.sketched() == 11


def test_sketches_are_made_anew_only_for_days_that_changed(reading: Reading) -> None:
    reading.finish(3, 2 * 86_400)
    reading.read()
    reading.sketched()
    old = {file.name for file in (reading.folder / "sketches").rglob("*.parquet")}
    reading.finish(3, 0)
    reading.read()
    assert reading.sketched() == 6
    assert old < {file.name for file in (reading.folder / "sketches").rglob("*.parquet")}


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
