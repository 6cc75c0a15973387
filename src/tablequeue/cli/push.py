"""`tablequeue push`: one message from the command line, or many from a file, all or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import click
import sqlalchemy as sa
from rich.console import Console
from rich.progress import track

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.lines import FIELDS, Lines, load, read_lines
from tablequeue.cli.options import ID, Seconds, due_option
from tablequeue.cli.output import print_json
from tablequeue.database import Database, destination
from tablequeue.engines import engine_class
from tablequeue.errors import BadInput, DatabaseError, DuplicateKey, TablequeueError
from tablequeue.model.batch import ON_DEAD
from tablequeue.queue import Queue
from tablequeue.topic import Topic
from tablequeue.verbs.push import ON_CONFLICT, check_group, check_priority

# Options that a topic lacks.
LACKING = {
    "delay": "delay",
    "due": "due time",
    "priority": "priority",
    "key": "deduplication key",
    "expires": "expiry",
    "unique_for": "deduplication key",
    "after": "dependencies",
}
# Messages pushed at a time, between two steps of the progress bar.
CHUNK = 5000


def _headers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str] | None:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
    return dict(value.split("=", 1) for value in values) or None


@click.command(cls=Command)
@click.argument("queue")
@click.argument("payload", required=False)
@click.option("--delay", type=float, help="Seconds until it is ready.")
@due_option
@click.option("--priority", type=int, help="Higher numbers first, in a queue with --order priority.  [default: 0]")
@click.option("--group", help="Its group, in a queue with groups.")
@click.option("--key", help="Its deduplication key, unique among the live messages of the queue.")
@click.option(
    "--unique-for", type=Seconds(), help="Seconds for which its key stays taken, in a queue with --unique-for."
)
@click.option(
    "--on-conflict",
    type=click.Choice(ON_CONFLICT),
    default="raise",
    show_default=True,
    help="If a live message has the key: refuse, push nothing, or print the id of that message.",
)
@click.option("--expires", type=Seconds(), help="Seconds until it expires, in a queue with --expires.")
@click.option(
    "--after", type=ID, multiple=True, metavar="ID", help="Wait for this message of the queue. May be repeated."
)
@click.option(
    "--on-dead",
    type=click.Choice(ON_DEAD),
    default="wait",
    show_default=True,
    help="If one of these becomes a dead letter.",
)
@click.option("--header", "headers", callback=_headers, multiple=True, metavar="K=V", help="May be repeated.")
@click.option("--file", type=click.File("rb"), help="Push the contents of this file; - is the standard input.")
@click.option("--skip-bad", is_flag=True, help="Skip lines that cannot be pushed, and count them.")
@click.option("--key-field", metavar="FIELD", help="The field of each JSON line with the key of its message.")
@click.option("--group-field", metavar="FIELD", help="The field with its group.")
@click.option("--priority-field", metavar="FIELD", help="The field with its priority.")
@click.option("--due-field", metavar="FIELD", help="The field with its due time.")
@click.pass_obj
def push(
    settings: Settings,
    /,
    queue: str,
    payload: str | None,
    file: BinaryIO | None,
    skip_bad: bool,
    key: str | None,
    on_conflict: Any,
    after: tuple[int, ...],
    on_dead: Any,
    **options: Any,
) -> None:
    """Push one message, or the lines of a file.

    PAYLOAD is one message for QUEUE, and its id is printed. Without PAYLOAD the file is pushed, or the standard input.
    QUEUE may be a topic; its messages have only a group and headers.

    \b
    The format of the file depends on the payload type of the queue:
      json   one JSON value a line
      text   one message a line
      bytes  the whole file is one message

    Blank lines are skipped. All lines are read and checked, then pushed in one transaction. If a line is bad, or a live
    message has its key, the number of the line is printed and nothing is pushed. With --on-conflict skip, lines with a
    taken key are skipped and counted.

    The options apply to every line. Fields of the payload can set them for each line: with --key-field id the line
    {"id": 7, "to": "ada"} has the key 7.
    """
    fields = {option: field for option in FIELDS if (field := options.pop(f"{option}_field")) is not None}
    _check_usage(payload, file, skip_bad, fields, {**options, "key": key})
    if payload is None and file is None:
        if not sys.stdin or sys.stdin.isatty():
            raise click.UsageError("There is nothing to push. Give PAYLOAD or --file, or pipe something in.")
        file = sys.stdin.buffer
    with settings.database() as database:
        target = destination(database, queue)
        kind = target.definition.payload
        _check_fields(target, fields)
        if isinstance(target, Topic):
            _check_topic(target, {**options, "key": key, "after": after or None, **fields})
        if file is None or kind == "bytes":
            # surrogateescape restores the exact bytes of the command line.
            data = file.read() if file else (payload or "").encode("utf-8", "surrogateescape")
            options |= {"key": key, "on_conflict": on_conflict, "after": after or None, "on_dead": on_dead}
            _print_one(settings, _push_one(target, load(data, kind), options))
            return
        if key is not None or on_conflict == "return":
            raise click.UsageError(
                "--key and --on-conflict return are for one message. Use --key-field, and --on-conflict skip."
            )
        check_group(target, fields.get("group", options["group"]))
        lines = read_lines(file, target, fields, skip_bad)
        options |= {"after": after or None, "on_dead": on_dead}
        ids = _push_all(database, target, lines, on_conflict, options)
    _print_many(settings, ids, lines.skipped)


def _check_usage(
    payload: str | None, file: BinaryIO | None, skip_bad: bool, fields: Mapping[str, str], options: Mapping[str, Any]
) -> None:
    if payload is not None and (file or skip_bad or fields):
        raise click.UsageError(
            "PAYLOAD is one message: leave out --file, --skip-bad and --...-field, or leave out PAYLOAD."
        )
    for option in fields:
        for other in ("due", "delay") if option == "due" else (option,):
            if options[other] is not None:
                raise click.UsageError(f"Give --{option}-field or --{other}, not both.")


def _check_fields(queue: Queue | Topic, fields: Mapping[str, str]) -> None:
    """Refuse options that the queue does not support, once and not for every line."""
    kind = queue.definition.payload
    if fields and kind != "json":
        raise BadInput(
            f"Field options need JSON payloads; {queue.name!r} stores {kind}.",
            f"Leave --{min(fields)}-field out, or push to a queue of JSON payloads.",
        )
    if "priority" in fields and isinstance(queue, Queue):
        check_priority(queue, 0)


def _check_topic(topic: Topic, options: Mapping[str, Any]) -> None:
    """Refuse options that a topic lacks."""
    for name, words in LACKING.items():
        if options[name] is not None:
            raise BadInput(
                f"{topic.name!r} is a topic, whose messages have no {words}.",
                f"Leave --{name.replace('_', '-')} out, or push to a queue.",
            )


def _push_one(target: Queue | Topic, payload: Any, options: Mapping[str, Any]) -> int | None:
    if isinstance(target, Topic):
        return target.push(payload, group=options["group"], headers=options["headers"])
    return target.push(payload, **options)


def _push_chunk(
    target: Queue | Topic, chunk: Sequence[Any], options: Mapping[str, Any], connection: Any
) -> Sequence[int | None]:
    if isinstance(target, Topic):
        return target.push_many(chunk, group=options["group"], headers=options["headers"], connection=connection)
    # Always skip: the result shows which lines have a taken key.
    return target.push_many(chunk, on_conflict="skip", connection=connection, **options)


def _push_all(
    database: Database, target: Queue | Topic, lines: Lines, on_conflict: str, options: Mapping[str, Any]
) -> list[int | None]:
    """Push all lines in one transaction, and return their ids; None for each line with a taken key."""
    ids: list[int | None] = []
    try:
        with database.engine.begin() as connection:
            for chunk in _chunks(lines.messages):
                pushed = _push_chunk(target, chunk, options, connection)
                if on_conflict == "raise" and None in pushed:
                    place = len(ids) + pushed.index(None)
                    raise _duplicate(lines.numbers[place], lines.messages[place].key)
                ids += pushed
    except sa.exc.DBAPIError as error:
        raise _refusal(database, error) from error
    finally:
        database.engine.dispose()
    return ids


def _duplicate(number: int, key: str) -> DuplicateKey:
    return DuplicateKey(
        f"Line {number}: a live message, or a line before it, has the key {key!r} already.",
        "Remove the line, or skip such lines with --on-conflict skip; nothing was pushed.",
        [key],
    )


def _chunks(payloads: Sequence[Any]) -> Iterator[Sequence[Any]]:
    console = Console(stderr=True)
    starts = range(0, len(payloads), CHUNK)
    for start in track(starts, "Pushing", console=console, transient=True, disable=not console.is_terminal):
        yield payloads[start : start + CHUNK]


def _refusal(database: Database, error: sa.exc.DBAPIError) -> TablequeueError:
    """Translate the error of a BEGIN or COMMIT, which SQLAlchemy runs without the queue."""
    dialect = database.engine.dialect
    refusal = engine_class(dialect.name)(dialect).translate(error.orig) if isinstance(error.orig, Exception) else None
    return refusal or DatabaseError(f"The database refused the transaction: {error.orig}.", "Check the database.")


def _print_one(settings: Settings, id: int | None) -> None:
    if settings.json:
        print_json({"id": id})
    elif id is None:
        click.echo("1 duplicate skipped", err=True)
    else:
        click.echo(id)


def _print_many(settings: Settings, ids: Sequence[int | None], skipped: int) -> None:
    pushed = [id for id in ids if id is not None]
    duplicates = len(ids) - len(pushed)
    for count, what in ((skipped, "bad line"), (duplicates, "duplicate")):
        if count:
            click.echo(f"{count} {what}{'' if count == 1 else 's'} skipped", err=True)
    first, last = (pushed[0], pushed[-1]) if pushed else (None, None)
    settings.emit(
        {"pushed": len(pushed), "skipped": skipped, "duplicates": duplicates, "first": first, "last": last},
        f"{len(pushed)} pushed" + (f", ids {first} to {last}" if pushed else ""),
    )
