"""The operations that create, upgrade and drop the tables of the catalogue and of queues.

An operation checks whether a table exists before it creates one, and one creator works at a time. `create ... if not
exists` would need the right to create even if the table exists, and on PostgreSQL it fails when two run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, none, one, only, operation, strings
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import NameRow, QueueRow
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import operations_of, texts_for
from tablequeue.model.definition import Definition
from tablequeue.model.names import CATALOGUE

# The texts that create a queue, in the order in which they run. `create` has others that are only printed: the
# notifications of SQL Server are for consumers in T-SQL (docs/engines/sql-server.md). The engine itself polls, because
# they have not been tested on a server yet.
CREATE = {
    "create_topic": "topic",
    "create_parts": "topic",
    "create_topic_functions": "topic",
    "create_topic_groups": "topic groups",
    "create": "states",
    "create_live_keys": "states",
    "create_due": "due",
    "create_priority": "priority",
    "create_fair": "fair",
    "create_groups": "grouped",
    "create_group_functions": "grouped",
    "create_group_triggers": "grouped",
    "create_heads": "grouped",
    "create_history": "keep",
    "create_results": "results",
    "create_keys": "unique_for",
    "create_expiry": "expires",
    "create_expired": "expires keep",
    "create_ranges": "subscription",
    "create_range_functions": "subscription",
    "create_slots": "concurrency",
    "create_rate": "rate",
    "create_stripes": "group_limited",
    "create_group_rates": "group_rate",
    "create_batches": "batches",
    "create_batch_results": "batches results",
    "create_dependencies": "dependencies",
}

# The texts that upgrade a queue to each schema version from the one before, with their conditions. There is only
# version 1 so far.
UPGRADES: dict[int, Mapping[str, str]] = {}

# The texts that drop a queue.
DROP = {
    "drop_progress": "states",  # first, as a report locks it before the queue
    "drop_topic": "topic",
    "drop_ranges": "subscription",
    "drop": "states",
    "drop_live_keys": "states",
    "drop_fair": "fair",
    "drop_groups": "grouped",
    # What is switched off keeps its tables: see `Catalogue.redefine`.
    "drop_results": "queue",
    "drop_history": "keep",
    "drop_slots": "queue",
    "drop_rate": "queue",
    "drop_stripes": "group_limited",
    "drop_group_rates": "group_rate",
    "drop_keys": "queue",
    "drop_batches": "batches",
    "drop_dependencies": "dependencies",
    "drop_streams": "",
    "resume": "",
    "note_dropped": "",
    "unregister": "",
}


def created_by(engine: str, definition: Definition) -> list[str]:
    """Return the texts that create the tables of a queue of that definition, in the order in which they run."""
    return texts_for(engine, CREATE, conditions(definition))


def _under_lock(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts between those of the creators' lock.

    `unlock` is only printed: a connection of ours frees its locks when it commits.
    """
    return {"lock": "", **texts, "unlock": ""}


def _made(*tables: str) -> Callable[[Any, Cursor, Table, Params], None]:
    """Return the operation that creates tables at their first use, if one of them does not exist.

    tables   the `{words}` that name the tables. The text is named after the first one.
    """
    text = f"create_{tables[0]}"

    def make(self: Catalogue, cursor: Cursor, table: Table, params: Params) -> None:
        names = table.engine.words(table)
        if not all(self.has_table(cursor, table, {"table": names[word]}) for word in tables):
            self.lock(cursor, table, params)
            self._run(cursor, table, text, params)

    make.__name__ = text
    return operation(Effect.DDL, _under_lock({text: ""}))(make)


class Catalogue(Part):
    # -- what exists -------------------------------------------------------------------------------------------------

    has_table = by_text(Effect.READ, only(bool), of=Statements)
    """Return whether the table `params["table"]`, a name with its schema, exists and the user may see it."""
    has_schema = by_text(Effect.READ, only(bool), of=Statements)
    """Return whether the schema of the queues exists."""

    @operation(Effect.READ, others="has_table")
    def has_catalogue(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        """Return whether the catalogue's table exists."""
        return self.has_table(cursor, table, {"table": f"{table.engine.prefix}{CATALOGUE}"})

    names = by_text(Effect.READ, lambda cursor: sorted(map(NameRow._make, cursor.fetchall())), of=Statements)
    """Return the names and entries of all queues, topics and subscriptions, sorted by name."""
    dropped = by_text(Effect.READ, strings, of=Statements)
    """Return the names of the tables of all that was dropped, which nothing new may have."""
    identity = by_text(Effect.READ, only(str), of=Statements)
    """Return the identity of the database."""
    renew_identity = by_text(Effect.DDL, none, texts=_under_lock({"renew_identity": ""}), of=Statements)
    """Give the database another identity."""
    lookup = by_text(Effect.READ, one(QueueRow), of=Statements)
    """Return a queue's row in the catalogue, or None."""

    # -- making ------------------------------------------------------------------------------------------------------

    lock = by_text(Effect.DDL, none, others="unlock", of=Statements)
    """Take the creators' lock until the transaction ends: one creator works at a time."""

    @operation(Effect.DDL, others="install_schema")
    def install(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Create the schema and the catalogue, if they do not exist, under the creators' lock."""
        self.lock(cursor, table, params)
        if table.engine.schema and not self.has_schema(cursor, table, params):
            self._run(cursor, table, "install_schema", params)
        if not self.has_catalogue(cursor, table, {}):
            self._run(cursor, table, "install", params)

    @operation(
        Effect.DDL,
        _under_lock({"install_schema": "schema", "install": "", "unused": "", **CREATE, "register": ""}),
        others="leftovers leftovers_of_dropped create_notifications",
    )
    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Create the tables of a queue and enter it in the catalogue."""
        for text in created_by(table.engine.name, table.definition):
            self._run(cursor, table, text, params)
        self._run(cursor, table, "register", params)

    create_schedules = _made("schedules")
    create_streams = _made("streams")
    create_staged = _made("staged", "writers")
    """Create the tables that bulk writes use."""
    create_moving = _made("moving", "moved")
    """Create the tables that moves between databases use."""
    create_progress = _made("progress")
    create_task_results = _made("task_results", "chords", "chord_parts")
    """Create the tables of the results of tasks and of chords."""
    rename = by_text(Effect.DDL, none, texts=_under_lock({"rename": ""}), of=Statements)
    """Give the queue `name` the name `new_name` and the entry `definition` in the catalogue."""

    # -- upgrading and dropping --------------------------------------------------------------------------------------

    @operation(
        Effect.DDL,
        _under_lock({"resize_slots": "concurrency", "change_rate": "rate", "redefine": ""}),
        others="limit_waits",
    )
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

    @operation(Effect.DDL, _under_lock({"upgrade": "", "set_version": ""}))
    def upgrade(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Upgrade the tables of a queue from one schema version to the next, `params["schema_version"]`."""
        texts = texts_for(table.engine.name, UPGRADES[params["schema_version"]], conditions(table.definition))
        self._alter_all(cursor, table, texts, params)
        self._run(cursor, table, "set_version", params)

    @operation(Effect.DDL, DROP, others="drop_notifications")
    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Drop the tables of a queue and remove it from the catalogue."""
        for text in texts_for(table.engine.name, DROP, conditions(table.definition)):
            self._run(cursor, table, text, params)

    # -- private -----------------------------------------------------------------------------------------------------

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
