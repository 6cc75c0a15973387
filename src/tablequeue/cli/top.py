"""`tablequeue top`: statistics of the queues, live."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import sleep

import click
from rich.live import Live
from rich.text import Text

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.output import one_line, print_json, stats_record
from tablequeue.database import Database
from tablequeue.errors import TablequeueError
from tablequeue.verbs.readable import duration, in_progress, notes_of, number, rate
from tablequeue.verbs.stats import Activity, Stats

# Seconds over which rates, times and sparklines are computed.
WINDOW = 60
# Characters of a sparkline: two sparklines with their rates fit into 80 columns.
SPARK = 20
BARS = " ▁▂▃▄▅▆▇█"
# The columns to the right of the name, with their widths.
COLUMNS = {"ready": 10, "scheduled": 10, "in progress": 12, "dead": 6, "oldest": 9, "wait 95 %": 10, "run 95 %": 9}
# Columns with other names for a subscription: messages that no consumer has claimed, and the age of the first one.
LAG = {"ready": "lag", "oldest": "behind"}
NARROWEST = 80


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.option(
    "--every", type=click.FloatRange(0.1, 3600), default=2, show_default=True, help="Seconds between two refreshes."
)
@click.pass_obj
def top(settings: Settings, queue: str | None, every: float) -> None:
    """Watch QUEUE with its producers and consumers, or every queue and subscription: numbers, rates and times.

    Rates, times and sparklines cover the last minute; with a ~, only its last 50,000 messages. Ctrl-C ends it. With
    --json, or when the output is a file or a pipe, the statistics are printed once.
    """
    with settings.database() as database:
        if queue is not None:
            database.consumer(queue)  # raises before the screen is cleared
        if settings.json:
            for stats, _ in _collect(database, queue):
                if stats is not None:
                    print_json(stats_record(stats))
        elif sys.stdout.isatty():
            _watch(database, queue, every)
        else:
            frame = _frame(_collect(database, queue), NARROWEST, everybody=queue is not None)
            click.echo("\n".join(map(str.rstrip, frame.plain.splitlines())))


def _watch(database: Database, queue: str | None, every: float) -> None:
    with Live(screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
        try:
            while True:
                try:
                    width = max(live.console.width, NARROWEST)
                    frame = _frame(_collect(database, queue), width, everybody=queue is not None)
                except TablequeueError as error:
                    frame = Text(f"{one_line(error.cause)} {one_line(error.remedy)}", "red")
                live.update(frame, refresh=True)
                sleep(every)
        except KeyboardInterrupt:
            return  # Ctrl-C is the normal end, not a failure


Collected = tuple[Stats | None, TablequeueError | None]


def _collect(database: Database, queue: str | None) -> list[Collected]:
    """Return the statistics of each queue, or its error: one broken queue does not hide the others."""
    collected: list[Collected] = []
    for name in [*database.queues(), *database.subscriptions()] if queue is None else [queue]:
        try:
            collected.append((database.consumer(name).stats(window=WINDOW), None))
        except TablequeueError as error:
            collected.append((None, error))
    return collected


def _frame(collected: Sequence[Collected], width: int, *, everybody: bool) -> Text:
    lines = [] if collected else [Text("There is no queue.", "dim")]
    above = None
    for stats, error in collected:
        if error is not None:
            lines.append(Text(f"{one_line(error.cause)} {one_line(error.remedy)}", "red"))
        if stats is None:
            continue
        if above != (head := _head(stats, width)):
            lines += [Text("")] * bool(lines) + [head]
            above = head
        lines.append(_counts(stats, width))
        if stats.window is None:
            lines.append(Text("  keeps no history", "dim"))
            continue
        about = "" if stats.window.exact else "~"
        lines.append(_flow(stats.window.queue, about))
        if everybody:
            for words, several in (("producer", stats.window.producers), ("consumer", stats.window.consumers)):
                for one in several:
                    lines += [Text(f"{words} {one_line(one.who or '')}", "bold"), _flow(one, about)]
    notes = notes_of([stats for stats, _ in collected if stats is not None], but="finished")
    lines += [Text(words, "dim") for words in notes]
    return Text("\n").join(lines)


def _head(stats: Stats, width: int) -> Text:
    """Return the names of the columns of a queue, or of a subscription."""
    what, names = ("queue", {}) if stats.lag is None else ("subscription", LAG)
    columns = "".join(f"{names.get(column, column):>{size}}" for column, size in COLUMNS.items())
    return Text(what.ljust(width - sum(COLUMNS.values())) + columns, "dim")


def _counts(stats: Stats, width: int) -> Text:
    done = stats.window.queue if stats.window else None
    ready = f"{number(stats.ready)}+{number(stats.blocked)}" if stats.blocked else number(stats.ready)
    cells = (
        ready if stats.lag is None else number(stats.lag.messages),
        number(stats.scheduled),
        in_progress(stats),
        number(stats.dead),
        duration(stats.oldest_age if stats.lag is None else stats.lag.seconds),
        duration(done.wait_time.p95 if done and done.wait_time else None),
        duration(done.run_time.p95 if done and done.run_time else None),
    )
    room = width - sum(COLUMNS.values())
    line = Text(stats.queue if len(stats.queue) < room else f"{stats.queue[: room - 2]}\N{HORIZONTAL ELLIPSIS}", "bold")
    line.append(" " * (room - len(line)))
    for (column, size), cell in zip(COLUMNS.items(), cells, strict=True):
        line.append(f"{cell:>{size}}", "bold red" if column == "dead" and stats.dead else "not bold")
    return line


def _flow(activity: Activity, about: str) -> Text:
    """Return a line of rates and sparklines. `about` is put before each rate: ~ if it is not exact."""
    text = Text("  ")
    if activity.pushed_slices is not None:
        pushed = about + rate(activity.push_rate)
        text.append(f"pushed {pushed:>9} ").append(spark(activity.pushed_slices), "yellow").append("  ")
    finished = about + rate(activity.completion_rate)
    text.append(f"finished {finished:>9} ").append(spark(activity.finished_slices), "blue")
    return text


def spark(slices: Sequence[int]) -> str:
    """Return counts as a line of bars. The highest is a full bar; no count above 0 is invisible."""
    step = len(slices) // SPARK
    sums = [sum(slices[start : start + step]) for start in range(0, len(slices), step)]
    highest = max(sums) or 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // highest)] for count in sums)
