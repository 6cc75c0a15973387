"""`tablequeue complete`, `fail`, `cancel`, `reschedule` and `result`: commands about messages by their ids."""

from __future__ import annotations

from datetime import datetime

import click

from tablequeue.cli.commands import EMPTY, Command, Settings
from tablequeue.cli.lines import load
from tablequeue.cli.options import ID, Seconds, due_option
from tablequeue.errors import BadInput, NoResult
from tablequeue.model.message import Claim
from tablequeue.model.payload import json_text


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.argument("token")
@click.option("--result", metavar="JSON", help="Its result, in a queue with --results.")
@click.pass_obj
def complete(settings: Settings, queue: str, id: int, token: str, result: str | None) -> None:
    """Complete a popped message.

    Give the ID and TOKEN that `pop` printed. The message moves to the history, if QUEUE keeps one. If the claim has
    been lost, the command is refused and nothing changes.
    """
    with settings.consumer(queue) as source:
        value = None if result is None else load(result.encode("utf-8", "surrogateescape"), "json")
        source.complete(Claim.of(source, id, token), result=value)
    settings.emit({"id": id, "state": "finished"}, "finished")


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.argument("token")
@click.option("--error", default="", help="The reason, which is kept with the message.")
@click.option("--retry-in", type=float, help="Seconds until it is ready again.  [default: the queue's backoff]")
@click.pass_obj
def fail(settings: Settings, queue: str, id: int, token: str, error: str, retry_in: float | None) -> None:
    """Fail a popped message and print its new state.

    Give the ID and TOKEN that `pop` printed. The message is tried again after the queue's backoff; after its last
    attempt it is a dead letter; where delivery is at most once, it stays lost. If the claim has been lost, the command
    is refused and nothing changes.
    """
    with settings.consumer(queue) as source:
        # The backoff depends on the attempts. If the message is gone, `fail` reports it.
        message = source.find(id)
        attempts = message.attempts if message else 0
        state = source.fail(Claim.of(source, id, token, attempts), error, retry_in=retry_in)
    settings.emit({"id": id, "state": state}, state)


@click.command(cls=Command)
@click.argument("queue")
@click.argument("ids", type=ID, nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def cancel(settings: Settings, /, queue: str, ids: tuple[int, ...]) -> None:
    """Cancel the messages of QUEUE with these ids.

    A message that waits, or is a dead letter, leaves the queue. The consumer of a message in progress is told to stop.
    If some ids do not exist, the exit code is 1, and the other messages are still cancelled.
    """
    with settings.consumer(queue) as source:
        account = source.cancel(ids)
    settings.emit(
        {"cancelled": account.cancelled, "in_progress": account.in_progress, "unknown": account.unknown},
        f"{len(account.cancelled)} cancelled, {len(account.in_progress)} told to stop",
    )
    if account.unknown:
        named = ", ".join(map(str, account.unknown))
        raise BadInput(f"There is no message {named} in {queue!r}.", "It may be finished: see `history`.")


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.option("--delay", type=float, help="Seconds until it is ready; 0: at once.")
@due_option
@click.option("--priority", type=int, help="Its priority, in a queue with --order priority.")
@click.pass_obj
def reschedule(
    settings: Settings, /, queue: str, id: int, delay: float | None, due: datetime | None, priority: int | None
) -> None:
    """Change when message ID of QUEUE becomes ready, or its priority. It must wait: ready, scheduled or blocked."""
    with settings.consumer(queue) as source:
        source.reschedule(id, delay=delay, due=due, priority=priority)
    settings.emit({"rescheduled": id}, "rescheduled")


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.option("--wait", type=Seconds(), default=0, show_default=True, help="Seconds to wait for the message to finish.")
@click.pass_context
def result(ctx: click.Context, queue: str, id: int, wait: float) -> None:
    """Print the result of the message ID of QUEUE, as JSON.

    null if the message was completed without one. Exit code 3 if there is no result: the message is not finished, is a
    dead letter, has expired, or does not exist.
    """
    settings = ctx.ensure_object(Settings)
    with settings.queue(queue) as source:
        try:
            value = source.result(id, wait=wait)
        except NoResult as error:
            click.echo(error.cause, err=True)
            ctx.exit(EMPTY)
    settings.emit({"id": id, "result": value}, json_text(value))
