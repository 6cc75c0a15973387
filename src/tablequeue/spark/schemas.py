"""The schema of a payload, from the text of Spark's DDL: Spark's own parser is not in the processes that need it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import types

from tablequeue.errors import BadInput

EXAMPLE = "Write it as `customer string not null, lines array<struct<sku string, n int>>`."
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:])|('(?:[^'\\]|\\.)*')|$)")
_DECIMAL = ("decimal", "dec", "numeric")
_SIMPLE: dict[str, Callable[[], types.DataType]] = {
    "string": types.StringType,
    "boolean": types.BooleanType,
    **dict.fromkeys(("tinyint", "byte"), types.ByteType),
    **dict.fromkeys(("smallint", "short"), types.ShortType),
    **dict.fromkeys(("int", "integer"), types.IntegerType),
    **dict.fromkeys(("bigint", "long"), types.LongType),
    **dict.fromkeys(("float", "real"), types.FloatType),
    "double": types.DoubleType,
    "date": types.DateType,
    **dict.fromkeys(("timestamp", "timestamp_ltz"), types.TimestampType),
    "timestamp_ntz": types.TimestampNTZType,
}
NAMES = (*_SIMPLE, "decimal", "array", "map", "struct")
_ALLOWED = {make().typeName() for make in _SIMPLE.values()} | {"decimal", "array", "map", "struct"}


def schema_of(text: str) -> types.StructType:
    """Return the fields that a text names: Spark's DDL, or the JSON of a `StructType`. `BadInput` for another text."""
    if text.lstrip().startswith("{"):
        try:
            schema = types.StructType.fromJson(json.loads(text))
        except Exception as error:  # whatever Spark raises for a text of somebody
            raise BadInput(f"The schema of the payload is not the JSON of a StructType: {error}.", EXAMPLE) from None
    else:
        schema = _Text(text).schema()
    _check(schema)
    return schema


class _Text:
    """The rest of a text that has not been read yet."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def schema(self) -> types.StructType:
        found = self._fields("")
        if self._at < len(self._text):
            raise self._wrong()
        return found

    def _fields(self, end: str) -> types.StructType:
        """Read fields, and the text that ends them."""
        fields: list[types.StructField] = []
        while not fields or self._next(","):
            name = self._name()
            self._next(":")
            kind = self._type()
            nullable = not self._next("not", "null")
            if self._next("comment"):
                self._token()
            fields.append(types.StructField(name, kind, nullable))
        self._need(end)
        return types.StructType(fields)

    def _type(self) -> types.DataType:
        word = self._name().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]()
        if word in _DECIMAL:
            if not self._next("("):
                return types.DecimalType(10, 0)
            precision = self._number()
            scale = self._number() if self._next(",") else 0
            self._need(")")
            return types.DecimalType(precision, scale)
        if word not in ("array", "map", "struct"):
            raise BadInput(f"The schema of the payload has the type {word!r}.", f"Types are: {', '.join(NAMES)}.")
        self._need("<")
        if word == "struct":
            return self._fields(">")
        first = self._type()
        if word == "map":
            self._need(",")
        kind = types.ArrayType(first) if word == "array" else types.MapType(first, self._type())
        self._need(">")
        return kind

    def _name(self) -> str:
        quoted, word, *_ = self._token()
        if not (quoted or word):
            raise self._wrong()
        return quoted.replace("``", "`") if quoted else word

    def _number(self) -> int:
        _, word, *_ = self._token()
        if not word or not word.isdecimal():
            raise self._wrong()
        return int(word)

    def _need(self, symbol: str) -> None:
        if symbol and not self._next(symbol):
            raise self._wrong()

    def _next(self, *words: str) -> bool:
        """Whether these words come next, which are then read."""
        before = self._at
        for expected in words:
            _, word, symbol, _ = self._token()
            if (word or symbol or "").lower() != expected:
                self._at = before
                return False
        return True

    def _token(self) -> tuple[Any, ...]:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            raise self._wrong()
        self._at = found.end()
        return found.groups()

    def _wrong(self) -> BadInput:
        return BadInput(f"The schema of the payload cannot be read after {self._text[: self._at]!r}.", EXAMPLE)


def _check(kind: types.DataType) -> None:
    """Refuse a type that JSON has no value of, and two fields that Spark would take for one."""
    if kind.typeName() not in _ALLOWED:
        raise BadInput(
            f"The schema of the payload has the type {kind.simpleString()!r}.", f"Types are: {', '.join(NAMES)}."
        )
    if isinstance(kind, types.DecimalType) and not 0 <= kind.scale <= kind.precision <= 38:
        raise BadInput(
            f"There is no type {kind.simpleString()}.", "Give at most 38 digits, of which some may be after the point."
        )
    if isinstance(kind, types.StructType):
        names = [name.lower() for name in kind.names]
        if not names or len({*names}) < len(names):
            raise BadInput(
                "The schema of the payload has no field, or two of one name.",
                "Name each field once, whatever its case.",
            )
        for field in kind.fields:
            _check(field.dataType)
    elif isinstance(kind, types.ArrayType):
        _check(kind.elementType)
    elif isinstance(kind, types.MapType):
        if not isinstance(kind.keyType, types.StringType):
            raise BadInput("The schema of the payload has a map with other keys than texts.", "Use map<string, …>.")
        _check(kind.valueType)
