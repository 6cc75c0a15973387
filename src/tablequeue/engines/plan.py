"""What the definition of a queue decides, each thing once.

A verb that has several ways names them in a table, with the conditions that texts have too: see conditions.py.

    PURGED = Ways({"batches": end_batches})

The plan of a queue chooses at the first call, and remembers it. A queue that is altered gets a new plan. What an
operation chooses is a function: see `Table.bound`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Generic, TypeVar

from tablequeue.engines.texts import meets

T = TypeVar("T")


class Ways(Generic[T]):
    """Ways to do one thing, each with the conditions of the queues that it is for; "" is for all queues."""

    def __init__(self, ways: Mapping[str, T]) -> None:
        self.ways = ways


class Plan:
    """The ways that one queue goes, by the conditions that its definition and its engine meet."""

    def __init__(self, met: Set[str]) -> None:
        self.met = met
        self._chosen: dict[Ways[Any], tuple[Any, ...]] = {}

    def way(self, ways: Ways[T]) -> T:
        """Return the first of the ways whose conditions the queue meets."""
        return self.steps(ways)[0]

    def steps(self, ways: Ways[T]) -> tuple[T, ...]:
        """Return all of the ways whose conditions the queue meets, in order."""
        try:
            return self._chosen[ways]
        except KeyError:
            chosen = tuple(way for needed, way in ways.ways.items() if meets(needed, self.met))
            self._chosen[ways] = chosen
            return chosen
