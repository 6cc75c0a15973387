"""What functions return fits its type, or is an error: nothing is cut, rounded, or taken for null."""

from __future__ import annotations

from array import array
from collections import UserDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyspark.sql import types as t

from tablequeue.spark.values import DoesNotFit, fit

NAT = import_module("pandas").NaT
EAST = timezone(timedelta(hours=2))
LINE = t.StructType([t.StructField("price", t.DoubleType()), t.StructField("count", t.IntegerType(), nullable=False)])


@dataclass
class Line:
    price: Any
    count: Any


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (t.DoubleType(), 2, 2.0),
        (t.DoubleType(), "12", 12.0),
        (t.DoubleType(), "-1.5e3", -1500.0),
        (t.DoubleType(), Decimal("0.1"), 0.1),
        (t.DoubleType(), np.float32(0.5), 0.5),
        (t.DoubleType(), float("inf"), float("inf")),
        (t.FloatType(), 0.1, 0.1),
        (t.FloatType(), "16777216", 16777216.0),
        (t.IntegerType(), "12", 12),
        (t.IntegerType(), 12.0, 12),
        (t.IntegerType(), Decimal("12.00"), 12),
        (t.IntegerType(), np.int64(-5), -5),
        (t.LongType(), -(1 << 63), -(1 << 63)),
        (t.ByteType(), "-128", -128),
        (t.DecimalType(5, 2), 1.1, Decimal("1.10")),
        (t.DecimalType(5, 2), "999.99", Decimal("999.99")),
        (t.DecimalType(38, 0), 10**38 - 1, Decimal(10**38 - 1)),
        (t.StringType(), "é", "é"),
        (t.StringType(), 12, "12"),
        (t.StringType(), True, "true"),
        (t.BinaryType(), bytearray(b"x"), b"x"),
        (t.BooleanType(), np.bool_(False), False),
        (t.DateType(), "2026-01-01", date(2026, 1, 1)),
        (t.TimestampType(), "2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        (t.TimestampType(), datetime(2026, 1, 1, 2, tzinfo=EAST), datetime(2026, 1, 1, tzinfo=UTC)),
        (t.TimestampNTZType(), "2026-01-01 02:00", datetime(2026, 1, 1, 2)),
        (t.DayTimeIntervalType(), timedelta(days=2), timedelta(days=2)),
        (t.ArrayType(t.IntegerType()), (1, "2", None), [1, 2, None]),
        (t.ArrayType(t.DoubleType()), array("d", [1.5]), [1.5]),
        (t.MapType(t.StringType(), t.LongType()), {"a": "1", 2: None}, {"a": 1, "2": None}),
        (LINE, {"price": 1, "count": "2", "more": 3}, (1.0, 2)),
        (LINE, Line(None, 1), (None, 1)),
        (LINE, t.Row(price=2.5, count=1), (2.5, 1)),
        (LINE, [2.5, 1], (2.5, 1)),
        (t.TimeType(), time(8, 30), time(8, 30)),
        (t.NullType(), None, None),
    ],
)
def test_a_value_that_keeps_its_meaning_is_converted(kind: t.DataType, value: Any, expected: Any) -> None:
    found = fit(kind)(value)
    assert found == expected
    assert type(found) is type(expected)
    assert str(found) == str(expected), "digits and zones"


def each(kind: t.DataType, *values: Any) -> list[tuple[t.DataType, Any]]:
    return [(kind, value) for value in values]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *each(t.DoubleType(), "twelve", "", " 1", "nan", "1_0", "1e400", True, (1 << 53) + 1, b"1"),
        *each(t.DoubleType(), [], 10**400, Decimal("nan"), "१"),
        *each(t.FloatType(), 1e39, (1 << 24) + 1, "x"),
        *each(t.IntegerType(), 1 << 40, 1.5, "1.0", True, float("nan"), float("inf"), "9" * 30),
        *each(t.IntegerType(), Decimal("1e999999"), Decimal("1.5"), 1j),
        (t.ByteType(), 128),
        *each(t.DecimalType(5, 2), "1.001", 1000, "x", float("nan"), True, Decimal("1e9999")),
        *each(t.StringType(), "\ud800", b"x", {}, ["x"], date(2026, 1, 1)),
        *each(t.BinaryType(), "x", 5, [1]),
        *each(t.BooleanType(), 1, 0, "true"),
        *each(t.DateType(), "2026-1-1", "2026-02-30", datetime(2026, 1, 1), 5, NAT),
        *each(t.TimestampType(), 5, "2026-01-01", "2026-01-01T00:00", date(2026, 1, 1), NAT),
        (t.TimestampType(), datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))),
        *each(t.TimestampNTZType(), datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", 5),
        (t.ArrayType(t.IntegerType()), "12"),
        (t.ArrayType(t.IntegerType(), containsNull=False), [None]),
        *each(t.MapType(t.StringType(), t.LongType()), {None: 1}, {"1": 1, 1: 2}, [("a", 1)]),
        *[(LINE, value) for value in ({"price": 1}, (1,), "ab", 5, UserDict(price=1))],
        (t.IntegerType(), Unshown()),
        (t.NullType(), 1),
        (t.TimeType(), 5),
    ],
)
def test_any_other_value_is_an_error(kind: t.DataType, value: Any) -> None:
    with pytest.raises(DoesNotFit):
        fit(kind)(value)


def test_the_error_has_the_value_its_place_and_its_type() -> None:
    convert = fit(t.StructType([t.StructField("lines", t.ArrayType(LINE))]))
    with pytest.raises(DoesNotFit) as found:
        convert({"lines": [{"price": 1, "count": 1}, {"price": "free", "count": 1}]})
    assert (found.value.place, found.value.shown, found.value.kind) == (".lines[1].price", "'free'", t.DoubleType())
    with pytest.raises(DoesNotFit) as found:
        fit(t.IntegerType())(SimpleNamespace(payload="x" * 10**6))
    assert len(found.value.shown) < 250
    with pytest.raises(DoesNotFit) as found:
        fit(t.IntegerType())(Unshown())
    assert found.value.shown == "a Unshown"


def test_null_fits_where_the_type_has_null() -> None:
    assert fit(t.IntegerType())(None) is None
    with pytest.raises(DoesNotFit):
        fit(t.IntegerType(), nullable=False)(None)
