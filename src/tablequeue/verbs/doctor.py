"""Finds dangers to queues on their database: by the checks of the engine, and by checks that all engines have."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tablequeue.engines.checks import Check
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Statements
from tablequeue.errors import TablequeueError
from tablequeue.model.names import table_of
from tablequeue.verbs import catalogue, inspect, topics
from tablequeue.verbs.context import Context
from tablequeue.verbs.readable import size
from tablequeue.verbs.sizes import added_a_day, sizes
from tablequeue.verbs.stats import Stats, stats

# Seconds of the history whose run times are compared with the lease.
WINDOW = 86400
# How far a subscription may be behind a topic that waits for it: seconds, and messages.
BEHIND, MANY = 86400.0, 1_000_000
# The number of messages in a history without a retention from which it is a finding.
KEPT = 1_000_000
# Seconds by which a history may be behind its retention. Consumers look at it once a minute.
LATE = 300.0
# Maximum number of messages on their way to another database that are counted.
MOST_RESERVED = 1000
# Seconds by which the clocks of client and database may differ: less than any useful lease.
SKEW = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A danger to a queue, or to all queues if `queue` is None; `cause` names the danger, `remedy` says what to do."""

    queue: str | None
    cause: str
    remedy: str


def of_database(runner: Runner) -> Iterator[Finding]:
    """Find the dangers to every queue."""
    yield from (Finding(None, *words) for words in _clocks(runner))
    for check in runner.engine.checks.all:
        if not check.of_queue:
            yield from (Finding(None, *words) for words in _check(runner, runner.engine.shared, check))


def of_queue(context: Context) -> Iterator[Finding]:
    name = context.table.name
    yield from (Finding(name, *words) for words in _indexes(context))
    for check in context.engine.checks.all:
        if check.of_queue:
            yield from (Finding(name, *words) for words in _check(context.runner, context.table, check))
    now = stats(context, WINDOW, None)
    yield from (Finding(name, *words) for words in _lease(context, now))
    yield from (Finding(name, *words) for words in _concurrency(context, now))
    yield from (Finding(name, *words) for words in _group_limits(context, now))
    yield from (Finding(name, *words) for words in _reserved(context))
    if context.table.topic is not None:
        yield from (Finding(name, *words) for words in _behind(context))
    else:
        yield from (Finding(name, *words) for words in _history(context, now))


def of_topic(context: Context) -> Iterator[Finding]:
    name = context.table.name
    yield from (Finding(name, *words) for words in _indexes(context))
    yield from (Finding(name, *words) for words in _log(context))


# -- private ---------------------------------------------------------------------------------------------------------

Words = tuple[str, str]
"""Cause and remedy."""


def _check(runner: Runner, table: Statements, check: Check) -> Iterator[Words]:
    try:
        rows = runner.run(runner.engine.checks.check, table, {"check": check.operation})
    except TablequeueError as error:
        yield f"{check.operation} could not look: {error.cause}", error.remedy
        return
    for row in rows:
        yield check.cause.format(*row), check.remedy.format(*row)


def _clocks(runner: Runner) -> Iterator[Words]:
    engine = runner.engine
    before = datetime.now(UTC)
    theirs = engine.load_time(runner.run(engine.checks.read_clock, engine.shared, {"now": None}))
    after = datetime.now(UTC)
    # The database read its clock between these two moments.
    ahead = (theirs - after).total_seconds()
    behind = (before - theirs).total_seconds()
    if max(ahead, behind) > SKEW:
        differ = f"{max(ahead, behind):.0f} s {'ahead of' if ahead > behind else 'behind'}"
        yield (
            f"The database's clock is {differ} this machine's: due times made here come too early or too late.",
            "Set both clocks by NTP, or push with delay= instead of due=.",
        )


def _indexes(context: Context) -> Iterator[Words]:
    table, schema = context.table, context.engine.schema
    owner = table.topic or table
    options = f" --dialect {context.engine.dialect.name}" + (f" --schema {schema}" if schema else "")
    if owner.table_name != table_of(owner.name, owner.definition.kind):
        options += f" --table {owner.table_name}"
    for name in context.run(context.engine.checks.missing_indexes, {}):
        yield (
            f"The index {name} is missing: statements that need it read the whole table.",
            f"Make it again as `tablequeue sql create {shlex.quote(table.name)}{options}` has it.",
        )


def _reserved(context: Context) -> Iterator[Words]:
    catalogue, words = context.engine.catalogue, context.engine.words(context.table)
    if context.run(catalogue.has_table, {"table": words["moving"]}):
        rows = context.run(context.engine.moving.aside, {"after": 0, "n": MOST_RESERVED})
        if rows:
            number = f"{len(rows):,}{' or more' if len(rows) == MOST_RESERVED else ''}"
            yield (
                f"{number} messages are on their way to another database: no consumer gets them until they are there.",
                "If no move of the queue runs now, run it again: `tablequeue move`, to the same queue.",
            )


def _lease(context: Context, now: Stats) -> Iterator[Words]:
    definition = context.table.definition
    if definition.delivery == "at_most_once":
        return
    if now.window is None or now.window.queue.run_time is None:
        return
    longest = now.window.queue.run_time.p99
    if longest > definition.lease / 2:
        yield (
            f"One message in a hundred took {longest:.3g} s or longer, and the lease is {definition.lease:g} s: when a "
            "lease ends, another consumer gets the message too.",
            "Pop with a longer lease=, or extend it while working; or make a new queue with a longer lease.",
        )


