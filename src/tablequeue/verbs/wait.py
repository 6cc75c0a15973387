"""Waiting for messages: until a push wakes the waiter, a message is due, or the pause between two looks is over."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from threading import Event
from time import monotonic, sleep
from typing import Self

from tablequeue.engines.reads import Next
from tablequeue.model.pacing import Duration, in_seconds
from tablequeue.verbs.context import Context, seconds

# Seconds between two looks: the first pause, and the longest, up to which it doubles while nothing comes. With a
# notifier they are for lost wake-ups: the push looked for waiters a moment too early, or the notifier does not work.
PAUSES = (0.01, 0.5)
PAUSES_WITH_NOTIFIER = (0.1, 10.0)

# Maximum random back-off, in seconds, after a wasted wake-up: the first, and the longest, up to which it doubles until
# the waiter finds something. One push wakes all waiters, and one of them gets the message. 200 of them that popped at
# once did little else: 200 consumers and 200 producers had a tenth of the rate of 10 and 10. The longest is what a
# message may wait when the other consumers are busy.
BACK_OFF = (0.002, 0.1)

# Seconds between two looks while an open transaction pushes: a fraction of the time that it has been open, within
# bounds. So a commit is seen late by that fraction at the most.
PUSHING_FRACTION = 0.25
PUSHING_PAUSES = (0.002, 0.25)

# Seconds between two looks of a consumer while a limit of the queue holds its messages back: the first pause, and the
# longest. Nothing wakes it: pushes do not help it, and the consumer that finishes a message mostly pops the next one
# itself. The time at which the rate allows a message is known; up to as much again is random, so that not all look at
# once.
HELD_PAUSES = (0.02, 0.25)

INFINITE = float("inf")


class Waiter:
    """Waits at a queue for one consumer or one worker. Only `wake` may be called by another thread.

    longest   the longest pause between two looks; None: as long as the engine's notifier allows.
    on_push   what the notifier calls, in its own thread, to end a pause; None: what ends `wait`.
    """

    def __init__(
        self, context: Context, longest: Duration | None = None, on_push: Callable[[], None] | None = None
    ) -> None:
        self._context = context
        self._notifier = context.runner.notifier
        self._longest = None if longest is None else seconds(longest, "longest_pause")
        self._event = Event()
        self._on_push = on_push or self._event.set
        self._called = False
        self._pause = 0.0
        self._looked_early = False
        self._back_off = 0.0
        self._busy_since: float | None = None
        self._pushing_since: float | None = None
        self._held = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def wake(self) -> None:
        """End the wait of another thread; if it does not wait, its next one."""
        self._called = True
        self._event.set()

    def found(self) -> None:
        """Note that a pop found something."""
        if self.is_busy():
            self.leave()

    def is_busy(self) -> bool:
        """Note that a pop found something; return whether it has done so for so long that pushes need not notify."""
        self._pause, self._looked_early, self._back_off = 0.0, False, 0.0
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        return self._notifier is not None and now - self._busy_since >= self._notifier.busy_after

    def was_held(self) -> bool:
        """Whether a limit of the queue may be why the last pop found nothing: a message is ready."""
        if not self._context.table.definition.limited:
            return False
        coming = self._look()
        return bool(coming.held) or (coming.seconds is not None and coming.seconds <= 0)

    def looks_everywhere(self) -> bool:
        """Let the next pop find every message that is ready; return whether the last pop may have missed one.

        It may miss one while a transaction holds an old snapshot, because a look at all index entries takes long then.
        """
        return self._context.table.forget_marks()

    def wait(self, limit: Duration | None = None) -> None:
        """Wait, after a pop that found nothing, until another pop may find something, or until `limit` is over.

        `limit` is seconds, or a timedelta; None: no limit. It costs one small read in each pause. Ends at the moment
        when a message becomes due or its lease ends.
        """
        end = INFINITE if limit is None else monotonic() + in_seconds(limit)
        while not self._called and (pause := self.pause(end)) is not None:
            woken = self._event.wait(pause)
            self._event.clear()
            if woken and self.pops_at_once:
                sleep(self.back_off(end))
                break
            if not woken and self.looks_miss:
                break
        self._called = False

    @property
    def pops_at_once(self) -> bool:
        """Whether to pop after a wake-up without another look, which saves a round trip.

        One push wakes all waiters, and all but one pop in vain. A look would not avoid that: they are woken at the
        same moment, and until the first claim has committed all of them see the message ready.
        """
        return self._notifier is not None and self._notifier.exact

    @property
    def looks_miss(self) -> bool:
        """Whether to pop after a pause without another look, which may not see each lease that has ended.

        A look that does not begin at the start of the index misses a lease that was shortened. A sweep finds it, and
        also finished batches, and messages that no longer wait for others.
        """
        definition = self._context.table.definition
        return self._context.table.walks.marked or definition.batches or definition.dependencies

    def back_off(self, end: float) -> float:
        """Return the seconds to sleep between a wake-up and the pop: 0 unless the last wake-up was wasted."""
        self._pushing_since = None  # another push has begun
        seconds = random() * self._back_off
        self._back_off = min(max(BACK_OFF[0], self._back_off * 2), BACK_OFF[1])
        return max(0.0, min(seconds, end - monotonic()))

    def pause(self, end: float) -> float | None:
        """Return the seconds until the next look, if no wake-up comes; None: pop now, or `end` has come."""
        self._busy_since = None
        # In this order: the notifier reports a push that comes after the look.
        notifier = None if self._held else self._notifier  # pushes need wake nobody while nothing can be claimed
        listening = notifier is not None and notifier.attend(self._context.table, self._on_push)
        coming = self._look()
        definition = self._context.table.definition
        # A push may bring a message of a group below its limit.
        held = bool(coming.paused or (coming.held and not definition.group_limited))
        if held and not self._held:
            self.leave()
        self._held = held
        due = INFINITE if coming.seconds is None else float(coming.seconds)
        if due <= 0 and not self._looked_early:
            # It came since the pop: pop at once. If it is locked, that pop does not find it either: pause after it.
            self._looked_early = True
            return None
        self._looked_early = False
        left = end - monotonic()
        if left <= 0:
            return None
        if definition.limited and not coming.paused and (coming.held or due <= 0):
            longest = (PAUSES_WITH_NOTIFIER if listening else PAUSES)[1] if definition.group_limited else INFINITE
            return min(self._held_pause(due), left, longest)
        pause = self._pushing_pause() if coming.pushing else self._next_pause(listening)
        return min(pause, left, due if due > 0 else pause)

    def leave(self) -> None:
        """Stop waiting: pushes need not wake this waiter any more."""
        if self._notifier is not None:
            self._notifier.leave(self._context.table, self._on_push)

    # -- private -----------------------------------------------------------------------------------------------------

    def _look(self) -> Next:
        return self._context.run(self._context.reads.until_next, {"now": None})

    def _held_pause(self, due: float) -> float:
        """Return the seconds until the next look at a limit, or until the rate allows a message."""
        shortest, longest = HELD_PAUSES
        self._pause = min(max(shortest, self._pause * 2), longest)
        if due <= 0:  # another consumer was first
            return self._pause
        if self._context.table.definition.limits_in_progress:
            return min(due, self._pause)
        return due + random() * min(due, longest)

    def _pushing_pause(self) -> float:
        now = monotonic()
        if self._pushing_since is None:
            self._pushing_since = now
        shortest, longest = PUSHING_PAUSES
        return min(max(shortest, (now - self._pushing_since) * PUSHING_FRACTION), longest)

    def _next_pause(self, listening: bool) -> float:
        self._pushing_since = None
        shortest, longest = PAUSES_WITH_NOTIFIER if listening else PAUSES
        longest = longest if self._longest is None else min(longest, self._longest)
        if self._context.table.definition.dependencies:  # no notification reports their ends
            longest = min(longest, PAUSES[1])
        self._pause = min(max(shortest, self._pause * 2), longest)
        return self._pause
