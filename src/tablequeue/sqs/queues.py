"""The operations on queues: make, find, list, configure, purge and delete them."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Mapping
from time import monotonic, time
from typing import Any

from tablequeue.errors import QueueDiffers
from tablequeue.model.pacing import LARGEST
from tablequeue.sqs import attributes, tags
from tablequeue.sqs.attributes import KEYS_FOR, PREFIX, RETENTION, TAG
from tablequeue.sqs.counting import COUNTS, counts
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import SqsError, bad_parameter, invalid
from tablequeue.sqs.hosted import Hosted, label, shown
from tablequeue.sqs.urls import Owner, of_arn

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO = ".fifo"
MOST_LISTED = 1000
PURGE_EVERY = 60
DELETED_FOR = 60
"""Seconds in which a strict endpoint makes no queue of the name of a deleted one."""


async def create_queue(call: Call) -> Result:
    owner, name, given = call.owner, call.parameters["QueueName"], call.get("Attributes", {})
    fifo = given.get("FifoQueue", "").lower() == "true"
    _check_name(name, fifo)
    set = attributes.checked(given, fifo, {})
    new_tags = call.get("tags", {})
    tags.check(new_tags, name)
    try:
        there = await call.endpoint.queues.open(owner, name, fresh=True)
    except SqsError:
        if call.endpoint.deleted.get((owner, name), 0.0) > monotonic():
            words = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
            raise SqsError("QueueDeletedRecently", words) from None
        there = await _made(call, name, fifo, set, new_tags)
    current = _kept(there)
    for attribute, text in set.items():
        kept = current.get(attribute, there.settings.text(attribute) or "")  # some are stored and not shown
        if attribute != "FifoQueue" and not _same(attribute, kept, text):
            raise SqsError(
                "QueueNameExists",
                f"A queue already exists with the same name and a different value for attribute {attribute}",
            )
    return {"QueueUrl": call.url(owner, name)}


async def get_queue_url(call: Call) -> Result:
    name = call.parameters["QueueName"]
    owner = call.owner._replace(account=call.get("QueueOwnerAWSAccountId", call.owner.account))
    await call.endpoint.queues.named(owner, name, fresh=True)
    return {"QueueUrl": call.url(owner, name)}


async def list_queues(call: Call) -> Result:
    prefix = call.get("QueueNamePrefix", "")
    names = [name for name in await call.endpoint.queues.names(call.owner) if name.startswith(prefix)]
    return _page(call, "QueueUrls", call.owner, names)


async def list_dead_letter_source_queues(call: Call) -> Result:
    hosted = await call.queue()
    names = [source.name for source in await sources(call, hosted)]
    return {"queueUrls": [], **_page(call, "queueUrls", hosted.owner, names)}


async def delete_queue(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    for source in await sources(call, hosted):
        # It keeps the policy, as with AWS; its messages are received for ever.
        open = await call.endpoint.queues.open(source.owner, source.name)
        await open.queue.alter(dead_letter_to=None, max_attempts=LARGEST)
    hosted.waiters.close()
    call.endpoint.queues.forget(hosted.name)
    await hosted.queue.drop()
    if call.endpoint.strict:
        now = monotonic()
        recent = {key: end for key, end in call.endpoint.deleted.items() if end > now}
        call.endpoint.deleted = recent | {(hosted.owner, hosted.name): now + DELETED_FOR}
    return {}


async def purge_queue(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    last = float(hosted.settings.labels.get(label("purged"), 0))
    if time() - last < PURGE_EVERY:
        words = f"Only one PurgeQueue operation on {hosted.name} is allowed every {PURGE_EVERY} seconds."
        raise SqsError("PurgeQueueInProgress", words)
    open = await call.endpoint.queues.open(hosted.owner, hosted.name)
    # Deduplication ids of FIFO queues are free again: the label is a part of their keys.
    await open.queue.alter(labels={label("purged"): str(time())})
    await open.queue.purge(in_progress=True)
    open.waiters.wake()
    return {}


async def get_queue_attributes(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    names = attributes.wanted(call.get("AttributeNames", []))
    everything = "All" in names
    found: dict[str, str] = {"QueueArn": hosted.arn}
    if everything or not {*COUNTS}.isdisjoint(names):
        found |= await counts(hosted.queue)
    found |= _kept(hosted)
    chosen = {name: text for name, text in found.items() if everything or name in names}
    return {"Attributes": chosen} if chosen else {}


async def set_queue_attributes(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    set = attributes.checked(call.parameters["Attributes"], hosted.settings.fifo, _kept(hosted))
    options = attributes.options(set)
    if "RedrivePolicy" in set:
        options |= await _dead_letters(call, hosted.owner, hosted.name, hosted.settings.fifo, set["RedrivePolicy"])
    scope = hosted.settings.text("DeduplicationScope")
    if set.get("DeduplicationScope", scope) != scope:
        options["labels"][label("scoped")] = f"{time()} {scope}"
    await altered(call, hosted, options)
    return {}


async def altered(call: Call, hosted: Hosted, options: Mapping[str, Any]) -> None:
    """Change the definition and the labels of a queue, and store the time."""
    labels = {label("modified"): str(int(time())), **options.get("labels", {})}
    # Through the queue that is open here, so the change takes effect at once.
    open = await call.endpoint.queues.open(hosted.owner, hosted.name)
    await open.queue.alter(**{**options, "labels": labels})


async def sources(call: Call, hosted: Hosted) -> list[Hosted]:
    """Return the queues that send their dead letters to this one."""
    names = await call.endpoint.queues.names(hosted.owner)
    found = [await call.endpoint.queues.open(hosted.owner, name, fresh=True) for name in names]
    own = [hosted] if _is_its_own(hosted) else []
    return [each for each in found if each.queue.definition.dead_letter_to == hosted.queue.name] + own


def is_fifo(name: str) -> bool:
    """Whether a queue of this name is a FIFO queue."""
    return name.endswith(_FIFO)


# -- private ---------------------------------------------------------------------------------------------------------


def _check_name(name: str, fifo: bool) -> None:
    stem = name.removesuffix(_FIFO)
    if fifo and (not name.endswith(_FIFO) or not _NAME.fullmatch(stem) or len(name) > 80):
        raise bad_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with "
            ".fifo suffix and be 1 to 80 in length"
        )
    if not fifo and not _NAME.fullmatch(name):
        raise bad_parameter("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")


async def _made(call: Call, name: str, fifo: bool, set: Mapping[str, str], new_tags: Mapping[str, str]) -> Hosted:
    options = {"lease": 30.0, "expires": float(RETENTION), "max_attempts": LARGEST} | attributes.options(set)
    if set.get("RedrivePolicy"):
        options |= await _dead_letters(call, call.owner, name, fifo, set["RedrivePolicy"])
    now = str(int(time()))
    labels = {
        **{key: text for key, text in options.pop("labels").items() if text is not None},
        **{label(key): now for key in ("created", "modified")},
        label("account"): call.owner.account,
        label("region"): call.owner.region,
        label("seed"): secrets.token_hex(8),
        **{f"{TAG}{key}": text for key, text in new_tags.items()},
    }
    if fifo:
        options |= {"groups": True, "unique_for": KEYS_FOR}
    else:
        options["groups"] = "fair"
    try:
        stored = await call.endpoint.queues.free_name(call.owner, name)
        await call.endpoint.db.create_queue(stored, payload="text", history="none", labels=labels, **options)
    except QueueDiffers:
        pass  # another request made it just now
    call.endpoint.queues.forget(name)
    return await call.endpoint.queues.open(call.owner, name, fresh=True)


async def _dead_letters(call: Call, owner: Owner, name: str, fifo: bool, policy: str) -> dict[str, Any]:
    """Return the options of the definition that a redrive policy sets."""
    if not policy:
        return {"dead_letter_to": None, "max_attempts": LARGEST}
    arn, most = attributes.redrive_policy(policy)
    if arn == owner.arn(name):
        # Its own dead-letter queue, which AWS allows: a message received too often stays where it is.
        return {"dead_letter_to": None, "max_attempts": LARGEST}
    try:
        target = await call.endpoint.queues.open(*of_arn(arn), fresh=True)
    except SqsError:
        raise invalid(policy, "RedrivePolicy", "Dead letter target does not exist.") from None
    if target.settings.fifo is not fifo:
        raise invalid(policy, "RedrivePolicy", "Dead-letter queue must be same type of queue as the source.")
    if not _allowed(owner.arn(name), target):
        words = "The dead-letter queue does not allow this queue as a source; see its RedriveAllowPolicy."
        raise invalid(policy, "RedrivePolicy", words)
    return {"dead_letter_to": target.queue.name, "max_attempts": most}


def _is_its_own(hosted: Hosted) -> bool:
    """Whether a queue is its own dead-letter queue."""
    text = hosted.settings.labels.get(f"{PREFIX}RedrivePolicy")
    return text is not None and attributes.redrive_policy(text)[0] == hosted.arn


def _allowed(arn: str, target: Hosted) -> bool:
    """Whether a queue may send its dead letters to another one, by the other queue's policy."""
    policy = json.loads(target.settings.text("RedriveAllowPolicy") or "{}")
    match policy.get("redrivePermission", "allowAll"):
        case "denyAll":
            return False
        case "byQueue":
            return arn in policy.get("sourceQueueArns", ())
    return True


