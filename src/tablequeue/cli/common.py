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
from datetime import datetime, timedelta
from traceback import walk_tb
from typing import Any, TypeVar

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tablequeue.database import Database, connect
from tablequeue.definition import DELIVERIES, HISTORIES, LARGEST, LONGEST, ORDERS, PAYLOADS, Backoff, Definition
from tablequeue.errors import DriverMissing, TablequeueError
from tablequeue.message import Claim, Message
from tablequeue.operations.stats import Stats
from tablequeue.payload import Unreadable, json_text, on_any_stack
from tablequeue.queue import Queue

REFUSED, USAGE, EMPTY, UNPRINTED, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 4, 130, 141

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
            code = BROKEN_PIPE  # as a shell reports a program that a closed pipe ended
        except OSError as error:
            code = _refuse_system(ctx, error)
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


def _refuse_system(ctx: click.Context, error: OSError) -> int:
    _forget_stdout()
    if any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__)):
        cause = f"The output cannot be written: {error.strerror}. What the command did is done."
        return _refuse(ctx, cause, "Look at the queue before you run it again.", UNPRINTED)
    return _refuse(ctx, f"The system refused: {error}.", "Check the file or the disk it names.")


def _forget_stdout() -> None:
    """What cannot be written is still buffered, and Python would fail a second time when it exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return  # no file behind it, so nothing is flushed at the exit


# -- options that commands share ---------------------------------------------------------------------------------------

_DEFAULT = Definition()


def _history(ctx: click.Context, param: click.Parameter, value: str) -> str | float:
    if value in HISTORIES:
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not {', '.join(HISTORIES)} or a number of seconds.") from None


class Seconds(click.FloatRange):
    """A duration that every database can add to its clock."""

    def __init__(self, least: float = 0) -> None:
        super().__init__(least, LONGEST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return number


def _option(name: str, type: Any, default: Any, help: str) -> Callable[[F], F]:
    return click.option(name, type=type, default=default, show_default=True, help=help)


_DEFINITION_OPTIONS = (
    _option(
        "--order",
        click.Choice(ORDERS),
        _DEFAULT.order,
        "fifo: lowest id first; lifo: highest id first; due: the one due longest first; priority: highest number "
        "first; heap: any order.",
    ),
    click.option(
        "--strict", is_flag=True, help="fifo only: one message in progress at a time, and nothing overtakes it."
    ),
    click.option("--groups", is_flag=True, help="fifo only: strict within each group; groups run side by side."),
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
    click.option(
        "--history",
        callback=_history,
        default=_DEFAULT.history,
        show_default=True,
        metavar=f"[{'|'.join(HISTORIES)}|SECONDS]",
        help="Finished messages are kept, or not, or for so long.",
    ),
    _option(
        "--delivery",
        click.Choice(DELIVERIES),
        _DEFAULT.delivery,
        "at_least_once: a message whose consumer dies comes back; at_most_once: it never does, see lost.",
    ),
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
    click.echo(on_any_stack(lambda value: json.dumps(value, default=_plain), value), err=err)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value))


def record_of(item: Any, *names: str) -> dict[str, Any]:
    """A message or claim as a JSON object: these attributes, or all fields. What is bytes, or unreadable, in base64."""
    names = names or tuple(field.name for field in dataclasses.fields(item))
    record = {name: getattr(item, name) for name in names}
    payload = record["payload"]
    if isinstance(payload, Unreadable):
        record["unreadable"] = payload.reason
        payload = record["payload"] = payload.data
    if isinstance(payload, bytes):
        encoded = base64.b64encode(record.pop("payload")).decode()
        record = {"id": record.pop("id"), "payload_base64": encoded, **record}
    if "errors" in record:
        record["errors"] = [dataclasses.asdict(error) for error in record["errors"]]
    return record


def stats_record(stats: Stats) -> dict[str, Any]:
    """The numbers of a queue as a JSON object; `estimated` names those that are not exact."""
    return {**dataclasses.asdict(stats), "estimated": stats.estimated}


@dataclass(frozen=True)
class Estimate:
    """A number that is not exact, as people see it."""

    value: object

    def __str__(self) -> str:
        return f"~{self.value}"


def finished_cell(stats: Stats) -> object:
    """How many messages are finished, for people."""
    return Estimate(stats.finished) if "finished" in stats.estimated else stats.finished


def shown(text: str) -> str:
    """Text on one line, every control character as its escape: a payload must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def payload_text(payload: Any, kind: str) -> str:
    if isinstance(payload, Unreadable):
        return shown(str(payload))
    if kind == "json":
        return shown(json_text(payload))
    return repr(payload) if kind == "bytes" else shown(payload)


