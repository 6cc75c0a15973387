"""The proposals of autogenerate: to create, alter or upgrade the queues that `env.py` declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations.ops import UpgradeOps
from alembic.util import to_list

from tablequeue.alembic.declared import Declared, declared_with, options_of, refusing
from tablequeue.alembic.operations import CREATES, AlterQueue, KeepQueues, QueueOperation, UpgradeQueues, opened_of
from tablequeue.alembic.running import opened
from tablequeue.database import Database
from tablequeue.errors import BadDefinition, SchemaTooOld
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition, Kind, SubscriptionDefinition, TopicDefinition
from tablequeue.model.names import number_in
from tablequeue.model.options import LASTING
from tablequeue.verbs.alter import altered

# The options compared for each kind. A subscription has the other options from its topic.
COMPARED: Mapping[Kind, Sequence[str]] = {
    "queue": [name for name in Definition.__dataclass_fields__ if name != "labels"],
    "topic": ["payload", "groups", "keep"],
    "subscription": ["groups", "lease", "max_attempts", "backoff"],
}


@comparators.dispatch_for("schema")
def propose(autogenerate: AutogenContext, upgrade: UpgradeOps, schemas: object) -> None:
    """Compare the declared queues, topics and subscriptions with the database."""
    for metadata in to_list(autogenerate.metadata):
        for schema, declared in declared_with(metadata):
            with refusing(), opened(autogenerate.migration_context, schema) as database:
                upgrade.ops += proposed(database, schema, declared)


def proposed(database: Database, schema: str | None, declared: list[Declared]) -> Iterator[QueueOperation]:
    """Return the operations that make the database match the declarations. Other queues stay."""
    there = _definitions(database)
    if None in there.values():
        yield UpgradeQueues("", schema, {})
    topics = {each.name: each.definition for each in declared if each.kind == "topic"}
    numbers = _numbers(database, there)
    for each in _targets_first(declared):
        found = there.get(each.name)
        if found is not None:
            yield from _changes(each, found)
        elif each.name not in there:
            options = options_of(each.definition)
            if isinstance(each.definition, SubscriptionDefinition):
                topic = each.definition.topic
                options |= _of_topic(topics.get(topic) or there.get(topic))
                numbers[topic] = numbers.get(topic, 0) + 1
                options |= {"number": numbers[topic]} if numbers[topic] > 1 else {}
            yield CREATES[each.kind](each.name, schema, options)


@renderers.dispatch_for(QueueOperation)
def render(autogenerate: AutogenContext, operation: QueueOperation) -> str:
    """Return the line of the migration."""
    if isinstance(operation, KeepQueues):
        return "pass  # the tables of queues keep what they have: there is no downgrade"
    options = {**operation.options} | ({"schema": operation.schema} if operation.schema else {})
    if any(map(is_dataclass, options.values())):
        autogenerate.imports.add("import tablequeue")
    arguments = [repr(operation.name)] if operation.name else []
    for name, value in options.items():
        arguments.append(f"{name}={'tablequeue.' if is_dataclass(value) else ''}{value!r}")
    return f"{autogenerate.opts['alembic_module_prefix']}{operation.verb}({', '.join(arguments)})"


# -- private ---------------------------------------------------------------------------------------------------------


def _definitions(database: Database) -> dict[str, Definition | None]:
    """Return the definition of each queue, topic and subscription; None if its tables have an old version."""
    found: dict[str, Definition | None] = {}
    names: Mapping[Kind, list[str]]
    names = {"queue": database.queues(), "topic": database.topics(), "subscription": database.subscriptions()}
    for kind, several in names.items():
        for name in several:
            try:
                found[name] = opened_of(database, kind, name).definition
            except SchemaTooOld:
                found[name] = None
    return found


def _numbers(database: Database, there: Mapping[str, Definition | None]) -> dict[str, int]:
    """Return the highest number of a subscription of each topic."""
    numbers: dict[str, int] = {}
    for name, definition in there.items():
        if isinstance(definition, SubscriptionDefinition):
            table = context_of(database.subscription(name)).table.table_name
            numbers[definition.topic] = max(number_in(table), numbers.get(definition.topic, 0))
    return numbers


def _of_topic(topic: Definition | None) -> dict[str, Any]:
    """Return the options of its topic that the SQL of a subscription needs."""
    options = options_of(topic) if isinstance(topic, TopicDefinition) else {}
    return {name: options[name] for name in ("payload", "keep") if name in options}


def _targets_first(declared: list[Declared]) -> list[Declared]:
    """Return the declarations, each after the queue of its dead letters, and each subscription after its topic."""
    by_name = {each.name: each for each in declared}
    ordered: dict[str, Declared] = {}

    def put(each: Declared, before: tuple[str, ...]) -> None:
        definition = each.definition
        target = definition.topic if isinstance(definition, SubscriptionDefinition) else definition.dead_letter_to
        if target in by_name and target not in before:
            put(by_name[target], (*before, each.name))
        ordered.setdefault(each.name, each)

    for each in declared:
        put(each, (each.name,))
    return [*ordered.values()]


def _changes(declared: Declared, found: Definition) -> Iterator[QueueOperation]:
    wanted, name = declared.definition, declared.name
    if found.kind != declared.kind:
        raise BadDefinition(f"{name!r} is a {found.kind}, not a {declared.kind}.", "Declare it under another name.")
    changed = [field for field in COMPARED[found.kind] if getattr(wanted, field) != getattr(found, field)]
    if not changed:
        return
    if found.kind == "topic":
        raise BadDefinition(
            f"{', '.join(changed)} of the topic {name!r} cannot be altered.", "Declare another topic with it."
        )
    change = AlterQueue(name, declared.schema, {field: getattr(wanted, field) for field in changed})
    change.before = {field: getattr(found, field) for field in changed if field not in LASTING}
    with refusing(name):
        altered(found, change.options)  # refuses options that are a part of the tables
    yield change
