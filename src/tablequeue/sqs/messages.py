"""Messages: how messages of SQS are stored in a queue, and how they are returned to a client."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple
from uuid import UUID

from tablequeue.model.definition import PayloadType
from tablequeue.model.origin import ORIGIN
from tablequeue.sqs.errors import SqsError, bad_parameter

OURS = "tablequeue-sqs"
"""The header for values that are in no attribute of SQS and in no column: `trace`, `dedup`, `group`."""
MOST_ATTRIBUTES = 10
_FIRST_SEQUENCE = 18_849_496_460_467_696_128
_HANDLE = struct.Struct(">Q16sd")
_SEAL = 8
"""Bytes of a handle that cannot be made without the seed of the queue: an old handle still changes a visibility."""
_TAG_BITS = 58
_BAD_CHARACTER = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# AWS takes letters of all alphabets after the first character. Its documentation allows only ASCII letters.
_NAME = re.compile(r"[A-Za-z0-9_.-][\w.-]*")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_RESERVED = ("aws.", "amazon.")


class Handle(NamedTuple):
    """A receipt handle: a claim, for any process. `end` is when its lease ends, unless it is extended."""

    id: int
    token: str
    end: float

    def text(self, seed: str) -> str:
        """Return the handle as clients see it, for the queue of that seed."""
        packed = _HANDLE.pack(self.id, bytes.fromhex(self.token), self.end)
        return base64.b64encode(_seal(seed, packed) + packed).decode()

    @classmethod
    def of(cls, seed: str, text: str) -> Handle:
        """Read a handle of that queue."""
        try:
            given = base64.b64decode(text, validate=True)
            id, token, end = _HANDLE.unpack(given[_SEAL:])
        except (binascii.Error, ValueError, struct.error):
            given, id, end = b"", 0, 0.0
        if not hmac.compare_digest(given[:_SEAL], _seal(seed, given[_SEAL:])) or id >= 1 << 63 or not isfinite(end):
            raise SqsError(
                "ReceiptHandleIsInvalid", f'The input receipt handle "{text}" is not a valid receipt handle.'
            )
        return cls(id, token.hex(), end)


def _seal(seed: str, packed: bytes) -> bytes:
    return hmac.digest(seed.encode(), packed, "sha256")[:_SEAL]


@lru_cache(maxsize=10_000)
def _key(seed: str) -> bytes:
    return hashlib.sha256(seed.encode()).digest()[:8]


def uuid_of(seed: str, id: int) -> str:
    """Return the id of a message as a UUID. `id_in` returns the number again."""
    key = _key(seed)
    hidden = id ^ int.from_bytes(key)
    tag = int.from_bytes(hashlib.sha256(key + id.to_bytes(8)).digest()[:8]) >> (64 - _TAG_BITS)
    bits = hidden << _TAG_BITS | tag
    return str(UUID(int=bits >> 74 << 80 | 4 << 76 | (bits >> 62 & 0xFFF) << 64 | 2 << 62 | bits & (1 << 62) - 1))


def id_in(seed: str, uuid: str) -> int | None:
    """Return the number of a message of the queue of that seed; None if no message of it has the UUID."""
    value = UUID(uuid).int
    bits = value >> 80 << 74 | (value >> 64 & 0xFFF) << 62 | value & (1 << 62) - 1
    id = bits >> _TAG_BITS ^ int.from_bytes(_key(seed))
    return id if id < 1 << 63 and uuid == uuid_of(seed, id) else None


def sequence_number(id: int) -> str:
    return str(_FIRST_SEQUENCE + id)


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the MD5 of message attributes, as the SDKs compute it."""
    digest = hashlib.md5(usedforsecurity=False)

    def add(value: bytes) -> None:
        digest.update(len(value).to_bytes(4))
        digest.update(value)

    for name in sorted(attributes):
        attribute = attributes[name]
        add(name.encode())
        add(attribute["DataType"].encode())
        binary = attribute["DataType"].startswith("Binary")
        digest.update(b"\2" if binary else b"\1")
        add(attribute["BinaryValue"] if binary else attribute["StringValue"].encode())
    return digest.hexdigest()


# -- bodies ----------------------------------------------------------------------------------------------------------


def check_body(body: str) -> None:
    """Refuse characters that SQS does not take."""
    if _BAD_CHARACTER.search(body):
        raise SqsError(
            "InvalidMessageContents",
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to "
            "#xFFFD | #x10000 to #x10FFFF",
        )


def check_xml(value: Any) -> None:
    """Raise ValueError for a text in a result that XML cannot contain."""
    match value:
        case str():
            if bad := _BAD_CHARACTER.search(value):
                raise ValueError(f"no XML can have the character U+{ord(bad[0]):04X}")
        case dict():
            check_xml([*value, *value.values()])
        case list():
            for each in value:
                check_xml(each)