def _history(context: Context, now: Stats) -> Iterator[Words]:
    """Say that messages stay in the history for longer than its retention, or for ever and are many."""
    keep = context.table.definition.retention
    if context.table.definition.history == "keep":
        if now.window is not None and (now.finished or 0) >= KEPT:
            yield (
                f"Its history is kept for ever: about {now.finished:,} messages, and "
                f"{round(now.window.queue.completion_rate * WINDOW):,} more a day{_growth(context, now)}.",
                "Alter the queue to a history of some days, or archive old messages: tablequeue archive.",
            )
        return
    bounds = None if keep is None else inspect.history_bounds(context)
    if keep is None or bounds is None:
        return
    (oldest,) = inspect.history(context, 1, bounds[0] + 1)
    clock = context.engine.load_time(context.run(context.engine.checks.read_clock, {"now": None}))
    age = (clock - (oldest.finished_at or clock)).total_seconds()
    if age > keep + LATE:
        yield (
            f"Its history is behind its retention of {_hours(keep)}: the oldest message finished {_hours(age)} ago.",
            "Have a consumer pop from it, which deletes old messages; or call purge_history from time to time.",
        )


def _growth(context: Context, now: Stats) -> str:
    for each in sizes(context.runner, context.table):
        if added := added_a_day(each, now):
            return f"; {size(each.bytes)}, and about {size(added)} more a day"
    return ""


def _concurrency(context: Context, now: Stats) -> Iterator[Words]:
    """Report that a queue has been at its limit for so long that other messages do not get through."""
    definition = context.table.definition
    if definition.concurrency is None:
        return
    if now.in_progress >= definition.concurrency and (now.oldest_age or 0) > definition.lease:
        yield (
            f"The limit of {definition.concurrency} in progress is reached, and {now.ready} messages wait. The "
            f"first of them was pushed {_hours(now.oldest_age or 0)} ago.",
            "If consumers are idle, look for messages that are held without work: peek(state='in_progress'), and "
            "streams that are abandoned. Else the limit is too low for the rate of pushes.",
        )


def _group_limits(context: Context, now: Stats) -> Iterator[Words]:
    """Report that every group with messages ready has been at its limit for that long."""
    definition = context.table.definition
    if definition.per_group is None:
        return
    if (now.oldest_age or 0) > definition.lease and context.run(context.reads.until_next, {"now": None}).held:
        yield (
            f"Every group that has messages ready is at its limit, and {now.ready} messages wait. The first of them "
            f"was pushed {_hours(now.oldest_age or 0)} ago.",
            "If consumers are idle, look for messages that are held without work: peek(state='in_progress'), and "
            "streams that are abandoned. Else per_group or group_rate is too low for the rate of pushes.",
        )


def _behind(context: Context) -> Iterator[Words]:
    """Report that a subscription keeps its topic's log from being dropped, or that it will miss messages."""
    assert context.table.topic is not None, "of a subscription"
    topic = Context.at(context.runner, catalogue.find(context.runner, context.table.topic.name, "topic"), context.who)
    keep = topic.table.definition.retention
    if keep is None:
        return
    log, lag = topics.size(topic), topics.lag(context)
    if keep == 0:
        first, end = topic.run(topic.engine.topics.bounds, {})
        floor = max(first, context.run(context.engine.ranges.floor, {"consumed": True}))
        age = topics.age(topic, floor)
        if age > BEHIND or end - floor > MANY:
            yield (
                f"It holds back the last {end - floor} messages of its topic, the first of them for {_hours(age)}: the "
                f"topic keeps messages that a subscription has not finished. {_size(log)}",
                "Start its consumers; or let it skip messages, or drop it: `tablequeue topic seek` and `unsubscribe`.",
            )
    elif lag.seconds is not None and lag.seconds > keep / 2:
        yield (
            f"It is {_hours(lag.seconds)} behind, and its topic drops messages after {_hours(keep)}: it does not get "
            "the dropped messages.",
            "Start its consumers, or more of them.",
        )


def _log(context: Context) -> Iterator[Words]:
    """Report that a topic has messages that it should have dropped, or keeps them without any subscription."""
    keep = context.table.definition.retention
    log = topics.size(context)
    if keep is None or log.oldest_age is None:
        return
    if keep == 0:
        names = topics.names(context)
        if not names and (log.oldest_age > BEHIND or log.messages > MANY):
            yield (
                f"It keeps messages for its subscriptions, and has no subscription. {_size(log)}",
                "Make a subscription, or drop the topic.",
            )
        # Whole segments are dropped: messages of about the same age as a needed message stay with it.
        needed = topics.age(context, topics.consumed(context))
        overdue = bool(names) and log.oldest_age > BEHIND and needed < BEHIND / 2
    else:
        overdue = log.oldest_age > keep * 1.5 + 3600
    if overdue:
        yield (
            f"It has messages that it need not keep: the first was pushed {_hours(log.oldest_age)} ago. {_size(log)}",
            "Call Topic.trim() as the owner of the tables: pushes and claims do it, if they have the right. If that "
            "drops nothing, end the transactions that have been open for long.",
        )


def _size(log: topics.Size) -> str:
    return f"The log has {log.messages} messages, {log.bytes / 1e6:.1f} MB."


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h"
