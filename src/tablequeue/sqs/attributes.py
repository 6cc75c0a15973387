"""The attributes of a queue: their names, the values they may have, and where they are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from tablequeue.model.definition import Definition
from tablequeue.sqs import model
from tablequeue.sqs.errors import SqsError, bad_attribute, bad_parameter, invalid, unknown_attribute
from tablequeue.sqs.urls import Owner, is_arn

PREFIX = "sqs."
"""The prefix of the labels that belong to the SQS endpoint."""
TAG = f"{PREFIX}tag."
LARGEST_MESSAGE = 1_048_576
LONGEST_VISIBILITY = 43_200
RETENTION = 345_600
LONGEST_RETENTION = 1_209_600
KEYS_FOR = 300.0
"""Seconds for which a deduplication id of a FIFO queue stays taken."""

SCOPE_AFTER = 60
"""Seconds after which another deduplication scope counts. With AWS attributes may take as long."""

Check = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute that can be set, and is kept as a label.

    default   its value without a label; None: the queue has no such attribute then.
    fifo      whether only FIFO queues have it.
    """

    default: str | None
    allows: Check
    fifo: bool = False


def _number(low: int, high: int) -> Check:
    return lambda text: re.fullmatch("[0-9]{1,9}", text) is not None and low <= int(text) <= high


def _one_of(*texts: str) -> Check:
    return lambda text: text in texts


def _json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


_BOOLEAN = _one_of("true", "false")

KEPT: Mapping[str, Attribute] = {
    # In the definition of the queue too, if that can hold the value: see `Settings`.
    "VisibilityTimeout": Attribute("30", _number(0, LONGEST_VISIBILITY)),
    "MaximumMessageSize": Attribute(str(LARGEST_MESSAGE), _number(1024, LARGEST_MESSAGE)),
    # AWS takes 60 seconds at least. Tests of expiry would take a minute.
    "MessageRetentionPeriod": Attribute(str(RETENTION), _number(1, LONGEST_RETENTION)),
    "DelaySeconds": Attribute("0", _number(0, 900)),
    "ReceiveMessageWaitTimeSeconds": Attribute("0", _number(0, 20)),
    "Policy": Attribute(None, _json),
    "RedrivePolicy": Attribute(None, lambda text: True),  # redrive_policy() checks it
    "RedriveAllowPolicy": Attribute(None, _json),
    "KmsMasterKeyId": Attribute(None, lambda text: len(text) <= 2048),
    "KmsDataKeyReusePeriodSeconds": Attribute(None, _number(60, 86_400)),
    "SqsManagedSseEnabled": Attribute("true", _BOOLEAN),
    "FifoQueue": Attribute(None, lambda text: True, fifo=True),
    "ContentBasedDeduplication": Attribute("false", _BOOLEAN, fifo=True),
    "DeduplicationScope": Attribute("queue", _one_of("queue", "messageGroup"), fifo=True),
    "FifoThroughputLimit": Attribute("perQueue", _one_of("perQueue", "perMessageGroupId"), fifo=True),
}
BOOLEANS = ("FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled")
# Attributes that an empty value removes.
REMOVABLE = ("Policy", "RedrivePolicy", "RedriveAllowPolicy", "KmsMasterKeyId")


