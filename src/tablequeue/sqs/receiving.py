"""ReceiveMessage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

from tablequeue.aio.consumer import AsyncClaim
from tablequeue.errors import LeaseLost
from tablequeue.model.origin import Origin
from tablequeue.sqs import counting, messages, model
from tablequeue.sqs.attributes import LONGEST_VISIBILITY
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import SqsError, check_range, invalid, unknown_attribute
from tablequeue.sqs.hosted import Hosted
from tablequeue.sqs.messages import OURS, Handle
from tablequeue.sqs.sending import check_id

log = logging.getLogger("tablequeue.sqs")

LONGEST_WAIT = 20
MOST = 10
UNFIT = (ValueError, TypeError)
"""The errors of a message that cannot be returned: programs push texts and headers that SQS does not allow."""


async def receive_message(call: Call) -> Result:
    hosted = await call.queue()
    settings = hosted.settings
    number, wait = call.get("MaxNumberOfMessages"), call.get("WaitTimeSeconds")
    visibility, attempt = call.get("VisibilityTimeout"), call.get("ReceiveRequestAttemptId")
    check_range(number, "MaxNumberOfMessages", 1, MOST, "Must be between 1 and 10, if provided.")
    check_range(wait, "WaitTimeSeconds", 0, LONGEST_WAIT, "Must be >= 0 and <= 20, if provided.")
    check_range(visibility, "VisibilityTimeout", 0, LONGEST_VISIBILITY, "Must be >= 0 and <= 43200, if provided.")
    system = _system_names(call)
    if attempt is not None and not settings.fifo:
        words = "The request include parameter that is not valid for this queue type."
        raise invalid(attempt, "ReceiveRequestAttemptId", words)
    check_id("ReceiveRequestAttemptId", attempt)
    lease = float(settings.visibility if visibility is None else visibility)
    end = monotonic() + (settings.wait if wait is None else wait)
    names = call.get("MessageAttributeNames", ())
    found: list[dict[str, Any]] = []
    call.claimed = await _again(call, hosted, attempt, lease) if attempt else []
    while not found:
        if not call.claimed:
            seconds = max(0.0, end - monotonic())
            call.claimed = await _received(hosted, 1 if number is None else number, lease, seconds)
        if not call.claimed:
            break
        for claim in [*call.claimed]:
            try:
                found.append(await _message(call, hosted, claim, lease, system, names))
            except UNFIT as error:
                call.claimed.remove(claim)
                await _set_apart(hosted, claim, error)
    if attempt and found:
        call.endpoint.attempts.keep(hosted.seed, attempt, call.claimed)
    if found and not lease:  # visible again at once, and received
        with suppress(LeaseLost):
            await hosted.queue.extend_many(call.claimed, 0)
    return {"Messages": found} if found else {}


async def _set_apart(hosted: Hosted, claim: AsyncClaim, error: Exception) -> None:
    """Make a message that no client of the protocol can read a dead letter: messages behind it are received."""
    log.warning("%s: message %d cannot be received: %s", hosted.name, claim.id, error)
    with suppress(LeaseLost):
        await claim.fail(f"It cannot be received as a message of SQS: {error}", retry=False)


async def _received(hosted: Hosted, number: int, lease: float, seconds: float) -> list[AsyncClaim]:
    """Claim messages; none while the limit of messages in flight is reached."""
    if await hosted.in_flight.is_full():
        if not hosted.settings.fifo and not seconds:
            raise SqsError("OverLimit", f"The queue has {counting.MOST_IN_FLIGHT} messages in flight.")
        await hosted.waiters.sleep(seconds)
        return []
    claims = await hosted.waiters.receive(number, lease, seconds)
    hosted.in_flight.add(len(claims))
    return claims


async def _again(call: Call, hosted: Hosted, attempt: str, lease: float) -> list[AsyncClaim]:
    """Return the messages that the same attempt got before, invisible anew, if it still holds all of them."""
    claims = call.endpoint.attempts.find(hosted.seed, attempt)
    try:
        if claims:
            await hosted.queue.extend_many(claims, lease)
    except LeaseLost:
        return []
    return claims


def _system_names(call: Call) -> frozenset[str]:
    """Return the names of the system attributes that the client asks for."""
    known = model.values("MessageSystemAttributeName")
    names = [*call.get("AttributeNames", ()), *call.get("MessageSystemAttributeNames", ())]
    for name in names:
        if name not in known:
            raise unknown_attribute(name)
    return known if "All" in names else frozenset(names)


async def _message(
    call: Call, hosted: Hosted, claim: AsyncClaim, lease: float, system: frozenset[str], names: list[str]
) -> dict[str, Any]:
    headers = claim.headers
    origin, source = hosted.origin_of(headers), None
    seed, id = hosted.seed, claim.id
    if origin is not None:
        # A dead letter has the id that it had in its queue.
        source, seed = await call.endpoint.queues.origin(hosted.owner, origin)
        id = origin.id
    body = messages.body_of(claim.payload, hosted.settings.definition.payload)
    end = claim.lease_until if lease else None
    handle = Handle(claim.id, claim.token, 0.0 if end is None else end.timestamp()).text(hosted.seed)
    found: dict[str, Any] = {
        "MessageId": messages.uuid_of(seed, id),
        "ReceiptHandle": handle,
        "MD5OfBody": messages.md5(body),
        "Body": body,
    }
    if system:
        found["Attributes"] = await _attributes(hosted, claim, headers, system, origin, source)
    if names and (chosen := messages.chosen(messages.attributes_of(headers), names)):
        found["MD5OfMessageAttributes"] = messages.md5_of(chosen)
        found["MessageAttributes"] = chosen
    if call.in_xml:
        messages.check_xml(found)
    return found


async def _attributes(
    hosted: Hosted,
    claim: AsyncClaim,
    headers: Mapping[str, Any],
    wanted: frozenset[str],
    origin: Origin | None,
    source: str | None,
) -> dict[str, str]:
    ours = headers.get(OURS)
    ours = ours if isinstance(ours, dict) else {}
    fifo = hosted.settings.fifo
    found: dict[str, Any] = {
        "SenderId": hosted.owner.account,
        "SentTimestamp": _milliseconds(claim.pushed_at),
        "ApproximateReceiveCount": str(claim.attempt + (origin.attempts if origin else 0)),
        "ApproximateFirstReceiveTimestamp": None,
        "SequenceNumber": messages.sequence_number(claim.id) if fifo else None,
        "MessageDeduplicationId": ours.get("dedup", claim.key) if fifo else None,
        "MessageGroupId": claim.group or ours.get("group"),
        "AWSTraceHeader": ours.get("trace"),
        "DeadLetterQueueSourceArn": None if source is None else hosted.owner.arn(source),
    }
    if "ApproximateFirstReceiveTimestamp" in wanted:
        first = claim.popped_at
        if claim.attempt > 1 and (there := await hosted.queue.find(claim.id)) is not None:
            first = there.first_popped_at or first
        found["ApproximateFirstReceiveTimestamp"] = _milliseconds(first)
    return {name: text for name, text in found.items() if name in wanted and text is not None}


def _milliseconds(time: datetime) -> str:
    return str(round(time.timestamp() * 1000))
