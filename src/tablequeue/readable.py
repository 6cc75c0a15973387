"""Numbers as people read them, in the terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from tablequeue.operations.stats import COUNTED, MOST, Stats

# What stands where there is no value.
NOTHING = "\N{EN DASH}"
# What `~` means, by what is estimated.
ESTIMATED = {
    "finished": f"~ of finished messages: an estimate, for {COUNTED:,} and more are not counted.",
    "window": f"~ of a time with more than {MOST:,} messages: of the last {MOST:,}.",
}


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def rate(value: float | None) -> str:
    """Messages a second, or a minute where they are few."""
    if not value:
        return NOTHING if value is None else "0"
    if value < 0.1:
        return f"{value * 60:.2g}/min"
    return f"{value:.1f}/s" if value < 100 else f"{number(round(value))}/s"


# From how many seconds on a unit is used, its length in seconds, and its name.
_UNITS = ((3 * 86400, 86400, "d"), (2 * 3600, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0.001, 0.001, "ms"))


def duration(value: float | timedelta | None) -> str:
    """With three digits at most, in the unit that people would say."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    for least, size, unit in _UNITS:
        if seconds >= least:
            return f"{seconds / size:.3g} {unit}"
    return "< 1 ms" if seconds else "0 s"


def estimates_of(found: Iterable[Stats], *, but: str | None = None) -> list[str]:
    """What is to be said below numbers with a `~`; but not of `but`, which is not shown."""
    names = {name for stats in found for name in stats.estimated} - {but}
    return [words for name, words in ESTIMATED.items() if name in names]
