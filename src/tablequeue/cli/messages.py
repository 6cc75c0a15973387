"""Messages and claims as commands print them: as JSON objects, in tables, and in full."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import click

from tablequeue.cli.commands import Settings, say_none
from tablequeue.cli.output import one_line, print_fields, print_json, print_table
from tablequeue.model.message import Claim, Message
from tablequeue.model.payload import Unreadable, json_text
from tablequeue.model.progress import Progress
from tablequeue.verbs.readable import percent, waiting


def record_of(item: Any, *names: str) -> dict[str, Any]:
    """Return a message or claim as a JSON object: these attributes, or all. Bytes and unreadable payloads: base64."""
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


def payload_text(payload: Any, kind: str) -> str:
    if isinstance(payload, Unreadable):
        return one_line(str(payload))
    if kind == "json":
        return one_line(json_text(payload))
    return repr(payload) if kind == "bytes" else one_line(payload)


def print_errors(message: Message | Claim) -> None:
    """Print the errors of a message with their tracebacks, and where some are left out."""
    before = 0
    for error in message.errors:
        if left_out := error.number - before - 1:
            click.echo(f"({left_out:,} more errors are not kept)")
        before = error.number
        click.echo(f"attempt {error.attempt}, {time_text(error.at)}:")
        print_fields({f"  {place}": line for place, line in enumerate(error.error.splitlines(), 1)} or {"  1": ""})


def set_fields(message: Message | Claim) -> dict[str, str | int]:
    """Return the optional fields that are set, by name, for people."""
    fields = {
        "group": message.group,
        "key": message.key,
        "priority": message.priority or None,
        "headers": payload_text(message.headers, "json") if message.headers else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def last_error(message: Message) -> str:
    """Return the last line of the last error. In a traceback this is the exception."""
    error = message.errors[-1].error.strip() if message.errors else ""
    return error.splitlines()[-1] if error else ""


def time_text(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}Z"


def _seconds(time: timedelta | None) -> float | None:
    return None if time is None else round(time.total_seconds(), 3)


# The columns that a table of messages can have. The columns in OPTIONAL appear only if a message has a value.
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


OPTIONAL = ("group", "key", "priority")


def print_messages(
    settings: Settings,
    messages: Sequence[Message],
    kind: str,
    none: str,
    *columns: str,
    progress: Mapping[int, Progress] = MappingProxyType({}),
    waits: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Print messages as JSON, or as a table of these columns and the payloads, of this payload type.

    none       the text if there are no messages.
    progress   the last reports of their consumers, by the ids of the messages.
    waits      for how many others they wait, by id; messages that wait for none are left out.
    """
    if not messages:
        say_none(none)
    elif settings.json:
        for message in messages:
            record = record_of(message)
            if (reported := progress.get(message.id)) is not None:
                record["progress"] = dataclasses.asdict(reported)
            if (others := waits.get(message.id)) is not None:
                record["waits_for"] = others
            print_json(record)
    else:
        cells = {name: [*map(COLUMNS[name], messages)] for name in (*columns, *OPTIONAL)}
        cells = {name: column for name, column in cells.items() if name not in OPTIONAL or any(column)}
        if waits:
            shown = COLUMNS["due"]
            cells["due"] = [waiting(waits[each.id]) if each.id in waits else shown(each) for each in messages]
        if progress:
            reports = [progress.get(message.id) for message in messages]
            cells["progress"] = [report and percent(report.fraction) for report in reports]
        cells["payload"] = [payload_text(message.payload, kind) for message in messages]
        print_table([*cells], zip(*cells.values(), strict=True), cut="payload")
