"""The numbers of a queue: how many messages are where, and what was done in the last minutes, by whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tablequeue.errors import BadInput
from tablequeue.operations.desk import Desk, seconds

# Messages of a window that are looked at, pushed and finished ones each: what bounds the cost. Measured on PostgreSQL
# and SQLite: see docs/seeing.md.
MOST = 50_000
# Pushed messages that are looked at first: nearly always they reach further back than the window.
FIRST = 1000
# Parts of the window that messages are counted in, for a plot.
SLICES = 60


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles of a duration, in seconds, as `percentile_cont` of SQL has them."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Activity:
    """What was done in a window: with a queue's messages, those of one producer, or those that one consumer finished.

    who              the name of the producer or consumer; None for the queue.
    pushed           messages pushed; `push_rate` a second. None for a consumer.
    finished         messages finished; `completion_rate` a second.
    redeliveries     attempts at the finished messages after the first one of each.
    lost             messages delivered at most once and never completed, whenever that was; None if the queue delivers
                     at least once, where none can be lost.
    wait_time        pushed to first popped, of the finished messages; None if there are none. So is `run_time`, last
                     popped to finished.
    pushed_slices    the pushed messages in each sixtieth of the window, the oldest first; so are `finished_slices`.
    """

    who: str | None
    pushed: int | None
    push_rate: float | None
    finished: int
    completion_rate: float
    redeliveries: int
    lost: int | None
    wait_time: Times | None
    run_time: Times | None
    pushed_slices: tuple[int, ...] | None
    finished_slices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The last `seconds` of a queue, as its history has them: of the queue, and of each producer and consumer by name.

    Exact while fewer than 50,000 messages were pushed, and as many finished, in the window. Of more the last 50,000
    are counted, `whole` is False, and the rates are those of the time that these reach back.
    """

    seconds: float
    whole: bool
    queue: Activity
    producers: tuple[Activity, ...]
    consumers: tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Exact counts at one moment. `finished` is None where the queue keeps no history.

    blocked     messages behind another one of their group.
    oldest_age  seconds since the first ready message was pushed; None if none is ready.
    lost        messages delivered at most once, a lease ago or longer, and never completed; None if the queue delivers
                at least once, where none can be lost.
    window      what was done lately; None if it was not asked for, or the queue keeps no history.
    """

    queue: str
    ready: int
    scheduled: int
    in_progress: int
    dead: int
    blocked: int
    oldest_age: float | None
    finished: int | None
    lost: int | None = None
    window: Window | None = None


def stats(desk: Desk, window: float | timedelta | None, now: datetime | None) -> Stats:
    length = None if window is None else _length(window)
    row = desk.runner.run(desk.engine.stats, desk.table, {"now": desk.time(now)})
    lost = _lost(desk, now)
    looked = None
    if length is not None and desk.table.definition.keeps_history:
        looked = _window(desk, length, lost, now)
    total = None if lost is None else sum(lost.values())
    return replace(Stats(desk.table.name, *row), lost=total, window=looked)


# -- private ---------------------------------------------------------------------------------------------------------

Who = str | None
Lost = dict[tuple[Who, Who], int] | None
"""By producer and consumer; None where none can be lost."""


@dataclass(slots=True)
class _Tally:
    """What is counted of one producer or consumer, or of all."""

    length: float
    lost: int | None
    pushed: int = 0
    redeliveries: int = 0
    waits: list[float] = field(default_factory=list)
    runs: list[float] = field(default_factory=list)
    pushed_slices: list[int] = field(default_factory=lambda: [0] * SLICES)
    finished_slices: list[int] = field(default_factory=lambda: [0] * SLICES)

    def push(self, ago: float, number: int) -> None:
        self.pushed += number
        self.pushed_slices[self._slice(ago)] += number

    def finish(self, wait: float, run: float, attempts: int, ago: float) -> None:
        self.waits.append(wait)
        self.runs.append(run)
        self.redeliveries += attempts - 1
        self.finished_slices[self._slice(ago)] += 1

    def activity(self, who: Who, pushed_reach: float | None, finished_reach: float) -> Activity:
        """`pushed_reach` is None for a consumer."""
        producing = pushed_reach is not None
        return Activity(
            who=who,
            pushed=self.pushed if producing else None,
            push_rate=self.pushed / pushed_reach if pushed_reach is not None else None,
            finished=len(self.runs),
            completion_rate=len(self.runs) / finished_reach,
            redeliveries=self.redeliveries,
            lost=self.lost,
            wait_time=times(self.waits),
            run_time=times(self.runs),
            pushed_slices=tuple(self.pushed_slices) if producing else None,
            finished_slices=tuple(self.finished_slices),
        )

    def _slice(self, ago: float) -> int:
        return SLICES - 1 - min(int(ago * SLICES / self.length), SLICES - 1)


def times(durations: Iterable[float]) -> Times | None:
    """Percentiles of durations; None of none."""
    ordered = sorted(durations)
    return Times(*(_percentile(ordered, share) for share in (0.5, 0.95, 0.99))) if ordered else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _length(window: float | timedelta) -> float:
    length = seconds(window, "window")
    if length < 1:
        raise BadInput(f"window is {window!r}.", "Give seconds, from 1 to 100 years, or a timedelta.")
    return length


def _lost(desk: Desk, now: datetime | None) -> Lost:
    definition = desk.table.definition
    if definition.delivery != "at_most_once":
        return None
    params = {"age": definition.lease, "now": desk.time(now)}
    rows = desk.runner.run(desk.engine.stats_lost, desk.table, params)
    return {(producer, consumer): number for producer, consumer, number in rows}


def _window(desk: Desk, length: float, lost: Lost, now: datetime | None) -> Window:
    params = {"age": length, "now": desk.time(now)}
    finished = desk.runner.run(desk.engine.stats_finished, desk.table, params | {"n": MOST})
    for most in (FIRST, MOST):
        pushed = desk.runner.run(desk.engine.stats_pushed, desk.table, params | {"n": most})
        number = sum(row[2] for row in pushed)
        if number < most:
            break
    whole = number < MOST and len(finished) < MOST
    pushed_reach = length if number < MOST else _reach(row[1] for row in pushed)
    finished_reach = length if len(finished) < MOST else _reach(row[-1] for row in finished)

    of_queue = _Tally(length, None if lost is None else sum(lost.values()))
    none_lost = None if lost is None else 0
    producers: dict[Who, _Tally] = defaultdict(lambda: _Tally(length, none_lost))
    consumers: dict[Who, _Tally] = defaultdict(lambda: _Tally(length, none_lost))
    for (producer, consumer), several in (lost or {}).items():
        producers[producer].lost = (producers[producer].lost or 0) + several
        consumers[consumer].lost = (consumers[consumer].lost or 0) + several
    for producer, ago, several in pushed:
        of_queue.push(ago, several)
        producers[producer].push(ago, several)
    for producer, consumer, *message in finished:
        of_queue.finish(*message)
        producers[producer].finish(*message)
        consumers[consumer].finish(*message)

    return Window(
        seconds=length,
        whole=whole,
        queue=of_queue.activity(None, pushed_reach, finished_reach),
        producers=tuple(producers[who].activity(who, pushed_reach, finished_reach) for who in _names(producers)),
        consumers=tuple(consumers[who].activity(who, None, finished_reach) for who in _names(consumers)),
    )


def _reach(agos: Iterable[float]) -> float:
    """How far back messages reach; at least a millisecond, for a rate is made of it."""
    return max(max(agos), 0.001)


def _names(tallies: Iterable[Who]) -> list[Who]:
    return sorted(tallies, key=lambda who: who or "")
