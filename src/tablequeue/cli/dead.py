"""`tablequeue dead`: list, redrive and purge dead letters."""

from __future__ import annotations

import click

from tablequeue.cli.common import (
    COUNT,
    ID,
    Group,
    Settings,
    payload_text,
    print_fields,
    print_json,
    print_table,
    record_of,
    time_text,
)
from tablequeue.message import Message
from tablequeue.queue import Queue

ids_option = click.option("--id", "ids", type=ID, multiple=True, help="Only this one; may be repeated.")


@click.group(cls=Group)
def dead() -> None:
    """List, redrive and purge dead letters.

    A dead letter is a message whose attempts are used up. It stays in the queue, with every error, for you to look at.
    """


@dead.command("list")
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Dead letters at most.")
@ids_option
@click.pass_obj
def list_(settings: Settings, queue: str, number: int, ids: tuple[int, ...]) -> None:
    """Show the dead letters of QUEUE with their last errors.

    With --id, each is shown in full, with every error.
    """
    with settings.queue(queue) as source:
        messages = _find(source, ids) if ids else source.dead(number)
        kind = source.definition.payload
    if settings.json:
        for message in messages:
            print_json(record_of(message))
    elif ids:
        for message in messages:
            _print(message, kind)
    elif messages:
        rows = [(m.id, m.attempts, _last_error(m), payload_text(m.payload, kind)) for m in messages]
        print_table(("id", "attempts", "last error", "payload"), rows, cut="payload")


@dead.command()
@click.argument("queue")
@ids_option
@click.pass_obj
def redrive(settings: Settings, queue: str, ids: tuple[int, ...]) -> None:
    """Make the dead letters of QUEUE ready again, with all attempts before them."""
    with settings.queue(queue) as source:
        _report(settings, "redriven", source.redrive(ids or None))


@dead.command()
@click.argument("queue")
@ids_option
@click.pass_obj
def purge(settings: Settings, queue: str, ids: tuple[int, ...]) -> None:
    """Delete the dead letters of QUEUE."""
    with settings.queue(queue) as source:
        _report(settings, "purged", source.purge_dead(ids or None))


def _find(queue: Queue, ids: tuple[int, ...]) -> list[Message]:
    found = (queue.find(id) for id in ids)
    return [message for message in found if message and message.state == "dead"]


def _report(settings: Settings, done: str, count: int) -> None:
    if settings.json:
        print_json({done: count})
    else:
        click.echo(f"{count} {done}")


def _last_error(message: Message) -> str:
    """The last line of the last error: of a traceback, the exception."""
    error = message.errors[-1].error.strip() if message.errors else ""
    return error.splitlines()[-1] if error else ""


def _print(message: Message, kind: str) -> None:
    print_fields(
        {
            "id": message.id,
            "attempts": message.attempts,
            "pushed": time_text(message.pushed_at),
            "headers": payload_text(message.headers, "json"),
            "payload": payload_text(message.payload, kind),
        }
    )
    for error in message.errors:
        click.echo(f"attempt {error.attempt}, {time_text(error.at)}:")
        print_fields({f"  {place}": line for place, line in enumerate(error.error.splitlines(), 1)} or {"  1": ""})
