"""The fields of payloads as columns, by a schema: exactly the values of the JSON, or an error that says which is not.

Arrow parses many payloads at once. It takes fewer documents than the schema allows, and none that differs from it: so
if it refuses one, Python looks at that one by the rules of `values`. docs/pipelines.md has the table of these rules.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as pajson
from pyspark.sql import types
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from tablequeue.errors import BadInput
from tablequeue.spark.schemas import schema_of
from tablequeue.spark.values import LONGEST, DoesNotFit, fit

# The column of a read that says why the payload of a row does not fit.
ERROR = "error"
# So many payloads are looked at one by one, if Arrow refuses one of them. It reads a piece of at most so many bytes.
FEW = 32
MOST_BYTES = 64 << 20
# From these numbers on, a floating-point number may stand for several whole numbers.
_LARGEST = {types.DoubleType: 1 << 53, types.FloatType: 1 << 24}
_DAY = r"[12]\d{3}-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
# Types whose texts Arrow converts, if they have this form, as Python does.
_TEXTS = {
    types.DateType: f"^{_DAY}$",
    types.TimestampType: f"^{_DAY}{_CLOCK}(Z|[+-][01]\\d:[0-5]\\d)$",
    types.TimestampNTZType: f"^{_DAY}{_CLOCK}$",
}


def with_fields(columns: Sequence[pa.Field], text: str) -> types.StructType:
    """Return the schema of a read of these columns of messages, and of the fields of their payloads."""
    of_messages, fields = from_arrow_schema(pa.schema([*columns])), schema_of(text).toNullable()
    for name in fields.names:
        if name.lower() in of_messages.names:
            raise BadInput(
                f"The schema of the payload has a field {name!r}, as a column of messages is called.",
                f"Leave it out, and take it from the payload by get_json_object(payload, '$.{name}').",
            )
    return types.StructType([*of_messages.fields, *fields.fields])


class Selected:
    """The columns of a read: columns of messages, and with a schema the fields of their payloads.

    names     names of the columns that Spark expects; the fields come last.
    there     all columns of the messages.
    noted     a function for messages that do not fit: it gets the reasons by id. Their rows are then left out, unless
              the column `error` is read. None: without that column they are a `BadInput`.
    """

    def __init__(
        self,
        names: Sequence[str],
        there: pa.Schema,
        schema: str | None,
        noted: Callable[[Mapping[int, str]], None] | None = None,
    ) -> None:
        self._payloads = None if schema is None else Payloads(schema_of(schema))
        fields = [] if self._payloads is None else self._payloads.names
        if fields != [*names[len(names) - len(fields) :]]:
            raise BadInput("Spark was given a schema of its own beside payloadSchema.", "Leave one of them out.")
        self._names = names[: len(names) - len(fields)]
        self._noted = noted
        needed = [name for name in self._names if name != ERROR or self._payloads is None]
        if self._payloads is not None:
            needed += [name for name in ("id", "payload") if name not in needed]
        self.read = pa.schema([there.field(name) for name in needed])
        """What is to be read of the messages."""

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of the read."""
        for batch in batches:
            yield batch if self._payloads is None else self._with_fields(batch, self._payloads)

    def _with_fields(self, batch: pa.RecordBatch, payloads: Payloads) -> pa.RecordBatch:
        fields, found = payloads.read(batch["payload"])
        ids = batch["id"].to_pylist()
        told = {
            ids[row]: f"Message {ids[row]} does not fit the schema of the payload: {reason}"
            for row, reason in found.items()
        }
        if told and self._noted is not None:
            self._noted(told)
        elif told and ERROR not in self._names:
            raise BadInput(
                next(iter(told.values())),
                "Correct the schema; or read the column error, which has the reason, as by columns=*,error.",
            )
        errors = pa.array([told.get(id) for id in ids], pa.string())
        columns = [errors if name == ERROR else batch[name] for name in self._names]
        rows = pa.RecordBatch.from_arrays([*columns, *fields.flatten()], names=[*self._names, *payloads.names])
        return rows if ERROR in self._names else rows.filter(errors.is_null())


