"""`tablequeue topic`: create, list, show and drop topics; subscribe to them, seek and measure the lag."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from tablequeue.cli.commands import Group, Settings, check_schema, confirm, say_none, topic_and_name, yes
from tablequeue.cli.options import OPTIONS, Start, definition_options, fields_of
from tablequeue.cli.output import print_fields, print_json, print_table
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs.topics import bounds

COLUMNS = "subscription lag seconds in_progress scheduled dead".split()


@click.group(cls=Group)
def topic() -> None:
    """Create, list, show and drop topics, and their subscriptions.

    A subscription is named with its topic, as events/mail. Pop from it, and show it, like a queue: `tablequeue pop
    events/mail`.
    """


@topic.command()
@click.argument("name")
@click.option("--create-schema", is_flag=True, help="Create the schema that --schema names, if it does not exist.")
@definition_options("topic")
@click.pass_obj
def create(settings: Settings, /, name: str, create_schema: bool, **options: Any) -> None:
    """Create the topic NAME.

    If the topic exists with the same definition, nothing happens. With another definition, the difference is shown and
    nothing is changed.
    """
    with settings.database() as database:
        check_schema(settings, database, create_schema)
        made = database.create_topic(name, **fields_of("topic", options))
    settings.emit({"topic": name, "definition": _definition(made)}, name)


@topic.command("list")
@click.pass_obj
def list_(settings: Settings) -> None:
    """Print the names of all topics, one a line."""
    with settings.database() as database:
        names = database.topics()
    for name in names:
        settings.emit({"topic": name}, name)
    if not names:
        say_none("There is no topic.")


@topic.command()
@click.argument("name")
@click.pass_obj
def show(settings: Settings, name: str) -> None:
    """Show the definition of the topic NAME, the number of its messages, and its subscriptions."""
    with settings.topic(name) as found:
        definition, (first, end) = _definition(found), bounds(context_of(found))
        rows = [_row(found.subscription(each)) for each in found.subscriptions()]
    if settings.json:
        print_json({"topic": name, "definition": definition, "messages": end - first, "subscriptions": rows})
        return
    print_fields({"messages": end - first, **definition})
    if rows:
        click.echo()
        _print(rows)


@topic.command()
@click.argument("name")
@yes
@click.pass_obj
def drop(settings: Settings, name: str, yes: bool) -> None:
    """Drop the topic NAME with all its messages and all its subscriptions."""
    with settings.topic(name) as found:
        confirm(yes, f"Drop the topic {name!r} with all its messages and subscriptions?")
        found.drop()
    _report_dropped(settings, "topic", name)


@topic.command()
@click.argument("subscription", metavar="TOPIC/NAME")
@click.option(
    "--start",
    type=Start(),
    default="beginning",
    show_default=True,
    metavar="[beginning|end|TIME]",
    help="Where it begins: with the first message that the topic has, with the next one, or with the first message "
    "pushed at a time or later.",
)
@definition_options("subscription")
@click.pass_obj
def subscribe(settings: Settings, /, subscription: str, start: Any, **options: Any) -> None:
    """Create the subscription NAME of a topic.

    It gets every message of the topic. If it exists with the same options, nothing happens, whatever --start says. With
    other options, the difference is shown and nothing is changed.
    """
    of, name = topic_and_name(subscription)
    with settings.topic(of) as found:
        made = found.subscribe(name, start=start, **fields_of("subscription", options))
    if settings.json:
        definition = dataclasses.asdict(made.definition)
        print_json({"subscription": made.name, "definition": definition})
    else:
        click.echo(made.name)


@topic.command()
@click.argument("subscription", metavar="TOPIC/NAME")
@yes
@click.pass_obj
def unsubscribe(settings: Settings, subscription: str, yes: bool) -> None:
    """Drop the subscription NAME of a topic, with its dead letters and its history. The topic keeps its messages."""
    with settings.subscription(subscription) as found:
        confirm(yes, f"Drop the subscription {subscription!r} with its dead letters and its history?")
        found.drop()
    _report_dropped(settings, "subscription", subscription)


@topic.command()
@click.argument("subscription", metavar="TOPIC/NAME")
@click.argument("to", type=Start(), metavar="beginning|end|TIME")
@click.option("--force", is_flag=True, help="Seek even if messages are in progress. These may be delivered twice.")
@click.pass_obj
def seek(settings: Settings, subscription: str, to: Any, force: bool) -> None:
    """Move a subscription to another position in its topic, to replay messages or to skip some.

    TIME, such as 2030-01-31T12:00:00+00:00, is the first message pushed then or later. Refused while messages are in
    progress. Dead letters, and messages that wait for a retry, stay. Prints the lag from there.
    """
    with settings.subscription(subscription) as found:
        found.seek(to, force=force)
        row = _row(found)
    _print_lag(settings, row)


@topic.command()
@click.argument("subscription", metavar="TOPIC/NAME")
@click.pass_obj
def lag(settings: Settings, subscription: str) -> None:
    """Print how many messages of the topic no consumer of the subscription has claimed, and the age of the first."""
    with settings.subscription(subscription) as found:
        row = _row(found)
    _print_lag(settings, row)


def _definition(topic: Topic) -> dict[str, Any]:
    """Return the options of a topic, without the other fields of a queue's definition."""
    return {name: getattr(topic.definition, name) for name in OPTIONS["topic"]}


def _row(subscription: Subscription) -> dict[str, Any]:
    lag, stats = subscription.lag(), subscription.stats()
    values = (subscription.name, lag.messages, lag.seconds, stats.in_progress, stats.scheduled, stats.dead)
    return dict(zip(COLUMNS, values, strict=True))


def _print(rows: list[dict[str, Any]]) -> None:
    cells = [[round(cell, 1) if isinstance(cell, float) else cell for cell in row.values()] for row in rows]
    print_table([column.replace("_", " ") for column in COLUMNS], cells)


def _print_lag(settings: Settings, row: dict[str, Any]) -> None:
    if settings.json:
        print_json({name: row[name] for name in COLUMNS[:3]})
    else:
        age = "" if row["seconds"] is None else f", the first of them {row['seconds']:.1f} s old"
        click.echo(f"{row['lag']} messages behind{age}")


def _report_dropped(settings: Settings, what: str, name: str) -> None:
    settings.emit({what: name, "dropped": True}, f"{name} dropped")
