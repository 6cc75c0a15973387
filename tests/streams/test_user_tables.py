"""Writes into a table of the user: a batch is there once, all of it or nothing, and each value is the one that was
written."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import mysql

from tablequeue import Database
from tablequeue.bulk import user_tables
from tablequeue.bulk.user_tables import Write
from tablequeue.engines.staging import Staging
from tablequeue.engines.user_tables import UserTables
from tablequeue.errors import BadInput, BadName, DatabaseError, TablequeueError
from tablequeue.testing import Clock
from tests.checks import await_a_wait
from tests.crowd import processes
from tests.servers import Kind, Place, only
from tests.support import refuses

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class Orders:
    """A table of the user, and writes into it."""

    name = "orders"

    def __init__(self, db: Database, place: Place) -> None:
        self.db, self.place = db, place

    def make(self, *columns: Any) -> sa.Table:
        table = sa.Table(self.name, sa.MetaData(schema=self.place.schema), *columns, mariadb_charset="utf8mb4")
        table.create(self.place.sa_engine())
        return table

    def write(
        self,
        *parts: Sequence[Sequence[Any]],
        batch: int = 0,
        key: Sequence[str] = ("id",),
        schema: pa.Schema = SCHEMA,
        fails: Callable[[Write], None] = lambda write: None,
        writer: str = "writer",
    ) -> bool:
        """Write rows, each part by an attempt of its own. `fails` runs before they are put."""
        words = {each.name: str(each.type) for each in schema}
        with user_tables.writing(
            self.db, user_tables.compare(self.db, self.name, self.place.schema, key, schema, words)
        ) as write:
            staged = {uuid4().hex: rows for rows in parts}
            for attempt, rows in staged.items():
                columns = [
                    pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
                ]
                pieces = [pa.RecordBatch.from_arrays(columns, schema=write.schema)]
                assert user_tables.stage(self.db, write, attempt, pieces) == len(rows)
            fails(write)
            counts = {attempt: len(rows) for attempt, rows in staged.items()}
            return user_tables.put(self.db, write, counts, writer, batch)

    @property
    def table(self) -> str:
        return f"{self.place.schema}.orders" if self.place.schema else "orders"

    def rows(self, columns: str = "id, name") -> list[Any]:
        return [tuple(row) for row in self.place.execute(f"select {columns} from {self.table} order by id")]  # noqa: S608

    def left(self) -> list[str]:
        """The tables of staged rows."""
        names = sa.inspect(self.place.sa_engine()).get_table_names(self.place.schema)
        return [name for name in names if name.startswith("tq__write_")]


@pytest.fixture
def empty(db: Database, place: Place) -> Orders:
    db.create_queue("raw")  # and with it the schema
    return Orders(db, place)


@pytest.fixture
def orders(empty: Orders) -> Orders:
    empty.make(
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(20), nullable=False, unique=True),
        sa.Column("note", sa.String(20), server_default="new"),
        sa.CheckConstraint("name <> 'bad'", name="not_bad"),
    )
    return empty


def test_a_batch_is_put_once(orders: Orders) -> None:
    assert orders.write([(1, "a")], [(2, "b"), (3, "c")], key=())
    assert not orders.write([(1, "a")], [(2, "b"), (3, "c")], key=())
    assert orders.rows("id, name, note") == [(1, "a", "new"), (2, "b", "new"), (3, "c", "new")]
    assert orders.write([(4, "d")], batch=7, key=())
    error = refuses(BadInput, orders.write, [(5, "e")], batch=6, key=())
    assert "has written batch 7 into" in error.cause
    assert orders.write([(5, "e")], key=(), writer="of another checkpoint")
    assert [row[0] for row in orders.rows()] == [1, 2, 3, 4, 5]
    assert orders.left() == []


def test_a_row_replaces_the_one_with_its_key(orders: Orders) -> None:
    orders.write([(1, "a"), (2, "b")])
    orders.place.execute(f"update {orders.table} set note = 'mine'")  # noqa: S608
    orders.write([(2, "B"), (3, "c")], batch=1)
    assert orders.rows("id, name, note") == [(1, "a", "mine"), (2, "B", "mine"), (3, "c", "new")]
    only_key = pa.schema([("name", pa.string()), ("id", pa.int64())])
    assert orders.write([("B", 2), ("d", 4)], batch=2, key=("name",), schema=only_key)
    assert orders.rows() == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


def test_an_empty_batch_is_counted(orders: Orders) -> None:
    assert orders.write(batch=3)
    assert not orders.write([(1, "a")], batch=3)
    assert orders.rows() == []


def test_what_other_attempts_have_staged_is_left_out(orders: Orders) -> None:
    def stage(write: Write) -> None:
        rows = pa.RecordBatch.from_pydict({"id": [9], "name": ["of a failed task"]}, write.schema)
        user_tables.stage(orders.db, write, uuid4().hex, [rows])

    orders.write([(1, "a")], fails=stage)
    assert orders.rows() == [(1, "a")]


def test_two_rows_with_one_key_are_refused(orders: Orders) -> None:
    error = refuses(BadInput, orders.write, [(1, "a"), (2, "b"), (3, "c")], [(3, "d"), (1, "e")])
    assert "the same id: 1; 3." in error.cause
    assert orders.rows() == []
    assert orders.write([(1, "a")])


@only("sqlite")  # the others refuse such a row themselves
def test_a_mutant_that_does_not_look_for_them_is_caught(orders: Orders, kind: Kind) -> None:
    part = type("Changed", (type(kind.engine_class.user_tables),), {"refuses_twice": True})()
    changed: Any = type("Changed", (kind.engine_class,), {"user_tables": part})
    with orders.place.open_with(changed) as orders.db, pytest.raises((AssertionError, pytest.fail.Exception)):
        test_two_rows_with_one_key_are_refused(orders)


@pytest.mark.parametrize("name", ["not_bad", "name"])
def test_a_constraint_stops_the_batch(orders: Orders, name: str) -> None:
    """Also the one of another unique index: the row that has the value is not taken for one with the same key."""
    orders.write([(1, "a")])
    rows = [(2, "bad" if name == "not_bad" else "a"), (3, "c")]
    error = refuses(DatabaseError, orders.write, rows, batch=1)
    assert f"{orders.place.schema or 'main'}.orders did not take batch 1 of writer" in error.cause
    assert name in error.cause
    assert orders.rows() == [(1, "a")]
    assert orders.left() == []
    assert orders.write([(2, "b")], batch=1)


def test_a_value_that_does_not_fit_is_refused_in_its_task(orders: Orders, kind: Kind) -> None:
    null = refuses(BadInput, orders.write, [(1, None)])
    assert "The column name of the table" in null.cause
    refuses(BadInput, orders.write, [(None, "a")])
    if kind.name != "sqlite":  # which keeps a longer text
        error = refuses(DatabaseError, orders.write, [(1, "a" * 21)])
        assert "orders did not take a row" in error.cause
    assert orders.rows() == []
    assert orders.left() == []


REFUSED: dict[str, tuple[pa.Schema, Sequence[str], str]] = {
    "an unknown column": (SCHEMA.append(pa.field("nme", pa.string())), ["id"], "has no column nme"),
    "a missing column": (pa.schema([("id", pa.int64())]), ["id"], "name of the table .* has no default"),
    "another type": (pa.schema([("id", pa.string()), ("name", pa.string())]), ["id"], "The column id is a string"),
    "a number for a text": (
        pa.schema([("id", pa.int64()), ("name", pa.int64())]),
        ["id"],
        "The column name is a int64",
    ),
    "a key without an index": (SCHEMA, ["id", "name"], "no unique index of exactly id, name"),
    "a key that is not there": (pa.schema([("name", pa.string())]), ["id"], "id of the key is not in the rows|default"),
    "a column twice": (pa.schema([*SCHEMA, *SCHEMA]), ["id"], "two columns id"),
}


@pytest.mark.parametrize(("schema", "key", "words"), REFUSED.values(), ids=REFUSED)
def test_rows_that_do_not_fit_the_table_are_refused(
    orders: Orders, schema: pa.Schema, key: Sequence[str], words: str
) -> None:
    error = refuses(BadInput, orders.write, schema=schema, key=key)
    assert re.search(words, error.cause), error.cause
    assert orders.left() == []


def test_a_table_that_is_not_there(empty: Orders) -> None:
    assert "no table orders" in refuses(BadInput, empty.write).cause


def test_names_that_need_quotes(empty: Orders) -> None:
    empty.name = "My Orders, 2026"
    table = empty.make(sa.Column("Order", sa.BigInteger, primary_key=True), sa.Column("select x", sa.String(20)))
    schema = pa.schema([("Order", pa.int64()), ("select x", pa.string())])
    empty.write([(1, "a")], [(2, "b")], key=["Order"], schema=schema)
    empty.write([(2, "B")], key=["Order"], schema=schema, batch=1)
    with empty.place.sa_engine().connect() as connection:
        assert connection.execute(sa.select(table).order_by(table.c["Order"])).all() == [(1, "a"), (2, "B")]
    empty.name = "a;b"
    empty.make(sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", sa.String(20)))
    refuses(BadName, empty.write)


def test_columns_that_the_database_fills(empty: Orders) -> None:
    empty.make(
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(20)),
        sa.Column("again", sa.String(40), sa.Computed("name", persisted=True)),
    )
    name = pa.schema([("name", pa.string())])
    empty.write([("a",), ("b",)], key=(), schema=name)
    assert [row[1:] for row in empty.rows("id, name, again")] == [("a", "a"), ("b", "b")]
    error = refuses(BadInput, empty.write, schema=SCHEMA.append(pa.field("again", pa.string())))
    assert "always gets its value from the database" in error.cause


def test_a_trigger_of_the_table_runs(orders: Orders, kind: Kind) -> None:
    table = orders.table
    made = {
        "sqlite": f"create trigger noted after insert on {table} begin "  # noqa: S608
        "update orders set note = 'by trigger' where id = new.id; end",
        "mariadb": f"create trigger {orders.place.schema}.noted before insert on {table} for each row "
        "set new.note = 'by trigger'",
        "postgresql": f"create function {orders.place.schema}.noted() returns trigger language plpgsql as "
        "'begin new.note = ''by trigger''; return new; end'",
    }
    orders.place.execute(made[kind.name])
    if kind.name == "postgresql":
        orders.place.execute(
            f"create trigger noted before insert on {table} for each row execute function {orders.place.schema}.noted()"
        )
    orders.write([(1, "a")])
    assert orders.rows("id, note") == [(1, "by trigger")]


# -- whatever is killed ------------------------------------------------------------------------------------------------

CORE = {("stage", True), ("put", True), ("drop", False)}
MOMENTS = [
    pytest.param(step, after, marks=() if (step, after) in CORE else pytest.mark.nightly)
    for step in ("make", "stage", "staged", "put", "drop")
    for after in (False, True)
]


def dies(step: str, after: bool) -> None:
    """Have this process killed before or after a step of a write."""
    for part in [UserTables, *UserTables.__subclasses__()]:
        if step in vars(part):
            setattr(part, step, killing(vars(part)[step], after))


def killing(method: Callable[..., Any], after: bool) -> Callable[..., Any]:
    def killed(*arguments: Any) -> None:
        if after:
            method(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return killed


def write_and_die(place: Place, step: str, after: bool) -> None:
    dies(step, after)
    Orders(place.open(), place).write([(1, "a")], [(2, "b")], batch=1)


@pytest.mark.parametrize(("step", "after"), MOMENTS)
def test_a_process_is_killed(orders: Orders, step: str, after: bool) -> None:
    orders.write([(1, "old")])
    process = processes.Process(target=write_and_die, args=(orders.place, step, after))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    put = step == "drop"
    assert orders.rows() == ([(1, "a"), (2, "b")] if put else [(1, "old")])
    assert orders.write([(1, "a")], [(2, "b")], batch=1) is not put
    assert orders.rows() == [(1, "a"), (2, "b")]


def test_what_a_crash_left_is_dropped_a_day_later(orders: Orders) -> None:
    def left(write: Write) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(user_tables, "_drop", lambda *arguments: None)
        orders.write([(1, "a")], fails=left)
    (table,) = orders.left()
    orders.write([(1, "a")])
    assert orders.left() == [table]
    with Clock() as clock:
        clock.advance(timedelta(hours=25))
        orders.write([(2, "b")], batch=1)
    assert orders.left() == []


def check_once(database: Database, place: Place) -> None:
    """A batch that breaks off after its rows were put, before the commit, is put by the next try, and never again."""
    orders = Orders(database, place)
    part = database._runner.engine.user_tables
    assert part is not None
    put = type(part).put

    def broken(*arguments: Any) -> None:
        put(*arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(type(part), "put", broken)
        orders.write([(1, "a")], key=())
    assert orders.rows() == []
    orders.write([(1, "a")], key=())
    assert orders.rows() == [(1, "a")], "the batch is missing"
    with suppress(DatabaseError):
        orders.write([(2, "a again")], key=())
    assert orders.rows() == [(1, "a")], "the batch is there twice"


def before_the_rows(staging: type[Staging]) -> type[Staging]:
    """A writer whose number is committed before its rows."""

    class Mutant(staging):  # type: ignore[misc, valid-type]
        def writer_advance(self, cursor: Any, table: Any, params: Any) -> bool:
            new: bool = super().writer_advance(cursor, table, params)
            cursor.execute("commit")
            cursor.execute("begin")
            return new

    return Mutant


def never(staging: type[Staging]) -> type[Staging]:
    """A writer whose number is not noted."""

    class Mutant(staging):  # type: ignore[misc, valid-type]
        def writer_advance(self, cursor: Any, table: Any, params: Any) -> bool:
            return True

    return Mutant


@pytest.mark.parametrize("mutant", [None, before_the_rows, never], ids=["the engine", "before the rows", "never"])
def test_the_number_is_noted_with_the_rows(
    orders: Orders, kind: Kind, mutant: Callable[[type[Staging]], type[Staging]] | None
) -> None:
    if mutant is None:
        check_once(orders.db, orders.place)
        return

    changed: Any = type("Changed", (kind.engine_class,), {"staging": mutant(type(kind.engine_class.staging))()})
    with pytest.raises(AssertionError, match=r"missing|twice"):
        check_once(orders.place.open_with(changed), orders.place)


@only("postgresql", "mariadb")
def test_others_insert_a_key_meanwhile(orders: Orders, kind: Kind) -> None:
    """The batch waits for them, and its values are the last ones."""
    with orders.place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        connection.exec_driver_sql(f"insert into {orders.table} (id, name) values (2, 'theirs')")  # noqa: S608
        writing = threads.submit(orders.write, [(1, "a"), (2, "ours"), (3, "c")])
        await_a_wait(orders.place, kind)
        connection.commit()
        assert writing.result()
    assert orders.rows("id, name, note") == [(1, "a", "new"), (2, "ours", "new"), (3, "c", "new")]


@only("postgresql")
def test_a_task_that_is_suspended_holds_nobody_up(orders: Orders) -> None:
    """Its table is dropped a day later."""
    with orders.place.sa_engine().connect() as connection:

        def hold(write: Write) -> None:
            table = f"{orders.place.schema}.tq__write_{write.id}"
            connection.exec_driver_sql(f"insert into {table} (id, name) values (9, 'late')")  # noqa: S608

        assert orders.write([(1, "a")], fails=hold)
        assert orders.rows() == [(1, "a")]
        assert len(orders.left()) == 1
    with Clock() as clock:
        clock.advance(timedelta(hours=25))
        orders.write([(2, "b")], batch=1)
    assert orders.left() == []


# -- types -------------------------------------------------------------------------------------------------------------

TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59))
ZONED = TIMES.map(lambda time: time.replace(tzinfo=UTC))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)


def decimals(digits: int, scale: int) -> Any:
    return st.integers(1 - 10**digits, 10**digits - 1).map(lambda n: Decimal(f"{n}E-{scale}"))


def columns_of(kind: Kind) -> dict[str, tuple[sa.types.TypeEngine[Any], pa.DataType, Any]]:
    """A column of each type: its type in the table and of the rows, and its values."""
    fine = mysql.DATETIME(fsp=6) if kind.name == "mariadb" else sa.DateTime()
    digits = 15 if kind.name == "sqlite" else 38
    floats = FINITE | st.sampled_from([math.inf, -math.inf]) if kind.name == "postgresql" else FINITE
    found: dict[str, Any] = {
        "small": (sa.SmallInteger(), pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
        "whole": (sa.BigInteger(), pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
        "truth": (sa.Boolean(), pa.bool_(), st.booleans()),
        "real": (sa.Double(), pa.float64(), floats),
        "number": (sa.Numeric(digits, 6), pa.decimal128(digits, 6), decimals(digits, 6)),
        "text": (sa.Text(), pa.string(), TEXT),
        "bytes": (sa.LargeBinary(), pa.binary(), st.binary(max_size=20)),
        "day": (sa.Date(), pa.date32(), st.dates(date(1000, 1, 1))),
        "local": (fine, pa.timestamp("us"), TIMES),
        "at": (
            sa.DateTime(timezone=True) if kind.name == "postgresql" else fine,
            pa.timestamp("us", "Europe/Berlin"),
            ZONED,
        ),
        "document": (sa.JSON(), pa.string(), st.just('{"a": [1, null]}')),
    }
    return found


@pytest.fixture
def typed(empty: Orders, kind: Kind) -> tuple[Orders, sa.Table]:
    columns = [sa.Column(name, column) for name, (column, _, _) in columns_of(kind).items()]
    return empty, empty.make(sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False), *columns)


@settings(
    max_examples=10, phases=[Phase.generate], deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_each_value_is_the_one_that_was_written(
    typed: tuple[Orders, sa.Table], kind: Kind, data: st.DataObject
) -> None:
    orders, table = typed
    columns = columns_of(kind)
    schema = pa.schema([("id", pa.int64()), *((name, given) for name, (_, given, _) in columns.items())])
    row = st.tuples(*(st.none() | values for _, _, values in columns.values()))
    rows = [(id, *values) for id, values in enumerate(data.draw(st.lists(row, min_size=1, max_size=8)))]
    with orders.place.sa_engine().begin() as connection:
        connection.execute(table.delete())
    orders.write(rows, schema=schema, writer=uuid4().hex)

    def read(name: str, value: Any) -> Any:
        if name == "document":
            return '{"a": [1, null]}' if value == {"a": [1, None]} else value
        return value.replace(tzinfo=UTC) if name == "at" and value is not None else value

    with orders.place.sa_engine().connect() as connection:
        there = connection.execute(sa.select(table).order_by(table.c.id)).mappings().all()
    assert [tuple(read(name, each[name]) for name in schema.names) for each in there] == rows


def test_nested_values_go_into_json_or_text(empty: Orders) -> None:
    empty.make(sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", sa.JSON))
    nested = pa.schema([("id", pa.int64()), ("name", pa.list_(pa.int64()))])
    words = dict.fromkeys(nested.names, "array<bigint>")
    with user_tables.writing(
        empty.db, user_tables.compare(empty.db, "orders", empty.place.schema, ["id"], nested, words)
    ) as write:
        assert write.schema.field("name").type == pa.string()


@pytest.mark.parametrize(
    ("column", "given"),
    [
        (sa.Integer(), pa.float64()),
        (sa.Float(24), pa.float64()),
        (sa.Numeric(10, 2), pa.decimal128(10, 3)),
        (sa.Numeric(10, 2), pa.float64()),
        (sa.Date(), pa.timestamp("us")),
        (sa.String(20), pa.binary()),
        (sa.LargeBinary(), pa.string()),
        (sa.String(20), pa.duration("us")),
        (sa.Integer(), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_types_that_lose_values_are_refused(empty: Orders, kind: Kind, column: Any, given: pa.DataType) -> None:
    if kind.name == "sqlite" and isinstance(column, sa.Float):
        pytest.skip("all of its numbers have 64 bits")
    empty.make(sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", column))
    error = refuses(BadInput, empty.write, schema=pa.schema([("id", pa.int64()), ("name", given)]))
    assert "The column name is a" in error.cause


@only("postgresql")
@pytest.mark.parametrize("zoned", [True, False])
def test_times_with_and_without_a_zone(empty: Orders, zoned: bool) -> None:
    empty.make(sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", sa.DateTime(timezone=zoned)))
    given = pa.timestamp("us") if zoned else pa.timestamp("us", "UTC")
    refuses(BadInput, empty.write, schema=pa.schema([("id", pa.int64()), ("name", given)]))


@only("sqlite", "mariadb")
def test_no_number_is_refused(empty: Orders) -> None:
    empty.make(sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("name", sa.Double))
    schema = pa.schema([("id", pa.int64()), ("name", pa.float64())])
    for value in (math.nan, math.inf):
        assert "NaN or infinity" in refuses(BadInput, empty.write, [(1, value)], schema=schema).cause


def test_errors_of_other_kinds_are_as_they_are(orders: Orders) -> None:
    def broken(write: Write) -> None:
        raise TablequeueError("A cause.", "A remedy.")

    assert refuses(TablequeueError, orders.write, [(1, "a")], fails=broken).cause == "A cause."
