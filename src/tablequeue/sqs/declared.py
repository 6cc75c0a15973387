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
    says that it is one. In a redrive policy the dead-letter queue may be named: `RedrivePolicy = {queue = "dead",
    maxReceiveCount = 3}`. `tags` are a table.
    """
    remedy = "Write a table for each queue: [orders], and below it VisibilityTimeout = 60; ['orders.fifo'] in quotes."
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"The file of queues cannot be read: {error}.", remedy) from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadInput(f"In the file of queues {name} is no table.", remedy)
    found = {}
    for name, table in tables.items():
        attributes = {key: value for key, value in table.items() if key != "tags"}
        if is_fifo(name):
            attributes.setdefault("FifoQueue", True)
        tags = {key: _text(value) for key, value in table.get("tags", {}).items()}
        found[name] = {"QueueName": name, "Attributes": attributes, "tags": tags}
    return found


async def make(endpoint: Endpoint, queues: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the queues that are not there. `BadInput` for one that cannot be made, or that has other attributes."""
    # Those with a redrive policy come after the queues that it names.
    for name in sorted(queues, key=lambda name: POLICY in queues[name]["Attributes"]):
        attributes = {}
        for key, value in queues[name]["Attributes"].items():
            if key == POLICY and isinstance(value, dict) and "queue" in value:
                arn = endpoint.place.arn(str(value["queue"]))
                value = {"deadLetterTargetArn": arn, "maxReceiveCount": value.get("maxReceiveCount")}
            attributes[key] = _text(value)
        try:
            await create_queue(Call(endpoint, {**queues[name], "Attributes": attributes}, endpoint.place, ""))
        except SqsError as error:
            raise BadInput(
                f"The queue {name} of the file cannot be made: {error.message}.".replace("..", "."),
                "Change the file, or change the queue by SetQueueAttributes, or delete it.",
            ) from None


def _text(value: Any) -> str:
    """Return a value of TOML as the text of an attribute."""
    return value if isinstance(value, str) else json.dumps(value)
