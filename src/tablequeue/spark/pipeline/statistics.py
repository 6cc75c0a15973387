"""What the log of a Delta table says of the values in a file: how many are null, and the least and the greatest.

deltalake takes a bound that is missing for null, and then finds no row of the file, unless the file has no bounds at
all. So a file has the bounds of all its columns, or none if one of them cannot be said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Longer texts are cut: a payload may have megabytes.
LONGEST = 64
# Digits of a number that each reader keeps, also one that makes a floating-point number of it.
DIGITS = 15
_EPOCH = datetime(1970, 1, 1)


class NoBound(ValueError):
    """A value for which no bound can be said."""


class Statistics:
    """The statistics of a column of a file. Those of a file are those of a struct of its columns."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._fields = {each.name: Statistics(each.type) for each in kind} if pa.types.is_struct(kind) else {}
        self._rows = self._nulls = 0
        # The least and the greatest value of each piece.
        self._ends: list[pa.Array] = []
        self._nan = False

    def add(self, values: pa.Array) -> None:
        """Count a piece of the column."""
        self._rows += len(values)
        self._nulls += values.null_count
        for field, inner in zip(self._fields.values(), values.flatten() if self._fields else (), strict=True):
            field.add(inner)
        if _has_bounds(self._kind) and values.null_count < len(values):
            if pa.types.is_floating(self._kind):
                self._nan = self._nan or pc.any(pc.is_nan(values)).as_py()
            # As numbers: Python's days and times end with the year 9999.
            ends = pc.min_max(values.cast(_NUMBERS.get(self._kind.id, self._kind)))
            self._ends.append(pa.array([ends["min"], ends["max"]]))

    def text(self) -> str:
        """The JSON of the log."""
        said = {"numRecords": str(self._rows), "nullCount": self.null_counts()}
        try:
            said |= {"minValues": self._of_fields(up=False), "maxValues": self._of_fields(up=True)}
        except NoBound:
            pass
        return _object(said)

    @property
    def said(self) -> bool:
        """Whether the log has a place for bounds of this column."""
        return bool(self._fields) or _has_bounds(self._kind)

    def null_counts(self) -> str:
        """How many values are null, as JSON."""
        if not self._fields:
            return str(self._nulls)
        return _object({name: field.null_counts() for name, field in self._fields.items()})

    def bounds(self, *, up: bool) -> str:
        """The least or the greatest value as JSON; "" if there is none, or no order. Raises `NoBound`."""
        if self._fields:
            if not all(field.said for field in self._fields.values()):
                raise NoBound  # polars fails at a struct that lacks a field
            return self._of_fields(up=up)
        if not self._ends:
            return ""
        if self._nan:
            raise NoBound  # greater than all numbers for Spark, and for others not
        ends = pc.min_max(pa.concat_arrays(self._ends))
        return _shown(self._kind, ends["max" if up else "min"], up=up)

    def _of_fields(self, *, up: bool) -> str:
        return _object({name: field.bounds(up=up) for name, field in self._fields.items()})


_NUMBERS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64()}


def _has_bounds(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _object(members: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in members.items() if text) + "}"


def _shown(kind: pa.DataType, end: pa.Scalar, *, up: bool) -> str:
    """A bound as JSON, which may be wider than the value. Raises `NoBound`."""
    try:
        value = end.as_py()
        if pa.types.is_timestamp(kind):
            text = (_EPOCH + timedelta(microseconds=value)).isoformat(timespec="microseconds")
            return json.dumps(f"{text}Z" if kind.tz else text)
        if pa.types.is_date(kind):
            return json.dumps((_EPOCH + timedelta(days=value)).date().isoformat())
    except (OverflowError, UnicodeDecodeError) as error:
        raise NoBound from error
    if pa.types.is_decimal(kind):
        return _decimal(kind, value, up=up)
    if isinstance(value, str):
        return json.dumps(_cut(value, up=up))
    if isinstance(value, float) and not isfinite(value):
        raise NoBound
    return json.dumps(value)


def _decimal(kind: pa.DataType, value: Any, *, up: bool) -> str:
    found = Context(prec=DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR).plus(value)
    if found.adjusted() >= kind.precision - kind.scale:
        raise NoBound  # rounded to a digit more than the type has
    return f"{found:f}"  # deltalake does not read an exponent


def _cut(text: str, *, up: bool) -> str:
    if len(text) <= LONGEST:
        return text
    text = text[:LONGEST]
    if not up:
        return text
    # Greater than all texts that begin so: its last character is the next one.
    text = text.rstrip(chr(0x10FFFF))
    if not text:
        raise NoBound
    after = ord(text[-1]) + 1
    return text[:-1] + chr(0xE000 if after == 0xD800 else after)
