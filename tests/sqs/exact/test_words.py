"""The codes, statuses and words of errors, to the letter as users of AWS quote them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sqs.exact.answers import answer

INVALID = "InvalidParameterValue"
MISSING = "MissingParameter"
KIND = "Reason: The request include parameter that is not valid for this queue type."
PUNCTUATION = "can only include alphanumeric and punctuation characters. 1 to 128 in length."
RANGE = "Value {} for parameter {} is invalid. Reason: Must be {}, if provided."
TEXT = {"DataType": "String", "StringValue": "x"}
CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
    "#x10000 to #x10FFFF"
)
RESERVED = (
    "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal "
    "use. Additionally, they cannot start or end with '.'."
)


def body(**options: Any) -> dict[str, Any]:
    return {"MessageBody": "x", **options}


def attribute(type: str, text: str | None = None, name: str = "n", **value: Any) -> dict[str, Any]:
    value |= {"DataType": type} if text is None else {"DataType": type, "StringValue": text}
    return body(MessageAttributes={name: value})


@pytest.mark.parametrize(
    ("operation", "options", "expected"),
    [
        ("send_message", {"MessageBody": ""}, (MISSING, "The request must contain the parameter MessageBody.")),
        ("send_message", {"MessageBody": "\x01"}, ("InvalidMessageContents", CHARACTERS)),
        (
            "send_message",
            body(DelaySeconds=901),
            (INVALID, "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."),
        ),
        (
            "send_message",
            body(MessageDeduplicationId="d"),
            (INVALID, f"Value d for parameter MessageDeduplicationId is invalid. {KIND}"),
        ),
        (
            "send_message",
            body(MessageGroupId="a b"),
            (INVALID, f"Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId {PUNCTUATION}"),
        ),
        (
            "send_message",
            attribute("Text", "x"),
            (
                INVALID,
                "The type of message (user) attribute 'n' is invalid. You must use only the following supported type "
                "prefixes: Binary, Number, String.",
            ),
        ),
        (
            "send_message",
            attribute("", "x"),
            (INVALID, "The message attribute 'n' must contain non-empty message attribute type."),
        ),
        (
            "send_message",
            attribute("String", ""),
            (INVALID, "Message (user) attribute 'n' must contain a non-empty value of type 'String'."),
        ),
        (
            "send_message",
            attribute("Binary", BinaryValue=b""),
            (INVALID, "Message (user) attribute 'n' must contain a non-empty value of type 'Binary'."),
        ),
        (
            "send_message",
            attribute("Number.int", "1a"),
            (INVALID, "Can't cast the value of message (user) attribute 'n' to a number."),
        ),
        ("send_message", attribute("String", "\x01"), (INVALID, CHARACTERS)),
        *(
            ("send_message", attribute("String", "x", name), (INVALID, RESERVED))
            for name in ("aws.x", "AMAZON.x", ".x", "x.", "a..b")
        ),
        (
            "send_message",
            attribute("String", "x", "n" * 257),
            (INVALID, "Message (user) attribute names must be shorter than 256 Bytes"),
        ),
        (
            "send_message",
            body(MessageAttributes={str(n): TEXT for n in range(11)}),
            (INVALID, "Number of message attributes [11] exceeds the allowed maximum [10]."),
        ),
        (
            "receive_message",
            {"MaxNumberOfMessages": 0},
            (INVALID, RANGE.format(0, "MaxNumberOfMessages", "between 1 and 10")),
        ),
        ("receive_message", {"WaitTimeSeconds": 21}, (INVALID, RANGE.format(21, "WaitTimeSeconds", ">= 0 and <= 20"))),
        (
            "receive_message",
            {"VisibilityTimeout": -1},
            (INVALID, RANGE.format(-1, "VisibilityTimeout", ">= 0 and <= 43200")),
        ),
        (
            "receive_message",
            {"ReceiveRequestAttemptId": "a"},
            (INVALID, f"Value a for parameter ReceiveRequestAttemptId is invalid. {KIND}"),
        ),
        ("receive_message", {"AttributeNames": ["No"]}, ("InvalidAttributeName", "Unknown Attribute No.")),
        (
            "delete_message",
            {"ReceiptHandle": "h"},
            ("ReceiptHandleIsInvalid", 'The input receipt handle "h" is not a valid receipt handle.'),
        ),
        (
            "send_message_batch",
            {"Entries": [{"Id": "a.b", "MessageBody": "x"}]},
            (
                "AWS.SimpleQueueService.InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            ),
        ),
        *(
            (
                f"{verb}_batch",
                {"Entries": []},
                (
                    "AWS.SimpleQueueService.EmptyBatchRequest",
                    f"There should be at least one {kind}BatchRequestEntry in the request.",
                ),
            )
            for verb, kind in (
                ("send_message", "SendMessage"),
                ("delete_message", "DeleteMessage"),
                ("change_message_visibility", "ChangeMessageVisibility"),
            )
        ),
        (
            "delete_message_batch",
            {"Entries": [{"Id": str(n), "ReceiptHandle": "h"} for n in range(11)]},
            (
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
                "Maximum number of entries per request are 10. You have sent 11.",
            ),
        ),
        ("get_queue_attributes", {"AttributeNames": ["No"]}, ("InvalidAttributeName", "Unknown Attribute No.")),
        *(
            (
                "set_queue_attributes",
                {"Attributes": {name: text}},
                ("InvalidAttributeValue", f"Invalid value for the parameter {name}."),
            )
            for name, text in (
                ("DelaySeconds", "901"),
                ("DelaySeconds", ""),
                ("VisibilityTimeout", "43201"),
                ("MaximumMessageSize", "1023"),
                ("MaximumMessageSize", "1048577"),
                ("MessageRetentionPeriod", "1209601"),
                ("ReceiveMessageWaitTimeSeconds", "21"),
                ("KmsDataKeyReusePeriodSeconds", "59"),
                ("SqsManagedSseEnabled", "yes"),
                ("Policy", "text"),
            )
        ),
        *(
            (
                "set_queue_attributes",
                {"Attributes": {name: "true"}},
                ("InvalidAttributeName", f"Unknown Attribute {name}."),
            )
            for name in ("FifoQueue", "ContentBasedDeduplication", "QueueArn", "All", "No")
        ),
        (
            "set_queue_attributes",
            {"Attributes": {"DeduplicationScope": "queue"}},
            ("InvalidAttributeName", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ),
        (
            "set_queue_attributes",
            {"Attributes": {"RedrivePolicy": "{"}},
            (
                INVALID,
                "Value { for parameter RedrivePolicy is invalid. Reason: Redrive policy is not a valid JSON map.",
            ),
        ),
        (
            "remove_permission",
            {"Label": "l"},
            (INVALID, "Value l for parameter Label is invalid. Reason: can't find label."),
        ),
        (
            "add_permission",
            {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]},
            (INVALID, "Value [1] for parameter PrincipalId is invalid. Reason: Unable to verify."),
        ),
    ],
)
def test_the_words_of_aws(either: Any, url: str, operation: str, options: Any, expected: tuple[str, str]) -> None:
    code, status, words = answer(getattr(either, operation), QueueUrl=url, **options)
    assert (code, words) == expected
    assert status == {"ReceiptHandleIsInvalid": 404}.get(code, 400)