class Settings:
    """The attributes of a queue, from its definition and its labels."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.labels = definition.labels
        self.fifo = definition.groups is True
        self.visibility = int(self.labels.get(f"{PREFIX}VisibilityTimeout", round(definition.lease)))
        self.delay = self._number("DelaySeconds")
        self.wait = self._number("ReceiveMessageWaitTimeSeconds")
        self.largest = self._number("MaximumMessageSize")
        self.by_content = self.text("ContentBasedDeduplication") == "true"
        self.seed = self.labels.get(f"{PREFIX}seed", "")

    @property
    def by_group(self) -> bool:
        """Whether deduplication ids are unique in each message group, and not in the whole queue."""
        changed, _, before = self.labels.get(f"{PREFIX}scoped", "0 ").partition(" ")
        scope = before if time() < float(changed) + SCOPE_AFTER else self.text("DeduplicationScope")
        return scope == "messageGroup"

    def is_in(self, owner: Owner) -> bool:
        """Whether the queue belongs to that account and region; a queue made by Python belongs to all."""
        account, region = (self.labels.get(f"{PREFIX}{name}") for name in ("account", "region"))
        return account in (None, owner.account) and region in (None, owner.region)

    def owner_or(self, owner: Owner) -> Owner:
        """Return the account and region that the queue names; for a missing one, the value of the given owner."""
        account, region = (self.labels.get(f"{PREFIX}{name}") for name in ("account", "region"))
        return owner._replace(account=account or owner.account, region=region or owner.region)

    def text(self, name: str) -> str | None:
        """Return the value of an attribute that is kept; None if the queue has none."""
        attribute = KEPT[name]
        if attribute.fifo and not self.fifo:
            return None
        return self.labels.get(f"{PREFIX}{name}", attribute.default)

    def values(self) -> dict[str, str]:
        """Return the attributes that are kept, in the order of AWS, without the redrive policy."""
        found: dict[str, str | None] = {
            "CreatedTimestamp": self.labels.get(f"{PREFIX}created", "0"),
            "LastModifiedTimestamp": self.labels.get(f"{PREFIX}modified", "0"),
            **{name: self.text(name) for name in KEPT},
            "VisibilityTimeout": str(self.visibility),
            "MessageRetentionPeriod": str(round(self.definition.expires or LONGEST_RETENTION)),
            "FifoQueue": "true" if self.fifo else None,
            "RedrivePolicy": None,
        }
        if found["KmsMasterKeyId"]:
            found["KmsDataKeyReusePeriodSeconds"] = found["KmsDataKeyReusePeriodSeconds"] or "300"
            found["SqsManagedSseEnabled"] = "false"
        else:
            found["KmsDataKeyReusePeriodSeconds"] = None
        return {name: text for name, text in found.items() if text is not None}

    @property
    def tags(self) -> dict[str, str]:
        return {name[len(TAG) :]: text for name, text in self.labels.items() if name.startswith(TAG)}

    def _number(self, name: str) -> int:
        return int(self.text(name) or 0)


def checked(given: Mapping[str, str], fifo: bool, there: Mapping[str, str]) -> dict[str, str]:
    """Return attributes that a client sets, if the queue may have them; `there` are its attributes now."""
    found = {}
    for name, text in ((name.strip(), text) for name, text in given.items()):
        attribute = KEPT.get(name)
        if name in BOOLEANS:
            text = text.lower()  # boto3 is given True as often as "true"
        if not fifo and name in ("DeduplicationScope", "FifoThroughputLimit"):
            words = f"You can specify the {name} only when FifoQueue is set to true."
            raise SqsError("InvalidAttributeName", words)
        if attribute is None or (attribute.fifo and not fifo):
            raise unknown_attribute(name)
        if name == "FifoQueue" and text != "true":
            raise bad_attribute(name, "Modifying queue type is not supported.")
        if name in REMOVABLE and text in ("", "{}"):
            found[name] = ""
            continue
        if not attribute.allows(text):
            raise bad_attribute(name)
        found[name] = text
    both = {**there, **found}
    if both.get("FifoThroughputLimit") == "perMessageGroupId" and both.get("DeduplicationScope", "queue") == "queue":
        raise bad_parameter(
            "The combination of FifoThroughputLimit perMessageGroupId and DeduplicationScope queue is not allowed"
        )
    if found.get("KmsMasterKeyId") and found.get("SqsManagedSseEnabled") == "true":
        raise SqsError(
            "InvalidAttributeName",
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE.",
        )
    if found.get("RedriveAllowPolicy"):
        _check_allowance(found["RedriveAllowPolicy"])
    return found


def options(set: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of the queue's definition that attributes set, with their labels."""
    labels: dict[str, str | None] = {f"{PREFIX}{name}": text or None for name, text in set.items()}
    labels.pop(f"{PREFIX}FifoQueue", None)
    found: dict[str, Any] = {"labels": labels}
    if "VisibilityTimeout" in set:
        seconds = int(labels.pop(f"{PREFIX}VisibilityTimeout") or 0)
        found["lease"] = float(max(seconds, 1))
        labels[f"{PREFIX}VisibilityTimeout"] = None if seconds else "0"
    if "MessageRetentionPeriod" in set:
        found["expires"] = float(labels.pop(f"{PREFIX}MessageRetentionPeriod") or 0)
    if labels.get(f"{PREFIX}KmsMasterKeyId"):
        labels[f"{PREFIX}SqsManagedSseEnabled"] = "false"
    elif labels.get(f"{PREFIX}SqsManagedSseEnabled") == "true":
        labels[f"{PREFIX}KmsMasterKeyId"] = None
    return found


def redrive_policy(text: str) -> tuple[str, int]:
    """Return the ARN and the `maxReceiveCount` of a redrive policy."""
    if not _json(text):
        raise invalid(text, "RedrivePolicy", "Redrive policy is not a valid JSON map.")
    policy = json.loads(text)
    arn, most = policy.get("deadLetterTargetArn"), policy.get("maxReceiveCount")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if policy.get(name) is None:
            words = f"Redrive policy does not contain mandatory attribute: {name}."
            raise invalid(text, "RedrivePolicy", words)
    if not isinstance(arn, str) or not is_arn(arn):
        raise invalid(text, "RedrivePolicy", "Invalid value for deadLetterTargetArn.")
    try:
        number = int(most)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if isinstance(most, (bool, float)) or not 1 <= number <= 1000:
        raise invalid(
            text,
            "RedrivePolicy",
            f"Invalid value for maxReceiveCount: {most}, valid values are from 1 to 1000 both inclusive.",
        )
    return arn, number


def wanted(names: list[str]) -> list[str]:
    """Return the names of attributes that a client asks for; refuse unknown ones."""
    for name in names:
        if name not in model.values("QueueAttributeName"):
            raise unknown_attribute(name)
    return names


def _check_allowance(text: str) -> None:
    policy = json.loads(text)
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    reason = None
    if permission not in ("allowAll", "denyAll", "byQueue"):
        reason = "Amazon SQS can't create the redrive allow policy. Invalid value for redrivePermission."
    elif permission == "byQueue" and not (sources and isinstance(sources, list)):
        reason = "Amazon SQS can't create the redrive allow policy, as it has no sourceQueueArns."
    elif permission == "byQueue" and len(sources) > 10:
        reason = (
            "Amazon SQS can't create the redrive allow policy. Reduce the number of redriveAllowPolicy arns to 10 or "
            "less."
        )
    elif permission != "byQueue" and sources is not None:
        reason = "Amazon SQS can't create the redrive allow policy. Reason: sourceQueueArns are only for byQueue."
    if reason is not None:
        raise bad_attribute("RedriveAllowPolicy", reason)
