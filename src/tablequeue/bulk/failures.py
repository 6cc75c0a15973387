"""What the row of a stream says of its open batch: how often it was begun, which messages fail, and why.

A bad release of a stage may fail all messages of a batch, each with a traceback of its own. The text is one value of
one row, and fits the packet of a server with its defaults (16 MiB on MariaDB), however many messages fail.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tablequeue.model.attempts import error_text

# Maximum characters of all errors: as JSON and as a value in a statement, a character has seven bytes at most.
MOST = 2 << 20
# The least number of characters that are kept of an error: its end. If even that is too much, the other messages have
# one text together.
LEAST = 100


@dataclass(frozen=True, slots=True)
class Failures:
    """begun      how often a run began the batch, and gave no reason why it did not end it.
    errors     the messages that become dead letters when the batch is completed: their ids, by the text of the error.
    excluded   the ids of messages that are not read any more, because they end the process that processes them.
    suspects   the lowest and the highest id of the messages among which such a message is searched.
    """

    begun: int = 0
    errors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    excluded: Sequence[int] = ()
    suspects: tuple[int, int] | None = None

    @classmethod
    def load(cls, text: str) -> Failures:
        return cls(**json.loads(text))

    def dump(self) -> str:
        found = {name: value for name in self.__slots__ if (value := getattr(self, name))}
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    def by_id(self) -> dict[int, str]:
        """Return the errors of messages, by id."""
        return {id: error for error, ids in self.errors.items() for id in ids}


def grouped(errors: Mapping[int, str]) -> dict[str, list[int]]:
    """Return the ids of messages by their errors, shortened as far as they must be."""
    by_error: dict[str, list[int]] = defaultdict(list)
    for id, error in errors.items():
        by_error[error_text(error)].append(id)
    return _shortened(by_error) if sum(map(len, by_error)) > MOST else by_error


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
