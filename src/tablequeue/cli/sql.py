"""`tablequeue sql`: the SQL of an operation, for review, other languages and migration tools."""

from __future__ import annotations

from typing import Any

import click
import sqlalchemy as sa

from tablequeue.cli.common import Command, Settings, definition_of, definition_options, print_json
from tablequeue.definition import Definition, check_name
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.base import Engine, operations_of
from tablequeue.errors import BadInput
from tablequeue.message import STATES
from tablequeue.operations.maintain import SCHEMA_VERSION

# Operations of several files or of another name, the files in the order they run, and when each is part of it: always,
# with a history or without, or in a schema. Every other operation is the file of its name.
FILES = {
    "create": {"install_schema": "schema", "install": "", "create": "", "create_history": "keep", "register": ""},
    "drop": {"drop": "", "drop_history": "keep", "unregister": ""},
    "pop": {"claim": ""},
    "complete": {"complete_keep": "keep", "complete_none": "none"},
    "stats": {"stats": "", "stats_history": "keep"},
}
_PART_OF = {file: operation for operation, files in FILES.items() for file in files}


@click.command(cls=Command)
@click.argument("operation", required=False)
@click.argument("queue", default="example")
@click.option("--dialect", type=click.Choice(list(ENGINES)), required=True, help="Whose SQL.")
@click.option("--schema", help="The schema that holds the queues.")
@click.option("--state", type=click.Choice(STATES), default="ready", show_default=True, help="For peek and purge.")
@definition_options
@click.pass_obj
def sql(
    settings: Settings,
    /,
    operation: str | None,
    queue: str,
    dialect: str,
    schema: str | None,
    state: str,
    **options: Any,
) -> None:
    """Print the SQL of an operation, for review and migrations.

    It acts on the queue QUEUE; without OPERATION, the operations are listed. Nothing is run and
    no database is needed. A word after a colon is a parameter.
    """
    names = operations(dialect)
    if operation is None:
        for name in names:
            click.echo(name)
        return
    if operation not in {*names, *operations_of(dialect)}:
        raise click.BadParameter(f"{operation!r} is none of: {', '.join(names)}.", param_hint="OPERATION")
    text = script(_engine(dialect, schema or settings.schema), operation, queue, definition_of(options), state)
    if settings.json:
        print_json({"dialect": dialect, "operation": operation, "queue": queue, "sql": text})
    else:
        click.echo(text)


def operations(dialect: str) -> list[str]:
    """The operations of an engine, by the names of the verbs."""
    return sorted({_PART_OF.get(file, file) for file in operations_of(dialect)})


def script(engine: Engine, operation: str, queue: str, definition: Definition, state: str) -> str:
    """The files of an operation, one after the other."""
    check_name(queue)
    wanted = {"", definition.history, "schema" if engine.schema else ""}
    files = [file for file, when in FILES.get(operation, {operation: ""}).items() if when in wanted]
    texts = [engine.render(file, queue, definition, state).strip() for file in files]
    if operation == "create":
        texts.insert(0, _PARAMETERS.format(name=queue, definition=definition.to_json(), version=SCHEMA_VERSION))
    return "\n\n".join(texts)


# Nobody can guess these; of the other operations, the parameters are what the caller wants.
_PARAMETERS = """\
-- Run this in one transaction, with these parameters:
--   :name            '{name}'
--   :definition      '{definition}'
--   :schema_version  {version}
--   :now             null, for the database's clock"""


def _engine(dialect: str, schema: str | None) -> Engine:
    kind = engine_class(dialect)
    if schema is not None and not kind.has_schemas:
        raise BadInput(f"{dialect} has no schemas.", "Leave --schema out.")
    return kind(sa.URL.create(f"{dialect}+{kind.drivers[0]}").get_dialect()(), schema)
