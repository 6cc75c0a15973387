"""Topics and their subscriptions: make them, move positions in the log, and measure the lag."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import random
from time import monotonic, sleep
from typing import Literal

from tablequeue.engines.params import Params
from tablequeue.engines.rows import BoundsRow, NameRow, PositionRow, QueueRow
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, Locked, QueueNotFound, TablequeueError
from tablequeue.model.definition import SubscriptionDefinition, kind_of, table_in
from tablequeue.model.names import check_name, number_in, subscription_of, subscription_table_of, topic_table_of
from tablequeue.verbs import catalogue
from tablequeue.verbs.context import Context
from tablequeue.verbs.stats import Lag, stats

# More messages than a topic can have.
ALL = (1 << 63) - 1
# A segment of a topic that keeps its messages for some seconds lasts an eighth of that time; of one that keeps them
# until they are consumed, an hour. No segment has many more messages than LARGEST_SEGMENT.
SEGMENTS = 8
CONSUMED_SEGMENT = 3600.0
LARGEST_SEGMENT = 1_000_000
# Seconds between two looks of one process for messages that a topic need not keep any more.
TRIM_EVERY = 60.0

# Seconds of the longest random pauses between the tries of a seek or a trim that meets other transactions.
PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16)

Start = Literal["beginning", "end"] | datetime


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a topic's log. A message that was committed late counts after a consumer has looked.

    messages     their number.
    bytes        about, with the indexes.
    oldest_age   seconds since the first message was pushed; None if there is none.
    """

    messages: int
    bytes: int
    oldest_age: float | None


def size(context: Context) -> Size:
    """Return the size of a topic's log. It only reads."""
    row = context.run(context.engine.topics.size, {"now": None})
    return Size(row.messages, row.bytes, None if row.oldest_age is None else float(row.oldest_age))


def pushed_at(context: Context, offset: int) -> datetime | None:
    """Return when the message at an offset of a topic was pushed; None if it comes after the last one."""
    _, end = context.run(context.engine.topics.bounds, {})
    found = context.run(context.engine.topics.pushed_at, {"start": offset}) if offset < end else None
    return None if found is None else context.engine.load_time(found)


def age(context: Context, offset: int) -> float:
    """Return the seconds since the message at an offset of a topic was pushed; 0 if it comes after the last one."""
    time = pushed_at(context, offset)
    if time is None:
        return 0.0
    clock = context.engine.load_time(context.run(context.engine.checks.read_clock, {"now": None}))
    return (clock - time).total_seconds()


def subscribe(context: Context, name: str, definition: SubscriptionDefinition, start: Start) -> Table:
    """Make the subscription of a topic; or return it, if it exists with the same definition."""
    engine, topic = context.engine, context.table
    full = subscription_of(topic.name, check_name(name, "subscription"))

    def create(cursor: object, topic: Table, params: Params) -> Table | QueueRow:
        engine.catalogue.lock(cursor, topic, params)
        if catalogue.present_name(engine, cursor, topic) != topic.name:
            raise _gone(topic)
        row = engine.catalogue.lookup(cursor, topic, {"name": full})
        if row is not None:
            return row
        there = _subscriptions(engine.catalogue.names(cursor, topic, {}), topic)
        tables = [table_in(row.entry) for row in there]
        dropped = [
            each for each in engine.catalogue.dropped(cursor, topic, {}) if topic_table_of(each) == topic.table_name
        ]
        number = 1 + max(map(number_in, [*tables, *dropped]), default=0)
        table = engine.table(full, definition, subscription_table_of(topic.table_name, number), topic)
        engine.catalogue.create(cursor, table, params | catalogue.entry(table))
        return table

    row: Table | QueueRow | None = catalogue.lookup(context.runner, full)
    if row is None:
        row = context.run(create, {"start": offset_of(context, start), "now": None})
    if isinstance(row, Table):
        return row
    return catalogue.same(_own(topic, catalogue.entered(engine, full, row)), definition)


