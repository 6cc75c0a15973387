"""A reference of one subscription: where each message of its topic is, and what a verb makes of that."""

from __future__ import annotations

from dataclasses import dataclass, field

# Where a message is. Those in the log have an offset from the position on; `moved` ones are in the queue of an ordered
# subscription, and no consumer has had them.
LOG, MOVED, APART, HELD, DEAD, DONE, SKIPPED, DROPPED = "log moved apart held dead done skipped dropped".split()
WAITING = (LOG, MOVED, APART)


@dataclass(eq=False)
class Held:
    """A range, or a detached message, that a consumer holds."""

    until: float
    messages: list[int]
    apart: bool


@dataclass
class Reference:
    """Messages are numbered from 0 on, in the order of their offsets. Times are seconds."""

    ordered: bool
    max_attempts: int
    pushed: list[tuple[float, str]] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)
    due: list[float] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    first: int = 0
    position: int = 0

    def push(self, now: float, group: str) -> None:
        self.pushed.append((now, group))
        self.where.append(LOG)
        self.attempts.append(0)
        self.due.append(0)

    def counts(self) -> dict[str, int]:
        names = {"waiting": WAITING, "in_progress": (HELD,), "dead": (DEAD,)}
        return {name: sum(one in places for one in self.where) for name, places in names.items()}

    def holder(self, message: int) -> Held | None:
        return next((held for held in self.held if message in held.messages), None)

    # -- what time does ----------------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """As each claim does it before."""
        self.expire(now, [held for held in self.held if held.until <= now])
        if self.ordered:
            for message in range(max(self.position, self.first), len(self.where)):
                self.where[message] = MOVED
            self.position = len(self.where)

    def expire(self, now: float, ended: list[Held]) -> None:
        for held in ended:
            self.held.remove(held)
            for message in held.messages:
                self.leave(message, now)

    def leave(self, message: int, due: float) -> None:
        """The message has failed."""
        dead = self.attempts[message] >= self.max_attempts
        self.where[message], self.due[message] = DEAD if dead else APART, due

    # -- claims ------------------------------------------------------------------------------------------------------

    def claimable(self, now: float, n: int) -> list[int]:
        """Return the messages that a claim gets, after a sweep."""
        heads: dict[object, int] = {}
        for message, where in enumerate(self.where):
            if where in (MOVED, APART, HELD):
                heads.setdefault(self.pushed[message][1] if self.ordered else message, message)
        apart = [
            message
            for message in sorted(heads.values())
            if self.where[message] == MOVED or (self.where[message] == APART and self.due[message] <= now)
        ]
        start = max(self.position, self.first)
        return apart[:n] or ([] if self.ordered else [*range(start, min(start + n, len(self.where)))])

    def claim(self, messages: list[int], until: float) -> None:
        in_range = bool(messages) and self.where[messages[0]] == LOG
        for message in messages:
            self.attempts[message] = 1 if in_range else self.attempts[message] + 1
            self.where[message] = HELD
        if in_range:
            self.position = messages[-1] + 1
        self.held += [Held(until, messages, False)] if in_range else [Held(until, [one], True) for one in messages]

    def finish(self, message: int, where: str) -> None:
        held = self.holder(message)
        assert held is not None
        held.messages.remove(message)
        self.where[message] = where
        if not held.messages:
            self.held.remove(held)

    # -- positions ---------------------------------------------------------------------------------------------------

    def seek(self, to: int, now: float) -> None:
        """What is in progress from there on loses its lease: without force there is nothing in progress."""
        self.expire(now, [held for held in self.held if held.messages and max(held.messages) >= to])
        for message, where in enumerate(self.where):
            if to <= message and message >= self.first:
                self.where[message], self.attempts[message] = LOG, 0
            elif where in (LOG, MOVED):
                self.where[message] = SKIPPED
        self.position = to

    def needed(self, young: int, consumed: bool) -> int:
        """Return the first message that a trim must keep; all from `young` on are young enough."""
        ranges = [min(held.messages) for held in self.held if not held.apart]
        return min([young, *ranges, *([self.position] if consumed else [])])

    def trim(self, first: int) -> None:
        self.first = max(self.first, first)
        for message in range(self.first):
            if self.where[message] == LOG:
                self.where[message] = DROPPED
