"""The catalogue: make, find, name, upgrade and drop queues, topics and subscriptions."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence

from tablequeue.engines import procedures
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.pool import FILE_REMEDY
from tablequeue.engines.rows import NameRow, QueueRow
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Statements, Table
from tablequeue.errors import BadName, QueueDiffers, QueueNotFound, SchemaTooNew, SchemaTooOld
from tablequeue.model.definition import (
    Definition,
    Kind,
    SubscriptionDefinition,
    TopicDefinition,
    definition_of,
    kind_of,
    table_in,
)
from tablequeue.model.names import check_full_name, check_name, subscription_of, table_of, topic_table_of
from tablequeue.model.options import fixed
from tablequeue.verbs import dead_letters
from tablequeue.verbs.context import Context


def create(runner: Runner, name: str, definition: Definition) -> Table:
    """Make the queue, or the topic; or return it, if it exists with the same definition."""
    return same(made(runner, name, definition), definition)


def made(runner: Runner, name: str, definition: Definition) -> Table:
    """Return the queue or topic of that name, whatever its definition; make it if there is none.

    It looks first: an existing queue needs no right to create, and no lock.
    """
    engine = runner.engine
    check_name(name, definition.kind)

    def create(cursor: object, table: Statements, params: Params) -> Table | QueueRow:
        engine.catalogue.install(cursor, table, params)
        row = engine.catalogue.lookup(cursor, table, params)
        if row is not None:
            return row
        if definition.dead_letter_to is not None:
            dead_letters.check(name, definition, there(engine, cursor, definition.dead_letter_to))
        # A queue of another name may have the table: it had this name before, or its name has the same hash. And a
        # program may still have a dropped queue open.
        taken = {table_in(row.entry) for row in engine.catalogue.names(cursor, table, {})}
        taken.update(engine.catalogue.dropped(cursor, table, {}))
        made = engine.table(name, definition, table_of(name, definition.kind, taken))
        engine.catalogue.create(cursor, made, entry(made))
        return made

    params: Params = {"name": name, "now": None}
    found = lookup(runner, name) or runner.run(create, engine.shared, params, creating=True)
    return _with_target(runner, found if isinstance(found, Table) else entered(engine, name, found))


def same(there: Table, definition: Definition) -> Table:
    """Return the table, if it has this definition; else `QueueDiffers`."""
    kind = definition.kind
    if there.definition.kind != kind:
        raise QueueDiffers(
            f"{there.name!r} is a {there.definition.kind}.",
            f"Open it with {there.definition.kind}(), or choose another name.",
        )
    if differences := there.definition.differences(definition):
        way = "give the new one another name."
        if fixed(there.definition, definition) is None:
            way = "alter it, by alter() or `queue alter`: its messages stay."
        raise QueueDiffers(
            f"The {kind} {there.name!r} exists with another definition ({'; '.join(differences)}).",
            f"Open it with {kind}(); or {way}",
        )
    return there


def entry(table: Table) -> Params:
    """Return the parameters that enter a queue, a topic or a subscription in the catalogue."""
    return {
        "name": table.name,
        "definition": table.entry,
        "schema_version": table.engine.schema_version,
        "now": None,
    }


def kind_at(runner: Runner, name: str) -> Kind:
    """Return the kind of that name in the catalogue: topic, subscription, or else queue, even if there is none."""
    row = lookup(runner, name)
    return "queue" if row is None else kind_of(json.loads(row.entry))


def find(runner: Runner, name: str, *kinds: Kind) -> Table:
    """Return the table of that name, of one of these kinds; `QueueNotFound` suggests the nearest name.

    A subscription is named with its topic, as `events/mail`.
    """
    kind = kinds[0]
    check_full_name(name, kind)
    row = lookup(runner, name)
    if row is None:
        raise _not_found(runner, name, "subscription" if "/" in name else kind)
    table = entered(runner.engine, name, row)
    found = table.definition.kind
    if found not in kinds:
        remedy = f"Open it with {found}(), or name a {kind}."
        if found == "subscription":
            remedy = f"Open it with subscription(); push to its topic {name.partition('/')[0]!r}."
        if found == "topic" and "subscription" in kinds:
            there = [each for each in names(runner, "subscription") if each.startswith(subscription_of(name, ""))]
            example = there[0] if there else subscription_of(name, "mail")
            remedy = f"Name a subscription of it, such as {example!r}; or use topic(), or the command `topic`."
        raise QueueNotFound(f"{name!r} is a {found}, not a {kind}.", remedy)
    return _with_target(runner, table)


def _with_target(runner: Runner, table: Table) -> Table:
    """Return the table, with the table of the queue to which its dead letters move, from the catalogue."""
    name = table.definition.dead_letter_to
    if name is not None:
        row = lookup(runner, name)
        if row is None:
            raise QueueNotFound(
                f"There is no queue {name!r}, to which {table.name!r} sends its dead letters.",
                f"Create it again; or drop the tables and the entry of {table.name!r}.",
            )
        table.dead_letters = entered(runner.engine, name, row)
    return table


_CREATE: dict[Kind, str] = {
    "queue": "create_queue() or `queue create`",
    "topic": "create_topic() or `topic create`",
    "subscription": "Topic.subscribe() or `topic subscribe`",
}


def missing_database(runner: Runner, what: str) -> QueueNotFound | None:
    """Return the error for a name, if there is no database file or no schema in which it could exist; else None."""
    if path := runner.missing():
        return QueueNotFound(f"There is no {what}, for there is no database file {path}.", FILE_REMEDY)
    if not has_schema(runner):
        return QueueNotFound(
            f"There is no {what}, for there is no schema {runner.engine.schema!r} that this user may see.",
            "Correct the schema; or create a queue or a topic, and the schema with it.",
        )
    return None


def _not_found(runner: Runner, name: str, kind: Kind) -> QueueNotFound:
    if error := missing_database(runner, f"{kind} {name!r}"):
        return error
    there = {each.casefold(): each for each in names(runner, kind)}
    near = difflib.get_close_matches(name.casefold(), there, n=1)
    create = f"Create it first with {_CREATE[kind]}."
    return QueueNotFound(f"There is no {kind} {name!r}.", f"Did you mean {there[near[0]]!r}?" if near else create)


def names(runner: Runner, *kinds: Kind) -> list[str]:
    """Return the names of all queues, topics and subscriptions of these kinds, sorted; if none is given, of all."""
    return [row.name for row in rows(runner) if not kinds or kind_of(json.loads(row.entry)) in kinds]


def rows(runner: Runner) -> list[NameRow]:
    """Return the names and entries of all queues, topics and subscriptions, sorted by name."""
    return runner.run(runner.engine.catalogue.names, runner.engine.shared, {}) if _installed(runner) else []


def present(runner: Runner, table: Table) -> Table:
    """Return the current entry of a table that may have been renamed."""
    name = name_in(rows(runner), table.table_name)
    if name is None:
        raise QueueNotFound(f"There is no {table.definition.kind} {table.name!r}.", "It was dropped meanwhile.")
    return find(runner, name, table.definition.kind)


def present_name(engine: Engine, cursor: object, table: Table) -> str | None:
    """Return the name that the catalogue has for a table, which may have been renamed; None if it was dropped."""
    there = engine.catalogue.names(cursor, table, {}) if engine.catalogue.has_catalogue(cursor, table, {}) else []
    return name_in(there, table.table_name)


def name_in(there: Sequence[NameRow], table: str) -> str | None:
    """Return the name that rows of the catalogue have for a table; None if there is none."""
    return next((row.name for row in there if table_in(row.entry) == table), None)


def identity(runner: Runner) -> str:
    """Return the identity of the database, which was made with its catalogue."""
    if not _installed(runner):
        error = missing_database(runner, "identity of the database")
        raise error or QueueNotFound("The database has no queue yet, and so no identity.", "Create a queue first.")
    return runner.run(runner.engine.catalogue.identity, runner.engine.shared, {})


def renew_identity(runner: Runner) -> str:
    """Give the database another identity, and return it."""
    engine = runner.engine

    def renew(cursor: object, table: Statements, params: Params) -> str:
        engine.catalogue.lock(cursor, table, params)
        engine.catalogue.renew_identity(cursor, table, params)
        return engine.catalogue.identity(cursor, table, params)

    identity(runner)  # refuses a database without queues
    return runner.run(renew, engine.shared, {})


def has_schema(runner: Runner) -> bool:
    """Whether the schema of the queues exists, or none was named."""
    engine = runner.engine
    return engine.schema is None or runner.run(engine.catalogue.has_schema, engine.shared, {})


def drop(context: Context) -> None:
    def drop(cursor: object, table: Table, params: Params) -> None:
        context.engine.catalogue.lock(cursor, table, params)
        there = context.engine.catalogue.names(cursor, table, params)
        dead_letters.refuse_drop(name_in(there, table.table_name), there)
        drop_within(context.engine, cursor, _as_entered(table, there))

    context.run(drop, {})


def _as_entered(table: Table, there: Sequence[NameRow]) -> Table:
    """Return the table with the definition in its row of the catalogue: an altered queue may have more to drop."""
    for row in there:
        if table_in(row.entry) == table.table_name:
            return table.redefined(definition_of(row.entry)[0], row.name, table.dead_letters)
    return table


def drop_within(engine: Engine, cursor: object, table: Table) -> None:
    """Drop the tables and procedures of a queue or topic, and its entry in the catalogue, whatever its name is now.

    The caller has the creators' lock.
    """
    procedures.drop(engine, cursor, table)
    # No queue has the name "".
    engine.catalogue.drop(cursor, table, {"name": present_name(engine, cursor, table) or ""})


def rename(runner: Runner, old: str, new: str) -> None:
    """Give a queue, a topic or a subscription another name in the catalogue. Its tables keep their names."""
    engine = runner.engine
    kind = kind_at(runner, old)
    find(runner, old, kind)  # refuses a missing queue, and tables of another version
    check_full_name(new, kind)
    topic = subscription_of(old.partition("/")[0], "") if kind == "subscription" else ""
    if ("/" in new) is not bool(topic) or not new.startswith(topic):
        raise BadName(
            f"{new!r} is no name for the {kind} {old!r}.",
            f"Write the same topic before the slash: {topic}..." if topic else "Leave the slash out.",
        )

    def rename(cursor: object, catalogue: Statements, params: Params) -> None:
        engine.catalogue.lock(cursor, catalogue, params)
        entries = {row.name: json.loads(row.entry) for row in engine.catalogue.names(cursor, catalogue, {})}
        if new in entries:
            raise QueueDiffers(f"There is a {kind_of(entries[new])} {new!r}.", "Choose another name, or drop it first.")
        if old not in entries:
            raise QueueNotFound(f"There is no {kind} {old!r}.", "It was renamed or dropped meanwhile.")
        for name, entry in entries.items():
            renamed = entry
            for reference in ("topic", "dead_letter_to"):
                if entry.get(reference) == old:
                    renamed = renamed | {reference: new}
            if renamed is entry and name != old:
                continue
            is_part = entry.get("topic") == old
            now = new if name == old else subscription_of(new, name.partition("/")[2]) if is_part else name
            definition = json.dumps(renamed, sort_keys=True)
            engine.catalogue.rename(cursor, catalogue, {"name": name, "new_name": now, "definition": definition})

    runner.run(rename, engine.shared, {})


def install_procedures(runner: Runner, name: str) -> list[str]:
    """Make or replace the stored procedures of a queue, topic or subscription; return the names to call."""

    def install(cursor: object, table: Table, params: Params) -> list[str]:
        return procedures.install(runner.engine, cursor, table)

    return runner.run(install, find(runner, name, kind_at(runner, name)), {})


def upgrade(runner: Runner, name: str) -> int:
    """Bring the tables of a queue to the schema version of the engine; return the version that they had.

    It looks first, as `create` does.
    """

    engine = runner.engine

    def known(row: QueueRow | None) -> tuple[Table, int]:
        if row is None:
            raise QueueNotFound(f"There is no queue {name!r}.", "It was dropped meanwhile.")
        return entered(engine, name, row, oldest=1), row.schema_version

    def upgrade(cursor: object, catalogue: Statements, params: Params) -> int:
        # Under the creators' lock: if several upgrade at once, the first does it, and the others find it done.
        engine.catalogue.lock(cursor, catalogue, params)
        there, before = known(engine.catalogue.lookup(cursor, catalogue, params))
        for version in range(before + 1, engine.schema_version + 1):
            engine.catalogue.upgrade(cursor, there, {**params, "schema_version": version})
        return before

    _, before = known(lookup(runner, name))
    if before == engine.schema_version:
        return before
    params: Params = {"name": name, "now": None}
    return runner.run(upgrade, engine.shared, params)


def upgrade_all(runner: Runner) -> dict[str, int]:
    """Upgrade all queues; return the version that each had. An error is raised after the others are upgraded."""
    before: dict[str, int] = {}
    refusals: list[QueueDiffers] = []
    for name in names(runner):
        try:
            before[name] = upgrade(runner, name)
        except QueueDiffers as refusal:
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
    return before


def _installed(runner: Runner) -> bool:
    engine = runner.engine
    return not runner.missing() and runner.run(engine.catalogue.has_catalogue, engine.shared, {})


def lookup(runner: Runner, name: str) -> QueueRow | None:
    """Return the catalogue's row of the queue, or None."""
    engine = runner.engine
    return runner.run(engine.catalogue.lookup, engine.shared, {"name": name}) if _installed(runner) else None


def there(engine: Engine, cursor: object, name: str) -> Table | None:
    """Return the table of the queue in a transaction; None if the catalogue has no queue of that name."""
    row = engine.catalogue.lookup(cursor, engine.shared, {"name": name})
    return None if row is None else entered(engine, name, row)


def entered(engine: Engine, name: str, row: QueueRow, oldest: int | None = None) -> Table:
    """Return the queue of a row of the catalogue."""
    version, present = row.schema_version, engine.schema_version
    if version > present:
        raise SchemaTooNew(
            f"The queue {name!r} has schema version {version}; this tablequeue knows versions up to {present}.",
            "Install a newer tablequeue: pip install --upgrade tablequeue.",
        )
    if version < (oldest or present):
        raise SchemaTooOld(
            f"The queue {name!r} has schema version {version}; this tablequeue works with version {present}.",
            "Run `tablequeue upgrade`, or Database.upgrade().",
        )
    definition, table_name = definition_of(row.entry)
    topic = None
    if isinstance(definition, SubscriptionDefinition):
        of = TopicDefinition(payload=definition.payload)
        topic = engine.table(definition.topic, of, topic_table_of(table_name))
    return engine.table(name, definition, table_name, topic)
