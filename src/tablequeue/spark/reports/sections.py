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

COUNTS = ("finished", "retried", "backlog", "in_progress", "cancelled", "expired", "dead", "redriven", "lost")

# Maximum rows of a table and bars of a plot on the page. The Parquet tables have all.
_ROWS = 20
_BARS = 12

# The least backlog about which there is something to say, and the least seconds after which a consumer may hang.
_PILE = 10
_LONG = 60.0
# Maximum names of consumers in a sentence.
_NAMES = 3
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
    sections = [_section(row, found, target, every, of_times, read_at) for row in queues]
    title = f"Report on {_count(len(queues), 'queue')}"
    if len(queues) == 1:
        return render(title, span, {}, sections)
    words = "Wait and run times in seconds; consumers are those needed in the busiest hour."
    sections.insert(0, Section("All queues", tables=[Table("", words, _compared(found), linked=True)]))
    total = {name: sum(row[name] for row in queues) for name in COUNTS}
    return render(title, span, total, sections)


def _section(
    row: Row, found: Mapping[str, Rows], target: float, every: int, of_times: int, read_at: datetime
) -> Section:
    mine = {
        name: [{column: value for column, value in row.items() if column != "queue"} for row in _of(row, rows)]
        for name, rows in found.items()
    }
    times = {time["time"]: time for time in mine["times"]}
    facts = {name: row[name] for name in COUNTS}
    facts |= {f"{name} p95": duration(time["p95"]) for name, time in times.items()}
    return Section(
        row["queue"],
        [*_findings(row, mine, times, target, every, read_at)],
        facts,
        [*_over_time(mine, every), *_times(mine, target, of_times), *_consumers(mine, target), *_workers(mine)],
        list(_tables(mine)),
    )


def _of(queue: Row, rows: Rows) -> Rows:
    return [row for row in rows if row["queue"] == queue["queue"]]


def _findings(
    facts: Row, mine: Mapping[str, Rows], times: Mapping[str, Row], target: float, every: int, read_at: datetime
) -> Iterator[str]:
    """Yield the most important findings as sentences."""
    if wait := times.get("wait"):
        most, longest = duration(wait["p95"]), duration(wait["max"])
        yield f"95 % of the messages waited at most {most} for a consumer, the longest wait was {longest}."
    yield from _failures(mine, every)
    yield from _piled_up(mine["backlog"], every)
    if facts["dead"] or facts["redriven"]:
        verb = "waits" if facts["dead"] == 1 else "wait"
        redriven = f"{_count(facts['redriven'], 'message')} {'was' if facts['redriven'] == 1 else 'were'} redriven"
        yield f"{_count(facts['dead'], 'dead letter')} {verb}, and {redriven}."
    yield from _hung(mine["workers"], times, read_at)
    if hours := [row for row in mine["consumers"] if row["needed"]]:
        busiest = max(hours, key=lambda row: row["needed"])
        yield (
            f"The hour that needed the most consumers began at {_at(busiest['hour'])}: "
            f"{_count(busiest['needed'], 'consumer')} would have kept 95 % of the waits "
            f"under {duration(target)}, and "
            f"{_count(busiest['consumers'], 'consumer')} worked on its messages."
        )


def _failures(mine: Mapping[str, Rows], every: int) -> Iterator[str]:
    """Say when attempts failed, and with which error most of them."""
    failed = [(row["at"], row["failed"]) for row in mine["throughput"] if row["failed"]]
    if failed:
        first, last = _shortest(failed)
        end = last + timedelta(seconds=every)
        total = _count(sum(count for _, count in failed), "attempt")
        yield f"{total} failed, 90 % of them from {_at(first)} to {_at(end)}."
    if mine["errors"]:
        worst = mine["errors"][0]
        yield f"The most frequent error, with {_count(worst['failures'], 'failure')}: {worst['error']}"


def _shortest(counts: Sequence[tuple[datetime, int]]) -> tuple[datetime, datetime]:
    """Return the first and the last time of the shortest run of intervals that has 90 % of what is counted."""
    enough = 0.9 * sum(count for _, count in counts)
    runs, low, inside = [], 0, 0
    for at, count in counts:
        inside += count
        while inside - counts[low][1] >= enough:
            inside -= counts[low][1]
            low += 1
        if inside >= enough:
            runs.append((counts[low][0], at))
    return min(runs, key=lambda run: run[1] - run[0])


def _piled_up(backlog: Rows, every: int) -> Iterator[str]:
    """Say when the backlog was the greatest, and when it was gone."""
    if not backlog or (greatest := max(row["backlog"] for row in backlog)) < _PILE:
        return
    ends = [(row["at"] + timedelta(seconds=every), row["backlog"]) for row in backlog]
    at = next(at for at, count in ends if count == greatest)
    gone = next((time for time, count in ends if time > at and count <= greatest / 10), None)
    then = f"under a tenth of that at {_at(gone)}" if gone else f"{ends[-1][1]:,} in the end"
    yield f"The backlog was greatest at {_at(at)}, with {_count(greatest, 'message')}, and {then}."


def _hung(workers: Rows, times: Mapping[str, Row], read_at: datetime) -> Iterator[str]:
    """Name consumers that died or hung: those of expired leases, and those that hold a message for too long."""
    expired = sorted((row for row in workers if row["expired"]), key=lambda row: -row["expired"])
    if expired:
        leases = _count(sum(row["expired"] for row in expired), "lease")
        yield f"{leases} of {_names(expired)} expired, and the messages were delivered again."
    longest = max(_LONG, times["run"]["max"] if "run" in times else 0)
    if held := [row for row in workers if row["holds"] and (read_at - row["holds_since"]).total_seconds() > longest]:
        first = min(row["holds_since"] for row in held)
        yield f"{_names(held)} may hang: a message is in progress there since {_at(first)}, longer than any took."


def _names(consumers: Rows) -> str:
    shown = [str(row["name"]) for row in consumers[:_NAMES]]
    if others := len(consumers) - len(shown):
        return f"{', '.join(shown)} and {_count(others, 'other consumer')}"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


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
        [{**row, "example": None if row["example"] == row["error"] else row["example"]} for row in errors[:_ROWS]],
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
            "consumers": max((hour["needed"] or 0 for hour in _of(row, found["consumers"])), default=None),
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
