"""Periodic pushes, by a cron expression in a time zone: one for each due time, however many workers run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any
from zoneinfo import ZoneInfo

from tablequeue.database import Database, destination
from tablequeue.errors import TRANSIENT, BadInput, DriverMissing, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.connection import Connection
from tablequeue.verbs import schedule as schedules
from tablequeue.verbs.push import check_text

logger = logging.getLogger("tablequeue.worker")

# Maximum seconds between two readings of the database's clock: the clock of this machine may run faster or slower.
LONGEST_SLEEP = 60.0
# Seconds before the next try after an error.
RETRY = 5.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that is pushed periodically.

    queue     the name of a queue, or of a topic.
    name      identifies the schedule in its database. It must stay the same from one start to the next.
    cron      five fields as in crontab(5), in the time zone `zone`. At changes of summer time it does what Debian's
              cron does.
    options   options of `push`. The headers of each message also have `due`, the time for which it was pushed.
    """

    name: str
    queue: str
    cron: str
    payload: Any
    zone: str = "UTC"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text(self.name, "name")
        topic, slash, _ = self.queue.partition("/")
        if slash:
            raise BadInput(f"{self.queue!r} is a subscription.", f"Push to its topic {topic!r}.")
        self.next(datetime.now(UTC))

    def last(self, now: datetime) -> datetime:
        """Return the last due time that is not after `now`."""
        # The search begins one second before its start, so that it finds a time that is due now.
        start = now.replace(microsecond=0) + timedelta(seconds=1)
        return self._search(start, lambda time: time <= now, reverse=True)

    def next(self, now: datetime) -> datetime:
        """Return the first due time after `now`."""
        return self._search(now, lambda time: time > now, reverse=False)

    def _search(self, start: datetime, holds: Callable[[datetime], bool], reverse: bool) -> datetime:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise DriverMissing(
                "Periodic pushes need cronsim, which is not installed.", "Install it: pip install 'tablequeue[cron]'."
            ) from None
        try:
            zone = UTC if self.zone == "UTC" else ZoneInfo(self.zone)  # UTC needs no data of time zones
        except (KeyError, ValueError, OSError):  # depending on the name
            raise BadInput(f"There is no time zone {self.zone!r}.", "Write it as Europe/Berlin, or UTC.") from None
        try:
            local = start.astimezone(zone)
            if reverse:
                # In the second pass of a repeated hour, its times were due in the first pass: search back from a later
                # hour.
                local += local.replace(fold=0).utcoffset() - local.utcoffset()  # type: ignore[operator]
            times = (time.astimezone(UTC) for time in CronSim(self.cron, local, reverse=reverse))
            return next(filter(holds, times))
        except (CronSimError, StopIteration) as error:
            words = str(error) or "it is never due"
            raise BadInput(
                f"{self.cron!r} is no cron expression ({words}).", "Write five fields: minute hour day month weekday."
            ) from None


def push_due(database: Database, schedule: Schedule, now: datetime | None = None, *, entered: bool = False) -> float:
    """Push the message if it is due and no worker has pushed it. Returns the seconds until it is due again.

    If its expression has changed, it is due only at times after the first call for it. In all later calls, `entered` is
    true. If several due times were missed while no worker ran, the message is pushed for the last one only. A crash
    leaves both the message and the record of its due time, or neither.
    """
    queue, options = destination(database, schedule.queue), schedule.options
    line = schedules.line_of(schedule.queue, schedule.cron, schedule.zone)
    last_pushed, clock = schedules.state(context_of(queue), schedule.name, line, now, entered=entered)
    due = schedule.last(clock)
    if due > last_pushed:
        headers = {**(options.get("headers") or {}), "due": due.isoformat()}

        def push(connection: Connection) -> None:
            queue.push(schedule.payload, connection=connection, now=now, **{**options, "headers": headers})

        if schedules.push(context_of(queue), schedule.name, due, now, push):
            logger.info("%s: pushed for %s, due at %s", queue.name, schedule.name, due.isoformat())
    return (schedule.next(clock) - clock).total_seconds()


class Scheduler:
    """Pushes the messages of schedules when they are due, in a thread, until `stop`."""

    def __init__(self, database: Database, schedules: Sequence[Schedule]) -> None:
        self._database = database
        self._schedules = schedules
        self._entered: set[str] = set()
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="scheduler of the worker", daemon=True)
        if schedules:
            self._thread.start()

    def stop(self) -> None:
        """Push nothing more."""
        self._stopped.set()

    def close(self, timeout: float) -> None:
        """After `stop`: wait for a push that is under way, for up to `timeout` seconds."""
        if self._schedules:
            self._thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = min(map(self._push, self._schedules))

    def _push(self, schedule: Schedule) -> float:
        """Push the message if it is due. Returns the seconds until the next check of the schedule."""
        try:
            pause = push_due(self._database, schedule, entered=schedule.name in self._entered)
            self._entered.add(schedule.name)
            return min(pause, LONGEST_SLEEP)
        except TRANSIENT as error:
            logger.warning("%s: %s", schedule.name, error)
        except TablequeueError as error:
            logger.error("%s was not pushed: %s", schedule.name, error)
        except Exception:  # a bug of the library must not end the thread
            logger.exception("%s was not pushed", schedule.name)
        return RETRY
