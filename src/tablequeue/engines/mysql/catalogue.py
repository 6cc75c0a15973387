"""Creating and dropping queues on MariaDB and MySQL, where each DDL statement commits."""

from __future__ import annotations

import pymysql
from pymysql.constants import ER

from tablequeue import errors
from tablequeue.engines.catalogue import DROP, Catalogue
from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.params import Params
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import texts_for
from tablequeue.model.names import HISTORY, PART

# The errors of a statement that a crash has left done: of a key, a column or a trigger (1359).
MADE_BEFORE = (ER.KEY_DOES_NOT_EXITS, ER.DUP_FIELDNAME, ER.DUP_KEYNAME, 1359)


class MySQLCatalogue(Catalogue):
    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._clear_dropped(cursor, table)
        self._clear(cursor, table, params)
        super().create(cursor, table, params)

    def _alter(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        for statement in table.statements(operation):
            try:
                cursor.execute(statement, params)
            except pymysql.Error as error:
                if number_of(error) == ER.LOCK_WAIT_TIMEOUT:
                    # One of ours: others wait behind it, so it is not tried again at once.
                    words = ("Another transaction has a table of the queue.", "Try again when it has ended.")
                    raise errors.Locked(*words) from error
                if number_of(error) not in MADE_BEFORE:
                    raise

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        # Remove the catalogue entry first: each DDL commits, and a crash must not leave an entry without a table.
        self.lock(cursor, table, params)
        first = ("note_dropped", "unregister")
        if self.has_catalogue(cursor, table, {}):
            for text in first:
                self._run(cursor, table, text, params)
        for text in texts_for(table.engine.name, DROP, conditions(table.definition)):
            if text not in first:
                self._run(cursor, table, text, params)

    def lock(self, cursor: Cursor, table: Statements, params: Params) -> None:
        if self._rows(cursor, table, "lock", params)[0][0] != 1:
            raise errors.Locked("Another program is creating or dropping queues in this database.", "Try again later.")
        cursor.named_lock = True

    def _clear_dropped(self, cursor: Cursor, table: Table) -> None:
        """Drop the tables that a crash during a drop left. Nothing new gets their names."""
        for (name,) in self._rows(cursor, table, "leftovers_of_dropped", {}):
            self._run(cursor, table.engine.table(table.name, table.definition, name), "drop", {})

    def _clear(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Drop the tables that a crash during create or drop left. Refuse a table of another owner."""
        definition = table.definition
        stem = table.table_name
        if definition.kind == "topic":
            ours = {stem: ("log", "drop_topic")}
            ours |= {f"{stem}{PART}{part}": (part, "drop_topic") for part in ("runs", "holes")}
        else:
            ours = {stem: ("messages", "drop")}
            if definition.keeps_history:
                ours[f"{stem}{HISTORY}"] = ("history", "drop_history")
            if definition.grouped:
                ours |= {f"{stem}{PART}{part}": (part, "drop_groups") for part in ("turns", "heads")}
            parts = ("slots", "rate", "stripes", "group_rates", "results", "keys", "live_keys", "progress")
            ours |= {f"{stem}{PART}{part}": (part, f"drop_{part}") for part in parts}
            if definition.kind == "queue":
                ours |= {f"{stem}{PART}{part}": (part, "drop_streams") for part in ("moving", "moved")}
            if definition.kind == "subscription":
                ours[f"{stem}{PART}ranges"] = ("ranges", "drop_ranges")
        found = [row for row in self._rows(cursor, table, "leftovers", params) if row[0] in ours]
        for name, comment in found:
            if comment != f"tablequeue: {ours[name][0]} of {stem}":
                raise errors.QueueDiffers(
                    f"The database has a table {name} that is not this queue.",
                    "Choose another queue name, or rename what is there.",
                )
        # First what refers to another one of them.
        for name, _ in sorted(found, key=lambda row: ours[row[0]][0] != "results"):
            self._run(cursor, table, ours[name][1], params)
