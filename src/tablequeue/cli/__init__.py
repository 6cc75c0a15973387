"""The command line: one file for each command. To add one, write a file here, and add its name to COMMANDS."""

from __future__ import annotations

import click

from tablequeue.cli.cancel import cancel
from tablequeue.cli.commands import Root, Settings
from tablequeue.cli.complete import complete
from tablequeue.cli.dead import dead
from tablequeue.cli.demo import demo
from tablequeue.cli.doctor import doctor
from tablequeue.cli.fail import fail
from tablequeue.cli.history import history
from tablequeue.cli.lost import lost
from tablequeue.cli.move import move
from tablequeue.cli.peek import peek
from tablequeue.cli.pipeline import pipeline
from tablequeue.cli.pop import pop
from tablequeue.cli.push import push
from tablequeue.cli.queue import queue
from tablequeue.cli.report import report
from tablequeue.cli.reschedule import reschedule
from tablequeue.cli.result import result
from tablequeue.cli.serve import serve
from tablequeue.cli.sql import sql
from tablequeue.cli.sqs import sqs
from tablequeue.cli.stats import stats
from tablequeue.cli.stream import stream
from tablequeue.cli.top import top
from tablequeue.cli.topic import topic
from tablequeue.cli.upgrade import upgrade
from tablequeue.cli.work import work

__all__ = ["main"]

COMMANDS = (
    queue,
    topic,
    push,
    pop,
    complete,
    fail,
    cancel,
    reschedule,
    peek,
    dead,
    move,
    lost,
    history,
    result,
    work,
    stats,
    top,
    doctor,
    stream,
    pipeline,
    serve,
    sqs,
    report,
    sql,
    upgrade,
    demo,
)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="TABLEQUEUE_URL", show_envvar=True, help="The database, as sqlite:///work.db.")
@click.option("--schema", help="The schema that holds the queues, on engines that have schemas.")
@click.option("--name", help="The name of this producer or consumer in the history.  [default: host:pid]")
@click.version_option(package_name="tablequeue")
@click.pass_context
def main(ctx: click.Context, url: str | None, schema: str | None, name: str | None) -> None:
    """Queues in the database you already have.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 nothing found (pop, peek), 4 done but not completely printed,
    130 interrupted.
    """
    settings = ctx.ensure_object(Settings)
    settings.url, settings.schema, settings.name = url, schema, name


for command in COMMANDS:
    main.add_command(command)
