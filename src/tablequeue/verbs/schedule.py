"""Schedules of periodic pushes: each has a row with the due time of its last push, and one of many workers advances it.

A deduplication key could not do that: it is free again when the message of that time is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from tablequeue.engines.connection import Cursor
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, QueueNotFound
from tablequeue.model.connection import Connection
from tablequeue.verbs.context import Context, Params

# The last due time of a schedule that is to be pushed again.
NEVER = datetime(1970, 1, 2, tzinfo=UTC)


def state(
    context: Context, name: str, cron: str, now: datetime | None, *, entered: bool = False
) -> tuple[datetime, datetime]:
    """Return when the schedule was last due and pushed, and the database's clock.

    A new schedule counts as due now, and so does a schedule with a changed expression; but not if this process has
    `entered` it before: then another version of the program has changed it.
    """
    params: Params = {"name": name, "cron": cron, "now": context.time(now)}
    engine = context.engine
    try:
        row = context.run(engine.schedules.schedule_state, params)
    except QueueNotFound:  # the table is not there: this is the first schedule of the database
        context.run(engine.catalogue.create_schedules, params)
        row = None
    if row is None or (row.cron != cron and not entered):
        context.run(engine.schedules.enter_schedule, params)
        row = context.run(engine.schedules.schedule_state, params)
        assert row is not None, "it was entered, and none is ever deleted"
    return engine.load_time(row.last_pushed), engine.load_time(row.clock)


class Entry(NamedTuple):
    """A schedule as the database has it.

    queue      where it pushes; `cron` and `zone` say when.
    last_due   the last due time for which its message was pushed; None if it is to be pushed again.
    """

    name: str
    queue: str
    cron: str
    zone: str
    last_due: datetime | None


def line_of(queue: str, cron: str, zone: str) -> str:
    """Return what the database has of a schedule: its expression with the zone, and in a second line the queue."""
    return f"{cron} {zone}\n{queue}"


def entries(runner: Runner) -> list[Entry]:
    """Return all schedules that a worker has entered, sorted by name."""
    try:
        rows = runner.run(runner.engine.schedules.schedules, runner.engine.shared, {})
    except QueueNotFound:  # no worker has had one yet
        return []
    found = []
    for name, line, last in rows:
        when, _, queue = line.partition("\n")
        cron, _, zone = when.rpartition(" ")
        due = runner.engine.load_time(last)
        found.append(Entry(name, queue, cron, zone, None if due <= NEVER else due))
    return found


def run_again(runner: Runner, name: str) -> None:
    """Have the next worker that looks, within a minute, push the message of a schedule for its last due time.

    `BadInput` if there is no such schedule. A crash leaves it as it was, or due.
    """
    if name not in [entry.name for entry in entries(runner)]:
        raise BadInput(f"There is no schedule {name!r}.", "Start a worker that has it.")
    params: Params = {"name": name, "due": runner.engine.dump_time(NEVER)}
    runner.run(runner.engine.schedules.rerun_schedule, runner.engine.shared, params)


def push(
    context: Context, name: str, due: datetime, now: datetime | None, push: Callable[[Connection], object]
) -> bool:
    """Call `push` in a new transaction, if the schedule was due at `due` and no worker has pushed it for that time.

    Returns whether it was called. `push` gets the connection of that transaction.
    """

    def pushed(cursor: Cursor, table: Table, params: Params) -> bool:
        if not context.engine.schedules.advance_schedule(cursor, table, params):
            return False
        push(cursor.connection)
        return True

    return context.run(pushed, {"name": name, "due": context.time(due, "due"), "now": context.time(now)})