def _kept(hosted: Hosted) -> dict[str, str]:
    """Return the attributes that can be set, as they are."""
    settings = hosted.settings
    found = settings.values()
    definition, text = settings.definition, settings.labels.get(f"{PREFIX}RedrivePolicy")
    if definition.dead_letter_to is not None:
        arn = hosted.owner.arn(shown(definition.dead_letter_to, hosted.owner))
        most = definition.max_attempts
        try:
            as_set = text is not None and attributes.redrive_policy(text) == (arn, most)
        except SqsError:
            as_set = False
        if text is None or not as_set or f'"{most}"' in text:
            text = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": most}, separators=(",", ":"))
    if text is not None:
        found["RedrivePolicy"] = text
    return found


def _same(attribute: str, there: str, wanted: str) -> bool:
    """Whether two values of an attribute mean the same."""
    if attribute == "RedrivePolicy" and there and wanted:
        return attributes.redrive_policy(there) == attributes.redrive_policy(wanted)
    try:
        return there == wanted or json.loads(there) == json.loads(wanted)
    except ValueError:
        return False


def _page(call: Call, field: str, owner: Owner, names: list[str]) -> Result:
    """Return a page of the URLs of queues, and how to get the next one."""
    most, token = call.get("MaxResults"), call.get("NextToken")
    if most is not None and not 1 <= most <= MOST_LISTED:
        raise invalid(most, "MaxResults", f"MaxResults must be an integer between 1 and {MOST_LISTED}.")
    if token is not None and most is None:
        raise bad_parameter("MaxResults is a mandatory parameter when you provide a value for NextToken.")
    if token is not None:
        try:
            after = base64.b64decode(token, validate=True).decode()
        except ValueError:
            raise bad_parameter("Invalid or expired next token.") from None
        names = [name for name in names if name > after]
    page = names[: most or MOST_LISTED]
    result: Result = {field: [call.url(owner, name) for name in page]} if page else {}
    if most is not None and len(names) > len(page):
        result["NextToken"] = base64.b64encode(page[-1].encode()).decode()
    return result
