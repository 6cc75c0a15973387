"""DeleteMessage and ChangeMessageVisibility, with their batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tablequeue.aio.consumer import AsyncClaim
from tablequeue.errors import LeaseLost
from tablequeue.model.message import Message
from tablequeue.sqs import batches
from tablequeue.sqs.attributes import LONGEST_VISIBILITY
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import SqsError, invalid, missing
from tablequeue.sqs.hosted import Hosted
from tablequeue.sqs.messages import Handle

_GONE = "Message does not exist or is not available for visibility timeout change."
_EXPIRED = "The receipt handle has expired."
_TOO_LONG = f"Total VisibilityTimeout for the message is beyond the limit [{LONGEST_VISIBILITY} seconds]"

Lost = Callable[[Hosted, Handle, str], Awaitable[None]]


async def delete_message(call: Call) -> Result:
    hosted = await call.queue()
    text = call.parameters["ReceiptHandle"]
    (error,) = await _finished(call, hosted, [text], _delete, _delete_lost)
    if error is not None:
        raise error
    return {}


async def delete_message_batch(call: Call) -> Result:
    hosted = await call.queue()
    entries = call.parameters["Entries"]
    batches.check_entries(entries, "DeleteMessage")
    errors = await _finished(call, hosted, [entry["ReceiptHandle"] for entry in entries], _delete, _delete_lost)
    return _answer(entries, errors)


async def change_message_visibility(call: Call) -> Result:
    hosted = await call.queue()
    seconds, text = call.parameters["VisibilityTimeout"], call.parameters["ReceiptHandle"]
    _check_visibility(seconds)
    (error,) = await _finished(call, hosted, [text], _extend(seconds), _extend_lost(seconds), seconds)
    if error is not None:
        raise error
    return {}


async def change_message_visibility_batch(call: Call) -> Result:
    hosted = await call.queue()
    entries = call.parameters["Entries"]
    batches.check_entries(entries, "ChangeMessageVisibility")
    errors: list[SqsError | None] = [None] * len(entries)
    by_seconds: dict[int, list[int]] = {}
    for index, entry in enumerate(entries):
        try:
            seconds = entry.get("VisibilityTimeout")
            if seconds is None:
                raise missing("VisibilityTimeout")
            _check_visibility(seconds)
            by_seconds.setdefault(seconds, []).append(index)
        except SqsError as error:
            errors[index] = error
    for seconds, indexes in by_seconds.items():
        texts = [entries[index]["ReceiptHandle"] for index in indexes]
        found = await _finished(call, hosted, texts, _extend(seconds), _extend_lost(seconds), seconds)
        for index, refused in zip(indexes, found, strict=True):
            errors[index] = refused
    return _answer(entries, errors)


# -- private ---------------------------------------------------------------------------------------------------------


def _answer(entries: Sequence[Mapping[str, Any]], errors: Sequence[SqsError | None]) -> Result:
    pairs = [*zip(entries, errors, strict=True)]
    successful = [{"Id": entry["Id"]} for entry, error in pairs if error is None]
    return batches.answer(successful, [batches.failed(entry["Id"], error) for entry, error in pairs if error])


def _check_visibility(seconds: int) -> None:
    if not 0 <= seconds <= LONGEST_VISIBILITY:
        words = "VisibilityTimeout must be an integer between 0 and 43200."
        raise invalid(seconds, "VisibilityTimeout", words)


async def _finished(
    call: Call,
    hosted: Hosted,
    texts: Sequence[str],
    finish: Callable[..., Awaitable[Any]],
    lost: Lost,
    seconds: int | None = None,
) -> list[SqsError | None]:
    """Finish the claims of receipt handles, in one call of the queue; return the error of each, or None.

    `seconds` is the new visibility timeout, if that changes.
    """
    errors: list[SqsError | None] = []
    handles: dict[str, Handle] = {}
    for text in texts:
        try:
            handles[text] = Handle.of(hosted.seed, text)
            call.endpoint.attempts.forget(hosted.seed, handles[text].id)
            errors.append(None)
        except SqsError as error:
            errors.append(error)
    there: dict[int, Message | None] = {}
    if seconds is not None or hosted.settings.fifo:
        there = await _there(hosted, handles.values(), all=seconds is not None)
    late = {id for id, message in there.items() if message is None or _visible(message)}
    long = {id for id, message in there.items() if seconds and message is not None and _too_long(message, seconds)}
    held = [handle for handle in handles.values() if handle.id not in late | long]
    gone: Collection[int] = late
    try:
        if held:
            await finish(hosted, [AsyncClaim.of(hosted.queue, handle.id, handle.token) for handle in held])
    except LeaseLost as error:
        gone = late.union(error.ids)
    for index, text in enumerate(texts):
        if (handle := handles.get(text)) is None:
            continue
        if handle.id in gone:
            try:
                await lost(hosted, handle, text)
            except SqsError as refused:
                errors[index] = refused
        elif handle.id in long:
            errors[index] = invalid(seconds, "VisibilityTimeout", _TOO_LONG)
    return errors


async def _there(hosted: Hosted, handles: Iterable[Handle], all: bool) -> dict[int, Message | None]:
    """Return the messages of handles with an ended lease, unless it was extended; with `all`, of all handles."""
    now = datetime.now(UTC).timestamp()
    return {handle.id: await hosted.queue.find(handle.id) for handle in handles if all or handle.end <= now}


def _too_long(message: Message, seconds: int) -> bool:
    """Whether these seconds make a message invisible for longer since its receive than SQS allows."""
    received = message.popped_at
    return received is not None and (datetime.now(UTC) - received).total_seconds() + seconds > LONGEST_VISIBILITY


async def _delete(hosted: Hosted, claims: list[AsyncClaim]) -> None:
    await hosted.queue.complete_many(claims)
    if hosted.settings.fifo:
        hosted.waiters.wake()  # the next messages of the groups are visible


def _extend(seconds: int) -> Callable[[Hosted, list[AsyncClaim]], Awaitable[None]]:
    async def extend(hosted: Hosted, claims: list[AsyncClaim]) -> None:
        await hosted.queue.extend_many(claims, seconds)
        hosted.waiters.wake()

    return extend


async def _delete_lost(hosted: Hosted, handle: Handle, text: str) -> None:
    """Delete a message after its visibility timeout, if no other client has it now, as AWS does."""
    there = await hosted.queue.find(handle.id)
    if there is None or there.state in ("finished", "dead"):
        return
    if hosted.settings.fifo:
        raise invalid(text, "ReceiptHandle", _EXPIRED)
    if _visible(there):
        await hosted.queue.cancel(handle.id)


def _extend_lost(seconds: int) -> Lost:
    async def extend_lost(hosted: Hosted, handle: Handle, text: str) -> None:
        there = await hosted.queue.find(handle.id)
        if there is None or there.state in ("finished", "cancelled", "expired", "dead"):
            raise invalid(text, "ReceiptHandle", _GONE)
        if hosted.settings.fifo:
            raise invalid(text, "ReceiptHandle", _EXPIRED)
        # Another receive has it: an old handle changes its visibility too. If it is visible, nothing changes: AWS never
        # answers MessageNotInflight.
        if not _visible(there):
            await hosted.queue.extend_held(handle.id, seconds)
            hosted.waiters.wake()

    return extend_lost


def _visible(message: Message) -> bool:
    ended = message.lease_until is not None and message.lease_until <= datetime.now(UTC)
    return message.state in ("ready", "scheduled", "blocked") or ended
