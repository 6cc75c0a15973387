"""`tablequeue work`: run handlers for the messages of queues."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.long_running import configure_logs, health_options, serving_health
from tablequeue.cli.options import COUNT, Seconds
from tablequeue.errors import BadInput
from tablequeue.worker import Handler, Worker
from tablequeue.worker.handler import import_target
from tablequeue.worker.health import health


@click.command(cls=Command)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--queue", "queues", multiple=True, metavar="QUEUE[:CONSUMERS]", help="A queue, and its maximum of consumers."
)
@click.option("--min", "minimum", type=click.IntRange(min=0), help="Minimum consumers of each queue.  [default: 0]")
@click.option("--max", "maximum", type=COUNT, help="Maximum consumers of all queues together.  [default: 8]")
@click.option("--batch", type=COUNT, help="Call the handler with lists of up to this many messages.")
@click.option("--timeout", type=float, help="Seconds after which a call of the handler has failed.")
@click.option("--processes", is_flag=True, help="Run each consumer in a process of its own, not in a thread.")
@click.option("--drain", is_flag=True, help="End when nothing is ready in any of the queues.")
@click.option("--shutdown-timeout", type=Seconds(), help="Seconds that handlers have to end.  [default: 30]")
@click.option("--longest-pause", type=Seconds(), help="Maximum seconds between two polls, if no wake-up arrives.")
@health_options
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
    health_host: str,
    health_port: int | None,
) -> None:
    """Run a handler for the messages of queues, until SIGTERM or Ctrl-C.

    MODULE:NAME is a function, which may be async. It is called with a message, or with --batch with a list of them.
    A message is completed when the function returns, and tried again later when it raises. MODULE:NAME can also be a
    `tablequeue.worker.Worker` with its own handlers; then --queue chooses among them.

    Consumers are added while messages wait, and retire when there are none. At the first signal running calls end, and
    other messages are released; the second signal ends the process at once. Failures are logged on stderr.

    With --health-port, /healthz, /readyz and /metrics report the worker's state to an orchestrator and to Prometheus.
    """
    found = import_target(target)
    named = dict(_named(queue) for queue in queues)
    if isinstance(found, Worker):
        if batch or timeout or processes:
            raise click.UsageError(
                f"{target} is a Worker, whose handlers set --batch, --timeout and --processes themselves."
            )
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
    configure_logs(as_json=settings.json)
    with settings.database() as database, serving_health(health_host, health_port, lambda: health(worker, database)):
        counts = worker.run(database, drain=drain)
    settings.emit(counts, ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing to do")
    if worker.abandoned:
        # The thread of a handler would keep the process alive.
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
    """Return the worker with only the named queues, or with all if none is named."""
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
