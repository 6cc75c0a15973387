"""The contents of the page of `tablequeue report`: findings, numbers, plots and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tablequeue.spark.reports import plots
from tablequeue.spark.reports.marks import duration
from tablequeue.spark.reports.page import Plot, Row, Section, Table, render
from tablequeue.spark.reports.plots import BLUE, GREEN, ORANGE, RED
from tablequeue.spark.reports.times import SHARES

Rows = Sequence[Row]

COUNTS = ("finished", "retried", "backlog", "in_progress", "cancelled", "expired", "dead", "lost")

# Maximum rows of a table and bars of a plot on the page. The Parquet tables have all.
_ROWS = 20
_BARS = 12

_HOUR = timedelta(hours=1)
# Of fewer hours, what is known by the hour is a table and no plot.
_HOURS = 3


def page(found: Mapping[str, Rows], target: float, every: int, of_times: int, read_at: datetime) -> str:
    """Return the page. `target` is that of `consumers`, the others are the intervals of throughput and of times.

    All are seconds.
    """
    queues = found["overview"]
    span = "There are no messages yet."
    if queues:
        first, last = min(row["first_at"] for row in queues), max(row["last_at"] for row in queues)
        span = f"From {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}, read at {read_at:%Y-%m-%d %H:%M:%S}, UTC."
    sections = [_section(row, found, target, every, of_times) for row in queues]
    title = f"Report on {_count(len(queues), 'queue')}"
    if len(queues) == 1:
        return render(title, span, {}, sections)
    words = "Wait and run times in seconds; consumers are those needed in the busiest hour."
    sections.insert(0, Section("All queues", "", tables=[Table("", words, _compared(found), linked=True)]))
    total = {name: sum(row[name] for row in queues) for name in COUNTS}
    return render(title, span, total, sections)


def _section(row: Row, found: Mapping[str, Rows], target: float, every: int, of_times: int) -> Section:
    mine = {
        name: [{column: value for column, value in row.items() if column != "queue"} for row in _of(row, rows)]
        for name, rows in found.items()
    }
    times = {time["time"]: time for time in mine["times"]}
    facts = {name: row[name] for name in COUNTS}
    facts |= {f"{name} p95": duration(time["p95"]) for name, time in times.items()}
    return Section(
        row["queue"],
        " ".join(_findings(mine, times, target)),
        facts,
        [*_over_time(mine, every), *_times(mine, target, of_times), *_consumers(mine, target), *_workers(mine)],
        list(_tables(mine)),
    )


def _of(queue: Row, rows: Rows) -> Rows:
    return [row for row in rows if row["queue"] == queue["queue"]]


def _findings(mine: Mapping[str, Rows], times: Mapping[str, Row], target: float) -> Iterator[str]:
    """Yield the most important findings as sentences."""
    if wait := times.get("wait"):
        most, longest = duration(wait["p95"]), duration(wait["max"])
        yield f"95 % of the messages waited at most {most} for a consumer, the longest wait was {longest}."
    if mine["consumers"]:
        busiest = max(mine["consumers"], key=lambda row: row["needed"])
        yield (
            f"The hour that needed the most consumers began at {busiest['hour']:%Y-%m-%d %H:%M}: "
            f"{_count(busiest['needed'], 'consumer')} would have kept that under {duration(target)}, and "
            f"{_count(busiest['consumers'], 'consumer')} worked on its messages."
        )
    expired = [row for row in mine["workers"] if row["expired"]]
    if expired:
        total = sum(row["expired"] for row in expired)
        leases = f"{_count(total, 'lease')} of {_count(len(expired), 'consumer')}"
        yield f"{leases} expired, and the messages were delivered again."
    if mine["errors"]:
        worst = mine["errors"][0]
        yield f"The most frequent error, with {_count(worst['failures'], 'failure')}: {worst['error']}."


def _over_time(mine: Mapping[str, Rows], every: int) -> Iterator[Plot]:
    span = timedelta(seconds=every)
    if mine["throughput"]:
        at, happened = _filled(mine["throughput"], every)
        shown = {name: happened[name] for name in ("pushed", "finished", "failed") if any(happened[name])}
        yield Plot(
            "Throughput.",
            "The backlog grows while more messages are pushed than finished.",
            plots.lines(at, span, shown, f"messages in {_span(every)}", (ORANGE, BLUE, RED)),
        )
    if mine["backlog"]:
        waiting = [row["waiting"] for row in mine["backlog"]]
        popped = [row["backlog"] - row["waiting"] for row in mine["backlog"]]
        yield Plot(
            "Backlog.",
            "Messages that were pushed and not finished: never popped, or popped at least once.",
            plots.areas(
                [row["at"] for row in mine["backlog"]], span, {"never popped": waiting, "popped": popped}, "messages"
            ),
        )


def _times(mine: Mapping[str, Rows], target: float, every: int) -> Iterator[Plot]:
    span = timedelta(seconds=every)
    for time, words in (
        ("wait", "From the push to the first pop, by the time of that pop."),
        ("run", "From the last pop to the finish, by the time of the finish."),
    ):
        spans = [row for row in mine["spans"] if row["time"] == time]
        if spans:
            series = {name: [row[name] for row in spans] for name in reversed(SHARES)}
            x, level = [row["at"] for row in spans], target if time == "wait" else None
            plot = plots.lines(x, span, series, "", (RED, ORANGE, BLUE), level=level, times=True)
            yield Plot(f"{time.capitalize()} times.", words, plot)


def _consumers(mine: Mapping[str, Rows], target: float) -> Iterator[Plot]:
    rows = mine["consumers"]
    if len(rows) < _HOURS:
        return
    x = [row["hour"] for row in rows]
    counts = {"needed": [row["needed"] for row in rows], "present": [row["consumers"] for row in rows]}
    yield Plot(
        "Consumers.",
        f"Consumers that worked in each hour, and those needed to keep 95 % of the waits under {duration(target)}.",
        plots.lines(x, _HOUR, counts, "consumers", (ORANGE, BLUE)),
    )
    rates = {
        "arrived": [row["arrival_rate"] for row in rows],
        "could be finished": [row["service_rate"] and row["service_rate"] * row["consumers"] for row in rows],
    }
    yield Plot(
        "Load.",
        "The rate at which messages arrived, and the rate at which the consumers of the hour could finish them.",
        plots.lines(x, _HOUR, rates, "messages a second", (ORANGE, BLUE)),
    )


def _workers(mine: Mapping[str, Rows]) -> Iterator[Plot]:
    for role, title, done, color in (
        ("consumer", "Finished by each consumer.", "finished", GREEN),
        ("producer", "Pushed by each producer.", "pushed", ORANGE),
    ):
        rows = sorted((row for row in mine["workers"] if row["role"] == role), key=lambda row: -row["messages"])
        if rows:
            shown = [(row["name"], row["messages"]) for row in rows[:_BARS]]
            if others := rows[_BARS:]:
                shown.append((_count(len(others), "other"), sum(row["messages"] for row in others)))
            names, values = zip(*shown, strict=True)
            yield Plot(title, "", plots.bars(names, values, f"messages {done}", color))


def _tables(mine: Mapping[str, Rows]) -> Iterator[Table]:
    errors, lost, workers, consumers = (mine[name] for name in ("errors", "lost", "workers", "consumers"))
    yield Table(
        "Errors.",
        "Failed attempts, how many of their messages were finished later, and the dead letters whose last error it was"
        f"{_more(errors)}.",
        errors[:_ROWS],
    )
    yield Table("Lost.", f"Messages delivered at most once, and never completed{_more(lost)}.", lost[:_ROWS])
    yield Table("Producers and consumers.", f"Run times in seconds{_more(workers)}.", workers[:_ROWS], folded=True)
    yield Table(
        "Load by hour.",
        f"Rates per second, waits in seconds{_more(consumers)}.",
        consumers[-_ROWS:],
        folded=len(consumers) >= _HOURS,
    )


def _compared(found: Mapping[str, Rows]) -> list[Row]:
    """Return a row for each queue, to compare them."""
    times = {(row["queue"], row["time"]): row for row in found["times"]}
    return [
        {
            **{name: row[name] for name in ("queue", *COUNTS)},
            **{
                f"{time} {share}": times.get((row["queue"], time), {}).get(share)
                for time in ("wait", "run")
                for share in ("p50", "p95")
            },
            "consumers": max((hour["needed"] for hour in _of(row, found["consumers"])), default=None),
        }
        for row in found["overview"]
    ]


def _filled(rows: Rows, every: int) -> tuple[list[datetime], dict[str, list[Any]]]:
    """Fill gaps in throughput with zeros: an interval without events has no row."""
    by_time = {row["at"]: row for row in rows}
    first, last = min(by_time), max(by_time)
    steps = round((last - first).total_seconds()) // every + 1
    at = [first + timedelta(seconds=every * step) for step in range(steps)]
    return at, {name: [by_time.get(time, {}).get(name, 0) for time in at] for name in rows[0] if name != "at"}


def _more(rows: Rows) -> str:
    return f"; {_ROWS} of {len(rows):,}" if len(rows) > _ROWS else ""


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _span(seconds: int) -> str:
    """Return an interval of throughput as text, such as 10 minutes."""
    size, unit = next(
        (size, unit)
        for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
        if seconds % size == 0
    )
    return _count(seconds // size, unit)
