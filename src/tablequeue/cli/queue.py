"""`tablequeue queue`: create, list, show, alter, pause, rename, drop and purge queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from click.core import ParameterSource

from tablequeue.cli.commands import Group, Settings, check_schema, confirm, say_none, yes
from tablequeue.cli.options import (
    Seconds,
    alter_options,
    altered_fields,
    definition_options,
    fields_of,
    time_option,
)
from tablequeue.cli.output import finished_cell, print_fields, print_json, stats_record
from tablequeue.ext import context_of
from tablequeue.model.pacing import LARGEST
from tablequeue.verbs.readable import notes_of

# The options that CreateQueue of the SQS endpoint gives a FIFO queue, by its name.
FIFO: Mapping[str, Any] = {
    "groups": True,
    "unique_for": 300.0,
    "payload": "text",
    "history": "none",
    "lease": 30.0,
    "expires": 345_600.0,
    "max_attempts": LARGEST,
}


@click.group(cls=Group)
def queue() -> None:
    """Create, list, show, alter, pause, rename, drop and purge queues."""


@queue.command()
@click.argument("name")
@click.option("--create-schema", is_flag=True, help="Create the schema that --schema names, if it does not exist.")
@definition_options("queue")
@click.pass_obj
def create(settings: Settings, /, name: str, create_schema: bool, **options: Any) -> None:
    """Create the queue NAME.

    If the queue exists with the same definition, nothing happens. With another definition, the difference is shown and
    nothing is changed. The file of a SQLite database is created with its first queue, a schema only with
    --create-schema.

    A NAME that ends with .fifo makes a FIFO queue of the SQS endpoint: options that are not given get the values of a
    client's CreateQueue, such as --groups, --unique-for 300 and --payload text.
    """
    if name.endswith(".fifo"):
        given = click.get_current_context().get_parameter_source
        options |= {key: value for key, value in FIFO.items() if given(key) is ParameterSource.DEFAULT}
    with settings.database() as database:
        check_schema(settings, database, create_schema)
        queue = database.create_queue(name, **fields_of("queue", options))
    settings.emit({"queue": name, "definition": dataclasses.asdict(queue.definition)}, name)


@queue.command("list")
@click.pass_obj
def list_(settings: Settings) -> None:
    """Print the names of all queues, one a line."""
    with settings.database() as database:
        names = database.queues()
    for name in names:
        settings.emit({"queue": name}, name)
    if not names:
        say_none("There is no queue.")


@queue.command()
@click.argument("name")
@click.pass_obj
def show(settings: Settings, name: str) -> None:
    """Show the definition of the queue NAME, and its messages by state."""
    with settings.consumer(name) as queue:
        definition, found = dataclasses.asdict(queue.definition), queue.stats()
        table = context_of(queue).table.table_name
    stats = stats_record(found)
    del stats["window"]
    if settings.json:
        print_json({"queue": name, "table": table, "definition": definition, "stats": stats})
        return
    backoff = {f"backoff_{option}": value for option, value in definition.pop("backoff").items()}
    del stats["estimated"], stats["lag"]
    if found.lag is not None:
        stats |= {"lag": found.lag.messages, "lag_seconds": found.lag.seconds}
    for rate in ("rate", "group_rate"):
        if definition.get(rate) is not None:
            definition |= {f"{rate}_{option}": value for option, value in definition.pop(rate).items()}
    values = {**stats, "finished": finished_cell(found), "table": table, **definition, **backoff}
    print_fields({field: "-" if value is None else value for field, value in values.items()})
    for words in notes_of([found]):
        click.echo(words)


@queue.command()
@click.argument("old")
@click.argument("new")
@click.pass_obj
def rename(settings: Settings, old: str, new: str) -> None:
    """Give the queue OLD the name NEW. OLD may be a topic, or a subscription such as events/mail.

    Its tables and stored procedures keep their names. Programs that have it open go on.
    """
    with settings.database() as database:
        database.rename(old, new)
    settings.emit({"queue": new, "renamed": old}, f"{old} is now {new}")


@queue.command()
@click.argument("name")
@alter_options
@click.pass_obj
def alter(settings: Settings, /, name: str, **options: Any) -> None:
    """Change options of the queue NAME, for all programs that use it; other options stay.

    A change takes effect within a second. Options such as the order are a part of the tables and cannot be changed.
    """
    with settings.consumer(name) as queue:
        fields = altered_fields(queue.definition, options)
        if not fields:
            raise click.UsageError("Give at least one option to change.")
        queue.alter(**fields)
        definition = dataclasses.asdict(queue.definition)
    settings.emit({"queue": name, "definition": definition}, f"{name} altered")


@queue.command()
@click.argument("name")
@click.option("--for", "duration", type=Seconds(), help="Seconds that the pause lasts.")
@click.option("--until", callback=time_option, metavar="TIME", help="When the pause ends, as 2030-01-31T12:00:00Z.")
@click.pass_obj
def pause(settings: Settings, name: str, duration: float | None, until: datetime | None) -> None:
    """Deliver no message of the queue NAME to any consumer until `queue resume`. Pushes go on."""
    if duration is not None and until is not None:
        raise click.UsageError("Give --for or --until, not both.")
    with settings.consumer(name) as queue:
        queue.pause(until if duration is None else duration)
        paused = queue.stats().paused_until
    if settings.json:
        print_json({"queue": name, "paused": True, "until": paused and paused.isoformat()})
    else:
        click.echo(
            f"{name} paused" + ("" if duration is None and until is None else f" until {paused:%Y-%m-%d %H:%M:%S}Z")
        )


@queue.command()
@click.argument("name")
@click.pass_obj
def resume(settings: Settings, name: str) -> None:
    """Deliver the messages of the queue NAME again."""
    with settings.consumer(name) as queue:
        queue.resume()
    settings.emit({"queue": name, "paused": False}, f"{name} resumed")


@queue.command()
@click.argument("name")
@yes
@click.pass_obj
def drop(settings: Settings, name: str, yes: bool) -> None:
    """Drop the queue NAME with all its messages and its history."""
    with settings.consumer(name) as queue:
        confirm(yes, f"Drop the queue {name!r} with all its messages and its history?")
        queue.drop()
    settings.emit({"queue": name, "dropped": True}, f"{name} dropped")


@queue.command()
@click.argument("name")
@yes
@click.pass_obj
def purge(settings: Settings, name: str, yes: bool) -> None:
    """Delete the waiting messages of the queue NAME: ready, scheduled and blocked ones.

    Messages in progress, dead letters and the history stay.
    """
    with settings.consumer(name) as queue:
        confirm(yes, f"Delete every message of the queue {name!r} that waits?")
        purged = queue.purge()
    settings.emit({"queue": name, "purged": purged}, f"{purged} purged")
