"""Servers that speak a database's protocol and take its SQL, and do not keep what a queue needs. They are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tablequeue.errors import BadUrl


class LookAlike(NamedTuple):
    """A server that is refused; docs/engines/compatible.md has a row for each."""

    pattern: str
    """Matches in what the server says of itself, in any case of letters."""
    name: str
    why: str


def look_alike(said: str, known: Iterable[LookAlike], engine: str) -> BadUrl | None:
    """Return the refusal of a server by what it says of itself; None if it is none of those `known`."""
    for each in known:
        if re.search(each.pattern, said, re.IGNORECASE):
            return BadUrl(
                f"The server is {each.name} ({said}), not {engine}: {each.why}.",
                f"Use {engine} itself, or a service that runs it; docs/engines/compatible.md lists them.",
            )
    return None
