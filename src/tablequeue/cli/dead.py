"""`tablequeue dead`: list, redrive and purge dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import click

from tablequeue.cli.commands import Group, Settings, confirm, report, yes
from tablequeue.cli.messages import payload_text, print_errors, print_messages, set_fields, time_text
from tablequeue.cli.options import COUNT, ID, F
from tablequeue.cli.output import print_fields
from tablequeue.consumer import Consumer
from tablequeue.model.message import Message
from tablequeue.verbs.maintain import ALL, Which

# Dead letters that are read at a time to filter them.
CHUNK = 1000


def _not_empty(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value == "":
        # Every error contains it: an unset variable of the shell would purge all.
        raise click.BadParameter("the value is empty. Leave the option out for all dead letters.")
    return value


_FILTERS = (
    click.option("--id", "ids", type=ID, multiple=True, help="Only this dead letter; may be repeated."),
    click.option(
        "--error", metavar="TEXT", callback=_not_empty, help="Only dead letters with TEXT in their last error."
    ),
    click.option("--group", callback=_not_empty, help="Only dead letters of this group."),
    click.option("--key", callback=_not_empty, help="Only the dead letter with this deduplication key."),
)


def filters(command: F) -> F:
    """Add the options that choose dead letters; `_which` reads them."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group(cls=Group)
def dead() -> None:
    """List, redrive and purge dead letters.

    A dead letter is a message that has used up its attempts. It stays in the queue with its errors.
    """


@dead.command("list")
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Maximum number of dead letters.")
@filters
@click.pass_obj
def list_(settings: Settings, /, queue: str, number: int, **options: Any) -> None:
    """Show the dead letters of QUEUE with their last errors.

    With --id, each is shown in full, with its first errors and its last ones.
    """
    with settings.consumer(queue) as source:
        messages = list(islice(_find(source, **options), number))
        kind = source.definition.payload
    if options["ids"] and messages and not settings.json:
        for message in messages:
            _print(message, kind)
    else:
        none = f"{queue!r} has no dead letter{' of these' if any(options.values()) else ''}."
        print_messages(settings, messages, kind, none, "id", "attempts", "last error")


@dead.command()
@click.argument("queue")
@filters
@click.pass_obj
def redrive(settings: Settings, /, queue: str, **options: Any) -> None:
    """Make the dead letters of QUEUE ready again, with their number of attempts reset."""
    with settings.consumer(queue) as source:
        report(settings, "redriven", source.redrive(_which(**options)))


@dead.command()
@click.argument("queue")
@filters
@yes
@click.pass_obj
def purge(settings: Settings, /, queue: str, yes: bool, **options: Any) -> None:
    """Delete the dead letters of QUEUE.

    It asks before, unless each of them is named by --id.
    """
    with settings.consumer(queue) as source:
        confirm(yes or bool(options["ids"]), f"Delete {_named(**options)} of the queue {queue!r}?")
        report(settings, "purged", source.purge_dead(_which(**options)))


def _named(ids: tuple[int, ...], **filters: str | None) -> str:
    """Return the words of the question for the dead letters that pass the filters."""
    given = [f"{name} {value!r}" for name, value in filters.items() if value is not None]
    return f"the dead letters with {' and '.join(given)}" if given else "every dead letter"


def _which(ids: tuple[int, ...], **filters: str | None) -> Which:
    """Return the argument of `redrive` and `purge_dead`: ids, or a predicate, which has to read every dead letter."""
    if any(value is not None for value in filters.values()):
        return lambda message: (not ids or message.id in ids) and _matches(message, **filters)
    return ids or ALL


def _matches(message: Message, error: str | None, group: str | None, key: str | None) -> bool:
    last = message.errors[-1].error if message.errors else ""
    return (
        (error is None or error in last)
        and (group is None or message.group == group)
        and (key is None or message.key == key)
    )


def _find(queue: Consumer, ids: tuple[int, ...], **filters: str | None) -> Iterator[Message]:
    """Yield the dead letters that pass the filters, of these ids or of all."""
    letters = (queue.find(id) for id in ids) if ids else _all(queue)
    return (each for each in letters if each and each.state == "dead" and _matches(each, **filters))


def _all(queue: Consumer) -> Iterator[Message]:
    after = 0
    while batch := queue.dead(CHUNK, after=after):
        yield from batch
        after = batch[-1].id


def _print(message: Message, kind: str) -> None:
    print_fields(
        {
            "id": message.id,
            "attempts": message.attempts,
            "pushed": time_text(message.pushed_at),
            **set_fields(message),
            "payload": payload_text(message.payload, kind),
        }
    )
    print_errors(message)
