"""The numbers of a queue: how many messages are in each state, and what each producer and consumer did lately."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from tablequeue.engines.rows import FailedRow, FinishedRow, LostRow, PushedRow, StatsRow
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput
from tablequeue.model.pacing import Duration, Rate
from tablequeue.verbs import control
from tablequeue.verbs.context import Context, Params, seconds

# The most pushed messages, and the most finished messages, that are read for a window: this bounds the cost. On SQLite
# so many take 0.3 s of a processor, nearly all of it to read them; an empty window takes 4 ms.
MOST = 50_000
# Pushed messages that are read first, then ten times as many: mostly the first ones reach further back than the window.
FIRST = 1000
# The most messages of each state in the queue for which failed attempts are counted.
LIVE = 10_000
# The most finished messages that are counted: of more, the engine returns an estimate. `stats_history` has the same
# number.
COUNTED = 100_000
# The number of equal intervals of the window in which messages are counted, for a plot.
SLICES = 60


@dataclass(frozen=True, slots=True)
class Times:
    """Percentiles of a duration, in seconds, as `percentile_cont` of SQL computes them."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Activity:
    """The activity in a window: of a queue, of one producer, or of one consumer.

    who              the name of the producer or consumer; None for the queue.
    pushed           messages pushed; `push_rate` a second. None for a consumer.
    finished         messages finished; `completion_rate` a second.
    failed           attempts that failed or lost their lease, of messages in the queue and of finished ones; None for a
                     producer. The first 3 errors and the last 7 of a message count.
    redeliveries     attempts at the finished messages after the first one of each.
    lost             messages delivered at most once and never completed, at any time; None if the queue delivers at
                     least once, where none can be lost.
    wait_time        from the push to the first pop, of the finished messages; None if there are none.
    run_time         from the last pop to the finish; None if there are none.
    pushed_slices    the pushed messages in each sixtieth of the window, the oldest first; `finished_slices` and
                     `failed_slices` likewise.
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
    failed: int | None
    failed_slices: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Window:
    """The activity in the last `seconds`: of the queue, and of each producer and consumer, sorted by name.

    Exact while fewer than 50,000 messages were pushed, and fewer than 50,000 finished, in the window. If there were
    more, the last 50,000 count, `exact` is False, and the rates are over the time since the first of these. Failed
    attempts are counted for the last 50,000 messages that left the queue, and for up to 10,000 of each state in it.
    """

    seconds: float
    exact: bool
    queue: Activity
    producers: tuple[Activity, ...]
    consumers: tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a subscription is behind its topic.

    messages   messages that no consumer has claimed.
    seconds    the age of the first ready one; None if none is ready.
    """

    messages: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts at one moment. They are exact, except the counts that `estimated` names.

    finished    messages in the history; from 100,000 on an estimate. None if the queue keeps no history.
    blocked     messages behind another one of their group.
    oldest_age  seconds since the first ready message was pushed; None if none is ready.
    lost        messages delivered at most once, a lease ago or longer, and never completed; None if the queue delivers
                at least once, where none can be lost.
    window      the latest activity; None if not asked for, or if the queue keeps no history.
    lag         how far the subscription is behind its topic; None of a queue.
    concurrency    how many messages may be in progress at once; None: no limit.
    rate           how many messages may be claimed a second; None: no limit.
    per_group      how many messages of a group may be in progress at once; None: no limit.
    group_rate     how many messages of a group may be claimed a second; None: no limit.
    expired     messages of the history that expired, up to 100,000; None where messages do not expire.
    open_batches   batches that have not ended, up to 100,000; None of a queue without batches.
    paused_until   when the pause of its claims ends, in the year 9999 if only `resume` ends it; None if there is none.
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
    lag: Lag | None = None
    expired: int | None = None
    open_batches: int | None = None
    paused_until: datetime | None = None
    concurrency: int | None = None
    rate: float | None = None
    per_group: int | None = None
    group_rate: float | None = None

    @property
    def estimated(self) -> tuple[str, ...]:
        """The names of the counts that are not exact: `finished` if it is an estimate, `window` if it is not exact."""
        window = self.window is not None and not self.window.exact
        return ("finished",) * ((self.finished or 0) >= COUNTED) + ("window",) * window


def stats(context: Context, window: Duration | None, now: datetime | None) -> Stats:
    length = None if window is None else length_of(window)
    row = context.run(context.reads.stats, {"now": context.time(now)})
    lost = _lost(context, now)
    looked = None
    if length is not None and context.table.definition.keeps_history:
        looked = _window(context, length, lost, now)
    return stats_of(context.table, row, lost, looked, control.paused_until(context, now))


def stats_of(
    table: Table, row: StatsRow, lost: Sequence[LostRow] | None, window: Window | None, paused_until: datetime | None
) -> Stats:
    """Return the statistics that these rows of a queue give."""
    counts = row._asdict()
    lag = counts.pop("lag")
    definition = table.definition
    return Stats(
        table.name,
        **counts,
        lost=_total(lost),
        window=window,
        lag=lag and Lag(*lag),
        paused_until=paused_until,
        concurrency=definition.concurrency,
        rate=_a_second(definition.rate),
        per_group=definition.per_group,
        group_rate=_a_second(definition.group_rate),
    )


