"""`tablequeue move`: move messages to another queue, of the same database or of another one."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields, replace
from threading import Event
from typing import NamedTuple
from urllib.parse import unquote

import click
import sqlalchemy as sa
from rich.console import Console
from rich.progress import Progress

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.options import ID
from tablequeue.cli.output import print_json
from tablequeue.database import Database
from tablequeue.errors import BadUrl
from tablequeue.model.states import LiveState
from tablequeue.queue import Queue
from tablequeue.verbs.maintain import ALL
from tablequeue.verbs.move import MOVED
from tablequeue.worker.signals import stop_on_signals


class Named(NamedTuple):
    """A queue as the command line names it."""

    url: str | None
    """The URL of its database; None: the URL in --url."""
    name: str


@click.command(cls=Command)
@click.argument("queue")
@click.argument("to", metavar="QUEUE")
@click.argument("ids", type=ID, nargs=-1, metavar="[ID]...")
@click.option("--state", type=click.Choice(MOVED), help="Only messages in this state.")
@click.option("--history", is_flag=True, help="Copy the history too, to another database.")
@click.option("--follow", is_flag=True, help="To another database: go on with new messages until SIGTERM or Ctrl-C.")
@click.option("--to-schema", help="The schema of the second queue.  [default: --schema, in the same database]")
@click.pass_obj
def move(
    settings: Settings,
    /,
    queue: str,
    to: str,
    ids: tuple[int, ...],
    state: LiveState | None,
    history: bool,
    follow: bool,
    to_schema: str | None,
) -> None:
    """Move messages that no consumer holds from one queue to another.

    A QUEUE is a name in the database of --url, or the URL of another database, a slash and the name:
    postgresql+psycopg://user@host/db/orders. Options of the URL come after the name.

    In one database it moves the messages with these IDs, all or none; or all waiting messages and dead letters, a
    thousand in each transaction. To another database it moves all of them, each exactly once. After a crash, run the
    command again. If the second queue does not exist, it is made with the definition of the first.

    With --json, the old and the new id of each message is printed.
    """
    if ids and state is not None:
        raise click.UsageError("--state does not go with ids.")
    source, target = _named(queue), _named(to)
    with ExitStack() as stack:
        first = stack.enter_context(_opened(settings, source.url, settings.schema))
        if _is_same(source.url or settings.url, target.url or settings.url) and to_schema in (None, settings.schema):
            if history or follow:
                raise click.UsageError("--history and --follow are for moves to another database.")
            moved = first.queue(source.name).move(ids or ALL, to=first.queue(target.name), state=state)
            _print(settings, moved)
            if not settings.json:
                click.echo(f"{len(moved)} moved")
            return
        if ids or state is not None:
            raise click.UsageError("Between two databases a whole queue is moved: leave ids and --state out.")
        second = stack.enter_context(_opened(settings, target.url, to_schema))
        _move_all(settings, first.queue(source.name), second, target.name, history, follow)


def _move_all(settings: Settings, queue: Queue, database: Database, name: str, history: bool, follow: bool) -> None:
    if name not in database.queues():
        definition = queue.definition
        database.create_queue(name, **{field.name: getattr(definition, field.name) for field in fields(definition)})
    stop = Event()
    counts = {False: 0, True: 0}
    console = Console(stderr=True)
    there = queue.stats()
    total = sum(getattr(there, state) for state in MOVED) + (there.finished or 0 if history else 0)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        stop_on_signals(stop.set, lambda: None) if follow else ExitStack(),
    ):
        task = progress.add_task("Moving", total=None if follow else total)
        try:
            for batch in queue.move_batches(to=database.queue(name), history=history, follow=follow):
                counts[batch.history] += len(batch.ids)
                progress.advance(task, len(batch.ids))
                _print(settings, batch.ids, "copied_to" if batch.history else "moved_to")
                if stop.is_set():
                    break
        finally:
            if not settings.json:
                click.echo(f"{counts[False]} moved" + (f", {counts[True]} of the history copied" if history else ""))
    left = queue.stats()
    stay = {state: number for state in (*MOVED, "in_progress") if (number := getattr(left, state))}
    if stay:
        words = ", ".join(f"{number} {state.replace('_', ' ')}" for state, number in stay.items())
        click.echo(f"{sum(stay.values())} stay in {queue.name!r}: {words}", err=True)


def _print(settings: Settings, moved: dict[int, int], word: str = "moved_to") -> None:
    if settings.json:
        for id, new in moved.items():
            print_json({"id": id, word: new})


def _named(text: str) -> Named:
    """Return the database and the name of an argument."""
    if "://" not in text:
        return Named(None, text)
    path, mark, options = text.partition("?")
    url, _, name = path.rpartition("/")
    url += mark + options
    try:
        database = sa.make_url(url).database
    except (sa.exc.ArgumentError, ValueError):
        database = None
    if not name or not database:
        # The text is not repeated: it may hold a password.
        raise BadUrl(
            "A URL names no database, or no queue.",
            "Write the URL of the database, a slash and the queue: sqlite:///work.db/orders, or "
            "postgresql+psycopg://user@host/database/orders.",
        )
    return Named(url, unquote(name))


def _is_same(one: str | None, other: str | None) -> bool:
    return one == other or (one is not None and other is not None and sa.make_url(one) == sa.make_url(other))


def _opened(settings: Settings, url: str | None, schema: str | None) -> AbstractContextManager[Database]:
    return replace(settings, url=url or settings.url, schema=schema).database()