def follow_rename(context: Context) -> None:
    """Work with the name that the topic has now: its subscriptions' names begin with it. Refuse a dropped topic."""
    table = context.table
    name = catalogue.name_in(catalogue.rows(context.runner), table.table_name)
    if name is None:
        raise _gone(table)
    if name != table.name:
        context.become(table.redefined(table.definition, name))


def subscription(context: Context, name: str) -> Table:
    """Return an existing subscription of the topic."""
    return _own(
        context.table, catalogue.find(context.runner, subscription_of(context.table.name, name), "subscription")
    )


def names(context: Context) -> list[str]:
    """Return the names of the subscriptions of a topic, sorted, without the topic's name before them."""
    rows = catalogue.rows(context.runner)
    if catalogue.name_in(rows, context.table.table_name) is None:
        raise _gone(context.table)
    return [row.name.partition("/")[2] for row in _subscriptions(rows, context.table)]


def drop(context: Context) -> None:
    """Drop a topic with all of its subscriptions."""
    engine = context.engine

    def drop(cursor: object, topic: Table, params: Params) -> None:
        engine.catalogue.lock(cursor, topic, params)
        for row in _subscriptions(engine.catalogue.names(cursor, topic, {}), topic):
            table = catalogue.entered(engine, row.name, QueueRow(row.entry, engine.schema_version))
            catalogue.drop_within(engine, cursor, table)
        catalogue.drop_within(engine, cursor, topic)

    context.run(drop, {})


def bounds(context: Context, start: int = 0, n: int = ALL) -> BoundsRow:
    """Return the offsets of a topic, after a look for new visible messages: all, or `n` messages from `start` on.

    Whatever crashes, each offset below the end keeps its message.
    """
    return context.run(context.engine.topics.settle, {"start": start, "n": n})


def offset_of(context: Context, start: Start) -> int:
    """Return the offset at the beginning or the end of a topic, or of the first message pushed at a time or later."""
    if isinstance(start, datetime):
        context.time(start, "start")
        return _offset_at(context, start)
    if start not in ("beginning", "end"):
        raise BadInput(f"start is {start!r}.", "Give 'beginning', 'end', or an aware datetime.")
    if start == "beginning":
        return context.run(context.engine.topics.bounds, {}).first
    return bounds(context).end


def seek(subscription: Context, to: Start, force: bool) -> int:
    """Let the next claim begin at another position. Return how many detached messages it has deleted.

    `SeekRefused` if messages are in progress, unless it is forced.
    """
    assert subscription.table.topic is not None, "of a subscription"
    topic = Context.at(subscription.runner, subscription.table.topic, subscription.who)
    return move(subscription, offset_of(topic, to), force, to_end=to == "end")


def move(subscription: Context, offset: int, force: bool = False, *, to_end: bool = False) -> int:
    """Let the next claim begin at an offset; with `to_end`, at the end of the log. Else as `seek`.

    A claim locks messages for a moment, and a seek does not wait while it holds its own lock. So it tries again.
    """
    ranges = subscription.engine.ranges
    params: Params = {"start": offset, "to_end": to_end, "force": force, "now": None}

    def seek(cursor: object, table: Table, params: Params) -> int:
        return ranges.seek(cursor, table, params)

    return again(lambda: subscription.run(seek, params))


def again(act: Callable[[], int]) -> int:
    """Return what `act` returns; call it again, a few times, if it meets other transactions."""
    for pause in PAUSES:
        try:
            return act()
        except Locked:
            sleep(random() * pause)
    return act()


def position(subscription: Context) -> PositionRow:
    """Return the offset at which the next claim begins, and the consumer that moved it last."""
    return subscription.run(subscription.engine.range_reads.position, {})


def note(subscription: Context, offset: int, consumer: str, age: float = 0) -> None:
    """Note that a consumer that reads the log by itself has finished all messages before `offset`, `age` seconds long.

    The position of a subscription never goes back. `BadInput` if it is ordered, or if messages are in progress.
    """
    params: Params = {"start": offset, "consumer": consumer, "age": age, "now": None}
    ordered = subscription.table.definition.grouped
    if ordered or subscription.run(subscription.engine.ranges.note_position, params):
        raise BadInput(
            f"The subscription {subscription.table.name!r} "
            + ("is ordered, so its messages are in a queue." if ordered else "has consumers: ranges are in progress."),
            "Note positions in a subscription of its own, which nobody pops from.",
        )