def set_fields(message: Message | Claim) -> dict[str, str | int]:
    """Those of the fields that few messages have, by name, for people."""
    fields = {
        "group": message.group,
        "key": message.key,
        "priority": message.priority or None,
        "headers": payload_text(message.headers, "json") if message.headers else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def last_error(message: Message) -> str:
    """The last line of the last error: of a traceback, the exception."""
    error = message.errors[-1].error.strip() if message.errors else ""
    return error.splitlines()[-1] if error else ""


def time_text(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}Z"


# What is left of a column that is cut, at the least.
LEAST = 12


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, cut: str | None = None) -> None:
    """A table as wide as the terminal, as `table_of` makes it."""
    width = shutil.get_terminal_size((80, 24)).columns
    # Through click and not rich's own console, which answers a broken pipe with exit code 1.
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table_of(columns, rows, width, cut))
    click.echo("\n".join(line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()))  # type: ignore[attr-defined]


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int, cut: str | None = None) -> Table:
    """Numbers to the right. The column `cut` ends in ... where the room does."""
    rows = list(rows)
    # Text, not str: rich would read [brackets] in a str as markup.
    cells = [[Text("" if cell is None else shown(str(cell))) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, column in enumerate(columns):
        number = all(isinstance(row[place], (int, float, Estimate, type(None))) for row in rows)
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    if cut:
        # Before rich sees it, for rich would fold the others first. Two characters go between columns, one at each end.
        place = columns.index(cut)
        widths = [
            max(len(column), *(cell.cell_len for cell in column_cells))
            for column, *column_cells in zip(columns, *cells, strict=True)
        ]
        room = max(width - 2 * len(columns) - sum(widths) + widths[place], LEAST)
        for row in cells:
            row[place].truncate(room, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    return table


# What a table of messages may show; those of SELDOM only where a message has them.
COLUMNS: Mapping[str, Callable[[Message], Any]] = {
    "id": lambda message: message.id,
    "attempts": lambda message: message.attempts,
    "pushed": lambda message: time_text(message.pushed_at),
    "due": lambda message: time_text(message.due_at),
    "popped": lambda message: time_text(message.popped_at),
    "finished": lambda message: time_text(message.finished_at),
    "consumer": lambda message: message.consumer,
    "wait": lambda message: _seconds(message.wait_time),
    "run": lambda message: _seconds(message.run_time),
    "last error": last_error,
    "group": lambda message: message.group,
    "key": lambda message: message.key,
    "priority": lambda message: message.priority,
}
SELDOM = ("group", "key", "priority")


def print_messages(settings: Settings, messages: Sequence[Message], kind: str, *columns: str) -> None:
    """Messages as JSON, or these columns of them as a table, and their payloads of that kind."""
    if settings.json:
        for message in messages:
            print_json(record_of(message))
    elif messages:
        cells = {name: [*map(COLUMNS[name], messages)] for name in (*columns, *SELDOM)}
        cells = {name: column for name, column in cells.items() if name not in SELDOM or any(column)}
        cells["payload"] = [payload_text(message.payload, kind) for message in messages]
        print_table([*cells], zip(*cells.values(), strict=True), cut="payload")


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else round(time.total_seconds(), 3)


def report(settings: Settings, done: str, count: int) -> None:
    """What was done, to how many messages."""
    if settings.json:
        print_json({done: count})
    else:
        click.echo(f"{count} {done}")


def print_fields(fields: Mapping[str, Any]) -> None:
    """Names and values, one a line and in full; a line as `shown` makes it."""
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:{width}}  {shown(str(value))}".rstrip())


@contextmanager
def needed_packages(what: str, extras: str) -> Iterator[None]:
    """Around the imports of a command that not every installation has the packages for."""
    try:
        yield
    except ImportError as error:
        raise DriverMissing(
            f"{what} needs the package {error.name}, which is not installed.",
            f"Run: pip install 'tablequeue[{extras}]'",
        ) from None
