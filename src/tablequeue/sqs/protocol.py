"""The two protocols: AWS JSON 1.0, and the query protocol of 2012-11-05 with its answers in XML."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from tablequeue.sqs import model
from tablequeue.sqs.errors import NO_QUEUE, SqsError

JSON = "application/x-amz-json-1.0"
VERSION = "2012-11-05"
NAMESPACE = f"http://queue.amazonaws.com/doc/{VERSION}/"
TARGET = "AmazonSQS."
NO_QUEUE_OF_VERSION = "The specified queue does not exist for this wsdl version."
"""The error text of this protocol for `NO_QUEUE`."""
# Fields of a query, and the parts of the name of one.
MOST_FIELDS = 10_000
MOST_PARTS = 8
_ESCAPED = {"\r": "&#xD;", '"': "&quot;"}
# Operations that do not need an existing queue, so a queue's own URL does not take them.
_OF_NO_QUEUE = ("CreateQueue", "ListQueues")


class Answer(NamedTuple):
    status: int
    type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Request(NamedTuple):
    """A request in either protocol."""

    operation: OperationModel
    parameters: dict[str, Any]


class Wire(Protocol):
    """A protocol: it reads requests, and writes results and errors."""

    in_xml: bool

    def read(self, path: str, query: str, body: bytes) -> Request: ...
    def result(self, operation: OperationModel, result: Mapping[str, Any], id: str) -> Answer: ...
    def error(self, error: SqsError, id: str) -> Answer: ...


def wire(headers: Mapping[str, str]) -> Wire:
    """Return the protocol of a request."""
    if "x-amz-target" in headers or headers.get("content-type", "").startswith("application/x-amz-json"):
        return Json(headers.get("x-amz-target", ""))
    return QueryInJson() if "application/json" in headers.get("accept", "") else Query()


class Json:
    """AWS JSON 1.0: the operation is a header, the parameters are the body."""

    in_xml = False

    def __init__(self, target: str) -> None:
        self.target = target

    def read(self, path: str, query: str, body: bytes) -> Request:
        operation = model.operation(self.target.removeprefix(TARGET))
        if operation is None or not self.target.startswith(TARGET):
            raise SqsError("UnknownOperationException", "The operation is not known.")
        try:
            parameters = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise SqsError("SerializationException", "The body is not JSON.") from None
        if path.strip("/") and isinstance(parameters, dict) and operation.name not in _OF_NO_QUEUE:
            parameters.setdefault("QueueUrl", path)
        return Request(operation, model.checked(operation.input_shape, parameters))

    def result(self, operation: OperationModel, result: Mapping[str, Any], id: str) -> Answer:
        body = b"" if operation.output_shape is None else json.dumps(_plain(result)).encode()
        return Answer(200, JSON, body)

    def error(self, error: SqsError, id: str) -> Answer:
        body = json.dumps({"__type": error.type, "message": error.message}).encode()
        code = f"{error.code};{'Sender' if error.sender else 'Receiver'}"
        return Answer(error.status, JSON, body, ((b"x-amzn-query-error", code.encode()),))


class Query:
    """The query protocol: the operation and the parameters are fields of a form, or of the URL."""

    in_xml = True

    def read(self, path: str, query: str, body: bytes) -> Request:
        try:
            fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_FIELDS)
            fields += parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError:
            raise SqsError("MalformedQueryString", "The query string cannot be read.") from None
        given = dict(fields)
        action = given.get("Action")
        if action is None:
            raise SqsError("UnknownOperationException", "")
        if (version := given.get("Version", VERSION)) != VERSION:
            raise SqsError("NoSuchVersion", f"The requested version ( {version} ) is not valid.")
        operation, at_queue = model.operation(action), len(path.strip("/")) > 0
        if operation is None or (at_queue and action in _OF_NO_QUEUE):
            raise SqsError("InvalidAction", f"The action {action} is not valid for this endpoint.")
        if at_queue:
            given.setdefault("QueueUrl", path)
        shape = operation.input_shape
        return Request(operation, model.checked(shape, model.nested(shape, _tree(given.items()))))

    def result(self, operation: OperationModel, result: Mapping[str, Any], id: str) -> Answer:
        name, shape = operation.name, operation.output_shape
        inner = "" if shape is None else _element(f"{name}Result", _xml(shape, result))
        metadata = f"<ResponseMetadata><RequestId>{id}</RequestId></ResponseMetadata>"
        return _document(200, f'<{name}Response xmlns="{NAMESPACE}">{inner}{metadata}</{name}Response>')

    def error(self, error: SqsError, id: str) -> Answer:
        if error.name == "UnknownOperationException":
            return Answer(404, "text/xml", b"<UnknownOperationException/>\n")
        who = "Sender" if error.sender else "Receiver"
        message = error.message.replace(NO_QUEUE, NO_QUEUE_OF_VERSION)
        words = f"<Type>{who}</Type><Code>{error.code}</Code><Message>{_text(message)}</Message><Detail/>"
        return _document(
            error.status,
            f'<ErrorResponse xmlns="{NAMESPACE}"><Error>{words}</Error><RequestId>{id}</RequestId></ErrorResponse>',
        )


class QueryInJson(Query):
    """The query protocol with answers in JSON, for clients that accept nothing else."""

    in_xml = False

    def result(self, operation: OperationModel, result: Mapping[str, Any], id: str) -> Answer:
        name = operation.name
        inner: dict[str, Any] = {}
        if operation.output_shape is not None:
            inner[f"{name}Result"] = found = _listed(operation.output_shape, result)
            if name == "ReceiveMessage":  # with another name than in the model, and always present
                found["messages"] = found.pop("Messages", None)
        document = {f"{name}Response": inner | {"ResponseMetadata": {"RequestId": id}}}
        return Answer(200, "application/json", json.dumps(document).encode())

    def error(self, error: SqsError, id: str) -> Answer:
        if error.name == "UnknownOperationException":
            return super().error(error, id)
        who = "Sender" if error.sender else "Receiver"
        words = {"Code": error.code, "Detail": None, "Message": error.message, "Type": who}
        return Answer(error.status, "application/json", json.dumps({"Error": words, "RequestId": id}).encode())


def _plain(value: Any) -> Any:
    """Return a result for JSON: blobs as base64."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value


