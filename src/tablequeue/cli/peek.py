"""`tablequeue peek`: look at messages, claiming none."""

from __future__ import annotations

import click

from tablequeue.cli.common import (
    COUNT,
    EMPTY,
    Command,
    Settings,
    payload_text,
    print_json,
    print_table,
    record_of,
    time_text,
)
from tablequeue.message import STATES


@click.command(cls=Command)
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=10, show_default=True, help="Messages at most.")
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True, help="Of which state.")
@click.pass_context
def peek(ctx: click.Context, queue: str, number: int, state: str) -> None:
    """Show the first messages of QUEUE in a state, claiming none.

    A long payload is cut to the width of the terminal; --json prints it whole. Exit code 3 if there is no such
    message.
    """
    settings = ctx.ensure_object(Settings)
    with settings.queue(queue) as source:
        messages = source.peek(number, state=state)
        kind = source.definition.payload
    if not messages:
        click.echo(f"No message is {state.replace('_', ' ')} in {queue!r}.", err=True)
        ctx.exit(EMPTY)
    if settings.json:
        for message in messages:
            print_json(record_of(message))
        return
    rows = [(m.id, m.attempts, time_text(m.pushed_at), payload_text(m.payload, kind)) for m in messages]
    print_table(("id", "attempts", "pushed", "payload"), rows, cut="payload")
