"""Control of a queue for all of its consumers: pause its claims, and let them go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tablequeue.errors import QueueNotFound
from tablequeue.model.connection import Connection
from tablequeue.model.pacing import Duration
from tablequeue.verbs.context import Context, Params, seconds

# The end of a pause that only `resume` ends.
FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


def pause(context: Context, until: datetime | Duration | None, connection: Connection | None) -> None:
    if until is None:
        until = FOREVER
    elif not isinstance(until, datetime):
        clock = context.run(context.engine.checks.read_clock, {"now": None})
        until = min(context.engine.load_time(clock) + timedelta(seconds=seconds(until, "until")), FOREVER)
    params: Params = {"until": context.time(until, "until")}
    _check_there(context, connection)
    context.run(context.engine.pauses.pause, params, connection)


def resume(context: Context, connection: Connection | None) -> None:
    _check_there(context, connection)
    context.run(context.engine.pauses.resume, {}, connection)


def _check_there(context: Context, connection: Connection | None) -> None:
    """Refuse a queue that was dropped. The statements of a pause are not about its table."""
    table = context.table
    there = context.run(context.engine.catalogue.has_table, {"table": context.engine.words(table)["queue"]}, connection)
    if not there:
        raise QueueNotFound(f"There is no {table.definition.kind} {table.name!r}.", "It was dropped meanwhile.")


def paused_until(context: Context, now: datetime | None) -> datetime | None:
    """Return when the pause of the claims ends; None if they are not paused."""
    until = context.run(context.engine.pauses.paused, {"now": context.time(now)})
    return None if until is None else context.engine.load_time(until)
