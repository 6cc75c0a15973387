"""The options of the data source, and their checks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import tablequeue
from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput
from tablequeue.model.names import check_full_name, check_name
from tablequeue.model.redaction import has_password
from tablequeue.topic import Topic

Use = Literal["read", "stream", "write", "stream write"]
Position = Literal["beginning", "end"] | int | datetime

LARGEST = (1 << 63) - 1
# Options of Spark itself, which data sources get too.
_SPARK_OPTIONS = frozenset(["checkpointlocation", "queryname"])
# The options of each use of a queue, and of a topic.
_QUEUE_USES: Mapping[Use, frozenset[str]] = {
    "read": frozenset("table partitions minId maxId since until columns payloadSchema".split()),
    "stream": frozenset("stream partitions maxMessagesPerTrigger columns payloadSchema".split()),
    "write": frozenset("onConflict producer writer batch".split()),
    "stream write": frozenset("onConflict producer".split()),
}
_TOPIC_USES: Mapping[Use, frozenset[str]] = {
    "read": frozenset("startingPosition endingPosition minPartitions failOnDataLoss columns payloadSchema".split()),
    "stream": frozenset(
        "startingPosition endingPosition subscription maxMessagesPerTrigger minPartitions failOnDataLoss "
        "columns payloadSchema".split()
    ),
    "write": frozenset("producer writer batch".split()),
    "stream write": frozenset(["producer"]),
}
_ALWAYS = ("url", "urlEnv", "urlFile", "queue", "topic", "schema")
NAMES = (*_ALWAYS, *sorted(frozenset[str]().union(*_QUEUE_USES.values(), *_TOPIC_USES.values())))
_TABLES = ("history", "queue")
_CONFLICTS = ("raise", "skip")
_POSITIONS: Mapping[str, Position] = {"beginning": "beginning", "end": "end"}
_TRUTH = ("true", "false")


@dataclass(frozen=True, slots=True)
class Options:
    """url                    URL of the database, if it has no password.
    urlEnv                 or an environment variable with the URL, on the driver and every executor,
    urlFile                or a file with the URL there, such as a mounted secret.
    queue                  name of the queue,
    topic                  or name of the topic.
    schema                 database schema of the queues.

    Reading
    table                  `history` (finished messages), or `queue` (live messages).
    partitions             maximum number of partitions (4), of at least 20000 ids each.
    columns                columns to read, separated by commas; the default is `*`, all.
    payloadSchema          fields of the payloads, which follow as columns: DDL, or the JSON of a StructType. The column
                           `error`, as by columns=*,error, says why a payload does not fit.
    minId, maxId           first and last id to read.
    since, until           finished at or after, and before, these times (history only); ISO 8601 with a zone.

    Streaming
    stream                 name of the stream, which has its own batches and its own position.
    maxMessagesPerTrigger  maximum number of messages in a batch (10000; of a topic 1000000).

    Reading or streaming a topic
    startingPosition       `beginning` (the default), `end`, an offset, or a time in ISO 8601 with a zone.
    endingPosition         the same for the end, which is not included. The default of a read is `end`; a stream has no
                           end unless it is given, and notes it in a new checkpoint.
    minPartitions          minimum number of partitions (4), but not of less than 20000 messages each.
    failOnDataLoss         whether to fail if messages to be read were dropped (true), or to leave them out.
    subscription           a subscription in which the position of a stream is noted. The default of startingPosition is
                           then the position of the subscription.

    Writing
    onConflict             `raise`, or `skip` messages whose key is taken.
    producer               producer of the messages in the history.
    writer, batch          a name and a number: a batch adds nothing unless its number is above the writer's last one.
    """

    url: str | None
    url_env: str | None
    url_file: str | None
    queue: str
    topic: str | None
    schema: str | None
    table: Literal["history", "queue"]
    partitions: int
    columns: tuple[str, ...] | None
    min_id: int
    max_id: int
    since: datetime | None
    until: datetime | None
    stream: str
    max_messages: int
    on_conflict: Literal["raise", "skip"]
    producer: str | None
    writer: str | None
    batch: int
    starting: Position | None
    ending: Position | None
    min_partitions: int
    fails_on_loss: bool
    subscription: str | None
    payload_schema: str | None

    @classmethod
    def of_database(cls, given: Mapping[str, str]) -> Options:
        """Parse options that name only a database, such as the options of a pipeline. `BadInput` as for `parse`."""
        return cls.parse({**given, "queue": "q"})  # any name: no queue is opened

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Use | None = None) -> Options:
        """Parse Spark's options, whose names are in lower case. Raises `BadInput` for a wrong option.

        Without a use, as for the schema, all options are allowed.
        """
        known = {name.lower(): name for name in NAMES}
        of_topic = "topic" in map(str.lower, given)
        uses = _TOPIC_USES if of_topic else _QUEUE_USES
        allowed = frozenset(NAMES if use is None else (*_ALWAYS, *uses[use]))
        values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in _SPARK_OPTIONS:
                continue
            right = known.get(name.lower())
            if right not in allowed:
                told = f" to {use} a {'topic' if of_topic else 'queue'}" if right and use else ""
                names = ", ".join(one for one in NAMES if one in allowed)
                raise BadInput(f"tablequeue has no option {right or name!r}{told}.", f"Options are: {names}.")
            if has_password(value):
                raise BadInput(
                    f"The option {right} holds a URL with a password, and Spark shows options on its pages.",
                    "Put the URL into a file, and name that as urlFile; change the password if others see these pages.",
                )
            values[right] = value
        if sum(name in values for name in ("url", "urlEnv", "urlFile")) != 1:
            raise BadInput(
                "Exactly one of url, urlEnv and urlFile must be given.",
                "Use urlFile if there is a password.",
            )
        if ("queue" in values) == of_topic:
            raise BadInput("Exactly one of queue and topic must be given.", "Name a queue, or a topic.")
        if use == "stream" and not of_topic and not values.get("stream"):
            raise BadInput("The option stream is missing.", "Give the stream a name, which identifies its position.")
        if ("writer" in values) != ("batch" in values):
            raise BadInput("Only one of writer and batch is given.", "Give both, or none.")
        columns = values.get("columns")
        return cls(
            values.get("url"),
            values.get("urlEnv"),
            values.get("urlFile"),
            "" if of_topic else check_full_name(values["queue"]),
            check_name(values["topic"], "topic") if of_topic else None,
            values.get("schema"),
            _choice(values, "table", _TABLES),
            _whole(values, "partitions", 4, 1),
            None if columns is None else tuple(name.strip() for name in columns.split(",")),
            _whole(values, "minId", 0, 0),
            _whole(values, "maxId", LARGEST, 0),
            _time(values, "since"),
            _time(values, "until"),
            values.get("stream", ""),
            _whole(values, "maxMessagesPerTrigger", 1_000_000 if of_topic else 10_000, 1),
            _choice(values, "onConflict", _CONFLICTS),
            values.get("producer"),
            values.get("writer"),
            _whole(values, "batch", 0, 0),
            _position(values, "startingPosition") if "startingPosition" in values else None,
            _position(values, "endingPosition") if "endingPosition" in values else None,
            _whole(values, "minPartitions", 4, 1),
            _choice(values, "failOnDataLoss", _TRUTH) == "true",
            values.get("subscription"),
            values.get("payloadSchema"),
        )

    def connect(self) -> tablequeue.Database:
        """Return the database, which is cached for the next task of this process.

        Do not close it: to connect takes as long as to read 5,000 messages. A process of Spark ends, with its
        connections, a minute after its last task.
        """
        return _database(self.address(), self.schema)

    def opened(self) -> Consumer | Topic:
        """Return the queue or the topic."""
        database = self.connect()
        return database.consumer(self.queue) if self.topic is None else database.topic(self.topic)

    def address(self) -> str:
        """The URL, from where it is."""
        if self.url is not None:
            return self.url
        if self.url_env is not None:
            url = os.environ.get(self.url_env)
            if not url:
                raise BadInput(
                    f"The environment variable {self.url_env!r} is not set here.",
                    "Set it on the driver and on every executor.",
                )
            return url
        assert self.url_file is not None
        try:
            return Path(self.url_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"The file {self.url_file!r} of the URL cannot be read here: {type(error).__name__}.",
                "Mount it on the driver and on every executor.",
            ) from None


# Without this cache a task connects to PostgreSQL in 13 ms instead of 5.
@lru_cache(maxsize=8)
def _database(address: str, schema: str | None) -> tablequeue.Database:
    return tablequeue.connect(address, schema=schema)


def _choice(values: Mapping[str, str], name: str, choices: tuple[str, ...]) -> Any:
    value = values.get(name, choices[0])
    if value not in choices:
        raise BadInput(f"The option {name} is {value!r}.", f"Give one of: {', '.join(choices)}.")
    return value


def _whole(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    try:
        value = int(values.get(name, default))
    except ValueError:
        value = least - 1
    if not least <= value <= LARGEST:
        raise BadInput(f"The option {name} is {values[name]!r}.", f"Give a whole number of at least {least}.")
    return value


def _position(values: Mapping[str, str], name: str) -> Position:
    value = values[name]
    if value in _POSITIONS:
        return _POSITIONS[value]
    if value.isdecimal():
        return _whole(values, name, 1, 1)
    try:
        time = _time(values, name)
        assert time is not None, "it is given"
        return time
    except BadInput as error:
        raise BadInput(error.cause, "Give beginning, end, an offset, or a time in ISO 8601 with its zone.") from None


def _time(values: Mapping[str, str], name: str) -> datetime | None:
    if name not in values:
        return None
    try:
        time = datetime.fromisoformat(values[name])
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadInput(
        f"The option {name} is {values[name]!r}.", "Give a time with its zone, such as 2026-11-21T08:00:00+00:00."
    )
