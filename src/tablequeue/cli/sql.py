"""`tablequeue sql`: print the SQL of an operation, for review, other languages and migration tools."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tablequeue.ext import context_of
from tablequeue.model.definition import KINDS, Definition, Kind, TopicDefinition
from tablequeue.model.states import STATES

if TYPE_CHECKING:
    from tablequeue.database import Database


@click.command(cls=Command)
@click.argument("operation", required=False)
@click.argument("queue", required=False)
@click.option("--dialect", type=click.Choice(list(ENGINES)), help="The database to print the SQL for; not with --url.")
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
    dialect: str | None,
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

    With --url and without --dialect, the definition of QUEUE and the name of its table are read from the database.
    Otherwise the options give the definition, and no database is needed. QUEUE may be a topic or a subscription; for a
    subscription, --payload and --keep are options of its topic. Without OPERATION, the operations are listed. Nothing
    is run.

    The client of the database (psql, mariadb, sqlite3) can run create, drop, upgrade, procedures and grant as they are
    printed. In an upgrade, statements for tables that not every queue has are in comments. In other operations a word
    after a colon is a parameter, and on SQL Server a variable that begins with @p_; with --values an example value
    replaces it.

    `procedures` creates stored procedures for the verbs, and `grant` lets roles call them. --producer, --consumer and
    --observer can be repeated. The roles need no rights on the tables.
    """
    settings = ctx.ensure_object(Settings)
    there = None
    if dialect is None:
        if not settings.url:
            raise click.UsageError(f"No dialect is given. Give --dialect, one of {', '.join(ENGINES)}; or --url.")
        with settings.database() as database:
            dialect = database.engine.dialect.name
            there = _found(database, queue) if operation in names_of(dialect) and queue else None
    engine = _engine(dialect, schema or settings.schema)
    names = operations(engine.name)
    if operation is None:
        for name in names:
            click.echo(name)
        return
    if operation not in names_of(dialect):
        raise click.BadParameter(f"{operation!r} is none of: {', '.join(names)}.", param_hint="OPERATION")
    roles = {"producer": producer, "consumer": consumer, "observer": observer}
    if operation != "grant" and any(roles.values()):
        raise click.UsageError("Roles go with `sql grant` only.")
    kind = there.definition.kind if there else kind_of(engine, operation, queue, topic)
    queue = queue or ("example/mail" if kind == "subscription" else "example")
    if there:
        _check_options(ctx, kind, {"topic", "number", "table"} | {*OPTIONS[kind], "payload", "keep"})
        definition, number, table = there.definition, there.number, there.table
    else:
        _check_options(ctx, kind)
        definition = _definition(kind, queue, options)
    text = script(engine, operation, queue, definition, state, roles, values, from_version, number, table)
    if bare:
        text = without_comments(text)
    settings.emit({"dialect": dialect, "operation": operation, "queue": queue, "sql": text}, text)


class Found(NamedTuple):
    """A queue, topic or subscription of a database, as `script` takes it."""

    definition: Definition
    table: str
    """The name of the table; for a subscription, the name of its topic's table."""
    number: int
    """The number in the name of a subscription's table."""


def _found(database: Database, name: str) -> Found:
    """Read the definition and the table of a name in the database."""
    opened = database.topic(name) if name in database.topics() else database.consumer(name)
    table = context_of(opened).table
    if table.topic is None:
        return Found(table.definition, table.table_name, 1)
    return Found(table.definition, table.topic.table_name, int(table.table_name.rpartition("s")[2]))


def names_of(dialect: str) -> set[str]:
    """Return the names of the operations and of the texts that can be printed."""
    engine = engine_class(dialect)
    return {*operations(engine.name), *operations_of(engine.name)}


def _check_options(ctx: click.Context, kind: Kind, read: Set[str] = frozenset()) -> None:
    """Refuse options that do not fit the operation's object, a queue, a topic or a subscription; or that are `read`."""
    for name in sorted(read):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is read from the database: leave it out, or --url.")
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
