"""`tablequeue peek`: show messages without claiming them."""

from __future__ import annotations

import click

from tablequeue.cli.commands import EMPTY, Command, Settings
from tablequeue.cli.messages import print_messages
from tablequeue.cli.options import COUNT
from tablequeue.ext import context_of
from tablequeue.model.states import STATES, LiveState
from tablequeue.verbs.dependencies import waits
from tablequeue.verbs.progress import reported


@click.command(cls=Command)
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=10, show_default=True, help="Maximum number of messages.")
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True, help="Their state.")
@click.pass_context
def peek(ctx: click.Context, queue: str, number: int, state: LiveState) -> None:
    """Show the first messages of QUEUE in a state, without claiming them.

    A long payload is cut to the width of the terminal; --json prints it whole. Exit code 3 if there is no such
    message.
    """
    settings = ctx.ensure_object(Settings)
    with settings.consumer(queue) as source:
        messages = source.peek(number, state=state)
        progress = reported(context_of(source), messages)
        others = waits(context_of(source), messages)
        kind, order = source.definition.payload, source.definition.order
    none = f"No message is {state.replace('_', ' ')} in {queue!r}."
    time = "due" if state == "scheduled" or order == "due" else "pushed"
    print_messages(settings, messages, kind, none, "id", "attempts", time, progress=progress, waits=others)
    if not messages:
        ctx.exit(EMPTY)
