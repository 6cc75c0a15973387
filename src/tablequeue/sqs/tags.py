"""Tags of queues: kept as labels, without effect."""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.sqs.attributes import TAG
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import bad_parameter, missing
from tablequeue.sqs.messages import check_text

MOST = 50
LONGEST_KEY, LONGEST_VALUE = 128, 256


async def tag_queue(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    new = call.parameters["Tags"]
    if not new:
        raise missing("Tags")
    check({**hosted.settings.tags, **new}, hosted.name)
    await hosted.queue.alter(labels={f"{TAG}{key}": text for key, text in new.items()})
    return {}


async def untag_queue(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    keys = call.parameters["TagKeys"]
    if not keys or not all(1 <= len(key) <= LONGEST_KEY for key in keys):
        raise bad_parameter(f"Tag keys must be between 1 and {LONGEST_KEY} characters in length.")
    await hosted.queue.alter(labels={f"{TAG}{key}": None for key in keys})
    return {}


async def list_queue_tags(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    return {"Tags": found} if (found := hosted.settings.tags) else {}


def check(tags: Mapping[str, str], queue: str) -> None:
    """Refuse tags that a queue cannot have."""
    if len(tags) > MOST:
        raise bad_parameter(f"Too many tags added for queue {queue}.")
    if not all(1 <= len(key) <= LONGEST_KEY for key in tags):
        raise bad_parameter(f"Tag keys must be between 1 and {LONGEST_KEY} characters in length.")
    if not all(len(text) <= LONGEST_VALUE for text in tags.values()):
        raise bad_parameter(f"Tag values must be between 0 and {LONGEST_VALUE} characters in length.")
    for text in [*tags, *tags.values()]:
        check_text(text)
