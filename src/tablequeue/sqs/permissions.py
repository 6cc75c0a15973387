"""AddPermission and RemovePermission: statements in the policy of a queue, which is kept and has no effect."""

from __future__ import annotations

import json
import re
from typing import Any

from tablequeue.sqs import model
from tablequeue.sqs.endpoint import Call, Result
from tablequeue.sqs.errors import SqsError, bad_parameter, invalid, missing
from tablequeue.sqs.hosted import Hosted, label

MOST_ACTIONS = 7
_OF_OWNER = (
    "AddPermission CancelMessageMoveTask CreateQueue DeleteQueue ListMessageMoveTasks ListQueues ListQueueTags "
    "RemovePermission SetQueueAttributes StartMessageMoveTask TagQueue UntagQueue"
).split()
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")


async def add_permission(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    name, accounts, actions = (call.parameters[key] for key in ("Label", "AWSAccountIds", "Actions"))
    if not _LABEL.fullmatch(name):
        raise bad_parameter(
            f"Value {name} for parameter Label is invalid. Reason: Can only include alphanumeric characters, hyphens, "
            "or underscores. 1 to 80 in length"
        )
    policy = _policy(hosted)
    if any(statement.get("Sid") == name for statement in policy["Statement"]):
        raise invalid(name, "Label", "Already exists.")
    if not actions:
        raise missing("Actions")
    if not accounts or not all(re.fullmatch(r"\d{12}", account) for account in accounts):
        raise invalid(f"[{', '.join(accounts)}]", "PrincipalId", "Unable to verify.")
    if len(actions) > MOST_ACTIONS:
        raise SqsError("OverLimit", f"{len(actions)} Actions were found, maximum allowed is {MOST_ACTIONS}.")
    for action in actions:
        if action in _OF_OWNER:
            words = "Only the queue owner is allowed to invoke this action."
            raise invalid(f"SQS:{action}", "ActionName", words)
        if action != "*" and model.operation(action) is None:
            raise invalid(
                f"SQS:{action}", "ActionName", "Please refer to the appropriate WSDL for a list of valid actions."
            )
    principals = [f"arn:aws:iam::{account}:root" for account in accounts]
    statement = {
        "Sid": name,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all(principals)},
        "Action": _one_or_all([f"SQS:{action}" for action in actions]),
        "Resource": hosted.arn,
    }
    await _keep(hosted, {**policy, "Statement": [*policy["Statement"], statement]})
    return {}


async def remove_permission(call: Call) -> Result:
    hosted = await call.queue(fresh=True)
    name = call.parameters["Label"]
    policy = _policy(hosted)
    left = [statement for statement in policy["Statement"] if statement.get("Sid") != name]
    if len(left) == len(policy["Statement"]):
        raise invalid(name, "Label", "can't find label.")
    await _keep(hosted, {**policy, "Statement": left} if left else None)
    return {}


def _policy(hosted: Hosted) -> dict[str, Any]:
    text = hosted.settings.text("Policy")
    if text:
        policy: dict[str, Any] = {"Statement": [], **json.loads(text)}
        return policy
    return {"Version": "2008-10-17", "Id": f"{hosted.arn}/SQSDefaultPolicy", "Statement": []}


async def _keep(hosted: Hosted, policy: dict[str, Any] | None) -> None:
    text = None if policy is None else json.dumps(policy, separators=(",", ":"))
    await hosted.queue.alter(labels={label("Policy"): text})


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values
