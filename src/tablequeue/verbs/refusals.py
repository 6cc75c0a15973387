"""What some queues refuse: each verb has a table of refusals, by the conditions of these queues."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Any, NamedTuple

from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput

# The most ids or keys that a sentence names.
NAMED = 5


class Refusal(NamedTuple):
    cause: str
    """A sentence. `{queue}` stands for the kind and the name of the queue, as in: queue 'emails'."""
    remedy: str

    def error(self, table: Table) -> BadInput:
        return BadInput(self.cause.format(queue=f"{table.definition.kind} {table.name!r}"), self.remedy)


def check(table: Table, refusals: Ways[Refusal]) -> None:
    """Raise the first refusal whose conditions the queue meets, if there is one."""
    for refusal in table.plan.steps(refusals):
        raise refusal.error(table)


def first_of(values: Collection[Any], form: Callable[[Any], str] = str) -> str:
    """Return the first values for a sentence, and dots if there are more."""
    return ", ".join(map(form, islice(values, NAMED))) + (", ..." if len(values) > NAMED else "")
