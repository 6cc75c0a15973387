"""Each report on a tiny table whose answer is known, by DuckDB. What Spark finds is compared with it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tablequeue.spark.reports import duck
from tablequeue.spark.reports.backlog import BACKLOG
from tablequeue.spark.reports.consumers import ARRIVALS, consumers
from tablequeue.spark.reports.duck import Duck
from tablequeue.spark.reports.errors import ERRORS, kind_of
from tablequeue.spark.reports.lost import LOST
from tablequeue.spark.reports.messages import EVENTS, EXPIRED, REDRIVEN, SCHEMA
from tablequeue.spark.reports.overview import OVERVIEW
from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import percentiles, times
from tablequeue.spark.reports.workers import WORKERS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else NOON + timedelta(seconds=seconds)


def failure(attempt: int, seconds: float, consumer: str, error: str) -> dict[str, Any]:
    return {"attempt": attempt, "at": at(seconds), "consumer": consumer, "error": error}


def message(
    queue: str,
    id: int,
    state: str,
    producer: str,
    consumer: str | None,
    times: str,
    errors: tuple[dict[str, Any], ...] = (),
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


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Duck]:
    with closing(Duck(tmp_path)) as engine:
        load(engine, MESSAGES)
        yield engine


def load(engine: Duck, rows: list[tuple[Any, ...]]) -> None:
    schema = pa.schema([("queue", pa.string()), *SCHEMA])
    engine.load("messages", pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema))


def table(engine: Duck, text: str) -> str:
    """Rows as lines, a dash for null, times as seconds after noon: what a golden table is compared with."""
    return "\n".join(" ".join(map(shown, row.values())) for row in engine.rows(text))


def shown(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{(value.astimezone(UTC) - NOON).total_seconds()}"
    return "-" if value is None else f"{value}"


def golden(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_overview(engine: Duck) -> None:
    # queue messages finished retried backlog in_progress cancelled expired dead lost redriven producers consumers at
    assert table(engine, OVERVIEW) == golden("""
        mail 6 3 1 2 1 0 0 1 0 0 2 2 0.0 3602.0
        ping 3 1 0 0 0 0 0 0 2 0 1 2 0.0 2.0
    """)


def test_times_of_all_hours(engine: Duck) -> None:
    engine.define("times", times(3600))
    # queue time messages mean p50 p95 p99 max
    assert table(engine, percentiles("queue")) == golden(f"""
        mail wait 3 {5 / 3} 2.0 2.0 2.0 2.0
        mail run 3 {2 / 3} 0.5 1.0 1.0 1.0
        ping wait 1 0.0 0.0 0.0 0.0 0.0
        ping run 1 2.0 2.0 2.0 2.0 2.0
    """)


def test_times_of_an_interval_are_those_that_ended_in_it(engine: Duck) -> None:
    engine.define("times", times(3600))
    assert table(
        engine, f"""select "at", time, messages from ({percentiles("queue", "at")}) where queue = 'mail'"""
    ) == (
        golden("""
        0.0 wait 3
        0.0 run 2
        3600.0 run 1
        """)
    )


def test_throughput(engine: Duck) -> None:
    # queue at pushed popped failed finished cancelled expired dead lost unpopped
    assert table(engine, throughput(60)) == golden("""
        mail 0.0 6 5 3 2 0 0 1 0 0
        mail 60.0 0 0 1 0 0 0 0 0 0
        mail 3600.0 0 0 0 1 0 0 0 0 0
        ping 0.0 3 3 1 1 0 0 0 2 0
    """)


def test_backlog(engine: Duck) -> None:
    engine.keep("throughput", throughput(1))
    # queue at backlog waiting
    shown = f"""select * from ({BACKLOG}) where queue = 'mail' and "at" < timestamptz '2026-01-01 12:00:10+00'"""
    assert table(engine, shown) == golden("""
        mail 0.0 2 2
        mail 1.0 2 2
        mail 2.0 2 2
        mail 3.0 4 3
        mail 4.0 4 2
        mail 5.0 4 1
        mail 6.0 4 1
        mail 9.0 3 1
    """)


def test_the_backlog_ends_as_the_overview_says(engine: Duck) -> None:
    engine.keep("throughput", throughput(3600))
    ends = {row["queue"]: row["backlog"] for row in engine.rows(BACKLOG)}
    assert ends == {row["queue"]: row["backlog"] for row in engine.rows(OVERVIEW)}


def test_errors(engine: Duck) -> None:
    # queue error failures messages finished dead first_at last_at example
    assert table(engine, ERRORS) == golden("""
        mail busy 2 2 1 0 4.0 6.0 busy
        mail lease expired 1 1 1 0 70.0 70.0 lease expired
        mail order … is bad 1 1 0 1 9.0 9.0 order 12345 is bad
        ping no answer 1 1 0 0 2.0 2.0 no answer
    """)


KINDS = [
    ("Traceback (most recent call last):\n  File x\nKeyError: 'id'\n", "KeyError: 'id'"),
    ("HTTP 503", "HTTP 503"),
    ("no row 1234567", "no row …"),
    ("blob deadbeef0123 is gone", "blob … is gone"),
    ("a defaced deadbeef", "a defaced deadbeef"),
    ("a1b2c3d4 and A1B2C3D4 and abcdefa1", "… and … and …"),
    ("abcdefab1 of 1abcdef, a1b2c3D4", "… of 1abcdef, a1b2c3D4"),
    ("12345678x 123 1234-5678 _1234", "12345678x … … _1234"),
    ("HTTP 503 of 10.0.3.17:5432, status 404", "HTTP 503 of …, status 404"),
    ("[Errno 111] after 1.5s, exit code 137", "[Errno 111] after …, exit code 137"),
    ("order 7 of ada@example.com", "order … of …"),
    ("cus_9s6XK at 2026-11-28T10:00:00.123Z", "… at …"),
    ("<Order object at 0x7f3a5c> and fe80::1", "<Order object at …> and …"),
    ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6 is bad", "… is bad"),
    ("utf8 std::vector s3", "utf8 std::vector s3"),
    ("one\\n\ttwo\t\x0b\f\r\n \n", "one\\n\ttwo"),
    ("x" * 300, "x" * 200),
    ("", ""),
    (" \n ", ""),
]


def test_kinds_of_errors(engine: Duck) -> None:
    engine.load("texts", pa.table({"error": [error for error, _ in KINDS]}))
    found = [row["kind"] for row in engine.rows(f"select {kind_of('error')} as kind from texts")]
    assert found == [kind for _, kind in KINDS]


def test_workers(engine: Duck) -> None:
    # queue role name messages share first_at last_at per_second retried failures expired holds holds_since p50 p95
    assert table(engine, WORKERS) == golden(f"""
        mail producer w1 3 0.5 0.0 1.0 3.0 - - - - - - -
        mail producer w2 3 0.5 2.0 3.0 3.0 - - - - - - -
        mail consumer r1 2 {2 / 3} 1.5 2.5 2.0 0 3 0 0 - 0.5 0.5
        mail consumer r2 1 {1 / 3} 3602.0 3602.0 - 1 1 1 1 4.0 1.0 1.0
        ping producer w1 3 1.0 0.0 0.0 - - - - - - - -
        ping consumer r1 1 1.0 2.0 2.0 - 0 0 0 0 - 2.0 2.0
        ping consumer r3 0 0.0 - - - 0 1 0 0 - - -
    """)


def test_lost(engine: Duck) -> None:
    # queue id producer consumer pushed_at popped_at error
    assert table(engine, LOST) == golden("""
        ping 3 w1 r3 0.0 2.0 -
        ping 2 w1 r3 0.0 1.0 no answer
    """)


def test_consumers(engine: Duck) -> None:
    rows = [
        # One consumer, two seconds each, all pushed at once: three of four consumers too few.
        *(message("mail", id, "finished", "w", "r1", f"0 {2 * id} {2 * id} {2 * id + 2}") for id in range(4)),
        # A claim of four at once: two seconds of one consumer, half a second each. The last was due when it was popped.
        *(message("bulk", id, "finished", "w", "r1", "0 10 10 12", due=10 if id == 3 else None) for id in range(4)),
        message("bulk", 9, "dead", "w", "r1", "0 1 1 -"),
    ]
    load(engine, rows)
    engine.by_hour("consumers", ARRIVALS, lambda hour: consumers(hour, 0.5))
    # queue hour arrivals arrival_rate service_rate consumers wait_p95 needed needed_wait_p95
    assert table(engine, "select * from consumers") == golden("""
        bulk 0.0 5 0.5 2.0 1 10.0 2 0.5
        mail 0.0 4 - 0.5 1 6.0 4 0.0
    """)


def test_events(engine: Duck) -> None:
    chosen = "id = 3 and queue = 'mail' or id = 4 or id = 2 and queue = 'ping'"
    columns = 'queue, id, event, "at", name, substring(error, 1, 5)'
    text = f'select {columns} from ({EVENTS}) where {chosen} order by queue, id, "at", event desc'
    assert table(engine, text) == golden(f"""
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


