"""The claims in the ledgers of a round of topics, and how long each consumer surely held its messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf

from tests.stress.ledger import DONE, Got, Op

LEASE = 2.0
# Seconds that clocks of the database and of this machine may differ by: SQLite's has milliseconds.
CLOCKS = 0.05


@dataclass(frozen=True)
class Held:
    op: Op
    got: Got
    finishing: Op | None
    lost: float
    """When a forced seek may have ended the lease."""

    @property
    def until(self) -> float:
        """The time until which its consumer surely held the message."""
        begin = self.finishing.begin if self.finishing else inf
        return min(begin, self.lost, self.op.begin + LEASE - CLOCKS)

    def completed_after(self, time: float) -> bool:
        """Whether it was completed, or may have been by a consumer that was killed then."""
        op = self.finishing
        return op is not None and op.verb == "complete" and self.got.id not in op.lost and op.end > time


def claims_of(ops: list[Op], name: str, seeks: list[Op]) -> dict[int, list[Held]]:
    finishing = {key: op for op in ops if op.queue == name and op.verb != "pop" for key in op.held}
    claims: dict[int, list[Held]] = defaultdict(list)
    for op in ops:
        if op.queue == name and op.verb == "pop" and op.outcome == DONE:
            lost = min((seek.begin for seek in seeks if seek.by and seek.end > op.begin), default=inf)
            for got in op.got:
                claims[got.id].append(Held(op, got, finishing.get((got.id, got.token)), lost))
    return claims
