"""The contenders in the benchmarks: tablequeue, the same SQL on the bare driver, and other queues in tables.

Each is used through its public API with its best documented settings. If its documentation leaves a choice, the module
says which setting was chosen, and why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa


class Contender(ABC):
    """A queue in a database that all contenders share. It is empty before and after each call."""

    name: str
    """The name and the version."""
    fewer = 1
    """The factor by which it gets fewer messages in a round, which would otherwise take minutes."""

    @abstractmethod
    def push(self, payloads: Sequence[str]) -> None:
        """Push one by one, each flushed to the disk before the next."""

    @abstractmethod
    def push_bulk(self, payloads: Sequence[str]) -> None:
        """Push all payloads at once, in the fastest documented way."""

    @abstractmethod
    def drain_singly(self, number: int) -> list[str]:
        """Get and finish one message at a time with one thread. Return the payloads, fewer if no more are available."""

    @abstractmethod
    def drain(self, number: int) -> list[str]:
        """Get and finish this number of messages with one process at the best documented settings. Return the
        payloads."""

    @abstractmethod
    def close(self) -> None: ...


def payloads(number: int) -> list[str]:
    """Return different payloads of 100 bytes."""
    return [f"{place:0100d}" for place in range(number)]


def check(pushed: Sequence[str], delivered: Sequence[str]) -> None:
    """Check that each message was delivered once and none was lost."""
    assert len(delivered) == len(pushed), f"{len(delivered)} of {len(pushed)} messages were delivered"
    assert set(delivered) == set(pushed), "each message once"


def beside(url: str, name: str) -> str:
    """Return the path of a file or a folder for a contender, beside the SQLite database of `url`."""
    return str(Path(sa.make_url(url).database or "").with_name(name))


@contextmanager
def closing(contenders: Sequence[Contender]) -> Iterator[Sequence[Contender]]:
    try:
        yield contenders
    finally:
        for contender in contenders:
            contender.close()