def test_each_push_is_an_arrival(engine: Duck) -> None:
    """Also of messages that wait, or have failed. One that was never due has not arrived."""
    load(engine, [*MESSAGES, message("mail", 7, "scheduled", "w1", None, "3 - - -", due=9000)])
    engine.by_hour("consumers", ARRIVALS, lambda hour: consumers(hour, 0.5))
    arrived = engine.rows(
        "select queue, cast(sum(arrivals) as bigint) as messages from consumers group by 1 order by 1"
    )
    assert [[*row.values()] for row in arrived] == [["mail", 6], ["ping", 3]]
    load(engine, [message("idle", 1, "ready", "w1", None, "0 - - -")])
    engine.by_hour("consumers", ARRIVALS, lambda hour: consumers(hour, 0.5))
    assert table(engine, "select * from consumers") == "idle 0.0 1 - - 0 - - -"


def test_redriven(engine: Duck) -> None:
    three = tuple(failure(attempt, attempt, "r1", "busy") for attempt in (1, 2, 3))

    def tried(id: int, state: str, attempts: int, errors: tuple[dict[str, Any], ...]) -> tuple[Any, ...]:
        row = message("mail", id, state, "w1", "r1", "0 1 1 -", errors)
        return (*row[:3], attempts, *row[4:])

    again = [
        tried(1, "finished", 1, three),
        tried(2, "ready", 0, three),
        tried(3, "dead", 3, (*three, *three)),
        tried(4, "in_progress", 2, (*three, three[0])),
        tried(5, "in_progress", 3, three),
    ]
    not_again = [
        tried(6, "finished", 4, three),
        tried(7, "dead", 3, three),
        tried(8, "scheduled", 3, three),
        tried(9, "cancelled", 3, three),
        tried(10, "in_progress", 4, three),
        tried(11, "ready", 0, ()),
    ]
    load(engine, [*again, *not_again])
    assert [row["id"] for row in engine.rows(f"select id from ({REDRIVEN}) order by id")] == [1, 2, 3, 4, 5]
    assert engine.rows(OVERVIEW)[0]["redriven"] == 5


