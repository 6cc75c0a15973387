"""Batches: up to ten entries with ids of their own, each of which may fail alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tablequeue.sqs.errors import SqsError

MOST = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_entries(entries: Sequence[Mapping[str, Any]], kind: str) -> None:
    """Refuse a batch that is empty or too large, or whose ids are not valid and distinct."""
    if not entries:
        words = f"There should be at least one {kind}BatchRequestEntry in the request."
        raise SqsError("EmptyBatchRequest", words)
    if len(entries) > MOST:
        words = f"Maximum number of entries per request are {MOST}. You have sent {len(entries)}."
        raise SqsError("TooManyEntriesInBatchRequest", words)
    seen: set[str] = set()
    for entry in entries:
        id = entry["Id"]
        if not _ID.fullmatch(id):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            )
        if id in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {id} repeated.")
        seen.add(id)


def failed(id: str, error: SqsError) -> dict[str, Any]:
    """Return the entry of a result for one that failed."""
    return {"Id": id, "SenderFault": error.sender, "Code": error.code, "Message": error.message}


def answer(successful: list[dict[str, Any]], failures: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a batch: a list is left out if it is empty."""
    lists = {"Successful": successful, "Failed": failures}
    return {name: entries for name, entries in lists.items() if entries}
