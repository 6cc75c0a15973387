"""What the page of `tablequeue report` says: the rows of the reports in words, numbers, plots and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tablequeue.spark.reports import plots
from tablequeue.spark.reports.page import Plot, Row, Section, Table, render
from tablequeue.spark.reports.plots import BLUE, GREEN, ORANGE, RED, number
from tablequeue.spark.reports.times import SHARES

Rows = Sequence[Row]

# Rows of a table, and bars of a plot, that are worth reading; the Parquet tables have all.
_ROWS = 20
_BARS = 12


def page(found: Mapping[str, Rows], target: float, every: int, read_at: datetime) -> str:
    """The page of these rows. `target` is that of the readers, `every` the seconds of a row of throughput."""
    queues = found["overview"]
    if queues:
        first = min(row["first_at"] for row in queues)
        last = max(row["last_at"] for row in queues)
        span = f"From {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}, in UTC. "
    else:
        span = "No message is known yet. "
    total = {
        name: sum(row[name] for row in queues)
        for name in ("finished", "retried", "backlog", "in_progress", "dead", "lost")
    }
    sections = [_section(row["queue"], row, found, target, every) for row in queues]
    if len(queues) > 1:
        sections.insert(0, Section("Queues", "", tables=[Table("Wait and run times in seconds.", _compared(found))]))
    names = ", ".join(row["queue"] for row in queues)
    words = f"{span}Read at {read_at:%Y-%m-%d %H:%M:%S}."
    return render(f"Queue {names}" if len(queues) == 1 else f"{len(queues)} queues", words, _named(total), sections)


def _section(queue: str, row: Row, found: Mapping[str, Rows], target: float, every: int) -> Section:
    mine: dict[str, Rows] = {
        name: [{k: v for k, v in row.items() if k != "queue"} for row in rows if row["queue"] == queue]
        for name, rows in found.items()
    }
    times = {time["time"]: time for time in mine["times"]}
    facts = {name: row[name] for name in ("finished", "retried", "backlog", "in_progress", "dead", "lost")}
    return Section(
        queue,
        " ".join(_findings(mine, times, target)),
        {
            **_named(facts),
            **{
                f"{name} p50 / p95": f"{_seconds(time['p50'])} / {_seconds(time['p95'])}"
                for name, time in times.items()
            },
        },
        list(_plots(mine, target, every)),
        list(_tables(mine)),
    )


def _findings(mine: Mapping[str, Rows], times: Mapping[str, Row], target: float) -> Iterator[str]:
    """The sentences that one would say first."""
    if wait := times.get("wait"):
        most, longest = _seconds(wait["p95"]), _seconds(wait["max"])
        yield f"95 % of the messages waited {most} at most for a reader, the longest {longest}."
    if mine["readers"]:
        busiest = max(mine["readers"], key=lambda row: row["needed"])
        count = _count(busiest["needed"], "reader")
        yield (
            f"In the hour that needed most, {busiest['hour']:%Y-%m-%d %H:%M}, {count} would have kept that under "
            f"{_seconds(target)}; {_count(busiest['readers'], 'reader')} worked on its messages."
        )
    expired = [row for row in mine["workers"] if row["expired"]]
    if expired:
        total = sum(row["expired"] for row in expired)
        yield f"{_count(total, 'message')} came back from {_count(len(expired), 'reader')} whose lease had ended."
    if mine["errors"]:
        worst = mine["errors"][0]
        yield f"The most frequent error, with {_count(worst['failures'], 'failure')}: {worst['error']}."


def _plots(mine: Mapping[str, Rows], target: float, every: int) -> Iterator[Plot]:
    step = _span(every)
    if mine["throughput"]:
        at, happened = _filled(mine["throughput"], every)
        shown = {name: happened[name] for name in ("pushed", "finished", "failed") if any(happened[name])}
        yield Plot(
            f"Throughput: messages each {step}. While more are pushed than finished, the backlog grows.",
            plots.lines(at, shown, f"messages each {step}", (ORANGE, BLUE, RED)),
        )
    if mine["backlog"]:
        yield Plot(
            "Backlog: pushed and not finished yet; the darker part was never popped.",
            plots.areas(
                [row["at"] for row in mine["backlog"]],
                {name: [row[name] for row in mine["backlog"]] for name in ("backlog", "waiting")},
                "messages",
                (BLUE, ORANGE),
            ),
        )
    for time, words in (
        ("wait", "Wait times, from push to the first pop, by the hour of that pop."),
        ("run", "Run times, from the last pop to the end, by the hour of the end."),
    ):
        hours = [row for row in mine["hours"] if row["time"] == time]
        if hours:
            series = {name: [row[name] for row in hours] for name in reversed(SHARES)}
            level = (target, "target") if time == "wait" else None
            x = [row["hour"] for row in hours]
            yield Plot(words, plots.lines(x, series, "seconds", (RED, ORANGE, BLUE), level=level, log=True))
    if mine["readers"]:
        x = [row["hour"] for row in mine["readers"]]
        series = {
            "needed": [row["needed"] for row in mine["readers"]],
            "there": [row["readers"] for row in mine["readers"]],
        }
        yield Plot(
            f"Readers: how many worked, and how many would have kept 95 % of the waits under {_seconds(target)}.",
            plots.lines(x, series, "readers", (ORANGE, BLUE)),
        )
    for role, done, color in (
        ("consumer", "finished by each reader", GREEN),
        ("producer", "pushed by each writer", ORANGE),
    ):
        workers = sorted((row for row in mine["workers"] if row["role"] == role), key=lambda row: -row["messages"])
        if workers:
            names, values = [row["name"] for row in workers[:_BARS]], [row["messages"] for row in workers[:_BARS]]
            if workers[_BARS:]:
                names.append(f"{len(workers) - _BARS} others")
                values.append(sum(row["messages"] for row in workers[_BARS:]))
            yield Plot(f"Messages {done}.", plots.bars(names, values, "messages", color))


def _tables(mine: Mapping[str, Rows]) -> Iterator[Table]:
    yield Table(
        f"Errors: attempts that failed, what became of their messages, and dead letters of which it was the last error"
        f"{_more(mine['errors'])}.",
        mine["errors"][:_ROWS],
    )
    yield Table(f"Lost: delivered at most once, and never completed{_more(mine['lost'])}.", mine["lost"][:_ROWS])
    yield Table(f"Writers and readers, seconds of a run{_more(mine['workers'])}.", mine["workers"][:_ROWS], folded=True)
    yield Table(f"Arrivals and readers by hour{_more(mine['readers'])}.", mine["readers"][-_ROWS:], folded=True)


def _compared(found: Mapping[str, Rows]) -> list[Row]:
    """All queues side by side."""
    times = {(row["queue"], row["time"]): row for row in found["times"]}
    return [
        {
            **{name: row[name] for name in ("queue", "finished", "retried", "backlog", "dead", "lost")},
            **{
                f"{time} {share}": times.get((row["queue"], time), {}).get(share)
                for time in ("wait", "run")
                for share in ("p50", "p95")
            },
            "readers needed": max((r["needed"] for r in found["readers"] if r["queue"] == row["queue"]), default=None),
        }
        for row in found["overview"]
    ]


def _filled(rows: Rows, every: int) -> tuple[list[datetime], dict[str, list[Any]]]:
    """Throughput with a zero where nothing happened: there is no row then."""
    by_time = {row["at"]: row for row in rows}
    steps = round((max(by_time) - min(by_time)).total_seconds()) // every + 1
    at = [min(by_time) + timedelta(seconds=every * step) for step in range(steps)]
    return at, {name: [by_time.get(time, {}).get(name, 0) for time in at] for name in rows[0] if name != "at"}


def _named(facts: Row) -> Row:
    return {name.replace("_", " "): value for name, value in facts.items()}


def _more(rows: Rows) -> str:
    return f"; {_ROWS} of {len(rows):,}" if len(rows) > _ROWS else ""


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _seconds(value: float) -> str:
    return f"{number(value)} s"


def _span(seconds: int) -> str:
    """The length of a bucket in words, as 10 minutes."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % unit == 0:
            return name if seconds == unit else f"{seconds // unit} {name}s"
    raise ValueError(seconds)
