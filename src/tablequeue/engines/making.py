"""Making what is not there yet: after a look, and one creator at a time.

`create ... if not exists` needs the right to create although everything is there, and on PostgreSQL it fails when two
run at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablequeue.engines.looking import Looking

if TYPE_CHECKING:
    from tablequeue.engines.base import Catalogue, Cursor, Params, Table


class Making(Looking):
    """The part of an engine that makes what all queues share, and what some have besides."""

    schema: str | None

    def lock(self, cursor: Cursor, table: Catalogue, params: Params) -> None:
        """Let one creator at a time go on from here, until its transaction ends."""
        self._run(cursor, table, "lock", params)

    def install(self, cursor: Cursor, table: Catalogue, params: Params) -> None:
        """Make the schema and the catalogue, if they are not there; under the creators' lock."""
        self.lock(cursor, table, params)
        if self.schema and not self.has_schema(cursor, table, params):
            self._run(cursor, table, "install_schema", params)
        if not self.has_catalogue(cursor, table, {}):
            self._run(cursor, table, "install", params)

    def _make(self, cursor: Cursor, table: Table, operation: str, params: Params, *words: str) -> None:
        """Run a file that makes tables, named by their words of the texts, unless all of them are there."""
        names = table.engine.words(table)
        if not all(self.has_table(cursor, table, {"table": names[word]}) for word in words):
            self.lock(cursor, table, params)
            self._run(cursor, table, operation, params)
