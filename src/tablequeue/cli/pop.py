"""`tablequeue pop`: claim messages."""

from __future__ import annotations

import click

from tablequeue.cli.commands import EMPTY, Command, Settings
from tablequeue.cli.messages import payload_text, print_errors, record_of, set_fields, time_text
from tablequeue.cli.options import COUNT
from tablequeue.cli.output import print_fields, print_json
from tablequeue.model.message import Claim

FIELDS = "id token payload headers attempt priority group key pushed_at due_at lease_until errors".split()


@click.command(cls=Command)
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=1, show_default=True, help="Maximum number of messages.")
@click.option("--lease", type=float, help="Seconds that they stay with you.  [default: the queue's lease]")
@click.option(
    "--same-group",
    is_flag=True,
    help="Claim from one group only, in order; no other claim gets messages of it until these end.",
)
@click.pass_context
def pop(ctx: click.Context, queue: str, number: int, lease: float | None, same_group: bool) -> None:
    """Claim the next messages of QUEUE and print them.

    No other consumer gets them while the lease holds. End each with `complete` or `fail`, and its id and token. A
    message that is not ended is delivered again after the lease; where delivery is at most once, it is lost. Messages
    that cannot be printed, as when a pipe is broken, are released. Exit code 3 if no message is ready.
    """
    settings = ctx.ensure_object(Settings)
    with settings.consumer(queue) as source:
        claims = source.pop_many(number, lease=lease, same_group=same_group)
        for place, claim in enumerate(claims):
            try:
                _show(claim, source.definition.payload, settings.json, first=not place)
            except OSError:
                if source.definition.delivery == "at_least_once":
                    source.release_many(claims[place:])  # they were not printed
                raise
    if not claims:
        click.echo(f"No message is ready in {queue!r}.", err=True)
        ctx.exit(EMPTY)


def _show(claim: Claim, kind: str, as_json: bool, first: bool) -> None:
    if as_json:
        print_json(record_of(claim, *FIELDS))
        return
    if not first:
        click.echo()
    print_fields(
        {
            "id": claim.id,
            "token": claim.token,
            "attempt": claim.attempt,
            **({"lease until": time_text(claim.lease_until)} if claim.lease_until else {}),
            **set_fields(claim),
            "payload": payload_text(claim.payload, kind),
        }
    )
    print_errors(claim)
