"""`tablequeue work`: run handlers for the messages of queues."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from tablequeue.cli import logs
from tablequeue.cli.common import COUNT, Command, Seconds, Settings, print_json
from tablequeue.errors import BadInput
from tablequeue.worker import Handler, Worker
from tablequeue.worker.handler import load


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--queue", "queues", multiple=True, metavar="QUEUE[:CONSUMERS]", help="A queue to work at, and its consumers."
)
@click.option("--min", "minimum", type=click.IntRange(min=0), help="Consumers that each queue keeps.  [default: 0]")
@click.option("--max", "maximum", type=COUNT, help="Consumers of all queues together.  [default: 8]")
@click.option("--batch", type=COUNT, help="The handler gets lists of up to so many messages.")
@click.option("--timeout", type=float, help="Seconds after which a call of the handler has failed.")
@click.option("--processes", is_flag=True, help="Each consumer has a process of its own, not a thread.")
@click.option("--drain", is_flag=True, help="End when nothing is ready in any of the queues.")
@click.option("--shutdown-timeout", type=Seconds(), help="Seconds that handlers have to end.  [default: 30]")
@click.option("--longest-pause", type=Seconds(), help="Seconds between two looks at a queue, if no wake-up arrives.")
@click.pass_obj
def work(
    settings: Settings,
    target: str,
    queues: tuple[str, ...],
    minimum: int | None,
    maximum: int | None,
    batch: int | None,
    timeout: float | None,
    processes: bool,
    drain: bool,
    shutdown_timeout: float | None,
    longest_pause: float | None,
) -> None:
    """Run a handler for the messages of queues, until SIGTERM or Ctrl-C.

    MODULE:NAME is a function, which may be async: it gets a message (or with --batch a list), which is completed when
    it returns and tried again later when it raises. Or it is a `tablequeue.worker.Worker`, with handlers of its own;
    then --queue chooses among them.

    Consumers are added while messages wait, and retire when none do. The first signal lets them end what they have and
    gives the rest back; the second one ends the process at once. Failures are told on stderr.
    """
    found = load(target)
    named = dict(_named(queue) for queue in queues)
    if isinstance(found, Worker):
        if batch or timeout or processes:
            raise click.UsageError(f"{target} is a Worker, which has --batch, --timeout and --processes of its own.")
        worker = _chosen(found, named)
    else:
        if not named:
            raise click.UsageError("No queue is given. Write --queue and its name.")
        worker = Worker()
        for queue, consumers in named.items():
            worker.add(Handler(queue, found, consumers, batch, timeout, processes))
    given = {
        "minimum": minimum,
        "maximum": maximum,
        "shutdown_timeout": shutdown_timeout,
        "longest_pause": longest_pause,
    }
    for name, value in given.items():
        if value is not None:
            setattr(worker, name, value)
    logs.configure(as_json=settings.json)
    with settings.database() as database:
        counts = worker.run(database, drain=drain)
    if settings.json:
        print_json(counts)
    else:
        click.echo(", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing to do")
    if worker.abandoned:
        # A thread of a handler would keep the process alive.
        sys.stdout.flush()
        os._exit(0)


def _named(text: str) -> tuple[str, int | None]:
    name, colon, consumers = text.partition(":")
    if not colon:
        return name, None
    if not consumers.isascii() or not consumers.isdigit() or not int(consumers):
        raise click.BadParameter(f"{text!r} has no number of consumers after the colon.", param_hint="--queue")
    return name, int(consumers)


def _chosen(worker: Worker, named: dict[str, int | None]) -> Worker:
    """The worker with those of its queues that are named; all if none is."""
    for queue in named:
        if queue not in worker.handlers:
            there = ", ".join(worker.handlers)
            raise BadInput(f"The worker has no handler for the queue {queue!r}.", f"Name one of: {there}.")
    if named:
        worker.handlers = {
            queue: replace(worker.handlers[queue], consumers=consumers or worker.handlers[queue].consumers)
            for queue, consumers in named.items()
        }
    return worker