# -- private ---------------------------------------------------------------------------------------------------------


def _a_second(rate: Rate | None) -> float | None:
    return None if rate is None else rate.number / rate.per


Who = str | None
R = TypeVar("R", FailedRow, FinishedRow, PushedRow, LostRow)


def times(durations: Iterable[float]) -> Times | None:
    """Return the percentiles of durations; None if there are none."""
    ordered = sorted(durations)
    return Times(*(_percentile(ordered, share) for share in (0.5, 0.95, 0.99))) if ordered else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def length_of(window: Duration) -> float:
    length = seconds(window, "window")
    if length < 1:
        raise BadInput(f"window is {window!r}.", "Give seconds, from 1 to 100 years, or a timedelta.")
    return length


def _lost(context: Context, now: datetime | None) -> Sequence[LostRow] | None:
    """Return the lost messages; None if the queue can lose none."""
    definition = context.table.definition
    if definition.delivery != "at_most_once":
        return None
    params: Params = {"age": definition.lease, "now": context.time(now)}
    return context.run(context.reads.stats_lost, params)


def _window(context: Context, length: float, lost: Sequence[LostRow] | None, now: datetime | None) -> Window:
    params: Params = {"age": length, "now": context.time(now)}
    finished = context.run(context.reads.stats_finished, params | {"n": MOST})
    failed = context.run(context.reads.stats_failed, params | {"n": MOST, "live": LIVE})
    for most in (FIRST, min(10 * FIRST, MOST), MOST):
        pushed = context.run(context.reads.stats_pushed, params | {"n": most})
        if messages_in(pushed) < most:
            break
    return window_of(length, pushed, finished, failed, lost)


def messages_in(rows: Sequence[PushedRow] | Sequence[LostRow]) -> int:
    return sum([row.messages for row in rows])


def window_of(
    length: float,
    pushed: Sequence[PushedRow],
    finished: Sequence[FinishedRow],
    failed: Sequence[FailedRow] | None,
    lost: Sequence[LostRow] | None,
    *,
    named: bool = True,
) -> Window:
    """Return the activity that these rows give; with `named`, also the activity of each producer and consumer."""
    number = messages_in(pushed)
    # How far back they reach, for the rates; at least a millisecond.
    pushed_reach = length if number < MOST else max(0.001, *(row.ago for row in pushed))
    finished_reach = length if len(finished) < MOST else max(0.001, finished[-1].ago)

    def activity(
        who: Who,
        pushed: Sequence[PushedRow] | None,
        finished: Sequence[FinishedRow],
        failed: Sequence[FailedRow] | None,
        lost: Sequence[LostRow] | None,
    ) -> Activity:
        count = _total(pushed)
        return Activity(
            who=who,
            pushed=count,
            push_rate=None if count is None else count / pushed_reach,
            finished=len(finished),
            completion_rate=len(finished) / finished_reach,
            redeliveries=sum([row.attempts for row in finished]) - len(finished),
            lost=_total(lost),
            wait_time=times([row.wait for row in finished]),
            run_time=times([row.run for row in finished]),
            pushed_slices=None if pushed is None else _slices([(row.ago, row.messages) for row in pushed], length),
            finished_slices=_slices([(row.ago, 1) for row in finished], length),
            failed=None if failed is None else len(failed),
            failed_slices=None if failed is None else _slices([(row.ago, 1) for row in failed], length),
        )

    def by_name(
        role: str, pushed: Sequence[PushedRow] | None, failed: Sequence[FailedRow] | None
    ) -> Iterator[Activity]:
        """Yield the activity of each producer or consumer."""
        pushed_by, finished_by, failed_by = _by(role, pushed), _by(role, finished), _by(role, failed)
        lost_by = _by(role, lost)
        for who in sorted({*pushed_by, *finished_by, *failed_by, *lost_by}, key=lambda who: who or ""):
            yield activity(
                who,
                None if pushed is None else pushed_by[who],
                finished_by[who],
                None if failed is None else failed_by[who],
                None if lost is None else lost_by[who],
            )

    return Window(
        seconds=length,
        exact=number < MOST and len(finished) < MOST,
        queue=activity(None, pushed, finished, failed, lost),
        producers=tuple(by_name("producer", pushed, None)) if named else (),
        consumers=tuple(by_name("consumer", None, failed)) if named else (),
    )


def _total(rows: Sequence[PushedRow] | Sequence[LostRow] | None) -> int | None:
    return None if rows is None else messages_in(rows)


def _by(role: str, rows: Sequence[R] | None) -> Mapping[Who, Sequence[R]]:
    """Return the rows of each producer or consumer, and none for any other name."""
    groups: defaultdict[Who, list[R]] = defaultdict(list)
    who = attrgetter(role)
    for row in rows or ():
        groups[who(row)].append(row)
    return groups


def _slices(numbers: Iterable[tuple[float, int]], length: float) -> tuple[int, ...]:
    """Count messages in each slice of the window, from pairs of seconds ago and a number of messages."""
    slices = [0] * SLICES
    for ago, number in numbers:
        slices[-1 - min(int(ago * SLICES / length), SLICES - 1)] += number
    return tuple(slices)
