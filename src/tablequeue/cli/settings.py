"""The options that are written before the command, and the database that they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from tablequeue.database import Database, connect
from tablequeue.queue import Queue


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