def _listed(shape: Shape, value: Any) -> Any:
    """Return a result for JSON in the query protocol, where a map is a list of its names and values."""
    if isinstance(shape, StructureShape):
        return {name: _listed(shape.members[name], each) for name, each in value.items()}
    if isinstance(shape, ListShape):
        return [_listed(shape.member, each) for each in value]
    if isinstance(shape, MapShape):
        _, key, inner = model.pairs(shape)
        return [{key: name, inner: _listed(shape.value, each)} for name, each in value.items()]
    return _plain(value)


def _tree(fields: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return fields such as `Entry.1.Id` as a tree of their names."""
    root: dict[str, Any] = {}
    for name, text in fields:
        *parents, last = name.split(".")
        if len(parents) >= MOST_PARTS:
            raise SqsError("MalformedQueryString", "The query string cannot be read.")
        branch = root
        for parent in parents:
            branch = branch.setdefault(parent, {})
            if not isinstance(branch, dict):
                raise SqsError("MalformedQueryString", "The query string cannot be read.")
        branch[last] = text
    return root


def _document(status: int, element: str) -> Answer:
    return Answer(status, "text/xml", b'<?xml version="1.0"?>' + element.encode("utf-8", "replace"))


def _xml(shape: Shape, value: Any) -> str:
    if isinstance(shape, StructureShape):
        parts = []
        for name, member in shape.members.items():
            if value.get(name) is not None:
                parts.append(_member(name, member, value[name]))
        return "".join(parts)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _text(str(value))


def _element(name: str, inner: str) -> str:
    return f"<{name}>{inner}</{name}>" if inner else f"<{name}/>"


def _member(name: str, shape: Shape, value: Any) -> str:
    if isinstance(shape, ListShape):
        name = model.entries(shape)
        return "".join(f"<{name}>{_xml(shape.member, each)}</{name}>" for each in value)
    if isinstance(shape, MapShape):
        name, key, inner = model.pairs(shape)
        return "".join(
            f"<{name}><{key}>{_text(each)}</{key}><{inner}>{_xml(shape.value, text)}</{inner}></{name}>"
            for each, text in value.items()
        )
    return f"<{name}>{_xml(shape, value)}</{name}>"


def _text(text: str) -> str:
    return escape(text, _ESCAPED)
