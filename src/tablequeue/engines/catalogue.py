"""The operations that create, upgrade and drop the tables of the catalogue and of queues.

An operation checks whether a table exists before it creates one, and one creator works at a time. `create ... if not
exists` would need the right to create even if the table exists, and on PostgreSQL it fails when two run at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor
from tablequeue.engines.operations import CREATE, OPERATIONS, UPGRADES, created_by, texts_for
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import NameRow, QueueRow
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import Definition
from tablequeue.model.names import CATALOGUE


class Catalogue(Part):
    # -- what exists -------------------------------------------------------------------------------------------------

    def has_table(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        """Return whether the table `params["table"]`, a name with its schema, exists and the user may see it."""
        return bool(self._row(cursor, table, "has_table", params)[0])

    def has_schema(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        """Return whether the schema of the queues exists."""
        return bool(self._rows(cursor, table, "has_schema", params)[0][0])

    def has_catalogue(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        """Return whether the catalogue's table exists."""
        return self.has_table(cursor, table, {"table": f"{table.engine.prefix}{CATALOGUE}"})

    def names(self, cursor: Cursor, table: Statements, params: Params) -> list[NameRow]:
        """Return the names and entries of all queues, topics and subscriptions, sorted by name."""
        return sorted(map(NameRow._make, self._rows(cursor, table, "names", params)))

    def dropped(self, cursor: Cursor, table: Statements, params: Params) -> list[str]:
        """Return the names of the tables of all that was dropped, which nothing new may have."""
        return [name for (name,) in self._rows(cursor, table, "dropped", params)]

    def identity(self, cursor: Cursor, table: Statements, params: Params) -> str:
        """Return the identity of the database."""
        return str(self._rows(cursor, table, "identity", params)[0][0])

    def renew_identity(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Give the database another identity."""
        self._run(cursor, table, "renew_identity", params)

    def lookup(self, cursor: Cursor, table: Statements, params: Params) -> QueueRow | None:
        """Return a queue's row in the catalogue, or None."""
        row = self._row(cursor, table, "lookup", params)
        return row and QueueRow(*row)

    # -- making ------------------------------------------------------------------------------------------------------

    def lock(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Take the creators' lock until the transaction ends: one creator works at a time."""
        self._run(cursor, table, "lock", params)

    def install(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Create the schema and the catalogue, if they do not exist, under the creators' lock."""
        self.lock(cursor, table, params)
        if table.engine.schema and not self.has_schema(cursor, table, params):
            self._run(cursor, table, "install_schema", params)
        if not self.has_catalogue(cursor, table, {}):
            self._run(cursor, table, "install", params)

    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the tables of a queue and enter it in the catalogue."""
        for text in created_by(table.engine.name, table.definition):
            self._run(cursor, table, text, params)
        self._run(cursor, table, "register", params)

    def create_schedules(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the table of the schedules, if it does not exist."""
        self._make(cursor, table, "create_schedules", params, "schedules")

    def create_streams(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the table of the streams, if it does not exist."""
        self._make(cursor, table, "create_streams", params, "streams")

    def create_staged(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the tables that bulk writes use, if they do not exist."""
        self._make(cursor, table, "create_staged", params, "staged", "writers")

    def create_moving(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the tables that moves between databases use, if they do not exist."""
        self._make(cursor, table, "create_moving", params, "moving", "moved")

    def create_progress(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the table of reported progress, if it does not exist."""
        self._make(cursor, table, "create_progress", params, "progress")

    def create_task_results(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the tables of the results of tasks and of chords, if they do not exist."""
        self._make(cursor, table, "create_task_results", params, "task_results", "chords", "chord_parts")

    def rename(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Give the queue `name` the name `new_name` and the entry `definition` in the catalogue."""
        self._run(cursor, table, "rename", params)

    # -- upgrading and dropping --------------------------------------------------------------------------------------

    def redefine(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Enter the definition of `table` in place of `before`; create and change what only it needs.

        What is not needed any more stays: for a moment, other processes go on with statements about it.
        """
        before: Definition = params["before"]
        engine, now = table.engine, table.definition
        resized = now.concurrency is not None and now.concurrency != before.concurrency
        changed = [("create_slots", "slots", "resize_slots")] if resized else []
        if now.rate is not None and now.rate != before.rate:
            changed.append(("create_rate", "rate", "change_rate"))
        changed += [(f"create_{word}", word, "") for word in ("results", "keys")]
        there = texts_for(engine.name, CREATE, conditions(before))
        for create, word, change in changed:
            if self.has_table(cursor, table, {"table": engine.words(table)[word]}):
                there.append(create)
                if change:
                    self._run(cursor, table, change, params)
        self._alter_all(cursor, table, [text for text in created_by(engine.name, now) if text not in there], params)
        self._run(cursor, table, "redefine", params)

    def upgrade(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Upgrade the tables of a queue from one schema version to the next, `params["schema_version"]`."""
        texts = texts_for(table.engine.name, UPGRADES[params["schema_version"]], conditions(table.definition))
        self._alter_all(cursor, table, texts, params)
        self._run(cursor, table, "set_version", params)

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Drop the tables of a queue and remove it from the catalogue."""
        for text in texts_for(table.engine.name, OPERATIONS["drop"].texts, conditions(table.definition)):
            self._run(cursor, table, text, params)

    # -- private -----------------------------------------------------------------------------------------------------

    def _make(self, cursor: Cursor, table: Table, text: str, params: Params, *words: str) -> None:
        """Run a text that creates tables, unless all of them exist. `words` are the `{words}` that name the tables."""
        names = table.engine.words(table)
        if not all(self.has_table(cursor, table, {"table": names[word]}) for word in words):
            self.lock(cursor, table, params)
            self._run(cursor, table, text, params)

    def _alter_all(self, cursor: Cursor, table: Table, texts: Iterable[str], params: Params) -> None:
        """Run texts that change existing tables, each of which waits only shortly for transactions of others."""
        with self._limited_waits(cursor, table):
            for text in texts:
                self._alter(cursor, table, text, params)

    @contextmanager
    def _limited_waits(self, cursor: Cursor, table: Table) -> Iterator[None]:
        """Give up soon if another transaction has a table: on servers, all who need it later wait behind this wait."""
        if "limit_waits" not in operations_of(table.engine.name):
            yield
            return
        self._run(cursor, table, "limit_waits.begin", {})
        try:
            yield
        finally:
            with suppress(Exception):  # after an error, PostgreSQL takes no statement, and sets it back by itself
                self._run(cursor, table, "limit_waits.end", {})

    def _alter(self, cursor: Cursor, table: Table, text: str, params: Params) -> None:
        """Run one text that changes existing tables. Where each DDL commits, skip what was done before a crash."""
        self._run(cursor, table, text, params)
