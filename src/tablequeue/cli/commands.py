"""What all commands share: settings, the option --json, and errors as two sentences and an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import click

from tablequeue.errors import BadInput, DriverMissing, TablequeueError

# Slow imports are made where they are used: --version and wrong usage do not need them.
if TYPE_CHECKING:
    from tablequeue.consumer import Consumer
    from tablequeue.database import Database
    from tablequeue.queue import Queue
    from tablequeue.topic import Subscription, Topic

REFUSED, USAGE, EMPTY, UNPRINTED, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 4, 130, 141


@dataclass
class Settings:
    """The options of all commands."""

    url: str | None = None
    schema: str | None = None
    name: str | None = None
    json: bool = False

    @contextmanager
    def database(self) -> Iterator[Database]:
        if not self.url:
            raise click.UsageError(
                "No database is given. Set TABLEQUEUE_URL, or write --url: tablequeue --url sqlite:///work.db ..."
            )
        from tablequeue.database import connect

        with connect(self.url, schema=self.schema, name=self.name) as database:
            yield database

    @contextmanager
    def queue(self, name: str) -> Iterator[Queue]:
        with self.database() as database:
            yield database.queue(name)

    @contextmanager
    def consumer(self, name: str) -> Iterator[Consumer]:
        """Open a queue, or `topic/name`."""
        with self.database() as database:
            yield database.consumer(name)

    @contextmanager
    def topic(self, name: str) -> Iterator[Topic]:
        with self.database() as database:
            yield database.topic(name)

    @contextmanager
    def subscription(self, name: str) -> Iterator[Subscription]:
        """Open `topic/name`."""
        topic, own = topic_and_name(name)
        with self.topic(topic) as found:
            yield found.subscription(own)

    def emit(self, value: Mapping[str, Any], text: object) -> None:
        """Print a result: with --json `value` as one line of JSON, else `text`."""
        if self.json:
            from tablequeue.cli.output import print_json  # imports rich, which most results do not need

            print_json(value)
        else:
            click.echo(text)


class _Shared:
    """Gives a command the options of all commands, so that they can be written anywhere. The last one counts."""

    params: list[click.Parameter]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        option = click.Option(
            ["--json"],
            is_flag=True,
            is_eager=True,  # so that a wrong option after it is already reported as JSON
            expose_value=False,
            callback=_set,
            help="Print JSON, one value a line.",
        )
        self.params.append(option)
        own = {word for param in self.params for word in param.opts}
        for word in ("--url", "--schema", "--name"):
            if word not in own:
                # Shown in the help of `tablequeue`. Named so that it does not meet an argument NAME.
                names = [word, f"shared_{word[2:]}"]
                self.params.append(click.Option(names, expose_value=False, callback=_set, hidden=True))


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(Settings), param.opts[0][2:], value)


class Command(_Shared, click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # The value of --groups may be left out. So any other argument after it is not its value: it may be a queue's
        # name.
        given = [
            f"--groups={'fair' if after == 'fair' else 'ordered'}" if word == "--groups" else word
            for before, word, after in zip(["", *args], args, [*args[1:], ""], strict=False)
            if (before, word) != ("--groups", "fair")
        ]
        return super().parse_args(ctx, given)


class Group(_Shared, click.Group):
    command_class = Command


class Root(Group):
    """The command line as a whole. Turns every error into a cause, a remedy, and an exit code."""

    modules: Mapping[str, str] = {}
    """The commands, each with the module of `tablequeue.cli` that has it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        command: click.Command = getattr(import_module(f"tablequeue.cli.{self.modules[cmd_name]}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # characters that the terminal cannot show are escaped
        if sys.stdout is None:
            ctx.exit(_refuse(ctx, "The standard output is closed.", "Redirect it to a file, or to /dev/null."))
        try:
            return super().invoke(ctx)
        except TablequeueError as error:
            code = _refuse(ctx, error.cause, error.remedy)
        except click.UsageError as error:
            if not _json(ctx):
                raise
            code = _refuse(ctx, error.format_message(), "See --help.", USAGE)
        except UnicodeEncodeError:
            code = _refuse(ctx, "An argument is not UTF-8.", "Write it in UTF-8, or push it from a file.")
        except (KeyboardInterrupt, click.Abort):
            code = _refuse(ctx, "Interrupted: the command did not finish.", "", INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            code = BROKEN_PIPE  # what a shell reports for a program that SIGPIPE ended
        except OSError as error:
            code = _refuse_system(ctx, error)
        ctx.exit(code)


def report(settings: Settings, done: str, count: int) -> None:
    """Print what was done, and to how many messages."""
    settings.emit({done: count}, f"{count} {done}")


def say_none(words: str) -> None:
    """Say that there is nothing to list: on stderr, because a program may read the output."""
    click.echo(words, err=True)


def topic_and_name(subscription: str) -> tuple[str, str]:
    """Return the two parts of the name of a subscription, such as events/mail."""
    topic, slash, name = subscription.partition("/")
    if not slash:
        raise BadInput(
            f"{subscription!r} is no name of a subscription.", "Write its topic, a slash and its name: events/mail."
        )
    return topic, name


yes = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(yes: bool, question: str) -> None:
    """Ask, unless `yes`. `BadInput` if the answer is no, or if there is no terminal."""
    if yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise BadInput(
            f"Not confirmed: {question}", "There is no terminal to ask, so write --yes; nothing was changed."
        )
    if not click.confirm(question, err=True):
        raise BadInput(f"Not confirmed: {question}", "Answer y, or write --yes; nothing was changed.")


def check_schema(settings: Settings, database: Database, create: bool) -> None:
    """Refuse to create a schema by mistake."""
    if not create and not database.has_schema():
        raise BadInput(
            f"There is no schema {settings.schema!r}.", "Correct --schema, or write --create-schema to create it."
        )


@contextmanager
def needed_packages(what: str, extras: str) -> Iterator[None]:
    """Report a missing package as `DriverMissing`. Use it around the imports of a command that needs an extra."""
    try:
        yield
    except ImportError as error:
        raise DriverMissing(
            f"{what} needs the package {error.name}, which is not installed.",
            f"Run: pip install 'tablequeue[{extras}]'",
        ) from None


# -- private ---------------------------------------------------------------------------------------------------------


def _json(ctx: click.Context) -> bool:
    return ctx.ensure_object(Settings).json


def _refuse(ctx: click.Context, cause: str, remedy: str, code: int = REFUSED) -> int:
    from tablequeue.cli.output import one_line, print_json

    if _json(ctx):
        print_json({"error": cause, "remedy": remedy}, err=True)
    else:
        click.echo(f"error: {one_line(cause)}", err=True)
        if remedy:
            click.echo(one_line(remedy), err=True)
    return code


def _refuse_system(ctx: click.Context, error: OSError) -> int:
    _forget_stdout()
    if any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__)):
        cause = f"The output cannot be written: {error.strerror}. What the command did is done."
        return _refuse(ctx, cause, "Look at the queue before you run it again.", UNPRINTED)
    return _refuse(ctx, f"The system refused: {error}.", "Check the file or the disk it names.")


def _forget_stdout() -> None:
    """Redirect stdout to /dev/null: Python would try to write its buffer again at the exit, and fail again."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file is behind it, so nothing is flushed at the exit
