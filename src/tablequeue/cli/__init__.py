"""The command line: a file for each command, or for several of a kind. A new command has a row in COMMANDS."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Root, Settings

__all__ = ["main"]

# The commands, each with the module here that has it. A module is imported when a command of it is called, or listed.
COMMANDS = {
    **dict.fromkeys(("complete", "fail", "cancel", "reschedule", "result"), "message"),
    **dict.fromkeys(("database", "upgrade", "doctor", "sizes"), "database"),
    "lost": "history",
    **{
        command: command
        for command in "queue topic push pop peek dead move batch history archive work stats top stream pipeline serve "
        "sqs report sql demo".split()
    },
}


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


main.modules = COMMANDS
