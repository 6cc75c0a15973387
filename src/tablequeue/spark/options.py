"""The options of the data source, checked. Pure but for reading the environment variable that holds the URL."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

import tablequeue
from tablequeue.definition import check_name
from tablequeue.errors import BadInput

NAMES = ("url", "urlEnv", "queue", "schema", "partitions", "minId", "maxId")


@dataclass(frozen=True, slots=True)
class Options:
    """url         the database, if its URL holds no password.
    urlEnv      else the name of an environment variable with the URL, on the driver and on every executor.
    queue       the queue's name.
    schema      the database schema of the queues, where there is one.
    partitions  into how many ranges of ids the history is read (4).
    minId       the first id to read; `maxId` the last.
    """

    url: str | None
    url_env: str | None
    queue: str
    schema: str | None
    partitions: int
    min_id: int
    max_id: int

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """From Spark's options, whose names it has put in lower case. `BadInput` for any that cannot be."""
        known = {name.lower(): name for name in NAMES}
        values: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() not in known:
                raise BadInput(f"tablequeue has no option {name!r}.", f"Options are: {', '.join(NAMES)}.")
            values[known[name.lower()]] = value
        if ("url" in values) == ("urlEnv" in values):
            raise BadInput("Exactly one of url and urlEnv must be given.", "Prefer urlEnv if there is a password.")
        if "queue" not in values:
            raise BadInput("The option queue is missing.", "Name the queue.")
        url = values.get("url")
        if url is not None and _password(url):
            raise BadInput(
                "The option url holds a password, which Spark would show in its plans.",
                "Put the URL into an environment variable and give its name as urlEnv.",
            )
        return cls(
            url,
            values.get("urlEnv"),
            check_name(values["queue"]),
            values.get("schema"),
            _whole(values, "partitions", 4, 1),
            _whole(values, "minId", 0, 0),
            _whole(values, "maxId", (1 << 63) - 1, 0),
        )

    def connect(self) -> tablequeue.Database:
        url = self.url
        if self.url_env is not None:
            url = os.environ.get(self.url_env)
            if url is None:
                raise BadInput(
                    f"The environment variable {self.url_env!r} is not set here.",
                    "Set it on the driver and on every executor.",
                )
        assert url is not None
        return tablequeue.connect(url, schema=self.schema)


def _password(url: str) -> bool:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        return False  # connect will refuse it, without repeating it
    return parsed.password is not None or "password" in parsed.query


def _whole(values: Mapping[str, str], name: str, default: int, least: int) -> int:
    try:
        value = int(values.get(name, default))
    except ValueError:
        value = least - 1
    if not least <= value < 1 << 63:
        raise BadInput(f"The option {name} is {values[name]!r}.", f"Give a whole number of at least {least}.")
    return value
