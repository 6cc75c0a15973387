"""The errors of the attempts at a message: their text, and which of them a message keeps. No database here."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tablequeue.errors import BadInput

# Of the errors of a message the first ones are kept, which say how it began, and the last ones. Unbounded, 2,999 leases
# that expired made a row of 200 KB, and each claim took three times as long.
FIRST_ERRORS, LAST_ERRORS = 3, 7
MOST_ERRORS = FIRST_ERRORS + LAST_ERRORS
# The most characters of an error that are kept. Of a longer error the beginning and the end are kept, each with
# ERROR_ENDS characters, and between them the number of characters left out: a traceback ends with its exception, which
# may have a long text.
LONGEST_ERROR = 8_000
ERROR_ENDS = 3_950


@dataclass(frozen=True, slots=True)
class AttemptError:
    """Why one attempt did not finish: the text that the consumer gave, or `lease expired`.

    error    at most 8,000 characters. Of a longer text the beginning and the end are kept, and how many are left out.
    number   which error of the message it is, from 1. A message keeps its first 3 errors and its last 7; where numbers
             are missing, errors are left out. The number of the last one is how many there were.
    """

    attempt: int
    at: datetime
    consumer: str | None
    error: str
    number: int


def error_text(error: str | BaseException) -> str:
    """Return the text of an error to keep: for an exception its traceback; see `LONGEST_ERROR`.

    People read it: characters that no database text can hold are shown as escapes.
    """
    if isinstance(error, BaseException):
        text = traceback_of(error)
    elif isinstance(error, str):
        text = str.__str__(error)
    else:
        raise BadInput(f"error is a {type(error).__name__}.", "Give a string or an exception.")
    text = text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if len(text) <= LONGEST_ERROR:
        return text
    left_out = len(text) - 2 * ERROR_ENDS
    return f"{text[:ERROR_ENDS]}\n[... {left_out} characters left out ...]\n{text[-ERROR_ENDS:]}"


def traceback_of(error: BaseException) -> str:
    """Return the whole traceback of an exception, or its class if that cannot be shown."""
    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # formatting runs code of the exception
        return f"{type(error).__name__}, which cannot be shown"


def with_error(errors: Sequence[Mapping[str, Any]], error: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the stored errors of a message and one more, as the SQL of the engines stores them."""
    kept = [*errors[:FIRST_ERRORS], *errors[1 - LAST_ERRORS :]] if len(errors) >= MOST_ERRORS else errors
    return [*kept, {"number": _number_of(errors) + 1, **error}]


def load_errors(errors: Any, load_time: Callable[[Any], datetime]) -> tuple[AttemptError, ...]:
    """Return the errors of a stored message: some drivers return JSON as text, others as values."""
    rows = stored_errors(errors)
    left_out = _number_of(rows) - len(rows)
    return tuple(
        AttemptError(
            row["attempt"],
            load_time(row["at"]),
            row["consumer"],
            row["error"],
            place if place <= FIRST_ERRORS else place + left_out,
        )
        for place, row in enumerate(rows, 1)
    )


def stored_errors(errors: Any) -> list[dict[str, Any]]:
    return json.loads(errors) if isinstance(errors, str) else errors or []


def _number_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """Return how many errors there were. An error that is alone has no number."""
    return (rows[-1].get("number") or len(rows)) if rows else 0
