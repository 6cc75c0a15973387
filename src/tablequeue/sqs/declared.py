"""Queues that are declared in a file, and made at the start of an endpoint."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tablequeue.errors import BadInput
from tablequeue.sqs.endpoint import Call, Endpoint
from tablequeue.sqs.errors import SqsError
from tablequeue.sqs.queues import create_queue, is_fifo

POLICY = "RedrivePolicy"


def declared(path: Path) -> dict[str, dict[str, Any]]:
    """Return the parameters of CreateQueue for each queue of a file; `BadInput` if it cannot be read.

    A table of the file is a queue with its attributes: `[orders]`, `VisibilityTimeout = 60`. The name of a FIFO queue
    ends with .fifo. In a redrive policy the dead-letter queue may be named: `RedrivePolicy = {queue = "dead",
    maxReceiveCount = 3}`. `tags` are a table.
    """
    remedy = "Write a table for each queue: [orders], and below it VisibilityTimeout = 60; ['orders.fifo'] in quotes."
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"The file of queues cannot be read: {error}.", remedy) from None
    found = {}
    for name, table in tables.items():
        tags = table.get("tags", {}) if isinstance(table, dict) else {}
        for part, value in ((name, table), (f"{name}.tags", tags)):
            if not isinstance(value, dict):
                raise BadInput(f"In the file of queues {part} is no table.", remedy)
        attributes = {key: value for key, value in table.items() if key != "tags"}
        for key, value in [*attributes.items(), *tags.items()]:
            if not _plain(value) or (value is tags.get(key) and isinstance(value, list | dict)):
                raise BadInput(
                    f"In the file of queues {key} of {name} is no text, number or truth value.",
                    "Write it in quotes, as a number, or as true or false.",
                )
        if is_fifo(name):
            attributes.setdefault("FifoQueue", True)
        found[name] = {
            "QueueName": name,
            "Attributes": attributes,
            "tags": {key: _text(value) for key, value in tags.items()},
        }
    return found


async def make(endpoint: Endpoint, queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the missing queues. `BadInput` for a queue that cannot be made, or that has other attributes."""
    for name in _in_order(queues):
        attributes = {}
        for key, value in queues[name]["Attributes"].items():
            if key == POLICY and isinstance(value, dict) and "queue" in value:
                arn = endpoint.owner.arn(str(value["queue"]))
                value = {"deadLetterTargetArn": arn, "maxReceiveCount": value.get("maxReceiveCount")}
            attributes[key] = _text(value)
        try:
            await create_queue(Call(endpoint, {**queues[name], "Attributes": attributes}, endpoint.owner, ""))
        except SqsError as error:
            raise BadInput(
                f"The queue {name} of the file cannot be made: {error.message}.".replace("..", "."),
                "Change the file, or change the queue by SetQueueAttributes, or delete it.",
            ) from None


def _in_order(queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names, each behind the name of its dead-letter queue. A circle of queues is refused."""
    ordered: dict[str, None] = {}

    def put(name: str, behind: frozenset[str]) -> None:
        target = _target(queues[name]["Attributes"].get(POLICY))
        if target is not None and target in queues and target not in behind:
            put(target, behind | {target})
        ordered[name] = None

    for name in queues:
        put(name, frozenset({name}))
    return [*ordered]


def _target(policy: Any) -> str | None:
    """Return the name of the dead-letter queue of a policy, if it has one: by name, or at the end of its ARN."""
    try:
        value = json.loads(policy) if isinstance(policy, str) else policy
        return str(value["queue"] if "queue" in value else value["deadLetterTargetArn"]).rpartition(":")[2]
    except (ValueError, TypeError, KeyError):
        return None  # its error is reported when the queue is made


def _plain(value: Any) -> bool:
    """Whether a value of TOML can be written as JSON: dates and times cannot."""
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def _text(value: Any) -> str:
    """Return a value of TOML as the text of an attribute."""
    return value if isinstance(value, str) else json.dumps(value)
