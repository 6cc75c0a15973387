"""What the commands share: the settings of a run, the exit codes, and how things are printed."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tablequeue.database import Database, connect
from tablequeue.definition import HISTORIES, LARGEST, ORDERS, PAYLOADS, Backoff, Definition
from tablequeue.errors import TablequeueError
from tablequeue.queue import Queue

REFUSED, USAGE, EMPTY, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141

F = TypeVar("F", bound=Callable[..., Any])

# What a bigint and SQL's LIMIT can hold.
ID = click.IntRange(0, (1 << 63) - 1)
COUNT = click.IntRange(1, LARGEST)


@dataclass
class Settings:
    """The options before the command."""

    url: str | None = None
    schema: str | None = None
    name: str | None = None
    json: bool = False

    @contextmanager
    def database(self) -> Iterator[Database]:
        if not self.url:
            raise click.UsageError(
                "No database is given. Set TABLEQUEUE_URL, or write --url before the command: "
                "tablequeue --url sqlite:///work.db ..."
            )
        with connect(self.url, schema=self.schema, name=self.name) as database:
            yield database

    @contextmanager
    def queue(self, name: str) -> Iterator[Queue]:
        with self.database() as database:
            yield database.queue(name)


# -- commands ----------------------------------------------------------------------------------------------------------


class _Json:
    """Gives a command the option --json, so that it may be written before or after any word."""

    params: list[click.Parameter]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        option = click.Option(
            ["--json"],
            is_flag=True,
            is_eager=True,  # so that a wrong option that follows is reported as JSON already
            expose_value=False,
            callback=_set_json,
            help="Print JSON, one value a line.",
        )
        self.params.append(option)


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    settings = ctx.ensure_object(Settings)
    settings.json = settings.json or value


class Command(_Json, click.Command):
    pass


class Group(_Json, click.Group):
    command_class = Command


class Root(Group):
    """The command line as a whole: here every refusal becomes two sentences and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter gets its escape
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
            code = BROKEN_PIPE  # as a shell reports a program that a closed pipe ended
        except OSError as error:
            _forget_stdout()
            code = _refuse(ctx, f"The system refused: {error}.", "Check the file or the disk it names.")
        ctx.exit(code)


def _json(ctx: click.Context) -> bool:
    return ctx.ensure_object(Settings).json


def _refuse(ctx: click.Context, cause: str, remedy: str, code: int = REFUSED) -> int:
    if _json(ctx):
        print_json({"error": cause, "remedy": remedy}, err=True)
    else:
        click.echo(f"error: {shown(cause)}", err=True)
        if remedy:
            click.echo(shown(remedy), err=True)
    return code


def _forget_stdout() -> None:
    """What cannot be written is still buffered, and Python would fail a second time when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file behind it, so nothing is flushed at the exit


# -- options that commands share ---------------------------------------------------------------------------------------

_DEFAULT = Definition()


def _option(name: str, type: Any, default: Any, help: str) -> Callable[[F], F]:
    return click.option(name, type=type, default=default, show_default=True, help=help)


_DEFINITION_OPTIONS = (
    _option("--order", click.Choice(ORDERS), _DEFAULT.order, "fifo: lowest id first; heap: any order."),
    _option("--payload", click.Choice(PAYLOADS), _DEFAULT.payload, "What the messages are."),
    _option("--lease", float, _DEFAULT.lease, "Seconds a popped message stays with its consumer."),
    _option(
        "--max-attempts",
        click.IntRange(max=LARGEST),
        _DEFAULT.max_attempts,
        "Pops of a message before it is a dead letter.",
    ),
    _option("--backoff-base", float, _DEFAULT.backoff.base, "Seconds that a message waits after its first failure."),
    _option("--backoff-factor", float, _DEFAULT.backoff.factor, "How many times longer after each further one."),
    _option("--backoff-cap", float, _DEFAULT.backoff.cap, "Seconds it waits at most."),
    _option("--backoff-jitter", float, _DEFAULT.backoff.jitter, "Share of the wait that chance may take away."),
    _option("--history", click.Choice(HISTORIES), _DEFAULT.history, "keep: finished messages are kept."),
)


def definition_options(command: F) -> F:
    """The options of a queue's definition; `definition_of` makes one of them."""
    for option in reversed(_DEFINITION_OPTIONS):
        command = option(command)
    return command


def definition_of(options: Mapping[str, Any]) -> Definition:
    backoff = {name.removeprefix("backoff_"): value for name, value in options.items() if name.startswith("backoff_")}
    others = {name: value for name, value in options.items() if not name.startswith("backoff_")}
    return Definition(**others, backoff=Backoff(**backoff))


# -- printing ----------------------------------------------------------------------------------------------------------


def print_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    # ASCII: a payload is not to reach the terminal as anything but text, and a pipe may have any encoding.
    click.echo(json.dumps(value, default=_plain), err=err)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value))


def record_of(item: Any, *names: str) -> dict[str, Any]:
    """A message or claim as a JSON object: these attributes, or all fields; bytes as base64."""
    names = names or tuple(field.name for field in dataclasses.fields(item))
    record = {name: getattr(item, name) for name in names}
    if isinstance(record["payload"], bytes):
        encoded = base64.b64encode(record.pop("payload")).decode()
        record = {"id": record.pop("id"), "payload_base64": encoded, **record}
    if "errors" in record:
        record["errors"] = [dataclasses.asdict(error) for error in record["errors"]]
    return record


def shown(text: str) -> str:
    """Text on one line, every control character as its escape: a payload must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def payload_text(payload: Any, kind: str) -> str:
    if kind == "json":
        return shown(json.dumps(payload, ensure_ascii=False))
    return repr(payload) if kind == "bytes" else shown(payload)


def time_text(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}Z"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, cut: str | None = None) -> None:
    """A table as wide as the terminal, numbers to the right. The column `cut` ends in ... where the room does."""
    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        number = all(isinstance(row[place], (int, float, type(None))) for row in rows)
        table.add_column(
            column,
            justify="right" if number else "left",
            no_wrap=column == cut,
            overflow="ellipsis" if column == cut else "fold",
        )
    for row in rows:
        # Text, not str: rich would read [brackets] in a str as markup.
        table.add_row(*(Text("" if cell is None else shown(str(cell))) for cell in row))
    # Through click and not rich's own console, which answers a broken pipe with exit code 1.
    width = shutil.get_terminal_size((80, 24)).columns
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    click.echo("\n".join(line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()))  # type: ignore[attr-defined]


def print_fields(fields: Mapping[str, Any]) -> None:
    """Names and values, one a line and in full; a line as `shown` makes it."""
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:{width}}  {shown(str(value))}".rstrip())
