"""The promises of a queue in the simplest form: a dict, a sort and a few ifs. It knows nothing about databases.

test_model.py runs the same random life with this model and with each engine. If a promise leaves a choice (the first
message of a heap, the ids), the model takes it from the engine's answer, and refuses invalid choices.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from tablequeue import ALL, Definition
from tablequeue.model.states import WAITING_STATES
from tablequeue.verbs.maintain import All

Held = tuple[int, str]  # a claim: its id and its token
Which = Sequence[int] | Callable[["Item"], bool] | Literal[All.ALL]  # dead letters


class Refusal(Exception):
    """The name of the error that the verb raises, with its ids or keys."""


@dataclass
class Item:
    """A message; its fields have the names of `tablequeue.Message`."""

    payload: str
    producer: str
    pushed_at: datetime
    due_at: datetime | None = None
    priority: int = 0
    group: str | None = None
    key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    id: int = 0
    state: str = ""
    attempts: int = 0
    token: str | None = None
    consumer: str | None = None
    first_popped_at: datetime | None = None
    popped_at: datetime | None = None
    lease_until: datetime | None = None
    expires_at: datetime | None = None
    finished_at: datetime | None = None
    errors: list[tuple[int, datetime, str | None, str, int]] = field(default_factory=list)
    told: bool = False
    in_run: bool = False

    def after_run(self, state: str) -> str:
        """Return the state in which it is tried again. After a run it is blocked, as the others of its group."""
        state, self.in_run = "blocked" if self.in_run else state, False
        return state


@dataclass
class Model:
    """`settles_at_once`: the next message of a group becomes its head even `inside` a caller's transaction, and not
    after it."""

    definition: Definition
    settles_at_once: bool
    inside: bool = False
    live: dict[int, Item] = field(default_factory=dict)
    gone: dict[int, Item] = field(default_factory=dict)
    last: int = 0
    locked: set[int] = field(default_factory=set)
    """Messages that the caller's transaction has told to stop, so that no sweep beside it finds them."""

    def push(self, items: Sequence[Item], on_conflict: str, given: Sequence[int | None]) -> list[int | None]:
        """`given` contains the ids from the engine; empty if it refused the call."""
        before, refused = dict(self.live), []
        ids: list[int | None] = []
        for item, new in zip(items, given or [None] * len(items), strict=True):
            there = [id for id, one in self.live.items() if item.key is not None and item.key == one.key]
            if there:
                refused.append(item.key)
                ids += there if on_conflict == "return" else [None]
                continue
            last = max([self.last, *self.live])
            item.id = new or last + 1
            assert item.id > last, f"{item.id} is no new id"
            late = item.due_at is not None and item.due_at > item.pushed_at
            item.state = "blocked" if self.definition.grouped else "scheduled" if late else "ready"
            self.live[item.id] = item
            ids.append(item.id)
        if refused and on_conflict == "raise":
            self.live = before
            raise Refusal("DuplicateKey", tuple(refused))
        self.last = max([self.last, *self.live])
        self._settle(items[0].pushed_at)
        return ids

    def pop(self, n: int, who: str, token: str | None, lease: float, given: Sequence[int], now: datetime) -> list[Item]:
        """Without a `token` this is `take`. `given` contains the ids from the engine."""
        self.sweep(now, self.locked)
        for item in (items := self._first(n, given)):
            item.attempts += 1
            item.state, item.token, item.consumer = "in_progress", token, who
            item.popped_at, item.first_popped_at = now, item.first_popped_at or now
            if token is None:
                self._finish(item, now)
            elif self.definition.delivery == "at_most_once":
                self.gone[item.id] = self.live.pop(item.id)
            else:
                item.lease_until = now + timedelta(seconds=lease)
        self._settle(now)
        return items

    def pop_run(self, n: int, who: str, token: str, lease: float, now: datetime) -> list[Item]:
        """The next ready message, and those that are blocked behind it in its group; it ends before one due later."""
        self.sweep(now)
        run = self._first(1, ())
        for _, item in sorted(self.live.items()):
            if not run or len(run) == n:
                break
            if item.state == "blocked" and item.group == run[0].group:
                if item.due_at is not None and item.due_at > now:
                    break
                run.append(item)
        for item in run:
            item.attempts += 1
            item.state, item.token, item.consumer, item.in_run = "in_progress", token, who, True
            item.popped_at, item.first_popped_at = now, item.first_popped_at or now
            item.lease_until = now + timedelta(seconds=lease)
        self._settle(now)
        return sorted(run, key=lambda item: item.id)

    def complete(self, claims: Iterable[Held], now: datetime) -> None:
        for item in self._held(claims, now):
            self._finish(item, now)

    def fail(self, claim: Held, attempt: int, error: str, retry_in: float | None, now: datetime) -> str:
        backoff, state = self.definition.backoff, "lost"
        wait = min(backoff.cap, backoff.base * backoff.factor ** (attempt - 1)) if retry_in is None else retry_in
        for item in self._held([claim], now):
            item.errors.append((item.attempts, now, item.consumer, error, len(item.errors) + 1))
            item.token = item.lease_until = None
            if item.told:
                self._cancelled(item, now)
                state = "cancelled"
            elif item.id in self.live:
                spent = item.attempts >= self.definition.max_attempts
                live = "scheduled" if wait else "ready"
                item.state = state = "dead" if spent and not is_over(item, now) else item.after_run(live)
                item.due_at = item.due_at if state == "dead" else now + timedelta(seconds=wait)
        return state

    def release(self, claims: Iterable[Held], delay: float, now: datetime) -> None:
        for item in self._held(claims, now):
            if item.told:
                self._cancelled(item, now)
                continue
            item.attempts -= 1
            item.token = item.lease_until = None
            item.state = item.after_run("scheduled" if delay else "ready")
            item.due_at = now + timedelta(seconds=delay) if delay else item.due_at

    def extend(self, claim: Held, seconds: float, now: datetime) -> datetime:
        until = now + timedelta(seconds=seconds)
        for item in self._held([claim], now):
            item.lease_until = until
        return until

    def cancel(self, ids: Iterable[int], now: datetime) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the ids of messages that are gone, of those that were told to stop, and of no message."""
        there = {id: self.live.get(id) for id in sorted({*ids})}
        told = tuple(id for id, item in there.items() if item and item.state == "in_progress")
        gone = tuple(id for id, item in there.items() if item and item.state != "in_progress")
        for id in told:
            self.live[id].told = True
        for id in gone:
            self._cancelled(self.live[id], now)
        self._settle(now)
        return gone, told, tuple(id for id, item in there.items() if item is None)

    def reschedule(self, id: int, delay: float | None, priority: int | None, now: datetime) -> bool:
        item = self.live.get(id)
        if item is None or item.state in ("in_progress", "dead"):
            return False
        item.priority = item.priority if priority is None else priority
        if delay is not None:
            item.due_at = now + timedelta(seconds=delay)
            item.state = "blocked" if item.state == "blocked" else "scheduled" if delay else "ready"
        return True

    def redrive(self, which: Which, now: datetime) -> int:
        for item in (letters := self._dead(which)):
            item.state, item.attempts = "blocked" if self.definition.grouped else "ready", 0
            item.due_at = item.due_at if self.definition.order == "due" else None
            item.expires_at = None
        self._settle(now)
        return len(letters)

    def purge_dead(self, which: Which) -> int:
        return _delete(self.live, self._dead(which))

    def purge(self) -> int:
        return _delete(self.live, [item for item in self.live.values() if item.state not in ("in_progress", "dead")])

    def purge_history(self, older_than: float, now: datetime) -> int:
        before = now - timedelta(seconds=older_than)
        left = {id: item.finished_at or item.popped_at or now for id, item in self.gone.items()}
        return _delete(self.gone, [item for id, item in self.gone.items() if left[id] <= before])

    def _first(self, n: int, given: Sequence[int]) -> list[Item]:
        """Return the ready messages that come first in the order of the definition; in a heap, any."""
        order = self.definition.order
        ready = [item for id, item in sorted(self.live.items()) if item.state == "ready"]
        if order == "heap" and len(given) == min(n, len(ready)) and set(given) <= {item.id for item in ready}:
            return [self.live[id] for id in given]
        if self.definition.fair and len(given) == min(n, len(ready)):
            return _in_turn(ready, given)
        ranks: dict[str, Callable[[Item], Any]] = {
            "lifo": lambda item: -item.id,
            "due": lambda item: item.due_at,
            "priority": lambda item: -item.priority,
        }
        return sorted(ready, key=ranks.get(order, lambda item: item.id))[:n]

    def _held(self, claims: Iterable[Held], now: datetime) -> Iterator[Item]:
        """Return the messages that the claims hold. At the end, refuse the claims that no longer hold one."""
        messages, unique = self.gone | self.live, sorted(set(claims))
        lost = tuple(id for id, token in unique if id not in messages or messages[id].token != token)
        yield from [messages[id] for id, token in unique if id in messages and messages[id].token == token]
        self._settle(now)
        if lost:
            raise Refusal("LeaseLost", lost)

    def _finish(self, item: Item, now: datetime) -> None:
        self.live.pop(item.id, None)
        item.state, item.finished_at, item.token, item.lease_until = "finished", now, None, None
        if self.definition.keeps_history:
            self.gone[item.id] = item

    def _cancelled(self, item: Item, now: datetime) -> None:
        self._finish(item, now)
        item.state = "cancelled"

    def _dead(self, which: Which) -> list[Item]:
        chosen = which if callable(which) else lambda item: which is ALL or item.id in which
        return [item for item in self.live.values() if item.state == "dead" and chosen(item)]

    def sweep(self, now: datetime, locked: Container[int] = ()) -> None:
        for item in [item for id, item in self.live.items() if id not in locked]:
            if item.state == "scheduled" and item.due_at is not None and item.due_at <= now:
                item.state = "ready"
            elif item.state == "in_progress" and item.lease_until is not None and item.lease_until <= now:
                item.errors.append((item.attempts, now, item.consumer, "lease expired", len(item.errors) + 1))
                if item.told:
                    self._cancelled(item, now)
                    continue
                spent = item.attempts >= self.definition.max_attempts
                item.state = "dead" if spent and not is_over(item, now) else item.after_run("ready")
                item.token = item.lease_until = None
        self._expire(now, locked)
        self._settle(now)

    def _expire(self, now: datetime, locked: Container[int]) -> None:
        for item in [item for id, item in self.live.items() if id not in locked]:
            if item.state in WAITING_STATES and is_over(item, now):
                if self.definition.keeps_history:
                    self._finish(item, now)
                    item.state = "expired"
                else:
                    item.errors.append((item.attempts, now, item.consumer, "expired", len(item.errors) + 1))
                    item.state = "dead"

    def _settle(self, now: datetime) -> None:
        """In each group without a head, make the lowest blocked id the head."""
        if not self.definition.grouped or (self.inside and not self.settles_at_once):
            return
        heads = {item.group for item in self.live.values() if item.state not in ("blocked", "dead")}
        for _, item in sorted(self.live.items()):
            if item.state == "blocked" and item.group not in heads:
                item.state = "scheduled" if item.due_at is not None and item.due_at > now else "ready"
                heads.add(item.group)


def _in_turn(ready: Sequence[Item], given: Sequence[int]) -> list[Item]:
    """Return the first message of each group, then the second ones, and so on; in each round the groups as given."""
    rest: dict[str | None, list[Item]] = {}
    for item in ready:
        rest.setdefault(item.group, []).append(item)
    group_of = {item.id: item.group for item in ready}
    items: list[Item] = []
    waiting: list[str | None] = []
    for id in given:
        waiting = waiting or [group for group in rest if rest[group]]
        group = group_of.get(id)
        if group not in waiting:
            group = waiting[0]
        waiting.remove(group)
        items.append(rest[group].pop(0))
    return items


def is_over(item: Item, now: datetime) -> bool:
    return item.expires_at is not None and item.expires_at <= now


def _delete(table: dict[int, Item], items: list[Item]) -> int:
    return len([table.pop(item.id) for item in items])
