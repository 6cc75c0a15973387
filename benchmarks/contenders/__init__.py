"""Who takes part in the benchmarks: tablequeue, the same SQL by the bare driver, and other queues in tables.

Each speaks through its public API at its best documented settings. Where its documentation leaves a choice, the
module says which was taken and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


class Contender(ABC):
    """A queue of its own in a database that it shares with the other contenders; empty before and after each call."""

    name: str
    """Its name, and its version."""
    fewer = 1
    """How many times fewer messages than the others it gets in a round, which would otherwise take minutes."""

    @abstractmethod
    def push(self, payloads: Sequence[str]) -> None:
        """One by one, each on the disk before the next."""

    @abstractmethod
    def push_bulk(self, payloads: Sequence[str]) -> None:
        """All at once, by the fastest documented way."""

    @abstractmethod
    def drain_singly(self, number: int) -> list[str]:
        """Get, and finish, one message at a time by one thread; the payloads, fewer if no more are to be had."""

    @abstractmethod
    def drain(self, number: int) -> list[str]:
        """Get and finish so many messages by one process at the best documented settings; the payloads."""

    @abstractmethod
    def close(self) -> None: ...


def payloads(number: int) -> list[str]:
    """Payloads of 100 bytes, each another."""
    return [f"{place:0100d}" for place in range(number)]


def check(pushed: Sequence[str], delivered: Sequence[str]) -> None:
    """Each message once, and none lost."""
    assert len(delivered) == len(pushed), f"{len(delivered)} of {len(pushed)} messages were delivered"
    assert set(delivered) == set(pushed), "each message once"


def beside(url: str, name: str) -> str:
    """The path of a file, or a folder, of a contender's own beside the SQLite database of `url`."""
    return str(Path(sa.make_url(url).database or "").with_name(name))


@contextmanager
def closing(contenders: Sequence[Contender]) -> Iterator[Sequence[Contender]]:
    try:
        yield contenders
    finally:
        for contender in contenders:
            contender.close()
