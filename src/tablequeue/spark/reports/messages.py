"""The input of the reports: the messages of queues, live and finished, and their events."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tablequeue.consumer import Consumer
from tablequeue.model.message import Message
from tablequeue.model.pacing import LARGEST
from tablequeue.queue import Queue

NAMES = (
    "queue id state attempts producer consumer pushed_at due_at first_popped_at popped_at finished_at errors"
).split()
"""The columns of `messages`, the argument of every report: those of a message without payload and headers.

`state` is finished, cancelled, expired, lost (delivered at most once, and not completed within its lease), or that of a
live message;
`errors` is never null.
"""
COLUMNS = (
    "queue string, id bigint, state string, attempts int, producer string, consumer string, pushed_at timestamp, "
    "due_at timestamp, first_popped_at timestamp, popped_at timestamp, finished_at timestamp, "
    "errors array<struct<attempt: int, at: timestamp, consumer: string, error: string>>"
)

ENDS = ("finished", "cancelled", "expired", "dead", "lost")
"""The states in which nothing is to be done any more."""

EXPIRED = "lease expired"
"""The error of an attempt whose consumer died, or took longer than its lease."""

_ERRORS = "array<struct<attempt: int, at: string, consumer: string, error: string>>"


def finished(history: DataFrame, queue: str) -> DataFrame:
    """Return the messages of a history that have ended, as the data source reads it, in a session with the zone UTC."""
    return _messages(history.where("finished_at is not null"), queue)


def live(table: DataFrame, queue: Consumer) -> DataFrame:
    """Return the live messages of a queue, as the data source reads it, and its lost messages."""
    found = _messages(table, queue.name, finished_at=f.lit(None).cast("timestamp"))
    if not isinstance(queue, Queue) or queue.definition.delivery != "at_most_once":
        return found
    lost = {message.id for message in queue.lost(LARGEST)}
    rows = [
        _row(queue.name, one, "lost" if one.id in lost else "in_progress") for one in queue.lost(LARGEST, older_than=0)
    ]
    return found.unionByName(table.sparkSession.createDataFrame(rows, COLUMNS))


def _messages(table: DataFrame, queue: str, **columns: Column) -> DataFrame:
    errors = f.from_json(f.coalesce("errors", f.lit("[]")), _ERRORS)
    errors = f.transform(errors, lambda error: error.withField("at", _time(error["at"])))
    return table.withColumns({"queue": f.lit(queue), "errors": errors, **columns}).select(*NAMES)


def _time(text: Column) -> Column:
    """Parse a time in the errors, which engines write as microseconds or as text."""
    return f.coalesce(f.timestamp_micros(text.try_cast("bigint")), text.try_cast("timestamp"))


def _row(queue: str, message: Message, state: str) -> tuple[Any, ...]:
    errors = [(error.attempt, error.at, error.consumer, error.error) for error in message.errors]
    values = {"queue": queue, "state": state, "errors": errors}
    return tuple(values[name] if name in values else getattr(message, name) for name in NAMES)


def events(messages: DataFrame) -> DataFrame:
    """Return a row for each event: queue, id, event, at, name (of the producer or consumer, if known), error.

    `event` is pushed, popped (the first time), failed (an attempt, or its lease), or the end of a message: finished,
    cancelled, expired, dead or lost.
    """
    none = f.lit(None).cast("string")

    def event(event: Column, at: Column, name: Column, error: Column = none) -> Column:
        return f.struct(event.alias("event"), at.alias("at"), name.alias("name"), error.alias("error"))

    # A dead letter ended with its last error, a lost message with its pop.
    end = f.coalesce(
        "finished_at", f.when(f.col("state") == "dead", f.get("errors", f.size("errors") - 1)["at"]), f.col("popped_at")
    )
    ended = f.col("state").isin(*ENDS)
    happened = f.concat(
        f.array(
            event(f.lit("pushed"), f.col("pushed_at"), f.col("producer")),
            event(f.lit("popped"), f.col("first_popped_at"), none),
            event(f.when(ended, f.col("state")), end, f.col("consumer")),
        ),
        f.transform("errors", lambda error: event(f.lit("failed"), error["at"], error["consumer"], error["error"])),
    )
    return (
        messages.select("queue", "id", f.explode(happened).alias("happened"))
        .select("queue", "id", "happened.*")
        .where("event is not null and at is not null")
    )


def seconds_between(start: str | Column, end: str | Column) -> Column:
    return (f.unix_micros(end) - f.unix_micros(start)) / f.lit(1e6)


def bucket(at: str, every: int) -> Column:
    """Return the beginning of the interval of `every` seconds, counted from 1970, in which a time lies."""
    return f.timestamp_seconds(f.floor(f.unix_micros(at) / f.lit(every * 1_000_000)) * f.lit(every))