def payload_of(body: str, payload: PayloadType) -> Any:
    """Return the payload for a body, in a queue with payloads of that type."""
    match payload:
        case "text":
            return body
        case "json":
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                raise SqsError("InvalidMessageContents", "This queue holds JSON, and the body is not JSON.") from None
        case "bytes":
            try:
                return base64.b64decode(body, validate=True)
            except (binascii.Error, ValueError):
                words = "This queue holds bytes, and the body is not base64."
                raise SqsError("InvalidMessageContents", words) from None


def body_of(payload: Any, type: PayloadType) -> str:
    """Return the body of a message: text unchanged, bytes as base64, JSON as its text.

    Characters that a body of SQS cannot have are escaped in JSON: lone surrogates, and two non-characters.
    """
    match type:
        case "text":
            return payload
        case "bytes":
            return base64.b64encode(payload).decode()
        case "json":
            body = json.dumps(payload, ensure_ascii=False)
            return json.dumps(payload) if _BAD_CHARACTER.search(body) else body


# -- attributes ------------------------------------------------------------------------------------------------------


def check_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse message attributes that SQS does not take."""
    if len(attributes) > MOST_ATTRIBUTES:
        raise bad_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{MOST_ATTRIBUTES}]."
        )
    for name, attribute in attributes.items():
        _check_name(name)
        type = attribute["DataType"]
        if not type:
            raise bad_parameter(f"The message attribute '{name}' must contain non-empty message attribute type.")
        if attribute.get("StringListValues") or attribute.get("BinaryListValues"):
            words = "Message attribute list values in SendMessage operation are not supported."
            raise SqsError("UnsupportedOperation", words)
        kind = type.partition(".")[0]
        if kind not in ("String", "Number", "Binary"):
            raise bad_parameter(
                f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported "
                "type prefixes: Binary, Number, String."
            )
        check_text(type)
        if len(type) > 256:
            raise bad_parameter("Message (user) attribute types must be shorter than 256 Bytes")
        value = attribute.get("BinaryValue" if kind == "Binary" else "StringValue")
        if not value:
            raise bad_parameter(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")
        if kind == "Number" and not _NUMBER.fullmatch(value):
            raise bad_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")
        if kind == "String":
            check_text(value)


def check_text(text: str) -> None:
    """Refuse characters that SQS does not take in a part of an attribute."""
    try:
        check_body(text)
    except SqsError as error:
        raise bad_parameter(error.message) from None


def _check_name(name: str) -> None:
    if not name:
        raise bad_parameter("The request must contain non-empty message attribute name.")
    if len(name) > 256:
        raise bad_parameter("Message (user) attribute names must be shorter than 256 Bytes")
    if not _NAME.fullmatch(name) or name in (OURS, ORIGIN):
        raise bad_parameter(
            f"The message attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )
    if name.lower().startswith(_RESERVED) or name.startswith(".") or name.endswith(".") or ".." in name:
        raise bad_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use. Additionally, they cannot start or end with '.'."
        )


def size_of(body: str, attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of a message, as SQS counts them."""
    texts = [body]
    size = 0
    for name, attribute in attributes.items():
        texts += [name, attribute["DataType"], attribute.get("StringValue", "")]
        size += len(attribute.get("BinaryValue", b""))
    return size + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def headers_of(attributes: Mapping[str, Mapping[str, Any]], ours: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the headers in which message attributes are kept: a string unchanged, any other value with its type."""
    headers: dict[str, Any] = {}
    for name, attribute in attributes.items():
        if attribute["DataType"] == "String":
            headers[name] = attribute["StringValue"]
        elif "BinaryValue" in attribute:
            value = base64.b64encode(attribute["BinaryValue"]).decode()
            headers[name] = {"DataType": attribute["DataType"], "BinaryValue": value}
        else:
            headers[name] = {"DataType": attribute["DataType"], "StringValue": attribute["StringValue"]}
    if ours:
        headers[OURS] = dict(ours)
    return headers or None


def attributes_of(headers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return headers as message attributes, whoever pushed them."""
    return {name: _attribute(value) for name, value in headers.items() if name not in (OURS, ORIGIN)}


def _attribute(value: Any) -> dict[str, Any]:
    match value:
        case str():
            return {"StringValue": value, "DataType": "String"}
        case {"DataType": str(type), "StringValue": str(text)}:
            return {"StringValue": text, "DataType": type}
        case {"DataType": str(type), "BinaryValue": str(text)}:
            return {"BinaryValue": base64.b64decode(text), "DataType": type}
        case int() | float() if not isinstance(value, bool):
            return {"StringValue": json.dumps(value), "DataType": "Number"}
    return {"StringValue": json.dumps(value), "DataType": "String"}


def chosen(attributes: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the message attributes that a client asks for: by name, `prefix.*`, or all."""
    if not {"All", "*", ".*"}.isdisjoint(names):
        return dict(attributes)
    prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
    return {name: value for name, value in attributes.items() if name in names or name.startswith(prefixes)}
