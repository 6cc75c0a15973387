"""Every report on generated messages, compared with DuckDB over the same Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import functions as f

from tablequeue.spark.reports import job
from tablequeue.spark.reports.lake import Window, open_lake
from tablequeue.spark.reports.messages import NAMES
from tablequeue.spark.reports.times import RANK_ERROR, SHARES

pytestmark = pytest.mark.timeout(900)  # half a minute when nothing else runs, and much longer beside others

# In the smallest hour of a queue twice as many as a sketch keeps as they are.
MESSAGES = 200_000
QUEUES = ("mail", "orders", "thumbs")
START = "timestamp'2026-01-01 00:00:00'"
TARGET = 5.0

# A day of three queues; a message in fifty is not finished, one in thirty had an error. Times in microseconds.
GENERATED = {
    "queue": "element_at(array('mail', 'orders', 'orders', 'thumbs'), int(1 + id % 4))",
    "pushed": f"unix_micros({START}) + id * {24 * 3600 * 1_000_000 // MESSAGES}",
    "wait": "bigint(-ln(1 - rand(1)) * 2e6 * (1 + id % 4))",
    "run": "bigint(-ln(1 - rand(2)) * 4e5)",
    "chance": "rand(3)",
    "failed": "rand(4) < 0.03",
    "state": "case when chance > 0.04 then 'finished' when chance > 0.03 then 'cancelled' "
    "when chance > 0.02 then 'expired' when chance > 0.015 then 'dead' when chance > 0.01 then 'ready' "
    "when chance > 0.005 then 'in_progress' else 'lost' end",
    "attempts": "case when state = 'ready' then 0 when failed then 2 else 1 end",
    "producer": "concat('web-', id % 7)",
    "consumer": "case when state not in ('ready', 'expired') then concat('worker-', int(rand(5) * 11)) end",
    "pushed_at": "timestamp_micros(pushed)",
    "due_at": "case when id % 10 = 0 then timestamp_micros(pushed + wait div 2) end",
    "first_popped_at": "case when state not in ('ready', 'expired') then timestamp_micros(pushed + wait) end",
    "popped_at": "first_popped_at",
    "finished_at": "case when state in ('finished', 'cancelled', 'expired') "
    "then timestamp_micros(pushed + wait + run) end",
    "errors": "case when (failed or state = 'dead') and state not in ('ready', 'expired') "
    "then array(named_struct('attempt', 1, 'at', timestamp_micros(pushed + wait), 'consumer', consumer, "
    "'error', element_at(array('timeout', 'HTTP 503', 'lease expired'), int(1 + id % 3)))) "
    "else cast(array() as array<struct<attempt: int, at: timestamp, consumer: string, error: string>>) end",
}


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Path:
    # The seeds hold for one plan over one division into partitions: what is written twice is the same.
    frame = spark.range(MESSAGES)
    for name, expression in GENERATED.items():
        frame = frame.withColumn(name, f.expr(expression))
    frame = frame.select(*NAMES, f.to_date("finished_at").alias("day"))
    frame.where("day is not null").write.partitionBy("queue", "day").parquet(str(tmp_path / "messages"))
    frame.where("day is null").drop("day").write.partitionBy("queue").parquet(str(tmp_path / "live"))
    return tmp_path


@pytest.fixture
def duck(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        both = [
            f"from read_parquet('{lake}/{name}/**/*.parquet', hive_partitioning=true)" for name in ("messages", "live")
        ]
        connection.execute(f"create view m as {' union all by name '.join(both)}")
        connection.execute("""
            create table spans as
            select queue, 'wait' as time, date_trunc('hour', first_popped_at) as hour,
                (epoch_us(first_popped_at) - epoch_us(pushed_at)) / 1e6 as seconds
            from m where state = 'finished'
            union all
            select queue, 'run', date_trunc('hour', finished_at), (epoch_us(finished_at) - epoch_us(popped_at)) / 1e6
            from m where state = 'finished'
        """)
        connection.execute("""
            create table happened as
            select queue, pushed_at as "at", 'pushed' as event from m
            union all select queue, first_popped_at, 'popped' from m where first_popped_at is not null
            union all select queue, finished_at, state from m where state in ('finished', 'cancelled', 'expired')
            union all select queue, finished_at, 'unpopped' from m where state = 'expired'
            union all select queue, errors[-1].at, 'dead' from m where state = 'dead'
            union all select queue, popped_at, 'lost' from m where state = 'lost'
            union all select queue, unnest(errors).at, 'failed' from m
        """)
        yield connection


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, (_plain(value) for value in row), strict=True)) for row in cursor.fetchall()]


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def same(report: str, found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """The columns that are expected: whole numbers, names and times exactly, real numbers but for rounding."""
    assert len(found) == len(expected), report
    for row, other in zip(found, expected, strict=True):
        assert {name: row[name] for name in other} == {
            name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in other.items()
        }, report


BUCKET = "time_bucket(interval '10 minutes', \"at\")"
EVENTS = ("pushed", "popped", "finished", "failed", "cancelled", "expired", "dead", "lost", "unpopped")
THROUGHPUT = f"""
    select queue, {BUCKET} as "at", {", ".join(f"count(*) filter (event = '{event}') as {event}" for event in EVENTS)}
    from happened group by 1, 2 order by 1, 2