class Payloads:
    """Reads payloads by a schema."""

    def __init__(self, schema: types.StructType) -> None:
        self.names = schema.names
        self._schema = schema
        self._fit = fit(schema, nullable=False)
        self._row = types.StructType([types.StructField("payload", schema.toNullable())])
        self.type: pa.StructType = to_arrow_type(schema.toNullable(), timezone="UTC")
        # An additional column in each document: without it, two documents in one payload would be two rows.
        self._tag = secrets.token_hex(8)
        self._raw = pa.schema([(self._tag, pa.int64()), *_raw(schema)])

    def read(self, payloads: pa.Array) -> tuple[pa.StructArray, dict[int, str]]:
        """Return the fields of each payload; and, by index, the reason why a payload does not fit, which then has no
        fields."""
        errors: dict[int, str] = {}
        pieces = [*self._pieces(payloads.to_pylist(), 0, errors)] if len(payloads) else []
        return pa.concat_arrays([pa.array([], self.type), *pieces]), errors

    def _pieces(self, texts: Sequence[Any], first: int, errors: dict[int, str]) -> Iterator[pa.StructArray]:
        found = self._at_once(texts)
        if found is not None:
            yield found
        elif len(texts) <= FEW:
            yield self._one_by_one(texts, first, errors)
        else:
            half = len(texts) // 2
            yield from self._pieces(texts[:half], first, errors)
            yield from self._pieces(texts[half:], first + half, errors)

    def _at_once(self, texts: Sequence[Any]) -> pa.StructArray | None:
        """Return the fields of all payloads by Arrow; None if it does not take one of them."""
        try:
            data = "\n".join([self._tagged(place, text) for place, text in enumerate(texts)]).encode()
            if len(data) > MOST_BYTES:
                return None
            table = pajson.read_json(
                pa.BufferReader(data),
                pajson.ReadOptions(use_threads=False, block_size=len(data) + 1),
                pajson.ParseOptions(explicit_schema=self._raw, unexpected_field_behavior="ignore"),
            )
            tags, *columns = (column.combine_chunks() for column in table.columns)
            if not tags.equals(pa.array(range(len(texts)), pa.int64())):
                return None
            whole = pa.StructArray.from_arrays(columns, names=self.names)
            return _converted(whole, self._schema, self.type)
        except (_NotExact, ValueError, NotImplementedError):  # also Arrow's, of a text and of a type such as a map
            return None

    def _tagged(self, place: int, text: str | bytes | None) -> str:
        if isinstance(text, bytes):
            text = text.decode()
        if text is None or not text.startswith("{"):
            raise ValueError
        return f'{{"{self._tag}":{place},{text[1:]}'

    def _one_by_one(self, texts: Sequence[Any], first: int, errors: dict[int, str]) -> pa.StructArray:
        rows: list[tuple[Any]] = []
        for place, text in enumerate(texts, first):
            value = None
            try:
                value = self._fit(_document(text))
            except DoesNotFit as unfit:
                errors[place] = _told(unfit)
            except (ValueError, RecursionError) as error:
                errors[place] = f"it is no JSON: {error}."
            rows.append((value,))
        table = LocalDataToArrowConversion.convert(rows, self._row, False)
        return table.column(0).combine_chunks().cast(self.type)


class _NotExact(Exception):
    """A value that Arrow has read may differ from the value in the document."""


class _NoNumber:
    """NaN or Infinity, which are no JSON; where nobody reads them they do no harm."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


def _document(text: str | bytes | None) -> Any:
    return None if text is None else json.loads(text, parse_float=Decimal, parse_constant=_NoNumber)


def _told(unfit: DoesNotFit) -> str:
    place = unfit.place.removeprefix(".") or "the payload"
    if unfit.value is None:
        return f"{place} is null or missing, and may not be."
    value = unfit.value
    shown = str(value) if isinstance(value, Decimal | _NoNumber) else json.dumps(value, ensure_ascii=False, default=str)
    kind = unfit.kind.simpleString()
    return f"{place}: {_short(shown)} is no {_short(kind)}."


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _raw(kind: types.DataType) -> Any:
    """Return the type by which Arrow reads one. Texts and floating-point numbers are checked and then converted."""
    if isinstance(kind, types.StructType):
        return pa.struct([(field.name, _raw(field.dataType)) for field in kind.fields])
    if isinstance(kind, types.ArrayType):
        return pa.list_(_raw(kind.elementType))
    if type(kind) in _TEXTS:
        return pa.string()
    if type(kind) in _LARGEST:
        return pa.float64()
    return to_arrow_type(kind, timezone="UTC")


def _converted(array: pa.Array, kind: types.DataType, into: pa.DataType) -> pa.Array:
    """Return an array that Arrow has read in its final type; `_NotExact` if it may differ from the document."""
    if isinstance(kind, types.StructType):
        children = []
        for child, field, one in zip(array.flatten(), kind.fields, into, strict=True):
            if not field.nullable and child.null_count > array.null_count:
                raise _NotExact
            children.append(_converted(child, field.dataType, one.type))
        return pa.StructArray.from_arrays(children, fields=[*into], mask=array.is_null())
    if isinstance(kind, types.ArrayType):
        if not kind.containsNull and array.values.null_count:
            raise _NotExact
        values = _converted(array.values, kind.elementType, into.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=into, mask=array.is_null())
    if type(kind) in _TEXTS:
        _need(pc.match_substring_regex(array, _TEXTS[type(kind)]))
    elif type(kind) in _LARGEST:
        _need(pc.less(pc.abs(array), _LARGEST[type(kind)]))
    return array.cast(into)


def _need(holds: pa.Array) -> None:
    if not pc.all(holds, min_count=0).as_py():
        raise _NotExact
