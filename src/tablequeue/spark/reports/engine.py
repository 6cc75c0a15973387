"""What runs the SQL of the reports: DuckDB in this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tablequeue.consumer import Consumer

Row = dict[str, Any]
ByHour = Callable[[pa.Table], pa.Table]


class Engine(Protocol):
    """Tables by their names, and Parquet files. Texts are those that `messages` describes; times are in UTC."""

    def load(self, name: str, table: pa.Table) -> None:
        """Make a table of these rows."""

    def history(self, name: str, queue: Consumer, since: datetime | None) -> None:
        """Make a table of the messages of a queue that have ended, at `since` or later."""

    def archived(self, name: str, queue: Consumer, files: Sequence[str]) -> None:
        """Make a table of the messages in the files of archives of a queue."""

    def open(self, name: str, folders: Sequence[Path], within: str = "true") -> None:
        """Make a table of the messages in the Parquet files of these folders of queues, which may be missing.

        `within` is a condition, which may also be on the `day`.
        """

    def define(self, name: str, text: str) -> None:
        """Make a table of what a text selects."""

    def keep(self, name: str, text: str) -> None:
        """Make a table of what a text selects now: it is read more than once."""

    def rows(self, text: str) -> list[Row]:
        """Return what a text selects."""

    def by_hour(self, name: str, text: str, row: ByHour) -> None:
        """Make a table of the rows of `row`, one for each queue and hour of what a text selects."""

    def add(self, folder: Path, text: str) -> int:
        """Add files with what a text selects, in a folder for each `day`. Return how many rows."""

    def replace(self, folder: Path, text: str) -> None:
        """Write a file with what a text selects, instead of those that are in the folder."""
