"""What some queues refuse: each verb has a table of refusals, by the conditions of these queues."""

from __future__ import annotations

from typing import NamedTuple

from tablequeue.engines.plan import Ways
from tablequeue.errors import BadInput
from tablequeue.verbs.context import Context


class Refusal(NamedTuple):
    cause: str
    """A sentence. `{queue}` stands for the kind and the name of the queue, as in: queue 'emails'."""
    remedy: str

    def error(self, context: Context) -> BadInput:
        table = context.table
        return BadInput(self.cause.format(queue=f"{table.definition.kind} {table.name!r}"), self.remedy)


def check(context: Context, refusals: Ways[Refusal]) -> None:
    """Raise the first refusal whose conditions the queue meets, if there is one."""
    for refusal in context.table.plan.steps(refusals):
        raise refusal.error(context)