"""
RUNNING = 'sum({}) over (partition by queue order by "at")::bigint'


def of_times(by: str, columns: str) -> str:
    return f"select {by}, time, {columns} from spans group by {by}, time order by {by}, time desc"


COUNTED = "count(*) as messages, avg(seconds) as mean, max(seconds) as max"
TIMES = {"times": "queue", "hours": "queue, hour"}
EXPECTED = {
    "overview": """
        select queue, count(*) as messages, count(*) filter (state = 'finished') as finished,
            count(*) filter (state = 'finished' and attempts > 1) as retried,
            count(*) filter (state in ('ready', 'in_progress')) as backlog,
            count(*) filter (state = 'in_progress') as in_progress, count(*) filter (state = 'dead') as dead,
            count(*) filter (state = 'cancelled') as cancelled, count(*) filter (state = 'expired') as expired,
            count(*) filter (state = 'lost') as lost, count(distinct producer) as producers,
            count(distinct consumer) as consumers, min(pushed_at) as first_at
        from m group by queue order by queue
    """,
    **{name: of_times(by, COUNTED) for name, by in TIMES.items()},
    "throughput": THROUGHPUT,
    "backlog": f"""
        select queue, "at", {RUNNING.format("pushed - finished - cancelled - expired - dead - lost")} as backlog,
            {RUNNING.format("pushed - popped - unpopped")} as waiting
        from ({THROUGHPUT}) order by queue, "at"
    """,
    "errors": """
        select queue, failure.error, count(*) as failures, count(distinct id) as messages,
            count(*) filter (state = 'finished') as finished, count(*) filter (state = 'dead') as dead,
            min(failure.at) as first_at, max(failure.at) as last_at
        from (select queue, id, state, unnest(errors) as failure from m)
        group by all order by queue, failures desc
    """,
    "workers": """
        select *, messages / sum(messages) over (partition by queue, role) as share,
            messages / ((epoch_us(last_at) - epoch_us(first_at)) / 1e6) as per_second
        from (
            select queue, 'producer' as role, producer as name, count(*) as messages, min(pushed_at) as first_at,
                max(pushed_at) as last_at, null as retried, null as failures, null as expired
            from m group by all
            union all
            select queue, 'consumer', consumer, count(*) filter (state = 'finished'),
                min(finished_at) filter (state = 'finished'), max(finished_at) filter (state = 'finished'),
                count(*) filter (state = 'finished' and attempts > 1), sum(len(errors))::bigint,
                count(*) filter (errors[1].error = 'lease expired')
            from m where consumer is not null group by all
        ) order by queue, role desc, name
    """,
    "lost": """
        select queue, id, consumer, popped_at, errors[-1].error as error
        from m where state = 'lost' order by queue, popped_at desc, id
    """,
    # No two messages of a consumer are popped at the same microsecond: each is a claim of its own.
    "consumers": """
        select queue, date_trunc('hour', came) as hour, count(*) as arrivals,
            count(*) / nullif((epoch_us(max(came)) - epoch_us(min(came))) / 1e6, 0) as arrival_rate,
            count(*) / (sum(epoch_us(finished_at) - epoch_us(popped_at)) / 1e6) as service_rate,
            count(distinct consumer) as consumers,
            quantile_disc((epoch_us(first_popped_at) - epoch_us(came)) / 1e6, 0.95) as wait_p95
        from (
            select *, greatest(pushed_at, case when attempts = 1 then due_at end) as came
            from m where state = 'finished'
        )
        group by 1, 2 order by 1, 2
    """,
}


def test_every_report(spark: Any, lake: Path, duck: duckdb.DuckDBPyConnection) -> None:
    # One test: the parts of a file may run at the same time in several workers, each with a session of its own.
    with open_lake(lake, "here") as opened:
        found = job.compute(spark, opened, QUEUES, Window(), TARGET, lambda name: None)
    assert set(EXPECTED) <= set(found)
    for report, sql in EXPECTED.items():
        same(report, found[report], rows(duck, sql))
    assert sum(row["messages"] for row in found["overview"]) == MESSAGES
    assert all(row["needed_wait_p95"] <= TARGET for row in found["consumers"])
    for report, by in TIMES.items():
        # RANK_ERROR holds for 99 of 100 percentiles; twice as much for all but one in ten million.
        for error, share in ((RANK_ERROR, 0.97), (2 * RANK_ERROR, 1)):
            kept = [
                bounds[name][0] <= row[name] <= bounds[name][1]
                for row, bounds in zip(found[report], rows(duck, of_times(by, quantiles(error))), strict=True)
                for name in SHARES
            ]
            assert sum(kept) >= share * len(kept), report


def quantiles(error: float) -> str:
    shares = (f"[{max(share - error, 0)}, {min(share + error, 1)}]" for share in SHARES.values())
    return ", ".join(f"quantile_disc(seconds, {both}) as {name}" for name, both in zip(SHARES, shares, strict=True))
