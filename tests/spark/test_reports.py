"""Each report on a tiny table whose answer is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as f

from tablequeue.spark.reports.backlog import backlog
from tablequeue.spark.reports.consumers import consumers
from tablequeue.spark.reports.errors import errors, kind_of
from tablequeue.spark.reports.lost import lost
from tablequeue.spark.reports.messages import COLUMNS, EXPIRED, events, finished
from tablequeue.spark.reports.overview import overview
from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import sketches, times
from tablequeue.spark.reports.workers import workers

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOON + timedelta(seconds=seconds)


def failure(attempt: int, seconds: float, consumer: str, error: str) -> tuple[Any, ...]:
    return attempt, at(seconds), consumer, error


def message(
    queue: str,
    id: int,
    state: str,
    producer: str,
    consumer: str | None,
    times: str,
    errors: tuple[Any, ...] = (),
    due: float | None = None,
) -> tuple[Any, ...]:
    """`times`: pushed, first popped, last popped, finished, as seconds after noon; a dash for none."""
    pushed, first, last, done = (at(None if time == "-" else float(time)) for time in times.split())
    return (
        queue,
        id,
        state,
        len(errors) + (last is not None and state != "dead"),
        producer,
        consumer,
        pushed,
        at(due),
        first,
        last,
        done,
        list(errors),
    )


MESSAGES = [
    message("mail", 1, "finished", "w1", "r1", "0 1 1 1.5"),
    message("mail", 2, "finished", "w1", "r1", "0 2 2 2.5"),
    # Failed by r1, lost by r2 when it died, finished by r2 in the next hour.
    message(
        "mail",
        3,
        "finished",
        "w1",
        "r2",
        "1 3 3601 3602",
        (failure(1, 4, "r1", "busy\n"), failure(2, 70, "r2", EXPIRED)),
    ),
    message(
        "mail",
        4,
        "dead",
        "w2",
        "r1",
        "2 5 8 -",
        (failure(1, 6, "r1", "busy"), failure(2, 9, "r1", "order 12345 is bad")),
    ),
    message("mail", 5, "ready", "w2", None, "3 - - -"),
    message("mail", 6, "in_progress", "w2", "r2", "3 4 4 -"),
    message("ping", 1, "finished", "w1", "r1", "0 0 0 2"),
    message("ping", 2, "lost", "w1", "r3", "0 1 1 -", (failure(1, 2, "r3", "no answer"),)),
    message("ping", 3, "lost", "w1", "r3", "0 2 2 -"),
]


@pytest.fixture(scope="module")
def messages(spark: Any) -> Any:
    return spark.createDataFrame(MESSAGES, COLUMNS)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Rows as dicts, times as seconds after noon."""
    rows = [row.asDict() for row in frame.collect()]
    return [
        {
            name: (value.astimezone(UTC) - NOON).total_seconds() if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def table(frame: Any) -> str:
    """Rows as lines, a dash for null: what a golden table is compared with."""
    return "\n".join(" ".join("-" if value is None else f"{value}" for value in row.values()) for row in rows_of(frame))


def golden(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_overview(messages: Any) -> None:
    # queue messages finished retried backlog in_progress cancelled expired dead lost producers consumers, two times
    assert table(overview(messages)) == golden("""
        mail 6 3 1 2 1 0 0 1 0 2 2 0.0 3602.0
        ping 3 1 0 0 0 0 0 0 2 1 2 0.0 2.0
    """)


def test_times_of_all_hours(messages: Any) -> None:
    # queue time messages mean p50 p95 p99 max
    assert table(times(sketches(messages), "queue")) == golden(f"""
        mail wait 3 {5 / 3} 2.0 2.0 2.0 2.0
        mail run 3 {2 / 3} 0.5 1.0 1.0 1.0
        ping wait 1 0.0 0.0 0.0 0.0 0.0
        ping run 1 2.0 2.0 2.0 2.0 2.0
    """)


def test_times_by_hour_are_those_of_the_hour_in_which_they_ended(messages: Any) -> None:
    assert table(
        times(sketches(messages).where("queue = 'mail'"), "hour").select("hour", "time", "messages")
    ) == golden("""
        0.0 wait 3
        0.0 run 2
        3600.0 run 1
    """)


def test_throughput(messages: Any) -> None:
    # queue at pushed popped failed finished cancelled expired dead lost unpopped
    assert table(throughput(messages, 60)) == golden("""
        mail 0.0 6 5 3 2 0 0 1 0 0
        mail 60.0 0 0 1 0 0 0 0 0 0
        mail 3600.0 0 0 0 1 0 0 0 0 0
        ping 0.0 3 3 1 1 0 0 0 2 0
    """)


def test_backlog(messages: Any) -> None:
    # queue at backlog waiting
    assert table(
        backlog(throughput(messages.where("queue = 'mail'"), 1)).where("at < '2026-01-01 12:00:10'")
    ) == golden("""
        mail 0.0 2 2
        mail 1.0 2 2
        mail 2.0 2 2
        mail 3.0 4 3
        mail 4.0 4 2
        mail 5.0 4 1
        mail 6.0 4 1
        mail 9.0 3 1
    """)


def test_the_backlog_ends_as_the_overview_says(messages: Any) -> None:
    ends = {row["queue"]: row["backlog"] for row in rows_of(backlog(throughput(messages, 3600)))}
    assert ends == {row["queue"]: row["backlog"] for row in rows_of(overview(messages))}


def test_errors(messages: Any) -> None:
    # queue error failures messages finished dead first_at last_at
    assert table(errors(messages)) == golden("""
        mail busy 2 2 1 0 4.0 6.0
        mail lease expired 1 1 1 0 70.0 70.0
        mail order … is bad 1 1 0 1 9.0 9.0
        ping no answer 1 1 0 0 2.0 2.0
    """)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Traceback (most recent call last):\n  File x\nKeyError: 'id'\n", "KeyError: 'id'"),
        ("HTTP 503", "HTTP 503"),
        ("no row 1234567", "no row …"),
        ("blob deadbeef0123 is gone", "blob … is gone"),
        ("a defaced deadbeef", "a defaced deadbeef"),
        ("x" * 300, "x" * 200),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_kinds_of_errors(spark: Any, error: str, kind: str) -> None:
    assert spark.createDataFrame([(error,)], "error string").select(kind_of("error")).first()[0] == kind


def test_workers(messages: Any) -> None:
    # queue role name messages share first_at last_at per_second retried failures expired run_p50 run_p95
    assert table(workers(messages)) == golden(f"""
        mail producer w1 3 0.5 0.0 1.0 3.0 - - - - -
        mail producer w2 3 0.5 2.0 3.0 3.0 - - - - -
        mail consumer r1 2 {2 / 3} 1.5 2.5 2.0 0 3 0 0.5 0.5
        mail consumer r2 1 {1 / 3} 3602.0 3602.0 - 1 1 1 1.0 1.0
        ping producer w1 3 1.0 0.0 0.0 - - - - - -
        ping consumer r1 1 1.0 2.0 2.0 - 0 0 0 2.0 2.0
        ping consumer r3 0 0.0 - - - 0 1 0 - -
    """)


def test_lost(messages: Any) -> None:
    # queue id producer consumer pushed_at popped_at error
    assert table(lost(messages)) == golden("""
        ping 3 w1 r3 0.0 2.0 -
        ping 2 w1 r3 0.0 1.0 no answer
    """)


def test_consumers(spark: Any) -> None:
    rows = [
        # One consumer, two seconds each, all pushed at once: three of four consumers too few.
        *(message("mail", id, "finished", "w", "r1", f"0 {2 * id} {2 * id} {2 * id + 2}") for id in range(4)),
        # A claim of four at once: two seconds of one consumer, half a second each. The last was due when it was popped.
        *(message("bulk", id, "finished", "w", "r1", "0 10 10 12", due=10 if id == 3 else None) for id in range(4)),
        message("bulk", 9, "dead", "w", "r1", "0 1 1 -"),
    ]
    # queue hour arrivals arrival_rate service_rate consumers wait_p95 needed needed_wait_p95
    assert table(consumers(spark.createDataFrame(rows, COLUMNS), 0.5)) == golden("""
        bulk 0.0 4 0.4 2.0 1 10.0 2 0.5
        mail 0.0 4 - 0.5 1 6.0 4 0.0
    """)


def test_events(messages: Any) -> None:
    found = events(messages.where("id = 3 and queue = 'mail' or id = 4 or id = 2 and queue = 'ping'")).orderBy(
        "queue", "id", "at", f.desc("event")
    )
    assert table(found.withColumn("error", found["error"].substr(1, 5))) == golden(f"""
        mail 3 pushed 1.0 w1 -
        mail 3 popped 3.0 - -
        mail 3 failed 4.0 r1 busy{chr(10)}
        mail 3 failed 70.0 r2 lease
        mail 3 finished 3602.0 r2 -
        mail 4 pushed 2.0 w2 -
        mail 4 popped 5.0 - -
        mail 4 failed 6.0 r1 busy
        mail 4 failed 9.0 r1 order
        mail 4 dead 9.0 r1 -
        ping 2 pushed 0.0 w1 -
        ping 2 popped 1.0 - -
        ping 2 lost 1.0 r3 -
        ping 2 failed 2.0 r3 no an
    """)


def test_times_in_errors_as_every_engine_writes_them(spark: Any) -> None:
    micros = round(NOON.timestamp() * 1e6) + 250_000
    written = [f"{micros}", '"2026-01-01T14:00:00.25+02:00"', '"2026-01-01 12:00:00.250000"']
    columns = "id bigint, state string, attempts int, producer string, consumer string, errors string, " + ", ".join(
        f"{name} timestamp" for name in ("pushed_at", "due_at", "first_popped_at", "popped_at", "finished_at")
    )
    rows = [
        (id, "finished", 2, "w", "r", f'[{{"attempt": 1, "at": {text}, "consumer": "r", "error": "e"}}]', *[NOON] * 5)
        for id, text in enumerate(written)
    ]
    rows.append((9, "finished", 1, "w", "r", None, *[NOON] * 5))
    found = finished(spark.createDataFrame(rows, columns), "mail")
    assert found.columns == [column.name for column in spark.createDataFrame([], COLUMNS).schema]
    failures = found.selectExpr("inline(errors)")
    assert table(failures) == golden("1 0.25 r e\n" * 3)
    assert found.where("size(errors) = 0").count() == 1
