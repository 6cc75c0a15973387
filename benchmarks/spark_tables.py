"""Compare ToTable, which puts a batch into a table of the user by its key, with an append by Spark's own JDBC.

    python -m benchmarks.spark_tables [--full] [--rows 200000] [--repeats 5] [--jdbc /usr/share/java/postgresql.jar]

Runs on PostgreSQL. The rows are in the memory of Spark; half of the keys of each batch are in the table before. JDBC
appends to an empty table with the same columns and the same primary key. The rows of each table are counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import tablequeue
from benchmarks.options import REPEATS
from benchmarks.places import postgresql_url
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from benchmarks.spark import JAR
from tablequeue.spark.pipeline import ToTable
from tablequeue.spark.pipeline.sinks import Batch
from tablequeue.spark.session import local_session

FULL, ROWS = 1_000_000, 200_000
CONDITIONS = """Two cores; rows of an id, a payload of 100 characters, a number and a time, in the memory of Spark. Half
of the keys are in the table before. JDBC appends to an empty table with the same primary key."""
COLUMNS = "(id bigint primary key, payload text not null, total numeric(12, 2), at timestamptz)"
JDBC = "Spark's JDBC, an append"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="as much as the page is about, whose figures it replaces")
    parser.add_argument("--rows", type=int, help=f"{FULL:,} in a full run, else {ROWS:,}, if not given")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--jdbc", type=Path, default=JAR)
    arguments = parser.parse_args()
    if not arguments.jdbc.exists():
        raise SystemExit(f"There is no JDBC driver at {arguments.jdbc}. Install libpostgresql-jdbc-java, or name it.")
    rows = arguments.rows or (FULL if arguments.full else ROWS)
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as folder, postgresql_url() as url:
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--driver-class-path {arguments.jdbc} --jars {arguments.jdbc} pyspark-shell"
        )
        spark = local_session("benchmark", Path(folder), lasting=True)
        database = tablequeue.connect(url)
        parsed = sa.make_url(url)
        of_jdbc = {
            "url": f"jdbc:postgresql://{parsed.host}:{parsed.port}/{parsed.database}?reWriteBatchedInserts=true",
            "user": parsed.username or "",
            "driver": "org.postgresql.Driver",
        }
        frame = numbers(spark, rows).cache()
        assert frame.count() == rows
        batches = count()

        def execute(*statements: str) -> int:
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for statement in statements:
                    result = connection.exec_driver_sql(statement)
                return result.scalar_one() if result.returns_rows else 0

        def timed(key: tuple[str, ...] | None) -> float:
            execute("drop table if exists written", f"create table written {COLUMNS}")
            if key:
                execute(f"insert into written select 2 * n, 'old' from generate_series(0, {rows // 2 - 1}) as n")  # noqa: S608
            execute("vacuum analyze written", "checkpoint")
            batch = Batch("bench/table", "query", next(batches), database, {"url": url})

            def write() -> None:
                if key is None:
                    options = {**of_jdbc, "dbtable": "written", "batchsize": "10000"}
                    frame.write.format("jdbc").options(**options).mode("append").save()
                else:
                    ToTable("written", key).write(frame, batch)

            found = rate(write, rows)
            assert execute("select count(*) from written where payload <> 'old'") == rows
            return found

        contenders = {"upsert": lambda: timed(("id",)), "insert": lambda: timed(()), "JDBC": lambda: timed(None)}
        rates = interleaved(contenders, arguments.repeats, "rounds")
        figures = []
        for name, aim in {"upsert": 0.8, "insert": None}.items():
            what = f"a batch of {rows:,} rows by ToTable, {name}"
            figures.append(Figure("PostgreSQL", what, OURS, "rows/s", rates[name]))
            figures.append(Figure("PostgreSQL", what, JDBC, "rows/s", rates["JDBC"], aim))
        save("spark_tables", "Spark: tables of the user", CONDITIONS.replace("\n", " "), figures, keep=arguments.full)
        spark.stop()
        database.close()


def numbers(spark: Any, rows: int) -> Any:
    columns = "id", "repeat('x', 100) as payload", "cast(id as decimal(12, 2)) as total", "current_timestamp() as at"
    return spark.range(0, rows, 1, 2).selectExpr(*columns)


if __name__ == "__main__":
    main()
