"""A table of the user as a sink of a pipeline. tests/streams/test_user_tables.py has what needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import functions as f
from sqlalchemy.dialects import mysql

import tablequeue
from tablequeue import Database
from tablequeue.bulk import user_tables
from tablequeue.errors import BadInput, PipelineFailed
from tablequeue.spark.pipeline import FromQueue, ToTable, run
from tablequeue.spark.pipeline.file import load
from tests.servers import Place
from tests.spark import named
from tests.support import counts, refuses


def made(place: Place, *columns: Any, schema: str | None = None) -> sa.Table:
    id = sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False)
    table = sa.Table("orders", sa.MetaData(schema=schema or place.schema), id, *columns)
    table.create(place.sa_engine())
    return table


def rows_of(place: Place, table: sa.Table) -> list[Any]:
    with place.sa_engine().connect() as connection:
        return [tuple(row) for row in connection.execute(sa.select(table).order_by(table.c.id))]


def test_messages_go_into_a_table(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    raw = db.create_queue("raw")
    raw.push_many({"id": n % 20, "total": f"{n}.50"} for n in range(30))
    table = made(
        place,
        sa.Column("total", sa.Numeric(10, 2)),
        sa.Column("lines", sa.JSON),
        sa.Column("pushed_at", sa.DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mariadb")),
        sa.Column("note", sa.String(10), server_default="new"),
    )
    pipeline = named.pipeline(place)

    @pipeline.stage(FromQueue("raw", 10), ToTable("orders", key=["id"], schema=place.schema))
    def keep(messages: Any) -> Any:
        total = f.get_json_object("payload", "$.total").cast("decimal(10, 2)")
        id = f.get_json_object("payload", "$.id").cast("bigint")
        lines = f.array(f.struct(f.lit("é").alias("a.b"), f.lit(None).cast("int").alias("n")))
        return messages.select(id.alias("id"), total.alias("total"), lines.alias("lines"), "pushed_at")

    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    times = [message.pushed_at for message in raw.history(100)]
    there = rows_of(place, table)
    assert [row[0] for row in there] == [*range(20)]
    assert [row[1] for row in there] == [Decimal(f"{n + 20 if n < 10 else n}.50") for n in range(20)]
    assert {str(row[2]) for row in there} == {"[{'a.b': 'é', 'n': None}]"}
    assert {row[3].replace(tzinfo=UTC) for row in there} <= {time.astimezone(UTC) for time in times}
    assert {row[4] for row in there} == {"new"}


def test_a_constraint_stops_the_stage_and_loses_nothing(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    raw = db.create_queue("raw")
    raw.push_many({"n": n} for n in range(10))
    table = made(place, sa.CheckConstraint("id < 8", name="small_id"))
    pipeline = named.pipeline(place)
    pipeline.stage(FromQueue("raw", 5), ToTable("orders", schema=place.schema), name="keep")(
        lambda messages: messages.select("id")
    )
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "orders did not take batch 1 of test/keep" in error.cause
    assert "small_id" in error.cause
    assert [row[0] for row in rows_of(place, table)] == [1, 2, 3, 4, 5]
    assert counts(raw) == {"finished": 5, "in_progress": 5}
    with place.sa_engine().begin() as connection:
        connection.execute(table.delete())
        connection.execute(sa.text(f"drop table {table.fullname}"))
    table = made(place)
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert [row[0] for row in rows_of(place, table)] == [6, 7, 8, 9, 10]
    assert counts(raw) == {"finished": 10}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        database.create_queue("raw").push_many({"n": n} for n in range(10))
        yield database


def test_a_table_in_another_database(
    spark: Any, small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    shop = Place(url, None)
    table = made(shop, sa.Column("name", sa.String(10)))
    place = Place(small.engine.url.render_as_string(), None)
    pipeline = named.pipeline(place)
    pipeline.stage(FromQueue("raw", 4), ToTable("orders", ["id"], url=url), name="keep")(
        lambda messages: messages.select("id", f.lit("a").alias("name"))
    )
    compare, looks = user_tables.compare, list[str]()

    def counted(database: Any, table: str, *given: Any) -> Any:
        looks.append(table)
        return compare(database, table, *given)

    monkeypatch.setattr(user_tables, "compare", counted)
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert rows_of(shop, table) == [(n, "a") for n in range(1, 11)]
    assert looks == ["orders"], "once in a run of three batches"
    assert "tq__writers" not in sa.inspect(small.engine).get_table_names()


def test_rows_that_do_not_fit_stop_the_stage(spark: Any, small: Database, tmp_path: Path) -> None:
    place = Place(small.engine.url.render_as_string(), None)
    made(place, sa.Column("at", sa.DateTime))
    pipeline = named.pipeline(place)
    pipeline.stage(FromQueue("raw"), ToTable("orders", ["id"]), name="keep")(
        lambda messages: messages.select("id", "payload", f.lit(datetime(2026, 1, 1)).alias("at"))
    )
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "The table main.orders has no column payload" in error.cause
    assert "columns are: id, at" in error.cause


def test_what_names_no_table_is_refused() -> None:
    assert "list of columns" in refuses(BadInput, ToTable, "orders", "id").remedy
    assert "password" in refuses(BadInput, ToTable, "orders", url="postgresql://a:secret@host/db").cause
    refuses(BadInput, ToTable, "orders", url="sqlite:///a.db", url_env="SHOP")
    assert ToTable("orders", schema="sales").target == "table sales.orders"


def test_the_example_of_the_page(spark: Any, small: Database, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    program = page.split("executed by tests/spark/test_table.py -->\n```py\n")[1].partition("```")[0]
    url = small.engine.url.render_as_string()
    file = tmp_path / "counts_of_the_page.py"
    file.write_text(program.replace('("shop")', f'("shop", url="{url}")'))
    orders = small.create_queue("orders")
    customer = sa.Column("customer", sa.String(20), primary_key=True)
    counts_of: list[Any] = [sa.Column("orders", sa.BigInteger), sa.Column("total", sa.Numeric(12, 2))]
    table = sa.Table("orders_by_customer", sa.MetaData(), customer, *counts_of)
    table.create(small.engine)
    for total in ("1.50", "2.25"):
        orders.push_many({"customer": name, "total": total} for name in ("ada", "bob", "ada"))
        run(load(str(file)), spark, f"{tmp_path}/checkpoints", available_now=True)
    with small.engine.connect() as connection:
        rows = connection.execute(sa.select(table).order_by(table.c.customer)).all()
    assert [tuple(row) for row in rows] == [("ada", 4, Decimal("7.50")), ("bob", 2, Decimal("3.75"))]
