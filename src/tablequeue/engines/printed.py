"""The SQL of operations as text, with the values of its parameters: for `tablequeue sql`, and for Alembic's --sql."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from tablequeue.engines import engine_class, procedures
from tablequeue.engines.catalogue import UPGRADES
from tablequeue.engines.conditions import conditions
from tablequeue.engines.engine import OPERATIONS, Engine
from tablequeue.engines.printed_notes import notes
from tablequeue.engines.printed_values import examples, found_between, known, named, parameters, put
from tablequeue.engines.table import Table
from tablequeue.engines.texts import operations_of, sql_text, texts_for
from tablequeue.errors import BadInput
from tablequeue.model.definition import Definition, Kind, SubscriptionDefinition, TopicDefinition
from tablequeue.model.names import check_full_name, check_table, subscription_table_of

# The texts of each operation, by the name that is printed. Any other name is a single text.
PRINTED = {row.printed or name: row.texts for name, row in OPERATIONS.items() if row.texts}


def operations(engine: str) -> list[str]:
    """Return the names that can be printed for an engine: its operations, and the texts that only it has."""
    # The first and the last statement of an upgrade are no operations.
    texts = {*operations_of(engine)} - {"lock", "set_version"}
    parts = {part for several in (*PRINTED.values(), *UPGRADES.values()) for part in several}
    names = {name for name, several in PRINTED.items() if texts & several.keys()} | texts - parts | {"upgrade"}
    return sorted(names | {"procedures", "grant"} if engine_class(engine).procedure_syntax else names)


def script(
    engine: Engine,
    operation: str,
    queue: str,
    definition: Definition,
    state: str,
    roles: Mapping[str, Sequence[str]] = MappingProxyType({}),
    values: bool = False,
    from_version: int = 1,
    number: int = 1,
    table_name: str | None = None,
) -> str:
    """Return the SQL of an operation; with `values`, in a form that the client of the database can run.

    Parameters that have the same value at every run on the queue are always replaced by it.
    """
    table = _table(engine, queue, definition, number, table_name)
    if operation == "procedures":
        return procedures.procedures(engine, table)
    if operation == "grant":
        return procedures.grants(engine, table, roles)
    names = dict(PRINTED.get(operation, {operation: ""}))
    if operation == "upgrade":
        steps = {name: when for version, of in UPGRADES.items() if version > from_version for name, when in of.items()}
        names = {step: when for name in names for step, when in (steps if name == "upgrade" else {name: ""}).items()}
    chosen = texts_for(engine.name, names, conditions(definition) | ({"schema"} if engine.schema else set()))
    if not chosen or (definition.kind == "topic" and any(_has_states(engine, name) for name in chosen)):
        raise BadInput(f"A {definition.kind} has no operation {operation!r}.", "Name another operation, or a queue.")
    if operation == "take" and engine.looks_apart and table.plan.met & {"fair", "limited"}:
        raise BadInput(
            f"On {engine.dialect.name}, a take of such a queue looks on a second connection, which no script can do.",
            "Print `procedures`, and call the one that takes.",
        )
    if statements := engine.composed(operation, table):
        headers = [_header(engine.render(name, table)) for name in table.used]
        body = "".join(f"{statement};\n" for statement in statements).strip()
        texts = [*headers, put(engine, body, found_between(engine, operation, "", table))]
    else:
        texts = [
            put(engine, engine.render(name, table, state).strip(), found_between(engine, operation, name, table))
            for name in chosen
        ]
    if operation == "drop" and engine.procedure_syntax:
        texts.insert(0, procedures.dropping(engine, table))
    text, same = engine.client.between.join(texts), known(engine, operation, table)
    said = notes(engine, operation, table, chosen, statements, parameters(text))
    if values or parameters(text) - same.keys() <= {"now"}:
        text = put(engine, text, examples(engine, operation, definition) | same)
        heading = f"-- For {engine.client.name}, as it is. {engine.client.whole}" if operation in ONCE else ""
    else:
        text = put(engine, text, same)
        heading = f"-- {engine.client.parameters}; with --values there are examples, for {engine.client.name}."
    return "\n\n".join(filter(None, [heading, named(engine, said), named(engine, text)]))


def _header(text: str) -> str:
    """Return the comment at the head of a text."""
    return "\n".join(takewhile(lambda line: line.startswith("--"), text.strip().splitlines()))


# Scripts that are run once for a queue, and only as a whole.
_BESIDE = ("streams", "staged", "schedules", "progress", "task_results")
ONCE = ("create", "upgrade", "drop", *(f"create_{tables}" for tables in _BESIDE))


# The texts that are about a topic, or about the ranges of a subscription.
_TEXTS_OF: Mapping[Kind, str] = {
    "topic": r"(create_|drop_|publish_)?topic|sequence|close_holes",
    "subscription": r"(create_|drop_)?range",
}


def kind_of(engine: Engine, operation: str, name: str | None = None, topic: bool = False) -> Kind:
    """Return what an operation is about: by the name, the option --topic, and the operation's texts."""
    texts = [text for text in PRINTED.get(operation, {operation: ""}) if text in operations_of(engine.name)]
    of = {kind for kind, names in _TEXTS_OF.items() if texts and all(re.match(names, text) for text in texts)}
    if name is not None and "/" in name:
        return "subscription"
    if "subscription" in of and name is not None:
        raise BadInput(
            f"{operation!r} is an operation of subscriptions, and {name!r} names none.",
            "Write a topic, a slash and the name of the subscription: events/mail.",
        )
    return of.pop() if of else "topic" if topic else "queue"


def _table(engine: Engine, name: str, definition: Definition, number: int, table_name: str | None) -> Table:
    check_full_name(name, definition.kind)
    if table_name is not None:
        check_table(table_name)
    if not isinstance(definition, SubscriptionDefinition):
        return engine.table(name, definition, table_name)
    topic = engine.table(definition.topic, TopicDefinition(payload=definition.payload), table_name)
    return engine.table(name, definition, subscription_table_of(topic.table_name, number), topic)


def without_comments(text: str) -> str:
    """Leave out the lines that are comments, and the empty lines before and after them."""
    bare = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return re.sub(r"\n{3,}", "\n\n", bare).strip()


def _has_states(engine: Engine, name: str) -> bool:
    return bool(re.search(r"\{(queue|history|ranges)\}", sql_text(engine.name, name)))
