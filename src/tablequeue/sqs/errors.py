"""The errors of SQS: a code, a message and a status, as AWS answers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tablequeue.errors import Conflict, ConnectionLost, Locked, Unreachable

PASSING = (Unreachable, ConnectionLost, Locked, Conflict)
"""Errors of the database after which a client should try again."""
_PREFIX = "AWS.SimpleQueueService."

# The name of an error in JSON, its code in the query protocol if that differs, and its status if not 400.
_CODES: dict[str, tuple[str, int]] = {
    "BatchEntryIdsNotDistinct": (f"{_PREFIX}BatchEntryIdsNotDistinct", 400),
    "BatchRequestTooLong": (f"{_PREFIX}BatchRequestTooLong", 400),
    "EmptyBatchRequest": (f"{_PREFIX}EmptyBatchRequest", 400),
    "InvalidBatchEntryId": (f"{_PREFIX}InvalidBatchEntryId", 400),
    "InvalidParameterValueException": ("InvalidParameterValue", 400),
    "InternalFailure": ("InternalFailure", 500),
    "MissingRequiredParameterException": ("MissingParameter", 400),
    "OverLimit": ("OverLimit", 403),
    "PurgeQueueInProgress": (f"{_PREFIX}PurgeQueueInProgress", 403),
    "QueueDeletedRecently": (f"{_PREFIX}QueueDeletedRecently", 400),
    "QueueDoesNotExist": (f"{_PREFIX}NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "ReceiptHandleIsInvalid": ("ReceiptHandleIsInvalid", 404),
    "RequestEntityTooLarge": ("RequestEntityTooLarge", 413),
    "ResourceNotFoundException": ("ResourceNotFoundException", 404),
    "ServiceUnavailable": ("ServiceUnavailable", 503),
    "TooManyEntriesInBatchRequest": (f"{_PREFIX}TooManyEntriesInBatchRequest", 400),
    "UnsupportedOperation": (f"{_PREFIX}UnsupportedOperation", 400),
    **{
        name: (name, 403)
        for name in ("AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "MissingAuthenticationToken")
    },
}
# Errors that every service has; the others are of SQS.
_COMMON = ("Exception", "InvalidAction", "SerializationException", "UnknownOperationException")


class SqsError(Exception):
    """A request cannot be answered.

    name      the error's name in JSON: `QueueDoesNotExist`.
    code      the error's name in the query protocol: `AWS.SimpleQueueService.NonExistentQueue`.
    status    the status of the response.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message
        self.code, self.status = _CODES.get(name, (name, 400))

    @property
    def sender(self) -> bool:
        """Whether the client is to blame."""
        return self.status < 500

    @property
    def type(self) -> str:
        """The value of `__type` in JSON."""
        common = self.name.endswith(_COMMON) and self.name != "ResourceNotFoundException"
        return f"{'com.amazon.coral.service' if common else 'com.amazonaws.sqs'}#{self.name}"


NO_QUEUE = "The specified queue does not exist."


def no_queue(why: str = "") -> SqsError:
    return SqsError("QueueDoesNotExist", NO_QUEUE + why)


def missing(parameter: str) -> SqsError:
    return SqsError("MissingRequiredParameterException", f"The request must contain the parameter {parameter}.")


def invalid(value: Any, parameter: str, reason: str) -> SqsError:
    return bad_parameter(f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def bad_parameter(message: str) -> SqsError:
    return SqsError("InvalidParameterValueException", message)


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def bad_attribute(name: str, reason: str = "") -> SqsError:
    message = f"Invalid value for the parameter {name}."
    return SqsError("InvalidAttributeValue", f"{message} Reason: {reason}" if reason else message)


def check_range(value: int | None, parameter: str, low: int, high: int, reason: str) -> None:
    """Refuse a number that is not from `low` to `high`."""
    if value is not None and not low <= value <= high:
        raise invalid(value, parameter, reason)


def check_characters(text: str, allowed: Iterable[range], message: str) -> None:
    """Refuse a text with characters outside the ranges."""
    ranges = tuple(allowed)
    if not all(any(ord(character) in range for range in ranges) for character in text):
        raise SqsError("InvalidMessageContents", message)
