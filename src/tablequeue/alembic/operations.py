"""The operations of migrations: `op.create_queue` and others, online and with --sql."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from alembic.operations import MigrateOperation, Operations

from tablequeue.alembic.declared import NewSubscription, definition_of, refusing
from tablequeue.alembic.running import end_transaction, engine_of, opened
from tablequeue.database import Database
from tablequeue.engines.engine import Engine
from tablequeue.engines.printed import script, without_comments
from tablequeue.errors import BadInput
from tablequeue.model.definition import Kind
from tablequeue.model.options import AlterOptions, QueueOptions, TopicOptions
from tablequeue.queue import Queue
from tablequeue.topic import Subscription, Topic


class QueueOperation(MigrateOperation):
    """An operation of a migration on a queue, a topic or a subscription."""

    verb: ClassVar[str]
    """Its name, as in `op.create_queue`."""
    kind: ClassVar[Kind] = "queue"

    def __init__(self, name: str, schema: str | None, options: Mapping[str, Any]) -> None:
        self.name = name
        self.schema = schema
        self.options = options

    def run(self, database: Database) -> None:
        """Run the operation in the database."""
        raise NotImplementedError

    def printed(self, engine: Engine) -> str:
        """Return the SQL of the operation, for --sql."""
        raise BadInput(
            f"op.{self.verb} has no SQL without a database: it depends on its tables.",
            "Run this migration without --sql.",
        )

    def to_diff_tuple(self) -> tuple[Any, ...]:
        return self.verb, self.schema, self.name, dict(self.options)

    def _script(self, engine: Engine, operation: str) -> str:
        definition = definition_of(self.kind, self.name, self.options)
        return script(engine, operation, self.name, definition, "ready", number=self.options.get("number", 1))


@Operations.implementation_for(QueueOperation)
def run(operations: Operations, operation: QueueOperation) -> None:
    """Run it on the connection of the migration; with --sql, write its SQL."""
    context = operations.migration_context
    with refusing(operation.name):
        if context.as_sql:
            text = operation.printed(engine_of(context, operation.schema))
            context.impl.static_output(without_comments(text))
        else:
            end_transaction(context, operation.schema)
            with opened(context, operation.schema) as database:
                operation.run(database)


class _Create(QueueOperation):
    def printed(self, engine: Engine) -> str:
        return self._script(engine, "create")

    def reverse(self) -> MigrateOperation:
        return DROPS[self.kind](self.name, self.schema, self.options)


class _Drop(QueueOperation):
    def run(self, database: Database) -> None:
        opened_of(database, self.kind, self.name).drop()

    def printed(self, engine: Engine) -> str:
        return self._script(engine, "drop")

    def reverse(self) -> MigrateOperation:
        return CREATES[self.kind](self.name, self.schema, self.options)


@Operations.register_operation("create_queue")
class CreateQueue(_Create):
    verb = "create_queue"

    @classmethod
    def create_queue(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[QueueOptions]
    ) -> None:
        """Make a queue, as `Database.create_queue`; nothing happens if it exists with the same definition."""
        operations.invoke(cls(name, schema, options))

    def run(self, database: Database) -> None:
        database.create_queue(self.name, **self.options)


@Operations.register_operation("drop_queue")
class DropQueue(_Drop):
    verb = "drop_queue"

    @classmethod
    def drop_queue(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[QueueOptions]
    ) -> None:
        """Drop a queue with its messages and its procedures. For --sql, give the options it was created with."""
        operations.invoke(cls(name, schema, options))


@Operations.register_operation("create_topic")
class CreateTopic(_Create):
    verb, kind = "create_topic", "topic"

    @classmethod
    def create_topic(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[TopicOptions]
    ) -> None:
        """Make a topic, as `Database.create_topic`; nothing happens if it exists with the same definition."""
        operations.invoke(cls(name, schema, options))

    def run(self, database: Database) -> None:
        database.create_topic(self.name, **self.options)


@Operations.register_operation("drop_topic")
class DropTopic(_Drop):
    verb, kind = "drop_topic", "topic"

    @classmethod
    def drop_topic(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[TopicOptions]
    ) -> None:
        """Drop a topic, its messages and all of its subscriptions.

        For --sql, give the options it was created with."""
        operations.invoke(cls(name, schema, options))


@Operations.register_operation("create_subscription")
class CreateSubscription(_Create):
    verb, kind = "create_subscription", "subscription"

    @classmethod
    def create_subscription(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[NewSubscription]
    ) -> None:
        """Make a subscription, as `Topic.subscribe`, named with its topic: `events/mail`.

        It begins with the first message that the topic has; `Subscription.seek` lets it begin elsewhere.
        """
        operations.invoke(cls(name, schema, options))

    def run(self, database: Database) -> None:
        topic, _, name = self.name.partition("/")
        options = {option: value for option, value in self.options.items() if option not in FOR_SQL}
        database.topic(topic).subscribe(name, **options)


@Operations.register_operation("drop_subscription")
class DropSubscription(_Drop):
    verb, kind = "drop_subscription", "subscription"

    @classmethod
    def drop_subscription(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[NewSubscription]
    ) -> None:
        """Drop a subscription. For --sql, give the options it was created with."""
        operations.invoke(cls(name, schema, options))


@Operations.register_operation("alter_queue")
class AlterQueue(QueueOperation):
    verb = "alter_queue"
    before: Mapping[str, Any] | None = None
    """The old options, for the downgrade that autogenerate writes."""

    @classmethod
    def alter_queue(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[AlterOptions]
    ) -> None:
        """Change options of a queue, or of a subscription, as `Queue.alter`. Not with --sql."""
        operations.invoke(cls(name, schema, options))

    def run(self, database: Database) -> None:
        database.consumer(self.name).alter(**self.options)

    def reverse(self) -> MigrateOperation:
        return AlterQueue(self.name, self.schema, self.before) if self.before else KeepQueues("", self.schema, {})


@Operations.register_operation("upgrade_queues")
class UpgradeQueues(QueueOperation):
    verb = "upgrade_queues"

    @classmethod
    def upgrade_queues(cls, operations: Operations, *, schema: str | None = None) -> None:
        """Bring the tables of all queues and topics to the version of this tablequeue, as `Database.upgrade`.

        Not with --sql.
        """
        operations.invoke(cls("", schema, {}))

    def run(self, database: Database) -> None:
        database.upgrade()

    def reverse(self) -> MigrateOperation:
        return KeepQueues("", self.schema, {})


class KeepQueues(QueueOperation):
    """The downgrade of an upgrade, or of an option that cannot be switched off: it does not exist."""

    verb = "keep_queues"


@Operations.register_operation("install_procedures")
class InstallProcedures(QueueOperation):
    verb = "install_procedures"

    @classmethod
    def install_procedures(
        cls, operations: Operations, name: str, *, schema: str | None = None, **options: Unpack[QueueOptions]
    ) -> None:
        """Make or replace the stored procedures of a queue, as `Database.install_procedures`.

        For --sql, give the options the queue was created with.
        """
        operations.invoke(cls(name, schema, options))

    def run(self, database: Database) -> None:
        database.queue(self.name)  # refuses wrong options, which --sql could not find
        database.install_procedures(self.name)

    def printed(self, engine: Engine) -> str:
        return self._script(engine, "procedures")


# The options of a subscription that its topic in the database also has.
FOR_SQL = ("number", "payload", "keep")
CREATES: Mapping[Kind, type[_Create]] = {
    "queue": CreateQueue,
    "topic": CreateTopic,
    "subscription": CreateSubscription,
}
DROPS: Mapping[Kind, type[_Drop]] = {"queue": DropQueue, "topic": DropTopic, "subscription": DropSubscription}


def opened_of(database: Database, kind: Kind, name: str) -> Queue | Topic | Subscription:
    """Open the object of that name; `QueueNotFound` if there is none of that kind."""
    of: Mapping[Kind, Any] = {"queue": database.queue, "topic": database.topic, "subscription": database.subscription}
    return of[kind](name)
