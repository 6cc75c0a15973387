"""Return values of functions as values of a type of Spark: exactly the same value, or an error that names value and
type.

Spark itself would end the stage at a value of another type, or take null for it. The table of the conversions is in
docs/pipelines.md. Each keeps the value: text of a number, a whole number with a fraction of zero, a day as text.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from numbers import Integral, Real
from typing import Any

from pyspark.sql import types
from pyspark.sql.conversion import LocalDataToArrowConversion

Fit = Callable[[Any], Any]

LONGEST = 200
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,5})?")
_BYTES = {types.ByteType: 1, types.ShortType: 2, types.IntegerType: 4, types.LongType: 8}


class DoesNotFit(ValueError):
    """A value that a type cannot hold. `place` is where it is in what was returned, such as `.lines[2].price`."""

    def __init__(self, value: Any, kind: types.DataType) -> None:
        super().__init__(value, kind)
        self.value = value
        self.kind = kind
        self.place = ""

    @property
    def shown(self) -> str:
        """The value, as far as an error has room for it."""
        try:
            text = repr(self.value)
        except Exception:  # code of the value
            text = f"a {type(self.value).__name__}"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def fit(kind: types.DataType, nullable: bool = True) -> Fit:
    """Return the conversion into a type, which raises `DoesNotFit`."""
    inner = _conversion(kind)

    def fitted(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise DoesNotFit(value, kind)
        try:
            return inner(value)
        except DoesNotFit:
            raise
        except Exception:  # whatever Python raises: the error names the value and its place
            raise DoesNotFit(value, kind) from None

    return fitted


def _conversion(kind: types.DataType) -> Fit:
    if isinstance(kind, types.StructType):
        return _struct(kind)
    if isinstance(kind, types.ArrayType):
        return _array(kind)
    if isinstance(kind, types.MapType):
        return _map(kind)
    if isinstance(kind, types.DecimalType):
        return lambda value: _exact(_number(value), kind.precision, kind.scale)
    if size := _BYTES.get(type(kind)):
        return _whole(8 * size - 1)
    return _SIMPLE.get(type(kind)) or _by_spark(kind)


def _number(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise ValueError
        return Decimal(value)
    if isinstance(value, Decimal | Integral):
        return Decimal(int(value)) if isinstance(value, Integral) else value
    if isinstance(value, Real):
        return Decimal(repr(float(value)))
    raise TypeError


def _exact(number: Decimal, precision: int, scale: int) -> Decimal:
    """Return a number with this number of digits after the point, and so many in all; raise if it has more."""
    if not number.is_finite():
        raise ValueError
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    return number.quantize(Decimal(1).scaleb(-scale), context=context)


def _whole(bits: int) -> Fit:
    low, high = -(1 << bits), (1 << bits) - 1

    def whole(value: Any) -> int:
        if type(value) is not int:
            if isinstance(value, str) and not _WHOLE.fullmatch(value):
                raise ValueError
            value = int(_exact(_number(value), 40, 0))
        if not low <= value <= high:
            raise OverflowError
        return int(value)

    return whole


def _double(value: Any) -> float:
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Integral | str | Decimal):
        number = _number(value)
        found = float(number)
        if not isfinite(found) or (isinstance(value, Integral) and int(found) != value):
            raise OverflowError
        return found
    if isinstance(value, Real):
        return float(value)
    raise TypeError


def _float(value: Any) -> float:
    found = _double(value)
    if not isfinite(found):
        return found
    (short,) = struct.unpack("<f", struct.pack("<f", found))  # raises if it is too large
    if isinstance(value, Integral) and int(short) != value:
        raise OverflowError
    return found


def _boolean(value: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):  # also NumPy's
        return bool(value)
    raise TypeError


def _string(value: Any) -> str:
    if isinstance(value, str):
        if not value.isascii():
            value.encode()  # raises for half a character
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integral | Decimal):
        return str(value)
    if isinstance(value, Real):
        return repr(float(value))
    raise TypeError


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError


def _date(value: Any) -> date:
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        return date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise TypeError


def _time(value: Any) -> datetime:
    """A time with its zone, or one of the worker's zone, as Spark takes it. A text has its zone."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
        if value.tzinfo is None:
            raise ValueError
    if not isinstance(value, datetime) or value != value:  # pandas' NaT
        raise TypeError
    return value.astimezone(UTC)


def _local_time(value: Any) -> datetime:
    if isinstance(value, str):
        if re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
            raise ValueError
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime) or value != value or value.tzinfo is not None:
        raise TypeError
    return value


def _interval(value: Any) -> timedelta:
    if isinstance(value, timedelta) and value == value:
        microseconds = value // timedelta(microseconds=1)
        if -(1 << 63) <= microseconds < 1 << 63:
            return value
    raise TypeError


def _of_day(value: Any) -> time:
    if isinstance(value, time) and value.tzinfo is None:
        return value
    raise TypeError


def _at(place: str, convert: Fit, value: Any) -> Any:
    try:
        return convert(value)
    except DoesNotFit as error:
        error.place = place + error.place
        raise


def _struct(kind: types.StructType) -> Fit:
    fields = [(field.name, fit(field.dataType, field.nullable)) for field in kind.fields]

    def struct(value: Any) -> tuple[Any, ...]:
        if isinstance(value, tuple | list):
            if len(value) != len(fields):
                raise TypeError
            values = [*value]
        else:
            values = [(value if isinstance(value, dict) else vars(value)).get(name) for name, _ in fields]
        return tuple(_at(f".{name}", convert, one) for (name, convert), one in zip(fields, values, strict=True))

    return struct


def _array(kind: types.ArrayType) -> Fit:
    convert = fit(kind.elementType, kind.containsNull)

    def elements(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple | array):
            raise TypeError
        return [_at(f"[{number}]", convert, one) for number, one in enumerate(value)]

    return elements


def _map(kind: types.MapType) -> Fit:
    key_of, value_of = fit(kind.keyType, False), fit(kind.valueType, kind.valueContainsNull)

    def entries(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError
        found = {_at(" as a key", key_of, key): _at(f"[{key!r}]", value_of, one) for key, one in value.items()}
        if len(found) < len(value):
            raise ValueError  # as of "1" and 1
        return found

    return entries


def _by_spark(kind: types.DataType) -> Fit:
    """A type that is not listed, such as a variant: what Spark would do with all rows, tried with this one."""
    schema = types.StructType([types.StructField("value", kind)])

    def tried(value: Any) -> Any:
        LocalDataToArrowConversion.convert([(value,)], schema, True)
        return value

    return tried


_SIMPLE: dict[type[types.DataType], Fit] = {
    types.BooleanType: _boolean,
    types.FloatType: _float,
    types.DoubleType: _double,
    types.StringType: _string,
    types.BinaryType: _binary,
    types.DateType: _date,
    types.TimestampType: _time,
    types.TimestampNTZType: _local_time,
    types.DayTimeIntervalType: _interval,
    types.TimeType: _of_day,
}
