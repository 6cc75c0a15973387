"""`tablequeue stats`: how many messages are where, and what was done with them lately, by whom."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.common import Command, Settings, print_json, print_table
from tablequeue.errors import TablequeueError
from tablequeue.operations.stats import COUNTED, Activity, Stats, Times

COLUMNS = "queue ready scheduled blocked in_progress dead oldest_age finished".split()
TIMES = ("wait 50 %", "95 %", "99 %", "run 50 %", "95 %", "99 %")


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.option(
    "--window", type=float, default=300, show_default=True, help="Seconds that rates and percentiles are made of."
)
@click.pass_obj
def stats(settings: Settings, queue: str | None, window: float) -> None:
    """Count messages by state, of QUEUE or of every queue, with their rates and times.

    The oldest age is the time since the first ready message was pushed. The wait is the time from pushed to first
    popped, the run that from last popped to finished: half of the messages, 95 and 99 % of them took that long at the
    most. All are seconds. With QUEUE, its producers and consumers are shown too.
    """
    found: list[Stats] = []
    refused: list[TablequeueError] = []
    grouped = False
    with settings.database() as database:
        for name in [queue] if queue else database.queues():
            try:
                source = database.queue(name)
                found.append(source.stats(window=window))
                grouped = grouped or source.definition.grouped
            except TablequeueError as error:
                refused.append(error)  # one bad queue does not hide the others
    if settings.json:
        for each in found:
            print_json(dataclasses.asdict(each))
    elif found:
        columns = [column for column in COLUMNS if column != "blocked" or grouped]
        rows = [[_cell(getattr(each, column)) for column in columns] for each in found]
        print_table([column.replace("_", " ") for column in columns], rows)
        _print_windows(found, window, everybody=queue is not None)
        if any(each.estimated for each in found):
            click.echo(f"\nOf {COUNTED:,} finished messages or more, the number is an estimate.")
    if refused:
        raise refused[0]


def _print_windows(found: list[Stats], length: float, *, everybody: bool) -> None:
    rows: list[tuple[str, Activity]] = []
    for each in found:
        if each.window is None:
            continue
        rows.append((each.queue, each.window.queue))
        if everybody:
            rows += [(f"from {activity.who}", activity) for activity in each.window.producers]
            rows += [(f"to {activity.who}", activity) for activity in each.window.consumers]
    if not rows:
        return
    who = f"last {length:g} s"
    lost = any(activity.lost for _, activity in rows)
    click.echo()
    columns = [who, "pushed", "pushed/s", "finished", "finished/s", "redeliveries", *(["lost"] if lost else [])]
    print_table(columns, [_counts(name, activity)[: len(columns)] for name, activity in rows], cut=who)
    if any(activity.finished for _, activity in rows):
        click.echo()
        timed = [[name, *_times(activity.wait_time), *_times(activity.run_time)] for name, activity in rows]
        print_table([who, *TIMES], timed, cut=who)
    if any(each.window is not None and not each.window.whole for each in found):
        click.echo("Of a queue with more than 50,000 messages in that time, the last 50,000 were counted.")


def _counts(name: str, activity: Activity) -> list[object]:
    pushed = activity.pushed, _cell(activity.push_rate)
    finished = activity.finished, _cell(activity.completion_rate)
    return [name, *pushed, *finished, activity.redeliveries, activity.lost]


def _times(times: Times | None) -> list[object]:
    return [round(time, 3) for time in (times.p50, times.p95, times.p99)] if times else [None] * 3


def _cell(value: object) -> object:
    return round(value, 1) if isinstance(value, float) else value
