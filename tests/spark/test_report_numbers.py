"""Every report by DuckDB, by Spark, and by SQL of its own, over the same Parquet files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tablequeue.spark.reports import job
from tablequeue.spark.reports.cluster import Spark
from tablequeue.spark.reports.duck import Duck
from tablequeue.spark.reports.engine import Engine
from tablequeue.spark.reports.lake import Window, open_lake
from tablequeue.spark.reports.messages import SCHEMA
from tablequeue.spark.reports.times import EXACT, RANK_ERROR, SHARES
from tests.spark.test_reports import KINDS

pytestmark = pytest.mark.timeout(900)  # some seconds when nothing else runs, and much longer beside others

# So many that Spark does not keep all values of a percentile.
MESSAGES = 60_000
QUEUES = ("mail", "orders", "thumbs")
START = datetime(2026, 1, 1, tzinfo=UTC)
TARGET = 5.0
BUCKET = "time_bucket(interval '{}', {})"

# A day of three queues; a message in fifty is not finished, one in thirty had an error. Times in microseconds.
GENERATED = f"""
    select setseed(0.5);
    create table chances as
    select id, random() as chance, random() < 0.03 as failed, random() as one, random() as two, random() as three
    from range({MESSAGES}) as ids(id);
    create table drawn as
    select *, ['mail', 'orders', 'orders', 'thumbs'][1 + id % 4] as queue,
        epoch_us(timestamptz '2026-01-01 00:00:00+00') + id * {24 * 3600 * 1_000_000 // MESSAGES} as pushed,
        cast(-ln(1 - one) * 2e6 * (1 + id % 4) as bigint) as wait, cast(-ln(1 - two) * 4e5 as bigint) as run,
        case when chance > 0.04 then 'finished' when chance > 0.03 then 'cancelled' when chance > 0.02 then 'expired'
            when chance > 0.015 then 'dead' when chance > 0.01 then 'ready' when chance > 0.005 then 'in_progress'
            else 'lost' end as state,
        state not in ('ready', 'expired') as popped
    from chances;
    create table generated as
    select queue, id, state, case when state = 'ready' then 0 when failed then 2 else 1 end as attempts,
        'web-' || id % 7 as producer, case when popped then 'worker-' || cast(floor(three * 11) as int) end as consumer,
        make_timestamptz(pushed) as pushed_at, case when id % 10 = 0 then make_timestamptz(pushed + wait // 2) end
        as due_at, case when popped then make_timestamptz(pushed + wait) end as first_popped_at,
        first_popped_at as popped_at,
        case when state in ('finished', 'cancelled', 'expired') then make_timestamptz(pushed + wait + run) end
        as finished_at,
        case when (failed or state = 'dead') and popped then [{{
            'attempt': 1, 'at': make_timestamptz(pushed + wait), 'consumer': consumer,
            'error': ['timeout', 'HTTP 503', 'lease expired'][1 + id % 3]
        }}] else [] end as errors
    from drawn;
"""


def generated() -> dict[str, pa.Table]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.execute(GENERATED)
        columns = ", ".join(SCHEMA.names)
        return {
            queue: connection.sql(f"select {columns} from generated where queue = '{queue}'")
            .to_arrow_table()
            .cast(SCHEMA)
            for queue in QUEUES
        }


def drawn(chance: random.Random) -> pa.Table:
    """A small history with everything at the same few moments, of messages that no queue might ever have."""

    def at(share: float = 0.8) -> datetime | None:
        return START + timedelta(seconds=chance.randrange(3590 * 4, 3610 * 4) / 4) if chance.random() < share else None

    def name() -> str | None:
        return chance.choice(["a", "b", "\u6f22 'x' \"y\" \\", "", None])

    def message(id: int) -> dict[str, Any]:
        state = chance.choice(
            ["finished"] * 6 + "cancelled expired dead lost ready scheduled in_progress blocked".split()
        )
        errors = [
            {"attempt": number, "at": at(1), "consumer": name(), "error": chance.choice(KINDS)[0]}
            for number in range(chance.choice([0, 0, 0, 1, 2, 3]))
        ]
        return {
            "id": id,
            "state": state,
            "attempts": chance.randrange(3),
            "producer": name(),
            "consumer": name(),
            "pushed_at": at(1),
            "due_at": at(0.3),
            "first_popped_at": at(),
            "popped_at": at(),
            "finished_at": at(1) if state in ("finished", "cancelled", "expired") else None,
            "errors": errors,
        }

    return pa.Table.from_pylist([message(id) for id in range(chance.randrange(25))], SCHEMA)


HISTORIES = {f"{number} 'of' %41 \u6f22": drawn(random.Random(number)) for number in range(20)}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with open_lake(tmp_path, "here") as lake, closing(Duck(tmp_path)) as engine:
        for queue, table in (generated() | HISTORIES).items():
            is_live = table["finished_at"].is_null()
            engine.load("live", table.filter(is_live))
            engine.load("ended", table.filter(pa.compute.invert(is_live)))
            lake.add(engine, queue)
    return tmp_path


def computed(engine: Engine, folder: Path, queues: list[str], window: Window = Window()) -> dict[str, Any]:  # noqa: B008
    with open_lake(folder, "here") as lake:
        return job.compute(engine, lake, queues, window, TARGET, lambda name: None)


@pytest.fixture
def duck(lake: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        both = [
            f"from read_parquet('{lake}/{name}/**/*.parquet', hive_partitioning=true)" for name in ("messages", "live")
        ]
        connection.execute(
            f"create view m as select * from ({' union all by name '.join(both)}) where queue in {QUEUES}"
        )
        connection.execute(f"""
            create table spans as
            select queue, 'wait' as time, {BUCKET.format("1 hour", "first_popped_at")} as "at",
                (epoch_us(first_popped_at) - epoch_us(pushed_at)) / 1e6 as seconds
            from m where state = 'finished'
            union all
            select queue, 'run', {BUCKET.format("1 hour", "finished_at")},
                (epoch_us(finished_at) - epoch_us(popped_at)) / 1e6
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
            name: pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
            for name, value in other.items()
        }, report


EVENTS = ("pushed", "popped", "finished", "failed", "cancelled", "expired", "dead", "lost", "unpopped")
COUNTED_EVENTS = ", ".join(f"count(*) filter (event = '{event}') as {event}" for event in EVENTS)
THROUGHPUT = f"""
    select queue, {BUCKET.format("10 minutes", '"at"')} as "at", {COUNTED_EVENTS}
    from happened group by 1, 2 order by 1, 2
"""
RUNNING = 'sum({}) over (partition by queue order by "at")::bigint'


def of_times(by: str, columns: str) -> str:
    return f"select {by}, time, {columns} from spans group by {by}, time order by {by}, time desc"


COUNTED = "count(*) as messages, avg(seconds) as mean, max(seconds) as max"
TIMES = {"times": "queue", "spans": 'queue, "at"'}
EXPECTED = {
    "overview": """
        select queue, count(*) as messages, count(*) filter (state = 'finished') as finished,
            count(*) filter (state = 'finished' and attempts > 1) as retried,
            count(*) filter (state in ('ready', 'in_progress')) as backlog,
            count(*) filter (state = 'in_progress') as in_progress, count(*) filter (state = 'dead') as dead,
            count(*) filter (state = 'cancelled') as cancelled, count(*) filter (state = 'expired') as expired,
            count(*) filter (state = 'lost') as lost, 0 as redriven, count(distinct producer) as producers,
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
            count(*) filter (state = 'finished')
                / (sum(epoch_us(finished_at) - epoch_us(popped_at)) filter (state = 'finished') / 1e6) as service_rate,
            count(distinct consumer) filter (state = 'finished') as consumers,
            quantile_disc((epoch_us(first_popped_at) - epoch_us(came)) / 1e6, 0.95) as wait_p95
        from (
            select *, greatest(pushed_at, case when due_at > first_popped_at then null else due_at end) as came from m
        )
        group by 1, 2 order by 1, 2
    """,
}


def of_queues(found: dict[str, Any], queues: Any) -> dict[str, Any]:
    return {report: [row for row in rows if row["queue"] in queues] for report, rows in found.items()}


def test_every_report(spark: Any, lake: Path, duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    # One test: the parts of a file may run at the same time in several workers, each with a session of its own.
    with closing(Duck(tmp_path / "scratch")) as engine:
        found = of_queues(computed(engine, lake, [*QUEUES, *HISTORIES]), QUEUES)
        assert set(EXPECTED) == set(found)
        for report, sql in EXPECTED.items():
            same(report, found[report], rows(duck, sql))
        for report, by in TIMES.items():
            exact = ", ".join(f"quantile_disc(seconds, {share}) as {name}" for name, share in SHARES.items())
            same(report, found[report], rows(duck, of_times(by, exact)))
        assert sum(row["messages"] for row in found["overview"]) == MESSAGES
        assert all(row["needed_wait_p95"] <= TARGET for row in found["consumers"])

        window = Window(START + timedelta(minutes=59, seconds=58), START + timedelta(minutes=60, seconds=2))
        chosen = [*HISTORIES, "mail", "no such queue"]
        by_duck = [computed(engine, lake, [*QUEUES, *HISTORIES]), computed(engine, lake, chosen, window)]
    by_spark = [
        computed(Spark(spark), lake, [*QUEUES, *HISTORIES]),
        computed(Spark(spark), lake, chosen, window),
    ]
    for one, other in zip(by_spark, by_duck, strict=True):
        assert one.keys() == other.keys()
        for report in one:
            assert [[*row] for row in one[report][:1]] == [[*row] for row in other[report][:1]]
            if report not in ("times", "workers"):
                same(report, one[report], other[report])
        for report in ("times", "workers"):
            few = {row["queue"] for row in other["overview"] if row["messages"] <= EXACT}
            same(report, of_queues(one, few)[report], of_queues(other, few)[report])
    bounds = rows(duck, of_times("queue", quantiles(1.5 * RANK_ERROR)))  # a rank is whole
    for row, allowed in zip(of_queues(by_spark[0], QUEUES)["times"], bounds, strict=True):
        assert all(allowed[name][0] <= row[name] <= allowed[name][1] for name in SHARES)


def quantiles(error: float) -> str:
    shares = (f"[{max(share - error, 0)}, {min(share + error, 1)}]" for share in SHARES.values())
    return ", ".join(f"quantile_disc(seconds, {both}) as {name}" for name, both in zip(SHARES, shares, strict=True))
