"""The errors of the messages of a batch, as the text that the row of their stream has.

A bad release of a stage may fail all messages of a batch, each with a traceback of its own. The text is one value of
one row, and fits the packet of a server with its defaults (16 MiB on MariaDB), however many messages fail.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

from tablequeue.model.message import error_text

# Maximum characters of all errors: as JSON and as a value in a statement, a character has seven bytes at most.
MOST = 2 << 20
# An error has at least so many, the end of it. Messages for which there is no room share one text.
LEAST = 100


def dump(errors: Mapping[int, str]) -> str:
    """Return the errors of messages by id as a text, shortened as far as they must be."""
    by_error: dict[str, list[int]] = defaultdict(list)
    for id, error in errors.items():
        by_error[error_text(error)].append(id)
    if sum(map(len, by_error)) > MOST:
        by_error = _shortened(by_error)
    return json.dumps(by_error, ensure_ascii=False, separators=(",", ":"))


def load(text: str) -> dict[int, str]:
    """Return the errors of messages, by id."""
    found: Mapping[str, list[int]] = json.loads(text)
    return {id: error for error, ids in found.items() for id in ids}


def _shortened(by_error: Mapping[str, list[int]]) -> dict[str, list[int]]:
    room = max(LEAST, MOST // len(by_error))
    found: dict[str, list[int]] = defaultdict(list)
    for number, (error, ids) in enumerate(by_error.items()):
        if number < MOST // room:
            kept = f"[...]{error[5 - room :]}" if len(error) > room else error
        else:
            kept = f"One of {len(by_error)} errors of this batch; other dead letters of it have theirs."
        found[kept] += ids
    return found
