"""Payloads with a schema: fields are columns with the values of the JSON, and what does not fit fails by itself."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from itertools import count, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

import tablequeue
from tablequeue import Database
from tablequeue.errors import BadInput, PipelineFailed
from tablequeue.spark import payloads
from tablequeue.spark.payloads import Payloads
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, ToQueue, attempt, run
from tablequeue.spark.schemas import schema_of
from tests.servers import Place
from tests.spark import named
from tests.support import counts, refuses

ORDER = "customer string not null, lines array<struct<sku string not null, n int>>, total decimal(12, 2)"
GOOD = {"customer": "ada", "lines": [{"sku": "a", "n": 2}, {"sku": "b"}], "total": 12.5}
EVERY = schema_of(
    "i tinyint, l bigint, f float, d double, p decimal(5, 2), s string, b boolean, day date, at timestamp, "
    "local timestamp_ntz, list array<int>, m map<string, int>, o struct<x: int not null, y: array<double>>"
)

WITHOUT_MAPS = t.StructType([field for field in EVERY.fields if not isinstance(field.dataType, t.MapType)])


class OneByOne(Payloads):
    """By Python alone, whose rules are the promise."""

    def _at_once(self, texts: Any) -> Any:
        return None


def read(schema: t.StructType | str, *documents: str, by: type[Payloads] = Payloads) -> tuple[list[Any], list[str]]:
    kind = schema_of(schema) if isinstance(schema, str) else schema
    found, errors = by(kind).read(pa.array(documents, pa.string()))
    assert found.type == by(kind).type
    assert [place for place, value in enumerate(found.to_pylist()) if value is None] == [*errors]
    return found.to_pylist(), [*errors.values()]


@pytest.mark.parametrize(
    ("kind", "document", "value"),
    [
        ("int", "12", 12),
        ("bigint", "-9223372036854775808", -(1 << 63)),
        ("int", '"12"', 12),
        ("int", "12.0", 12),
        ("double", "1", 1.0),
        ("double", '"1.5e3"', 1500.0),
        ("decimal(38, 20)", "0.12345678901234567890", Decimal("0.12345678901234567890")),
        ("decimal(5, 2)", "1.100", Decimal("1.10")),
        ("decimal(5, 2)", '"1.1"', Decimal("1.10")),
        ("string", "12.50", "12.50"),
        ("string", '"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("boolean", "true", True),
        ("date", '"2026-01-31"', date(2026, 1, 31)),
        ("timestamp", '"2026-01-31T02:00:00.5+02:00"', datetime.fromisoformat("2026-01-31T00:00:00.5+00:00")),
        ("timestamp", '"0001-01-01T00:00Z"', datetime.fromisoformat("0001-01-01T00:00+00:00")),
        ("timestamp_ntz", '"2026-01-31 02:00:00"', datetime(2026, 1, 31, 2)),
        ("array<int>", '[1, null, "2"]', [1, None, 2]),
        ("map<string, int>", '{"a": 1, "a": 2}', [("a", 2)]),
        ("struct<x int, y array<double>>", '{"x": null, "z": 1}', {"x": None, "y": None}),
        ("int", "null", None),
        ("int", '1, "a": 2', 2),
        ("int", '1, "more": NaN', 1),
    ],
)
def test_a_value_that_keeps_its_meaning_is_converted(kind: str, document: str, value: Any) -> None:
    assert read(f"a {kind}", f'{{"a": {document}}}') == ([{"a": value}], [])
    assert read(f"a {kind}", *[f'{{"a": {document}}}', '{"more": {}}'] * 50)[0] == [{"a": value}, {"a": None}] * 50


@pytest.mark.parametrize(
    ("schema", "document", "error"),
    [
        (ORDER, '{"customer": "a", "lines": [{"sku": "s"}, {"sku": "s", "n": "x"}]}', 'lines[1].n: "x" is no int.'),
        (ORDER, '{"customer": "a", "lines": [{"n": 1}]}', "lines[0].sku is null or missing, and may not be."),
        (ORDER, '{"total": 1}', "customer is null or missing, and may not be."),
        (ORDER, '{"customer": "a", "total": 1.001}', "total: 1.001 is no decimal(12,2)."),
        (ORDER, '{"customer": {"name": "a"}}', 'customer: {"name": "a"} is no string.'),
        ("a int", '{"a": 2147483648}', "a: 2147483648 is no int."),
        ("a tinyint", '{"a": 200}', "a: 200 is no tinyint."),
        ("a int", '{"a": 1.5}', "a: 1.5 is no int."),
        ("a boolean", '{"a": 1}', "a: 1 is no boolean."),
        ("a double", '{"a": NaN}', "a: NaN is no double."),
        ("a double", '{"a": -Infinity}', "a: -Infinity is no double."),
        ("a double", '{"a": 1e400}', "a: 1E+400 is no double."),
        ("a double", '{"a": 9007199254740993}', "a: 9007199254740993 is no double."),
        ("a double", '{"a": "NaN"}', 'a: "NaN" is no double.'),
        ("a date", '{"a": "2026-02-30"}', 'a: "2026-02-30" is no date.'),
        ("a timestamp", '{"a": "2026-02-03T00:00:00"}', 'a: "2026-02-03T00:00:00" is no timestamp.'),
        ("a timestamp_ntz", '{"a": "2026-02-03T00:00:00Z"}', 'a: "2026-02-03T00:00:00Z" is no timestamp_ntz.'),
        ("a timestamp", '{"a": 1700000000}', "a: 1700000000 is no timestamp."),
        ("a string", '{"a": "\\ud800"}', 'a: "\ud800" is no string.'),
        ("a map<string, int>", '{"a": {"x": "y"}}', "a['x']: \"y\" is no int."),
        ("a int", "[1, 2]", "the payload: [1, 2] is no struct<a:int>."),
        ("a int", "null", "the payload is null or missing, and may not be."),
        ("a int", '{"a": 1} {"a": 2}', "it is no JSON: Extra data: line 1 column 10 (char 9)."),
        ("a int", '{"a": 1,}', "it is no JSON: "),
        ("a int", "{'a': 1}", "it is no JSON: "),
        ("a int", "", "it is no JSON: Expecting value: line 1 column 1 (char 0)."),
    ],
)
def test_any_other_document_is_an_error_with_its_place(schema: str, document: str, error: str) -> None:
    good = '{"customer": "b"}'
    found, errors = read(schema, *[good] * 40, document, *[good] * 40)
    assert len(errors) == 1
    assert errors[0].startswith(error)
    assert found[40] is None
    assert found.count(None) == 1, "alone"


TEXTS = (
    *"12 1.5 1e2 +1. nan 2026-01-31 0001-01-01 2026-1-1 2026-02-30 2026-01-31T02:00:00Z x true".split(),
    *("2026-01-31 02:00:00", "2026-01-31T02:00:00.1234567", "2026-01-31T23:59:60Z", "9999-12-31T23:59:59-05:00"),
    *("", "é", "\0", "\ud800", "2026-01-31T02:00:00+18:30", "2026-01-31T24:00:00"),
)


def documents() -> st.SearchStrategy[str]:
    """Documents of the fields of EVERY, mostly with values that fit, and what is near to them."""
    numbers = st.one_of(
        st.sampled_from(
            [0, 127, 128, 1 << 24, (1 << 24) + 1, 1 << 53, (1 << 53) + 1, 1 << 63, 12.5, 1.005, 1e300, 0.1]
        ),
        st.integers(-300, 300),
        st.floats(allow_nan=True),
    )
    texts = st.sampled_from(TEXTS)
    leaf = st.one_of(numbers, texts, st.booleans(), st.none())
    nested = st.recursive(leaf, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from("xyz"), one))
    return st.dictionaries(st.sampled_from([*EVERY.names, "more"]), nested, max_size=4).map(json.dumps) | nested.map(
        json.dumps
    )


@settings(deadline=None)
@given(st.lists(documents(), min_size=1, max_size=5))
@example(['{"a": {', "}}"])
@example(['{"i": 1}{"i": 2}', "{}"])
@example(['{"o": {"x": 1, "y": [1, null, 0.1]}}', '{"o": null}', '{"list": []}', '{"list": null}'])
def test_many_at_once_are_read_as_one_by_one(texts: list[str]) -> None:
    assert repr(read(EVERY, *texts)) == repr(read(EVERY, *texts, by=OneByOne))
    assert repr(read(WITHOUT_MAPS, *texts)) == repr(read(WITHOUT_MAPS, *texts, by=OneByOne))


# What a reader that lacks one of the checks takes for something else.
CHECKED: dict[str, list[tuple[str, ...]]] = {
    "_need": [("a double", '{"a": 9007199254740993}'), ("a float", '{"a": 16777217}'), ("a date", '{"a": "1-02-03"}')],
    "_tagged": [("a int", '{"a": 1}{"a": 2}', "")],
    "null_count": [("a int not null", "{}"), ("o struct<x int not null>", '{"o": {}}')],
}


@pytest.mark.parametrize("check", [None, *CHECKED])
def test_a_reader_without_a_check_is_found(check: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if check == "_need":
        monkeypatch.setattr(payloads, "_need", lambda holds: None)
    elif check == "_tagged":
        tags = map('{{"{}":{},'.format, repeat("tag"), count())
        monkeypatch.setattr(Payloads, "_tagged", lambda self, place, text: re.sub("{", lambda _: next(tags), text))
        monkeypatch.setattr("secrets.token_hex", lambda n: "tag")
    elif check == "null_count":
        monkeypatch.setattr(payloads, "_converted", lambda array, kind, into: array.cast(into))
    same = [
        repr(read(schema, *texts)) == repr(read(schema, *texts, by=OneByOne))
        for cases in ([CHECKED[check]] if check else CHECKED.values())
        for schema, *texts in cases
    ]
    assert all(same) == (check is None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read after ''"),
        ("a", "cannot be read after 'a'"),
        ("a int b", "cannot be read after 'a int'"),
        ("a array<int", "cannot be read after 'a array<int'"),
        ("a decimal(x)", "cannot be read after"),
        ("a int; drop", "cannot be read after 'a int'"),
        ("a binary", "has the type 'binary'"),
        ("a variant", "has the type 'variant'"),
        ("a map<int, int>", "a map with other keys than texts"),
        ("a int, A string", "two of one name"),
        ("a decimal(39, 2)", "There is no type decimal(39,2)"),
        ('{"type": "struct"}', "is not the JSON of a StructType"),
    ],
)
def test_a_schema_that_is_refused(text: str, words: str) -> None:
    assert words in refuses(BadInput, schema_of, text).cause


def test_a_schema_is_read_as_spark_reads_it(spark: Any) -> None:
    text = (
        r"`a b``c` STRING NOT NULL COMMENT 'it\'s, \\', l ARRAY<STRUCT<x: INT NOT NULL, y decimal(7,3)>>, m map<string,"
        "long>, i byte, j short, k real, d dec, e numeric(5), t timestamp_ltz, n timestamp_ntz, day date, b boolean"
    )
    of_spark = t.StructType.fromDDL(text)
    plain = t.StructType([t.StructField(one.name, one.dataType, one.nullable) for one in of_spark.fields])
    assert schema_of(text) == plain
    assert schema_of(of_spark.json()) == of_spark


def test_a_stage_has_columns_and_a_message_that_does_not_fit_is_a_dead_letter(
    spark: Any, small: Database, tmp_path: Path
) -> None:
    """Whatever its function leaves out; a function that fails a message of its own still may."""
    check_stage(spark, small, Pipeline("test", url=place_of(small)["url"]), tmp_path)


@pytest.mark.nightly
def test_a_stage_on_every_engine(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    check_stage(spark, db, named.pipeline(place), tmp_path)


def check_stage(spark: Any, db: Database, pipeline: Pipeline, tmp_path: Path) -> None:
    raw, priced = db.create_queue("raw", payload="text"), db.create_queue("priced")
    good = [json.dumps(GOOD | {"customer": f"c{n}"}) for n in range(40)]
    bad = [
        '{"customer": "a", "lines": [{"sku": "s"}, {"sku": "s", "n": "x"}]}',
        '{"total": 1}',
        "",
        '{"customer": 1} 2',
    ]
    ids = raw.push_many([*good[:20], *bad, *good[20:], '{"customer": "fails", "total": "0"}'])

    def total(value: Decimal) -> float:
        return float(1 / value)

    @pipeline.stage(FromQueue("raw", 30, ORDER), ToQueue("priced"))
    def price(orders: DataFrame) -> DataFrame:
        sold = orders.where("customer <> 'nobody'").withColumn("tried", attempt(total, "double")("total"))
        one = f.to_json(f.struct("customer", f.element_at("lines.n", 1).alias("n"))).alias("payload")
        return sold.select("id", one, "tried.error")

    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)

    assert (done.messages, done.failed) == (45, 5)
    assert counts(raw) == {"finished": 40, "dead": 5}
    assert [message.payload for message in priced.peek(100)] == [{"customer": f"c{n}", "n": 2} for n in range(40)]
    dead = {letter.id: letter.errors[-1].error for letter in raw.dead()}
    told = [f"Message {id} does not fit the schema of the payload: " for id in ids[20:24]]
    assert dead[ids[20]] == f'{told[0]}lines[1].n: "x" is no int.'
    assert dead[ids[21]] == f"{told[1]}customer is null or missing, and may not be."
    assert dead[ids[22]].startswith(f"{told[2]}it is no JSON: ")
    assert dead[ids[23]].startswith(f"{told[3]}it is no JSON: ")
    assert "in total\n" in dead[ids[-1]], "the traceback of the function"


@pytest.fixture
def small(tmp_path: Path) -> Any:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        yield database


def place_of(database: Database) -> dict[str, str]:
    return {"url": database.engine.url.render_as_string()}


def test_a_read_tells_why_or_stops(spark: Any, small: Database) -> None:
    orders, events = small.create_queue("orders"), small.create_topic("events")
    orders.push_many([GOOD, {"customer": None}])
    events.push_many([GOOD, {"customer": None}])
    why = "customer is null or missing, and may not be."
    for source in ({"queue": "orders", "table": "queue"}, {"topic": "events"}):

        def load(schema: str, columns: str, source: dict[str, str] = source) -> DataFrame:
            reader = spark.read.format("tablequeue").options(**place_of(small), **source)
            return reader.options(payloadSchema=schema, columns=columns).load()

        rows = load(ORDER, "error").collect()
        assert [(row.customer, row.total) for row in rows] in (
            [("ada", Decimal("12.50")), (None, None)],
            [(None, None), ("ada", Decimal("12.50"))],
        )
        (told,) = [row.error for row in rows if row.error]
        assert told.endswith(f" does not fit the schema of the payload: {why}")
        with pytest.raises(Exception, match=why):
            load(ORDER, "*").collect()
        assert load("lines array<struct<n bigint>>", "*").count() == 2
        with pytest.raises(Exception, match="has a field 'ID', as a column of messages is called"):
            load("ID int", "*")
        assert load("id int", "payload,error").columns == ["payload", "error", "id"]


def test_a_stream_without_a_pipeline_has_dead_letters_too(spark: Any, small: Database, tmp_path: Path) -> None:
    orders = small.create_queue("orders", payload="bytes")
    orders.push_many([json.dumps(GOOD).encode(), b"\xff", b'{"customer": 1.5}'])
    reader = spark.readStream.format("tablequeue").options(**place_of(small), queue="orders", stream="s")
    query = reader.options(payloadSchema=ORDER, columns="pushed_at").load().writeStream.format("parquet")
    query = query.options(path=f"{tmp_path}/lake", checkpointLocation=f"{tmp_path}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.customer for row in spark.read.parquet(f"{tmp_path}/lake").collect()) == ["1.5", "ada"]
    assert counts(orders) == {"finished": 2, "dead": 1}
    assert "it is no JSON: 'utf-8' codec" in orders.dead()[0].errors[-1].error


def test_a_batch_that_broke_off_fails_the_same_messages_once(spark: Any, small: Database, tmp_path: Path) -> None:
    raw, last = small.create_queue("raw"), small.create_queue("last")
    raw.push_many([GOOD, {"customer": 5, "lines": 5}, GOOD])
    failed = tmp_path / "failed"

    def break_off(rows: DataFrame, number: int) -> None:
        if not failed.exists():
            failed.touch()
            raise RuntimeError("broken off")

    pipeline = Pipeline("test", url=place_of(small)["url"])
    source = FromQueue("raw", schema=t.StructType.fromDDL(ORDER))
    pipeline.stage(source, ToQueue("last"), ForeachBatch(break_off), name="keep")(lambda rows: rows.select("payload"))
    refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert done.failed == 1
    assert done.error is not None
    assert done.error.endswith("lines: 5 is no array<struct<sku:string,n:int>>.")
    assert (counts(raw), counts(last)) == ({"finished": 2, "dead": 1}, {"ready": 2})


@pytest.mark.nightly
def test_a_stage_that_does_not_count_what_does_not_fit_is_found(
    spark: Any, small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablequeue.spark.pipeline.failures.observed", lambda rows, name="": rows)
    with pytest.raises(AssertionError):
        test_a_batch_that_broke_off_fails_the_same_messages_once(spark, small, tmp_path)
