"""`tablequeue push`: one message from the command line, or many from a file, all or nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO

import click
import sqlalchemy as sa
from rich.console import Console
from rich.progress import track

from tablequeue.cli.common import Command, Settings, print_json
from tablequeue.database import Database
from tablequeue.engines import engine_class
from tablequeue.errors import BadPayload, DatabaseError, TablequeueError
from tablequeue.payload import CODECS
from tablequeue.queue import Queue

# Messages pushed at a time, between two steps of the progress bar.
CHUNK = 5000

_BOM = "\ufeff"


def _due(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
        if time.utcoffset() is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise click.BadParameter(f"{value!r} is not a time with its zone, such as 2030-01-31T12:00:00+00:00.")


def _headers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
    return dict(value.split("=", 1) for value in values) or None


@click.command(cls=Command)
@click.argument("queue")
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Push what is in this file; - is the standard input.")
@click.option("--skip-bad", is_flag=True, help="Leave out lines that cannot be pushed, and count them.")
@click.option("--delay", type=float, help="Seconds until it is ready.")
@click.option("--due", callback=_due, metavar="TIME", help="When it is ready, as 2030-01-31T12:00:00+00:00.")
@click.option("--header", "headers", callback=_headers, multiple=True, metavar="K=V", help="May be repeated.")
@click.pass_obj
def push(
    settings: Settings, /, queue: str, payload: str | None, file: BinaryIO | None, skip_bad: bool, **options: Any
) -> None:
    """Push one message, or the lines of a file.

    PAYLOAD is one message for QUEUE, and its id is printed. Without it the file is pushed, or the standard input.

    \b
    What a file is depends on the queue's payload:
      json   one JSON value a line
      text   one message a line
      bytes  the whole file is one message

    Blank lines are passed over. Every line is read and checked before the first one is pushed, in one transaction:
    a bad line is refused with its number, and then nothing is pushed.
    """
    if payload is not None and (file or skip_bad):
        raise click.UsageError("PAYLOAD is one message: leave out --file and --skip-bad, or leave out PAYLOAD.")
    if payload is None and file is None:
        if not sys.stdin or sys.stdin.isatty():
            raise click.UsageError("There is nothing to push. Give PAYLOAD or --file, or pipe something in.")
        file = sys.stdin.buffer
    with settings.database() as database:
        target = database.queue(queue)
        kind = target.definition.payload
        if file is None or kind == "bytes":
            # surrogateescape: the very bytes of the command line.
            data = file.read() if file else (payload or "").encode("utf-8", "surrogateescape")
            _print_one(settings, target.push(_load(data, kind), **options))
            return
        payloads, skipped = _read(file, kind, skip_bad)
        first, last = _push_all(database, target, payloads, options)
    _print_many(settings, len(payloads), skipped, first, last)


def _read(file: BinaryIO, kind: str, skip_bad: bool) -> tuple[list[Any], int]:
    """The payloads of all lines, and the number of bad lines that were skipped."""
    payloads: list[Any] = []
    skipped = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            payloads.append(_load(line.removesuffix(b"\n").removesuffix(b"\r"), kind, first=number == 1))
        except BadPayload as error:
            if not skip_bad:
                remedy = "Correct the line, or leave out such lines with --skip-bad; nothing was pushed."
                raise BadPayload(f"Line {number}: {error.cause}", remedy) from None
            skipped += 1
    return payloads, skipped


def _push_all(database: Database, queue: Queue, payloads: Sequence[Any], options: Any) -> tuple[int | None, int | None]:
    """Push in one transaction; the first and the last id."""
    first = last = None
    try:
        with database.engine.begin() as connection:
            for chunk in _chunks(payloads):
                ids = queue.push_many(chunk, connection=connection, **options)
                first, last = first or ids[0], ids[-1]
    except sa.exc.DBAPIError as error:
        raise _refusal(database, error) from error
    finally:
        database.engine.dispose()
    return first, last


def _chunks(payloads: Sequence[Any]) -> Iterator[Sequence[Any]]:
    console = Console(stderr=True)
    starts = range(0, len(payloads), CHUNK)
    for start in track(starts, "Pushing", console=console, transient=True, disable=not console.is_terminal):
        yield payloads[start : start + CHUNK]


def _refusal(database: Database, error: sa.exc.DBAPIError) -> TablequeueError:
    """The error of a BEGIN or COMMIT, which SQLAlchemy runs and not the queue, in the engine's words."""
    dialect = database.engine.dialect
    refusal = engine_class(dialect.name)(dialect).translate(error.orig) if isinstance(error.orig, Exception) else None
    return refusal or DatabaseError(f"The database refused the transaction: {error.orig}.", "Check the database.")


def _print_one(settings: Settings, id: int) -> None:
    if settings.json:
        print_json({"id": id})
    else:
        click.echo(id)


def _print_many(settings: Settings, pushed: int, skipped: int, first: int | None, last: int | None) -> None:
    if skipped:
        click.echo(f"{skipped} bad line{'' if skipped == 1 else 's'} skipped", err=True)
    if settings.json:
        print_json({"pushed": pushed, "skipped": skipped, "first": first, "last": last})
    else:
        click.echo(f"{pushed} pushed" + (f", ids {first} to {last}" if pushed else ""))


# -- reading a payload -----------------------------------------------------------------------------------------------


def _load(data: bytes, kind: str, *, first: bool = False) -> Any:
    """The payload that these bytes write; `BadPayload` if the queue could not hold it."""
    payload = _LOADERS[kind](data, first)
    CODECS[kind].dump(payload)  # as push will, but here the number of the line is known
    return payload


def _text(data: bytes, first: bool) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"It is not UTF-8 at byte {error.start + 1}.", "Write it in UTF-8.") from None
    return text.removeprefix(_BOM) if first else text  # Windows begins a file with one


def _json(data: bytes, first: bool) -> Any:
    text = _text(data, first)
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        cause = f"It is not JSON: {error.msg} at character {error.pos + 1}."
    except RecursionError:
        cause = "It is nested too deeply."
    except ValueError as error:
        cause = f"It is not JSON: {error}."
    raise BadPayload(cause, 'Write JSON, such as {"to": "ada"} or "a string" in double quotes.')


_LOADERS: dict[str, Callable[[bytes, bool], Any]] = {
    "json": _json,
    "text": _text,
    "bytes": lambda data, first: data,
}


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Python would keep the last of two equal keys and silently lose the other's value."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is there twice")
    return result


_decode = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique).decode