@pytest.mark.parametrize(
    ("name", "pattern", "mutant", "test"),
    [
        ("ARRIVALS", "state <> 'scheduled' or", "state = 'finished' and", "test_each_push_is_an_arrival"),
        ("ARRIVALS", "where state <> 'scheduled' or first_popped_at is not null", "", "test_each_push_is_an_arrival"),
        ("REDRIVEN", "attempt <= before or", "", "test_redriven"),
        ("REDRIVEN", "when state in ('finished', 'in_progress', 'lost') then 0", "when false then 0", "test_redriven"),
    ],
)
def test_a_mutant_of_a_text_is_caught(
    engine: Duck, name: str, pattern: str, mutant: str, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = globals()
    assert pattern in here[name], "the mutant is no mutant"
    monkeypatch.setitem(here, name, here[name].replace(pattern, mutant))
    with pytest.raises(AssertionError):
        here[test](engine)


@pytest.mark.parametrize(
    ("macro", "mutant", "test"),
    [
        ("percentile_approx(value, share, size)", "quantile_cont(value, share)", test_times_of_all_hours),
        ("sequence(first, last)", "range(first, last)", test_errors),
        ("try_element_at(list, place)", "list[1]", test_events),
    ],
)
def test_a_mutant_of_a_function_is_caught(
    tmp_path: Path, macro: str, mutant: str, test: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(duck._MACROS, macro, mutant)
    with closing(Duck(tmp_path)) as engine:
        load(engine, MESSAGES)
        with pytest.raises(AssertionError):
            test(engine)
