"""The command line: one file for each command. To add one, write a file here, and add its name to COMMANDS."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Root, Settings

__all__ = ["main"]

# Each is a module here, with the command in it. It is imported when it is called, or listed.
COMMANDS = tuple(
    "queue topic push pop complete fail cancel reschedule peek dead move batch lost history archive "
    "result work stats top doctor sizes stream pipeline serve sqs report sql upgrade database demo".split()
)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", envvar="TABLEQUEUE_URL", show_envvar=True, help="The database, as sqlite:///work.db.")
@click.option("--schema", help="The schema that holds the queues, on engines that have schemas.")
@click.option("--name", help="The name of this producer or consumer in the history.  [default: host:pid]")
@click.version_option(package_name="tablequeue")
@click.pass_context
def main(ctx: click.Context, url: str | None, schema: str | None, name: str | None) -> None:
    """Queues in the database you already have.

    Exit codes: 0 done, 1 refused, 2 wrong usage, 3 nothing found (pop, peek), 4 done but not completely printed,
    130 interrupted.
    """
    settings = ctx.ensure_object(Settings)
    settings.url, settings.schema, settings.name = url, schema, name


main.names = COMMANDS
