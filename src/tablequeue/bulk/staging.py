"""Writes of many processes: all messages that they stage are pushed at once, or none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from tablequeue.bulk.arrow import ROWS, TIME
from tablequeue.consumer import Consumer
from tablequeue.engines.engine import Engine
from tablequeue.engines.table import Statements
from tablequeue.errors import BadInput, BadPayload, Conflict, DatabaseError, DuplicateKey
from tablequeue.ext import context_of
from tablequeue.model.payload import has_lone_surrogate
from tablequeue.topic import Topic
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Params
from tablequeue.verbs.push import LONGEST_KEY, check_text


class Staged(NamedTuple):
    """What one attempt at one task of a write has staged."""

    attempt: str
    messages: int
    keyed: bool


# The columns of a message to be pushed.
WRITTEN = ("payload", "headers", "priority", "group", "key", "due")
# The most bytes that are staged as columns at once, in at most ROWS messages: PostgreSQL accepts 1 GB.
STAGED_BYTES = 16 << 20


def written(queue: Consumer | Topic) -> dict[str, pa.DataType]:
    """Return the columns that a write may have, with their types. Only `payload` is required.

    headers   a JSON object as text. `due`: a time. `priority`, `group`, `key`: as in `push`.
    """
    definition = queue.definition
    types = {
        "payload": pa.binary() if definition.payload == "bytes" else pa.string(),
        "headers": pa.string(),
    }
    if definition.kind == "queue":
        types |= {"key": pa.string(), "due": TIME}
    if definition.order == "priority":
        types["priority"] = pa.int32()
    if definition.takes_groups:
        types["group"] = pa.string()
    return types


def prepare(queue: Consumer | Topic) -> None:
    """Make the tables that writes go through. One process calls it before the others stage."""
    context = context_of(queue)
    if context.table.topic is not None:
        raise BadInput(f"{queue.name!r} is a subscription.", f"Write into its topic {context.table.topic.name!r}.")
    engine = context.engine
    context.run(engine.catalogue.create_staged, {"now": None})


def stage(
    queue: Consumer | Topic,
    write: str,
    attempt: str,
    part: int,
    given: Iterable[pa.RecordBatch],
    *,
    producer: str | None = None,
) -> Staged:
    """Stage messages. Only `publish` of the same write, with the same producer, finds them.

    `attempt` names this attempt at the task: `publish` ignores attempts that it is not given. After a crash, and after
    `BadInput` or `BadPayload` for messages that the queue cannot hold, staged messages stay for a day.
    """
    context = context_of(queue).current()
    engine = context.engine
    checked = _checked(queue, given)
    first = next(checked, None)
    if first is None:
        return Staged(attempt, 0, False)
    batches = chain([first], checked)
    shared = {
        "write": write,
        "attempt": attempt,
        "part": part,
        "producer": producer or context.who,
        "now": None,
        **dict.fromkeys(WRITTEN),
    }
    total = 0
    for messages, values in _columns(batches) if engine.staging.by_columns else _rows(queue, batches):
        context.run(engine.staging.stage, cast(Params, shared | values))
        total += messages
    return Staged(attempt, total, "key" in first.schema.names)


def publish(
    queue: Consumer | Topic,
    write: str,
    staged: Sequence[Staged],
    *,
    on_conflict: Literal["raise", "skip"] = "raise",
    producer: str | None = None,
    writer: str | None = None,
    batch: int = 0,
) -> int | None:
    """Push the messages that these attempts staged, all at once, and return how many. After a crash, all are pushed or
    none.

    A `writer` numbers its writes by `batch`: a write with the last number adds nothing, and returns None. `BadInput` if
    its number is lower, as after a checkpoint was deleted. `BadInput` also if the name of the writer or of the producer
    is longer than 255 characters: SQL Server would cut it off silently, two writers could become one, and the writes of
    the second would add nothing.
    """
    context = context_of(queue).current()
    engine = context.engine
    check_text(producer or context.who, "producer")
    if writer is not None:
        check_text(writer, "writer")
    if queue.definition.unique_for and any(one.keyed for one in staged):
        raise BadInput(
            f"The keys of {queue.name!r} stay taken for a time, which writes of many processes cannot take.",
            "Leave the keys out, or write by push_many.",
        )
    expected = sum(one.messages for one in staged)
    keyed = any(one.keyed for one in staged)
    params: Params = {
        "write": write,
        "attempts": engine.staging.dump_words([one.attempt for one in staged if one.messages] or [""]),
        "keyed": keyed,
        "producer": producer or context.who,
        "group": "" if queue.definition.strict else None,
        "expires": None,
        "writer": writer,
        "batch": batch,
        "now": None,
    }

    def move(cursor: Any, table: Any, params: Params) -> int | None:
        if writer is not None and not is_new(engine, cursor, table, params, queue.name):
            engine.staging.unstage(cursor, table, params)
            return None
        if keyed:
            check_staged(engine.staging.staged_count(cursor, table, params), expected)
            if on_conflict == "raise" and (taken := engine.staging.staged_taken(cursor, table, params)):
                raise DuplicateKey(
                    f"Live messages, or others of the same write, have keys of it: {', '.join(taken[:5])}; "
                    "nothing was pushed.",
                    "Write other keys, or have such conflicts skipped (onConflict=skip).",
                    taken,
                )
        pushed = engine.staging.publish(cursor, table, params)
        if not keyed:
            check_staged(pushed, expected)
        elif on_conflict == "raise" and pushed != expected:
            raise Conflict("Somebody pushed one of the keys at the same moment; nothing was pushed.", "Write it again.")
        engine.staging.unstage(cursor, table, params)
        return pushed

    pushed = context.run(move, params)
    follow(context, CHANGED, None, None, pushed or 0)
    return pushed


def is_new(engine: Engine, cursor: Any, table: Statements, params: Params, target: str) -> bool:
    """Advance a writer to its batch, in the transaction that writes the batch. False if it has written this batch.

    `BadInput` if it has written a later one.
    """
    if engine.staging.writer_advance(cursor, table, params):
        return True
    last, writer, batch = engine.staging.writer_last(cursor, table, params), params["writer"], params["batch"]
    if batch < last:  # Spark repeats its last batch, and no other
        raise BadInput(
            f"The writer {writer!r} has written batch {last} into {target!r}, so this batch {batch} is of another "
            "checkpoint, and would be taken for an older one.",
            "Give each checkpoint a writer of its own, such as one with the id of its query.",
        )
    return False


def unstage(queue: Consumer | Topic, write: str) -> None:
    """Delete the staged messages of a write, and messages that other writes left a day ago or earlier."""
    context = context_of(queue)
    engine = context.engine
    context.run(engine.staging.unstage, {"write": write, "now": None})


def _columns(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield numbers of messages with their columns."""
    place = 0
    for batch in batches:
        for piece in pieces(batch):
            yield piece.num_rows, {"columns": piece, "place": place}
            place += piece.num_rows


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows in pieces that are small enough to be staged at once."""
    size = batch.num_rows
    if size == 1 or (size <= ROWS and batch.nbytes <= STAGED_BYTES):
        yield batch
    else:
        yield from pieces(batch.slice(0, size // 2))
        yield from pieces(batch.slice(size // 2))


def _rows(queue: Consumer | Topic, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield numbers of messages with their rows, as the engine stages them."""

    def rows() -> Iterator[dict[str, Any]]:
        for place, row in enumerate(row for batch in batches for row in batch.to_pylist()):
            _check_row(queue, row)
            due = row.get("due")
            yield {**row, "place": place, "due": None if due is None else context_of(queue).time(due, "due")}

    all_rows = rows()
    while chunk := list(islice(all_rows, ROWS)):
        yield len(chunk), {"rows": chunk}


