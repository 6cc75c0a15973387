"""The service model of SQS, as botocore has it: operations, and the shapes of their parameters and results."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, OperationModel, ServiceModel, Shape, StructureShape

from tablequeue.sqs.errors import SqsError, bad_parameter, missing

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "blob": (str, bytes),
}
# The names of list entries in the query protocol, if they are not the name of the shape without "List".
_ENTRIES = {
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "StringList": "StringListValue",
    "BinaryList": "BinaryListValue",
}
# The names that it has for the entries of a map, and for their names and values.
_PAIRS = {
    "QueueAttributeMap": ("Attribute", "Name", "Value"),
    "MessageSystemAttributeMap": ("Attribute", "Name", "Value"),
    "MessageBodyAttributeMap": ("MessageAttribute", "Name", "Value"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name", "Value"),
    "TagMap": ("Tag", "Key", "Value"),
}


# The digits of the number of an entry, as in `Entry.1`.
LONGEST_NUMBER = 9


@cache
def service() -> ServiceModel:
    """Return the model. It takes some milliseconds the first time."""
    return ServiceModel(Loader().load_service_model("sqs", "service-2"), "sqs")


@cache
def operation(name: str) -> OperationModel | None:
    """Return an operation; None if SQS has none of that name."""
    return service().operation_model(name) if name in service().operation_names else None


@cache
def values(shape: str) -> frozenset[str]:
    """Return the values that a string of this shape may have."""
    return frozenset(service().shape_for(shape).enum)


def entries(shape: ListShape) -> str:
    """Return the name of a list's entries in the query protocol."""
    return _ENTRIES.get(shape.name, shape.name.removesuffix("List"))


def pairs(shape: MapShape) -> tuple[str, str, str]:
    """Return the names of a map's entries, and of their names and values, in the query protocol."""
    return _PAIRS[shape.name]


def checked(shape: Shape, value: Any, path: str = "") -> Any:
    """Return a parameter as the operations take it: blobs are bytes, and members that the model does not know are left
    out.

    `SqsError` for a wrong type, and for a required member that is missing.
    """
    if type(value) not in _TYPES[shape.type_name]:
        raise SqsError("SerializationException", f"{path or 'The request'} is not a {shape.type_name}.")
    if isinstance(shape, StructureShape):
        found = {
            name: checked(member, value[name], f"{path}.{name}" if path else name)
            for name, member in shape.members.items()
            if value.get(name) is not None
        }
        for name in shape.required_members:
            if name not in found:
                raise missing(f"{path}.{name}" if path else name)
        return found
    if isinstance(shape, ListShape):
        name = entries(shape)
        return [checked(shape.member, each, f"{name}.{number}") for number, each in enumerate(value, 1)]
    if isinstance(shape, MapShape):
        return {key: checked(shape.value, each, f"{path}.{key}") for key, each in value.items()}
    return _blob(value) if shape.type_name == "blob" else value


def nested(shape: Shape, fields: Mapping[str, Any]) -> Any:
    """Return a parameter from the fields of the query protocol, a tree of their names: `{"Entry": {"1": {…}}}`."""
    if isinstance(shape, StructureShape):
        if not isinstance(fields, Mapping):
            raise bad_parameter(f"The parameter of the shape {shape.name} has no parts.")
        found = {}
        for name, member in shape.members.items():
            there = fields.get(_field(name, member), fields.get(name))
            if there is not None:
                found[name] = nested(member, there)
            elif name in shape.required_members and member.type_name in ("list", "map"):
                found[name] = [] if member.type_name == "list" else {}  # a form has no empty lists
        return found
    if not isinstance(fields, Mapping):
        if isinstance(shape, ListShape):
            return [nested(shape.member, fields)] if fields else []  # a list of one entry may have no number
        if fields == "" and isinstance(shape, MapShape):
            return {}
        return fields if shape.type_name == "string" else _scalar(shape, fields)
    if isinstance(shape, ListShape):
        return [nested(shape.member, each) for each in _numbered(fields)]
    if isinstance(shape, MapShape):
        _, key, value = pairs(shape)
        given = [fields] if key in fields else _numbered(fields)  # a map too
        if not all(isinstance(each, Mapping) and isinstance(each.get(key, ""), str) for each in given):
            raise bad_parameter(f"The parameter of the shape {shape.name} has no names and values.")
        return {each.get(key, ""): nested(shape.value, each.get(value, "")) for each in given}
    raise bad_parameter(f"The parameter of the shape {shape.name} has parts.")


def _field(name: str, shape: Shape) -> str:
    """Return the name of a member in the query protocol."""
    if isinstance(shape, ListShape):
        return entries(shape)
    return pairs(shape)[0] if isinstance(shape, MapShape) else name


def _numbered(fields: Mapping[str, Any]) -> list[Any]:
    numbers = {int(number): number for number in fields if number.isdecimal() and len(number) <= LONGEST_NUMBER}
    return [fields[numbers[number]] for number in sorted(numbers)]


def _scalar(shape: Shape, text: str) -> Any:
    match shape.type_name:
        case "integer" | "long":
            try:
                return int(text)
            except ValueError:
                raise bad_parameter(f"Value {text} is not an integer.") from None
        case "boolean":
            return text.lower() == "true"
        case "blob":
            return text
        case _:
            raise bad_parameter(f"The parameter of the shape {shape.name} has no parts.")


def _blob(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise SqsError("SerializationException", "A binary value is not base64.") from None
