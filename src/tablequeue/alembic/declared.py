"""What an `env.py` declares and configures: queues that autogenerate compares with the database, and its hooks.

Autogenerate would drop every table that is not in the application's models. In `env.py`, write
`context.configure(..., include_name=include_name)`: then Alembic does not even read the tables of queues.
`include_object` is for an `env.py` that already uses the hook of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from alembic.util import CommandError
from sqlalchemy import MetaData

from tablequeue.errors import BadInput, TablequeueError
from tablequeue.model.definition import (
    KINDS,
    Definition,
    Keep,
    Kind,
    PayloadType,
    SubscriptionDefinition,
    TopicDefinition,
)
from tablequeue.model.names import check_full_name
from tablequeue.model.options import QueueOptions, SubscriptionOptions, TopicOptions

# The key under which a MetaData keeps its declarations.
KEY = "tablequeue"


class NewSubscription(SubscriptionOptions, total=False):
    """The options of `op.create_subscription` and `op.drop_subscription`: the options of `Topic.subscribe`, and three
    more.

    number    the number in the name of its table: 1 (if not given) for the first subscription that the topic ever had.
    payload   as of the topic; `json` if not given.
    keep      as of the topic; `forever` if not given.

    These three are for --sql. Online, they are read from the database.
    """

    number: int
    payload: PayloadType
    keep: Keep


OPTIONS: Mapping[Kind, type] = {"queue": QueueOptions, "topic": TopicOptions, "subscription": NewSubscription}


@dataclass(frozen=True, slots=True)
class Declared:
    """A queue, a topic or a subscription that is to be in the database."""

    kind: Kind
    name: str
    definition: Definition
    schema: str | None


def declare(
    metadata: MetaData,
    *,
    queues: Mapping[str, QueueOptions] | None = None,
    topics: Mapping[str, TopicOptions] | None = None,
    subscriptions: Mapping[str, SubscriptionOptions] | None = None,
    schema: str | None = None,
) -> None:
    """Declare the queues and topics that the database should have. The next revision of autogenerate creates or alters
    it.

    metadata        the `target_metadata` of the `env.py`, or one of several.
    queues          the options of `Database.create_queue`, by the name of the queue.
    topics          the options of `Database.create_topic`, by the name of the topic.
    subscriptions   the options of `Topic.subscribe`, by the name with its topic, as `events/mail`.
    schema          where their tables are; the schema of `metadata` if not given.

    It only notes them, and may be called several times: the last declaration of a name counts. `CommandError`, which
    Alembic prints, for a wrong name or option.
    """
    given: Mapping[Kind, Mapping[str, Any]]
    given = {"queue": queues or {}, "topic": topics or {}, "subscription": subscriptions or {}}
    noted: dict[tuple[str | None, str], Declared] = metadata.info.setdefault(KEY, {})
    place = schema or metadata.schema
    for kind, by_name in given.items():
        for name, options in by_name.items():
            with refusing(name):
                noted[place, name] = Declared(kind, name, definition_of(kind, name, options), place)


def declared_with(metadata: MetaData) -> Iterator[tuple[str | None, list[Declared]]]:
    """Return the declarations, by schema."""
    noted: list[Declared] = [*metadata.info.get(KEY, {}).values()]
    for schema in dict.fromkeys(each.schema for each in noted):
        yield schema, [each for each in noted if each.schema == schema]


def definition_of(kind: Kind, name: str, given: Mapping[str, Any]) -> Definition:
    """Return the definition that options make. `BadName`, `BadInput` or `BadDefinition` if they are wrong."""
    check_full_name(name, kind)
    known = OPTIONS[kind].__annotations__
    if unknown := given.keys() - known.keys():
        raise BadInput(f"A {kind} has no option {min(unknown)!r}.", f"Options are: {', '.join(known)}.")
    options = {**given}
    if kind == "subscription":
        topic = TopicDefinition(keep=options.pop("keep", "forever"))
        options.pop("number", None)
        options |= {
            "topic": name.partition("/")[0],
            "groups": options.pop("ordered", False),
            "history": topic.history_of_detached,
        }
    return KINDS[kind](**options)


def options_of(definition: Definition) -> dict[str, Any]:
    """Return the options of a definition that are not the defaults."""
    default = type(definition)()
    names = OPTIONS[definition.kind].__annotations__
    given = {
        field.name: getattr(definition, field.name)
        for field in fields(definition)
        if field.name in names and getattr(definition, field.name) != getattr(default, field.name)
    }
    if isinstance(definition, SubscriptionDefinition) and definition.ordered:
        given = {"ordered": True, **given}
    return given


@contextmanager
def refusing(what: str = "") -> Iterator[None]:
    """Raise `CommandError` for a `TablequeueError`, which is its cause. The text begins with `what`."""
    try:
        yield
    except TablequeueError as error:
        raise CommandError(f"{what}: {error}" if what else str(error)) from error


PREFIX = "tq_"
"""The prefix of the names of all tables of tablequeue."""


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """Whether Alembic should read the table of that name. It should not read tables with the prefix `tq_`.

    No table of the application may have that prefix.
    """
    return type_ != "table" or name is None or not name.startswith(PREFIX)


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """The same check for an object that Alembic has read. Tables of the application's models are always included."""
    return not reflected or compare_to is not None or include_name(name, type_, {})