def check_staged(there: int, expected: int, what: str = "messages") -> None:
    """Raise `DatabaseError` if the server has lost staged messages."""
    if there != expected:
        raise DatabaseError(
            f"The server has only {there} of {expected} staged {what}: it lost some in a crash, or the write took "
            "longer than a day. Nothing was written.",
            "Write it again.",
        )


def _checked(queue: Consumer | Topic, given: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches that have rows, in the queue's types. `BadInput` for what `push` would refuse."""
    types = written(queue)
    for batch in given:
        if not batch.num_rows:
            continue
        arrays = {name: batch[name].cast(types[name]) for name in batch.schema.names}
        if arrays["payload"].null_count:
            raise BadPayload("A payload is null.", "Leave such rows out; nothing was pushed.")
        if "headers" in arrays:
            _check_objects(arrays["headers"])
            _check_surrogates(arrays["headers"])
        if queue.definition.payload == "json":
            _check_surrogates(arrays["payload"])
        if queue.definition.needs_groups and ("group" not in arrays or arrays["group"].null_count):
            raise BadInput(f"{queue.name!r} has groups, and a row has none.", "Give each row its group.")
        for name in ("group", "key"):
            if name in arrays:
                _check_texts(arrays[name], name)
        yield pa.RecordBatch.from_pydict(arrays)


def _check_texts(texts: pa.Array, name: str) -> None:
    lengths = pc.utf8_length(texts)
    if texts.null_count < len(texts) and not 0 < pc.min(lengths).as_py() <= pc.max(lengths).as_py() <= LONGEST_KEY:
        raise BadInput(f"A {name} is empty or too long.", f"Give strings of 1 to {LONGEST_KEY} characters.")
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        raise BadInput(f"A {name} has a NUL, which no database text can hold.", "Leave NULs out.")


def _check_objects(headers: pa.Array) -> None:
    """Refuse headers that do not begin as JSON objects do. That they are JSON is checked with the payloads."""
    if not pc.all(pc.match_substring_regex(headers, r"^\s*\{"), min_count=0).as_py():
        raise BadPayload("Headers are no JSON object.", "Make them by to_json(struct(...)); nothing was pushed.")


def _check_surrogates(texts: pa.Array) -> None:
    """Refuse JSON with a lone surrogate, as `push` does. Arrow finds the few rows that have surrogates at all."""
    escaped = texts.filter(pc.match_substring_regex(texts, r"\\u[dD][89a-fA-F]"))
    if any(has_lone_surrogate(text) for text in escaped.to_pylist()):
        raise BadPayload(
            "A payload or headers have a lone surrogate, which is no Unicode text.",
            "Replace it, or use a bytes queue; nothing was pushed.",
        )


def _check_row(queue: Consumer | Topic, row: dict[str, Any]) -> None:
    """Check what an engine that stages columns checks by itself."""
    if queue.definition.payload == "text" and "\0" in row["payload"]:
        raise BadPayload("A payload has a NUL, which a text column cannot hold.", "Use a bytes queue.")
    try:
        if queue.definition.payload == "json":
            json.loads(row["payload"])
        if row.get("headers") is not None:
            json.loads(row["headers"])
    except ValueError as error:
        raise BadPayload(
            f"A payload or headers are not JSON: {error}.", "Make them by to_json(struct(...)); nothing was pushed."
        ) from None