def trim(context: Context, now: datetime | None = None) -> int:
    """Drop messages that the topic need not keep any more. Return the number of segments or messages."""
    definition = context.table.definition
    keep = definition.retention
    if keep is None:
        return 0
    values: Params = {"now": context.time(now)}
    clock = context.engine.load_time(context.run(context.engine.checks.read_clock, values))
    # Consumed messages stay as long as a segment lasts, also on engines without segments: for the statistics.
    upto = _offset_at(context, clock - timedelta(seconds=keep or CONSUMED_SEGMENT))
    age = keep / SEGMENTS if keep else CONSUMED_SEGMENT
    ranges, tables = context.engine.ranges, _opened(context)
    # A range in progress holds its messages back. A range with an expired lease would do so too, until a claim looked
    # at it.
    for table in tables:
        expired: Params = {"now": values["now"], "max_attempts": table.definition.max_attempts}
        while context.runner.run(ranges.expire_ranges, table, expired):
            pass
    values |= {"start": upto, "age": age, "n": LARGEST_SEGMENT, "consumed": not keep, "tables": tables}
    total, dropped = 0, 1
    while dropped:
        dropped = context.run(ranges.trim, values)
        total += dropped
    if total:
        first, _ = context.run(context.engine.topics.bounds, {})
        for table in tables:
            context.runner.run(ranges.purge_ranges, table, {"start": first})
    return total


def keep_up(context: Context) -> None:
    """Trim the topic, or the topic of the subscription, if it is time.

    An error is not raised, because the call itself took effect.
    """
    table = context.table
    if monotonic() < table.next_purge:
        return
    table.next_purge = monotonic() + TRIM_EVERY
    try:
        if table.topic is None:
            trim(context)
        else:
            trim(Context.at(context.runner, catalogue.present(context.runner, table.topic), context.who))
    except TablequeueError:
        return


def consumed(context: Context) -> int:
    """Return the first offset that some subscription still needs; the first of all, if there is no subscription."""
    floors = [context.runner.run(context.engine.ranges.floor, table, {"consumed": True}) for table in _opened(context)]
    return min(floors, default=0)


def _opened(context: Context) -> list[Table]:
    """Return the tables of all subscriptions of a topic."""
    there = _subscriptions(catalogue.rows(context.runner), context.table)
    return [catalogue.find(context.runner, row.name, "subscription") for row in there]


def lag(context: Context) -> Lag:
    """Return how far a subscription is behind its topic."""
    lag = stats(context, None, None).lag
    assert lag is not None, "of a subscription"
    return lag


def _subscriptions(rows: Sequence[NameRow], topic: Table) -> list[NameRow]:
    """Return the rows of a topic's subscriptions: by their tables, because the topic may have been renamed."""
    return [
        row
        for row in rows
        if kind_of(json.loads(row.entry)) == "subscription" and topic_table_of(table_in(row.entry)) == topic.table_name
    ]


def _own(topic: Table, subscription: Table) -> Table:
    """Return the subscription, if it belongs to this topic, and not to another topic that has the name now."""
    if subscription.topic is None or not subscription.topic.is_that_of(topic):
        raise _gone(topic)
    return subscription


def _gone(topic: Table) -> QueueNotFound:
    return QueueNotFound(f"There is no topic {topic.name!r}.", "It was renamed or dropped meanwhile.")


def _offset_at(context: Context, time: datetime) -> int:
    """Return the first offset with a message pushed at a time or later; by halves: offsets grow with time."""
    first, end = bounds(context)
    while first < end:
        middle = (first + end) // 2
        pushed_at = context.run(context.engine.topics.pushed_at, {"start": middle})
        if pushed_at is not None and context.engine.load_time(pushed_at) < time:
            first = middle + 1
        else:
            end = middle
    return first


__all__ = [
    "Lag",
    "PositionRow",
    "Start",
    "bounds",
    "drop",
    "lag",
    "move",
    "names",
    "note",
    "offset_of",
    "position",
    "seek",
    "subscribe",
]
