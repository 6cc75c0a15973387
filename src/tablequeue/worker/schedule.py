"""Periodic pushes: by a cron expression in a time zone, once for each time it is due, however many workers run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any
from zoneinfo import ZoneInfo

from tablequeue.database import Database
from tablequeue.errors import BadInput, DriverMissing, TablequeueError
from tablequeue.operations import schedule
from tablequeue.operations.push import check_text
from tablequeue.worker.fetcher import PASSING

logger = logging.getLogger("tablequeue.worker")

# Seconds between two looks at the clock of the database, at the most: ours may run faster or slower.
LONGEST_SLEEP = 60.0
# Seconds before the next try when the database was away.
RETRY = 5.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message to be pushed again and again.

    name      tells it from the others of the database, and must stay the same from one start to the next.
    cron      five fields as in crontab(5), read in the time zone `zone`; of a time that summer time leaves out or
              repeats, what Debian's cron does.
    options   those of `push`. A `headers` gets `due` besides: the time for which the message is.
    """

    name: str
    queue: str
    cron: str
    payload: Any
    zone: str = "UTC"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_text(self.name, "name")
        self.next(datetime.now(UTC))

    def last(self, now: datetime) -> datetime:
        """The last time it was due, not after `now`."""
        # The search begins before its start, and a time that is due now is to be found.
        return self._search(now.replace(microsecond=0) + timedelta(seconds=1), reverse=True)

    def next(self, now: datetime) -> datetime:
        """The first time after `now` at which it is due."""
        return self._search(now, reverse=False)

    def _search(self, start: datetime, reverse: bool) -> datetime:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise DriverMissing(
                "Periodic pushes need cronsim, which is not installed.", "Install it: pip install 'tablequeue[cron]'."
            ) from None
        try:
            zone = ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError):  # as the name is
            raise BadInput(f"There is no time zone {self.zone!r}.", "Write it as Europe/Berlin, or UTC.") from None
        try:
            return next(CronSim(self.cron, start.astimezone(zone), reverse=reverse)).astimezone(UTC)
        except (CronSimError, StopIteration) as error:
            words = str(error) or "it is never due"
            raise BadInput(
                f"{self.cron!r} is no cron expression ({words}).", "Write five fields: minute hour day month weekday."
            ) from None


def push_due(database: Database, one: Schedule, now: datetime | None = None) -> float:
    """Push the message if its time has come and nobody has pushed it; the seconds until it is due again.

    Of several times that were missed while no worker ran, only the last one is pushed. A crash leaves the message
    pushed and its time remembered, or neither.
    """
    queue = database.queue(one.queue)
    last_pushed, clock = schedule.state(queue.context, one.name, now)
    due = one.last(clock)
    if due > last_pushed:
        with database.engine.begin() as connection:
            if schedule.advance(queue.context, one.name, due, now, connection):
                headers = {**(one.options.get("headers") or {}), "due": due.isoformat()}
                queue.push(one.payload, connection=connection, now=now, **{**one.options, "headers": headers})
                logger.info("%s: pushed for %s, due at %s", queue.name, one.name, due.isoformat())
    return (one.next(clock) - clock).total_seconds()


class Clock:
    """Pushes what is due of some schedules, in a thread, until `stop`."""

    def __init__(self, database: Database, schedules: Sequence[Schedule]) -> None:
        self._database = database
        self._schedules = schedules
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="clock of the worker", daemon=True)
        if schedules:
            self._thread.start()

    def stop(self) -> None:
        """Push nothing more."""
        self._stopped.set()

    def close(self, timeout: float) -> None:
        """After `stop`: wait for a push that is under way."""
        if self._schedules:
            self._thread.join(timeout)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = min(map(self._push, self._schedules))

    def _push(self, one: Schedule) -> float:
        try:
            return min(push_due(self._database, one), LONGEST_SLEEP)
        except PASSING as error:
            logger.warning("%s: %s", one.name, error)
        except TablequeueError as error:
            logger.error("%s was not pushed: %s", one.name, error)
        except Exception:  # of the driver, where SQLAlchemy begins and commits
            logger.exception("%s was not pushed", one.name)
        return RETRY
