"""SendMessage and SendMessageBatch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tablequeue.model.message import NewMessage
from tablequeue.sqs import batches, messages
from tablequeue.sqs.attributes import LARGEST_MESSAGE, Settings
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import SqsError, bad_parameter, invalid, missing
from tablequeue.sqs.hosted import Hosted, label

_NOT_OF_THIS_TYPE = "The request include parameter that is not valid for this queue type."
_ID = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")


class Sent(NamedTuple):
    """A message to push, and the answer to its sender."""

    message: NewMessage
    result: Result


async def send_message(call: Call) -> Result:
    hosted = await call.queue()
    entry = call.parameters
    _check_size(hosted, entry)
    _check_fifo(hosted, (entry,))
    sent = _prepared(hosted, entry, call.trace)
    message = sent.message
    id = await hosted.queue.push(
        message.payload,
        delay=message.delay,
        group=message.group,
        key=message.key,
        headers=message.headers,
        on_conflict="renew",
    )
    return _told(hosted, sent, id)


async def send_message_batch(call: Call) -> Result:
    hosted = await call.queue()
    entries = call.parameters["Entries"]
    batches.check_entries(entries, "SendMessage")
    total = sum(messages.size_of(entry["MessageBody"], entry.get("MessageAttributes", {})) for entry in entries)
    if total > LARGEST_MESSAGE:
        words = f"Batch requests cannot be longer than {LARGEST_MESSAGE} bytes. You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", words)
    _check_fifo(hosted, entries, batch=True)
    ready: list[tuple[str, Sent]] = []
    failures = []
    for entry in entries:
        try:
            _check_size(hosted, entry)
            ready.append((entry["Id"], _prepared(hosted, entry, call.trace)))
        except SqsError as error:
            failures.append(batches.failed(entry["Id"], error))
    ids = await hosted.queue.push_many([sent.message for _, sent in ready], on_conflict="renew") if ready else []
    successful = [{"Id": name, **_told(hosted, sent, id)} for (name, sent), id in zip(ready, ids, strict=True)]
    return batches.answer(successful, failures)


def _told(hosted: Hosted, sent: Sent, id: int) -> Result:
    result = {"MessageId": messages.uuid_of(hosted.seed, id), **sent.result}
    if hosted.settings.fifo:
        result["SequenceNumber"] = messages.sequence_number(id)
    return result


def _check_size(hosted: Hosted, entry: Mapping[str, Any]) -> None:
    body = entry["MessageBody"]
    if not body:
        raise missing("MessageBody")
    largest = hosted.settings.largest
    if messages.size_of(body, entry.get("MessageAttributes", {})) > largest:
        raise bad_parameter(
            f"One or more parameters are invalid. Reason: Message must be shorter than {largest} bytes."
        )


def _check_fifo(hosted: Hosted, entries: Sequence[Mapping[str, Any]], *, batch: bool = False) -> None:
    """Refuse entries of a FIFO queue without a group, or without a deduplication id."""
    if not hosted.settings.fifo:
        return
    if any("MessageGroupId" not in entry for entry in entries):
        error = missing("MessageGroupId")
        raise bad_parameter(error.message) if batch else error
    if not hosted.settings.by_content and any("MessageDeduplicationId" not in entry for entry in entries):
        raise bad_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly"
        )


def _prepared(hosted: Hosted, entry: Mapping[str, Any], trace: str | None) -> Sent:
    """Return the message of an entry, and its answer; `trace` is the trace of the whole request."""
    settings = hosted.settings
    body, attributes = entry["MessageBody"], entry.get("MessageAttributes", {})
    system = entry.get("MessageSystemAttributes", {})
    messages.check_body(body)
    messages.check_attributes(attributes)
    ours = ({} if trace is None else {"trace": trace}) | _system(system)
    group, dedup = entry.get("MessageGroupId"), entry.get("MessageDeduplicationId")
    check_id("MessageGroupId", group)
    check_id("MessageDeduplicationId", dedup)
    delay = entry.get("DelaySeconds")
    if delay is not None and not 0 <= delay <= 900:
        raise invalid(delay, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
    key = None
    if settings.fifo:
        if delay:
            raise invalid(delay, "DelaySeconds", _NOT_OF_THIS_TYPE)
        delay = None
        dedup = dedup or hashlib.sha256(body.encode()).hexdigest()
        ours["dedup"] = dedup
        key = _key(settings, group or "", dedup)
    else:
        if dedup is not None:
            raise invalid(dedup, "MessageDeduplicationId", _NOT_OF_THIS_TYPE)
        if group is not None and not settings.definition.takes_groups:
            ours["group"] = group
            group = None
    delay = settings.delay if delay is None else delay
    message = NewMessage(
        messages.payload_of(body, settings.definition.payload),
        delay=delay or None,
        group=group,
        key=key,
        headers=messages.headers_of(attributes, ours),
    )
    sent: Result = {"MD5OfMessageBody": messages.md5(body)}
    if attributes:
        sent["MD5OfMessageAttributes"] = messages.md5_of(attributes)
    if system:
        sent["MD5OfMessageSystemAttributes"] = messages.md5_of(system)
    return Sent(message, sent)


def _key(settings: Settings, group: str, dedup: str) -> str:
    """Return the deduplication key: the id, with the group and the last purge if they matter."""
    parts = [part for part in (group if settings.by_group else "", settings.labels.get(label("purged"), "")) if part]
    return hashlib.sha256("\0".join([*parts, dedup]).encode()).hexdigest() if parts else dedup


def _system(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    ours = {}
    for name, attribute in attributes.items():
        if name != "AWSTraceHeader":
            raise bad_parameter(f"Message system attribute name '{name}' is invalid.")
        if attribute["DataType"] != "String" or not attribute.get("StringValue"):
            raise bad_parameter("Message system attribute 'AWSTraceHeader' must contain a value of type 'String'.")
        messages.check_text(attribute["StringValue"])
        ours["trace"] = attribute["StringValue"]
    return ours


def check_id(parameter: str, id: str | None) -> None:
    """Refuse an id with characters that SQS does not take."""
    if id is not None and not _ID.fullmatch(id):
        raise invalid(
            id, parameter, f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
