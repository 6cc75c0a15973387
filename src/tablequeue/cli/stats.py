"""`tablequeue stats`: counts of messages by state, and rates and times of a window."""

from __future__ import annotations

from typing import Any

import click

from tablequeue.cli.commands import Command, Settings, say_none
from tablequeue.cli.output import Estimate, finished_cell, print_json, print_table, stats_record
from tablequeue.errors import TablequeueError
from tablequeue.verbs.readable import in_progress, notes_of
from tablequeue.verbs.stats import Activity, Lag, Stats, Times

COLUMNS = "queue lag ready scheduled blocked in_progress dead open_batches oldest_age finished".split()
TIMES = ("wait 50 %", "95 %", "99 %", "run 50 %", "95 %", "99 %")


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.option(
    "--window",
    type=float,
    default=300,
    show_default=True,
    help="Seconds over which rates and percentiles are computed.",
)
@click.pass_obj
def stats(settings: Settings, queue: str | None, window: float) -> None:
    """Count messages by state, of QUEUE or of every queue and subscription, with their rates and times.

    The lag of a subscription is the number of messages of its topic that no consumer has claimed. The oldest age is the
    time since the first ready message was pushed. The wait is the time from push to first pop, and the run is the time
    from last pop to finish: both as the 50th, 95th and 99th percentile. All times are seconds. With QUEUE, its
    producers and consumers are shown too. Numbers with a ~ are estimates; with --json, `estimated` names them.
    """
    found: list[Stats] = []
    refused: list[TablequeueError] = []
    grouped = False
    with settings.database() as database:
        for name in [queue] if queue else [*database.queues(), *database.subscriptions()]:
            try:
                source = database.consumer(name)
                found.append(source.stats(window=window))
                grouped = grouped or source.definition.grouped
            except TablequeueError as error:
                refused.append(error)  # one bad queue does not hide the others
    if not found and not refused:
        say_none("There is no queue.")
    elif settings.json:
        for each in found:
            print_json(stats_record(each))
    elif found:
        shown = {"blocked": grouped, "lag": any(each.lag for each in found)}
        shown["open_batches"] = any(each.open_batches for each in found)
        columns = [column for column in COLUMNS if shown.get(column, True)]
        rows = [[*(_cell(each, column) for column in columns[:-1]), finished_cell(each)] for each in found]
        print_table([column.replace("_", " ") for column in columns], rows)
        _print_windows(found, window, everybody=queue is not None)
        if notes := notes_of(found):
            click.echo("\n" + "\n".join(notes))
    if refused:
        raise refused[0]


def _print_windows(found: list[Stats], length: float, *, everybody: bool) -> None:
    rows: list[tuple[str, Activity, bool]] = []
    for each in found:
        if each.window is None:
            continue
        whole = each.window.exact
        rows.append((each.queue, each.window.queue, whole))
        if everybody:
            rows += [(f"from {activity.who}", activity, whole) for activity in each.window.producers]
            rows += [(f"to {activity.who}", activity, whole) for activity in each.window.consumers]
    if not rows:
        return
    who = f"last {length:g} s"
    lost = any(activity.lost for _, activity, _ in rows)
    click.echo()
    counted = ["pushed", "pushed/s", "finished", "finished/s", "redeliveries", "failed"]
    columns = [who, *counted, *(["lost"] if lost else [])]
    print_table(columns, [_counts(*row)[: len(columns)] for row in rows], cut=who)
    if any(activity.finished for _, activity, _ in rows):
        click.echo()
        timed = [[name, *_times(activity.wait_time), *_times(activity.run_time)] for name, activity, _ in rows]
        print_table([who, *TIMES], timed, cut=who)


def _counts(name: str, activity: Activity, whole: bool) -> list[object]:
    pushed = activity.pushed, _rounded(activity.push_rate)
    finished = activity.finished, _rounded(activity.completion_rate)
    counted = [*pushed, *finished, activity.redeliveries]
    cells = (cell if whole or cell is None else Estimate(cell) for cell in counted)
    return [name, *cells, activity.failed, activity.lost]


def _times(times: Times | None) -> list[object]:
    return [round(time, 3) for time in (times.p50, times.p95, times.p99)] if times else [None] * 3


def _cell(stats: Stats, column: str) -> object:
    if column == "in_progress" and stats.concurrency is not None:
        return in_progress(stats)
    value = getattr(stats, column)
    return value.messages if isinstance(value, Lag) else _rounded(value)


def _rounded(value: Any) -> Any:
    return round(value, 1) if isinstance(value, float) else value
