"""The remedy for a missing right: the statement that gives it."""

from __future__ import annotations

import re
from collections.abc import Sequence

GRANT = "Grant the rights, or use another user."


def granting(words: str, grants: Sequence[tuple[str, str]]) -> str:
    """Return the statement that the owner runs, if the words of the server tell it; else `GRANT`.

    grants   for each pattern of such words a statement, in which {0} is the first group of the pattern, and so on.
    """
    for pattern, statement in grants:
        if found := re.search(pattern, words):
            return f"As the owner, run: {statement.format(*found.groups())}; or use another user."
    return GRANT
