"""Making, dropping, emptying queues, and putting dead letters back."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tablequeue.definition import Definition, check_name
from tablequeue.engines.base import Engine, Params, Table
from tablequeue.engines.runner import Runner
from tablequeue.errors import QueueDiffers, QueueNotFound, SchemaTooNew
from tablequeue.operations.desk import Desk, whole_ids

SCHEMA_VERSION = 1

# Rows deleted or changed in one transaction: bounded, so that consumers get their turn in between.
BATCH = 1000


def create(runner: Runner, engine: Engine, name: str, definition: Definition) -> Table:
    """Make the queue, or find that it is there with the same definition."""
    table = engine.table(check_name(name), definition)
    params: Params = {
        "name": name,
        "definition": definition.to_json(),
        "schema_version": SCHEMA_VERSION,
        "now": None,
    }

    def create(cursor: object, table: Table, params: Params) -> tuple[str, int] | None:
        engine.install(cursor, table, params)
        row = engine.lookup(cursor, table, params)
        if row is None:
            engine.create(cursor, table, params)
            return None
        return row[0], row[1]

    row = runner.run(create, table, params)
    if row is not None:
        there = _definition(name, *row)
        if there != definition:
            raise QueueDiffers(
                f"The queue {name!r} is there with another definition ({'; '.join(there.differences(definition))}).",
                "Open it with queue(), or drop it first.",
            )
    return table


def find(runner: Runner, engine: Engine, name: str) -> Table:
    """The queue of that name, as the catalogue defines it."""
    table = engine.table(check_name(name), Definition())
    row = runner.run(engine.lookup, table, {"name": name}) if _installed(runner, engine) else None
    if row is None:
        near = difflib.get_close_matches(name, names(runner, engine), n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Create it first with create_queue() or `queue create`."
        raise QueueNotFound(f"There is no queue {name!r}.", remedy)
    return engine.table(name, _definition(name, row[0], row[1]))


def names(runner: Runner, engine: Engine) -> list[str]:
    """The names of all queues, sorted."""
    if not _installed(runner, engine):
        return []
    return runner.run(engine.names, engine.table("none", Definition()), {})


def drop(desk: Desk) -> None:
    desk.runner.run(desk.engine.drop, desk.table, {"name": desk.table.name})


def purge(desk: Desk, states: Sequence[str]) -> int:
    """Delete every message in `states`, in bounded batches; how many."""
    total = 0
    for state in states:
        deleted = BATCH
        while deleted:
            deleted = desk.runner.run(desk.engine.purge, desk.table, {"state": state, "n": BATCH})
            total += deleted
    return total


def purge_dead(desk: Desk, ids: Sequence[int] | None) -> int:
    """Delete the dead letters of these ids, or all; how many."""
    if ids is None:
        return purge(desk, ["dead"])
    params: Params = {"state": "dead", "ids": desk.engine.dump_ids(whole_ids(ids))}
    return desk.runner.run(desk.engine.purge_ids, desk.table, params)


def redrive(desk: Desk, ids: Sequence[int] | None) -> int:
    """The dead letters of these ids, or all that are there now, become ready; how many."""
    if ids is not None:
        params: Params = {"ids": desk.engine.dump_ids(whole_ids(ids))}
        return len(desk.runner.run(desk.engine.redrive_ids, desk.table, params))
    total, after = 0, 0
    while batch := desk.runner.run(desk.engine.redrive, desk.table, {"after": after, "n": BATCH}):
        # Onwards only: a letter that dies again meanwhile is not redriven for ever.
        total, after = total + len(batch), batch[-1]
    return total


def _installed(runner: Runner, engine: Engine) -> bool:
    return runner.run(engine.has_catalogue, engine.table("none", Definition()), {})


def _definition(name: str, text: str, version: int) -> Definition:
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"The queue {name!r} has schema version {version}; this tablequeue knows versions up to {SCHEMA_VERSION}.",
            "Install a newer tablequeue: pip install --upgrade tablequeue.",
        )
    return Definition.from_json(text)
