"""Change the definition of an existing queue, for all processes that use it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tablequeue.engines import procedures
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.errors import BadDefinition, BadInput, QueueNotFound
from tablequeue.model.definition import Definition
from tablequeue.model.options import ALTERABLE, LASTING, fixed
from tablequeue.verbs import catalogue, dead_letters
from tablequeue.verbs.dependency_ends import awaited


def alter(runner: Runner, table: Table, options: Mapping[str, Any]) -> Table:
    """Change the given options of a queue or a subscription; return its table with the new definition.

    The other options stay as they are, also if another process altered them meanwhile. Existing stored procedures are
    made again, and keep their rights if the database can replace a procedure.
    """
    engine = runner.engine

    def change(cursor: object, table: Table, params: Params) -> Table:
        # Under the creators' lock: if several processes alter at once, each sees the change of the one before.
        engine.catalogue.lock(cursor, table, params)
        name = catalogue.present_name(engine, cursor, table)
        row = None if name is None else engine.catalogue.lookup(cursor, table, {"name": name})
        if row is None or name is None:
            raise QueueNotFound(f"There is no queue {table.name!r}.", "It was dropped meanwhile.")
        before = catalogue.entered(engine, name, row).definition
        definition = altered(before, options)
        target = _target(engine, cursor, name, definition, before)
        if target is not None and before.dead_letter_to is None and awaited(cursor, table, {}):
            raise BadInput(
                f"Messages wait for messages of {name!r}; if these die, they would count as finished.",
                "Alter the queue when none waits.",
            )
        there = table.redefined(definition, name, target)
        if definition != before:
            with_procedures = procedures.are_there(engine, cursor, there)
            if with_procedures:
                procedures.check(there)  # before anything has changed
            engine.catalogue.redefine(cursor, there, {**params, **catalogue.entry(there), "before": before})
            if definition.concurrency is not None:
                engine.messages.close_slots(cursor, there, params)
            if with_procedures:
                procedures.install(engine, cursor, there)
        return there

    altered(table.definition, options)  # an impossible option is refused before anything is locked
    return runner.run(change, table, {})


def _target(engine: Engine, cursor: object, name: str, definition: Definition, before: Definition) -> Table | None:
    """Return the table of the queue to which dead letters are to move; refuse one that cannot take them."""
    target = definition.dead_letter_to
    if target is None:
        return None
    there = catalogue.there(engine, cursor, target)
    if target != before.dead_letter_to:
        dead_letters.check_altered(name, definition, there, engine.catalogue.names(cursor, engine.shared, {}))
    return there


def altered(definition: Definition, options: Mapping[str, Any]) -> Definition:
    """Return the definition with other options; `BadDefinition` if a queue with messages cannot have them."""
    fields = [field.name for field in dataclasses.fields(definition)]
    if unknown := options.keys() - set(fields):
        raise BadInput(
            f"alter got an unexpected option {min(unknown)!r}.",
            f"Options are: {', '.join(ALTERABLE[definition.kind])}.",
        )
    if "labels" in options:
        labels = {**definition.labels, **options["labels"]}
        options = {**options, "labels": {name: text for name, text in labels.items() if text is not None}}
    wanted = dataclasses.replace(definition, **options)
    if (name := fixed(definition, wanted)) is not None:
        raise _fixed(definition, wanted, name)
    return wanted


def _fixed(there: Definition, wanted: Definition, name: str) -> BadDefinition:
    if there.kind == "subscription":
        return BadDefinition(f"{name} of a subscription cannot be altered.", "Subscribe anew under another name.")
    why = "another process may use it now" if name in LASTING else "it is in the tables"
    return BadDefinition(
        f"{name} cannot be altered from {getattr(there, name)!r} to {getattr(wanted, name)!r}: {why}.",
        "Create another queue with it, move the messages there with `move`, drop this queue, and rename the other one.",
    )
