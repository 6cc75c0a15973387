"""`tablequeue sql`: print the SQL of an operation, for review, other languages and migration tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import sqlalchemy as sa
from click.core import ParameterSource

from tablequeue.cli.commands import Command, Settings, topic_and_name
from tablequeue.cli.options import COUNT, OPTIONS, definition_options, fields_of
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.engine import Engine
from tablequeue.engines.printed import kind_of, operations, script, without_comments
from tablequeue.engines.texts import operations_of
from tablequeue.errors import BadInput
from tablequeue.model.definition import KINDS, Definition, Kind, TopicDefinition
from tablequeue.model.states import STATES


@click.command(cls=Command)
@click.argument("operation", required=False)
@click.argument("queue", required=False)
@click.option("--dialect", type=click.Choice(list(ENGINES)), required=True, help="The database to print the SQL for.")
@click.option("--schema", help="The schema that holds the queues.")
@click.option("--topic", is_flag=True, help="QUEUE is a topic. A name such as events/mail is a subscription.")
@click.option(
    "--number",
    type=COUNT,
    default=1,
    show_default=True,
    help="For a subscription: the number in the name of its table, as tq_events__s1.",
)
@click.option("--table", help="The table of the queue or topic, if the catalogue names another one.")
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True, help="For peek and purge.")
@click.option("--producer", multiple=True, metavar="ROLE", help="For grant: a role that may push.")
@click.option("--consumer", multiple=True, metavar="ROLE", help="For grant: a role that may pop and finish.")
@click.option("--observer", multiple=True, metavar="ROLE", help="For grant: a role that may only read.")
@click.option("--from-version", type=int, default=1, show_default=True, help="For upgrade: the version of the tables.")
@click.option("--values", is_flag=True, help="Print example values in place of parameters.")
@click.option("--bare", is_flag=True, help="Print no comments.")
@definition_options("queue", "topic", "subscription")
@click.pass_context
def sql(
    ctx: click.Context,
    /,
    operation: str | None,
    queue: str | None,
    topic: bool,
    number: int,
    table: str | None,
    dialect: str,
    schema: str | None,
    state: str,
    producer: tuple[str, ...],
    consumer: tuple[str, ...],
    observer: tuple[str, ...],
    from_version: int,
    values: bool,
    bare: bool,
    **options: Any,
) -> None:
    """Print the SQL of an operation, for review and migrations.

    The options give the definition of QUEUE, which may be a topic or a subscription; for a subscription, --payload and
    --keep are options of its topic. Without OPERATION, the operations are listed. Nothing is run, and no database is
    needed.

    The client of the database (psql, mariadb, sqlite3) can run create, drop, upgrade, procedures and grant as they are
    printed. In an upgrade, statements for tables that not every queue has are in comments. In other operations a word
    after a colon is a parameter, and on SQL Server a variable that begins with @p_; with --values an example value
    replaces it.

    `procedures` creates stored procedures for the verbs, and `grant` lets roles call them. --producer, --consumer and
    --observer can be repeated. The roles need no rights on the tables.
    """
    settings = ctx.ensure_object(Settings)
    engine = _engine(dialect, schema or settings.schema)
    names = operations(engine.name)
    if operation is None:
        for name in names:
            click.echo(name)
        return
    if operation not in {*names, *operations_of(engine.name)}:
        raise click.BadParameter(f"{operation!r} is none of: {', '.join(names)}.", param_hint="OPERATION")
    roles = {"producer": producer, "consumer": consumer, "observer": observer}
    if operation != "grant" and any(roles.values()):
        raise click.UsageError("Roles go with `sql grant` only.")
    kind = kind_of(engine, operation, queue, topic)
    queue = queue or ("example/mail" if kind == "subscription" else "example")
    _check_options(ctx, kind)
    definition = _definition(kind, queue, options)
    text = script(engine, operation, queue, definition, state, roles, values, from_version, number, table)
    if bare:
        text = without_comments(text)
    settings.emit({"dialect": dialect, "operation": operation, "queue": queue, "sql": text}, text)


def _check_options(ctx: click.Context, kind: Kind) -> None:
    """Refuse options that do not fit the operation's object: a queue, a topic or a subscription."""
    own = {*OPTIONS[kind], "payload"} | ({"number", "keep"} if kind == "subscription" else set())
    for name in sorted({*OPTIONS["queue"], *OPTIONS["topic"], *OPTIONS["subscription"], "number"} - own):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} does not go with a {kind}.")


def _definition(kind: Kind, name: str, options: Mapping[str, Any]) -> Definition:
    fields = fields_of(kind, options)
    if kind == "subscription":
        topic, _ = topic_and_name(name)
        fields |= {"groups": fields.pop("ordered"), "payload": options["payload"], "topic": topic}
        fields["history"] = TopicDefinition(keep=options["keep"]).history_of_detached
    return KINDS[kind](**fields)


def _engine(dialect: str, schema: str | None) -> Engine:
    kind = engine_class(dialect)
    if schema is not None and not kind.has_schemas:
        raise BadInput(f"{dialect} has no schemas.", "Leave --schema out.")
    # Any driver will do: only its name is used, and its style of parameters, with which Python composes statements.
    made: Any = sa.URL.create(dialect).get_dialect()
    return kind(made(paramstyle="pyformat"), schema)
