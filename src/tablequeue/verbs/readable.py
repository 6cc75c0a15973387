"""Numbers in a form that people can read, for the terminal and the dashboard."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tablequeue.verbs.control import FOREVER
from tablequeue.verbs.stats import COUNTED, MOST, Stats

# Printed in the place of a missing value.
NOTHING = "\N{EN DASH}"
# The meaning of `~`, by the estimated number.
ESTIMATED = {
    "finished": f"~ of finished messages: an estimate. From {COUNTED:,} on they are not counted.",
    "window": f"~ of a time with more than {MOST:,} messages: only the last {MOST:,} are counted.",
}


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def in_progress(stats: Stats) -> str:
    """Return the messages in progress, and how many there may be if the queue limits them."""
    return number(stats.in_progress) + ("" if stats.concurrency is None else f"/{number(stats.concurrency)}")


def size(value: int) -> str:
    """Return a number of bytes, in a suitable unit."""
    for least, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= least:
            return f"{value / least:.3g} {unit}"
    return f"{value} B"


def percent(fraction: float) -> str:
    """Return a fraction from 0 to 1 in whole percent, rounded down: 100 % is all."""
    return f"{int(fraction * 100 + 1e-9)} %"


def waiting(messages: int) -> str:
    """Return what a message without a due time waits for."""
    return f"waits for {number(messages)} message{'' if messages == 1 else 's'}"


def rate(value: float | None) -> str:
    """Return messages a second, or a minute if they are few."""
    if not value:
        return NOTHING if value is None else "0"
    if value < 0.1:
        return f"{value * 60:.2g}/min"
    return f"{value:.1f}/s" if value < 100 else f"{number(round(value))}/s"


# The least number of seconds for each unit, its length in seconds, and its name.
_UNITS = ((3 * 86400, 86400, "d"), (2 * 3600, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0.001, 0.001, "ms"))


def duration(value: float | timedelta | None) -> str:
    """Return a duration with at most three digits, in a suitable unit."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for least, size, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return "< 1 ms" if seconds else "0 s"


def notes_of(found: Iterable[Stats], *, but: str | None = None) -> list[str]:
    """Return notes on these statistics: which queues are paused, and what each `~` means; `but` is left out."""
    found = list(found)
    return [*pauses_of(found), *estimates_of(found, but=but)]


def pauses_of(found: Iterable[Stats]) -> list[str]:
    return [f"{stats.queue} is paused{_end(stats.paused_until)}." for stats in found if stats.paused_until is not None]


def estimates_of(found: Iterable[Stats], *, but: str | None = None) -> list[str]:
    names = {name for stats in found for name in stats.estimated} - {but}
    return [words for name, words in ESTIMATED.items() if name in names]


def _end(pause: datetime) -> str:
    return "" if pause >= FOREVER else f" until {pause:%Y-%m-%d %H:%M:%S}Z"
