"""A database that holds queues: connect to it, make queues in it, find them again."""

from __future__ import annotations

import os
import socket
import warnings
from dataclasses import fields
from typing import Any, Literal, Self, Unpack

import sqlalchemy as sa

from tablequeue.consumer import Consumer
from tablequeue.engines import check_kind, driver_missing, engine_class
from tablequeue.engines.engine import Engine
from tablequeue.engines.pool import shown
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, BadUrl, DriverMissing, QueueNotFound, TablequeueError
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition, TopicDefinition
from tablequeue.model.options import QueueOptions, TopicOptions
from tablequeue.queue import Queue
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs import alter, batches, catalogue, doctor
from tablequeue.verbs.batches import Batch
from tablequeue.verbs.context import Context
from tablequeue.verbs.doctor import Finding
from tablequeue.verbs.overview import Overview
from tablequeue.verbs.sizes import TableSize, sizes

LONGEST_NAME = 200


def connect(url: str | sa.URL | sa.Engine, *, schema: str | None = None, name: str | None = None) -> Database:
    """Connect to a database, and check that it answers.

    url     a SQLAlchemy URL, as `sqlite:///work.db` or `postgresql+psycopg://user@host/db`, or an Engine.
    schema  where all tables are, for databases that have schemas; the first `create_queue` makes it if it is missing.
    name    the name under which this process pushes and pops, shown in the history; `host:pid` if not given.

    Raises `BadUrl`, `DriverMissing` or `Unreachable`. It creates nothing: only `create_queue` creates a schema, or the
    file of the database. `queues()` of a missing file is empty.
    """
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable()):
        raise BadInput(f"name is {name!r}.", f"Give 1 to {LONGEST_NAME} printable characters.")
    sa_engine = url if isinstance(url, sa.Engine) else _engine_of(url)
    kind = sa_engine.dialect.name
    check_kind(kind)
    engine_type = _load(kind, sa_engine.dialect.driver)
    if schema is not None and not engine_type.has_schemas:
        raise BadInput(f"{kind} has no schemas.", "Leave schema out; name another file for other queues.")
    database = Database(sa_engine, Runner(sa_engine, engine_type(sa_engine.dialect, schema)), name)
    try:
        database.queues()
    except BaseException:
        database.close()
        if sa_engine is not url:
            sa_engine.dispose()
        raise
    return database


class Database:
    """The queues of one database. Made by `connect`; safe to share between threads, and after a fork."""

    def __init__(self, sa_engine: sa.Engine, runner: Runner, name: str | None) -> None:
        self.engine = sa_engine
        self._runner = runner
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database {shown(self.engine.url)}>"

    def create_queue(
        self, name: str, *, if_exists: Literal["compare", "alter"] = "compare", **options: Unpack[QueueOptions]
    ) -> Queue:
        """Make a queue; or open it, if it exists with the same definition.

        order         `fifo` (if not given): lowest id first, passing over messages in progress; `lifo`: highest id
                      first; `due`: the message that has been due longest first; `priority`: highest number first, then
                      lowest id; `heap`: any.
        strict        fifo only: one message in progress at a time, and nothing overtakes it, neither while it waits for
                      a retry nor while its delay runs. False if not given.
        groups        fifo only. True: strict within each group that `push` names; groups run side by side. `fair`: any
                      number of a group in progress, and claims take one message of each group in turn; messages
                      without a group are one group. False if not given.
        payload       `json` (if not given), `text` or `bytes`: the type of the column.
        lease         how long a popped message stays with its consumer unless extended: seconds, or a timedelta; 60
                      seconds if not given.
        max_attempts  how often a message may be claimed before it becomes a dead letter; 5 if not given.
        backoff       how long a failed message waits, a `Backoff`; 1 second, then twice as long each time, at most an
                      hour, if not given.
        history       how long a finished message stays in the history: seconds, or a timedelta; 30 days if not given.
                      `keep`: until `purge_history`; `none`: there is no history.
        delivery      `at_least_once` (if not given): a message comes back when its lease ends, if its consumer dies;
                      `at_most_once`: it never does, and is found by `lost`.
        dead_letter_to   the name of another queue of this database, with the same payload: a message becomes a ready
                      message there instead of a dead letter here, in the transaction of its last failure, with its
                      errors. Its header `tablequeue-origin` has the `queue`, `table`, `id`, `attempts` and `key` that
                      it had; the key is free. `redrive`, of either queue, moves it back. None: they stay here.
        concurrency   how many messages may be in progress at once, in all consumers together; no limit if not given.
        rate          how many messages all consumers together may claim in a given time, a `Rate`; no limit if not
                      given.
        per_group     of a queue with groups="fair": how many messages of a group may be in progress at once; no limit
                      if not given.
        group_rate    of such a queue: how many messages of each group may be claimed in a given time, a `Rate`; no
                      limit if not given. docs/control.md explains all four limits.
        unique_for    seconds, or a timedelta: a deduplication key stays taken for this time after its push, even when
                      its message is finished, and longer while a message of the queue has it. `push` may give another
                      time. None (if not given): only while a message of the queue has it.
        results       whether `complete` may give a result, which `result` returns as long as the message is in the
                      history. False if not given.
        batches       whether messages may be pushed as a batch, with a callback when all are finished: see
                      `Queue.batch`. Not at most once, and not with `dead_letter_to`. False if not given.
        dependencies  whether messages may wait until others have left their queues: see `after` of `Queue.push`. False
                      if not given.
        expires       seconds, or a timedelta: a message that still waits this long after its push is never handed out.
                      It ends in the history as `expired`; without a history, as a dead letter. `push` may give another
                      time. None (if not given): messages do not expire.
        labels        a dict of strings, which are kept with the definition and have no effect; `alter` changes them. An
                      existing queue keeps its own labels.

        An existing queue with another definition stays unchanged, and `QueueDiffers` says what differs; with
        `if_exists="alter"` it gets this definition, as by `Queue.alter`. `BadDefinition` for values that are not
        possible, alone or together. Many processes may call this at once. A crash leaves the whole queue, or nothing of
        it.
        """
        given: dict[str, Any] = {**options}  # a program without types may name an option that does not exist
        try:
            wanted = Definition(**given)
        except TypeError as error:
            words = str(error).replace("Definition.__init__() got an", "create_queue got an")
            raise BadInput(f"{words}.", f"Options are: {', '.join(QueueOptions.__annotations__)}.") from None
        if if_exists not in ("compare", "alter"):
            raise BadInput(f"if_exists is {if_exists!r}.", "Give 'compare' or 'alter'.")
        table = catalogue.made(self._runner, name, wanted)
        if if_exists == "alter" and table.definition.kind == wanted.kind:
            all_options = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
            table = alter.alter(self._runner, table, all_options)
        return self._queue(catalogue.same(table, wanted))

    def queue(self, name: str) -> Queue:
        """Open an existing queue; `QueueNotFound` suggests the nearest name."""
        return self._queue(catalogue.find(self._runner, name, "queue"))

    def subscription(self, name: str) -> Subscription:
        """Open an existing subscription, named with its topic: `events/mail`; `QueueNotFound` as for a queue."""
        return Subscription(self._context(catalogue.find(self._runner, name, "subscription")))

    def consumer(self, name: str) -> Consumer:
        """Open an existing queue, or a subscription as `events/mail`; `QueueNotFound` as for a queue."""
        table = catalogue.find(self._runner, name, "queue", "subscription")
        kind = Subscription if table.definition.kind == "subscription" else Queue
        return kind(self._context(table))

    def batch(self, id: int) -> Batch:
        """Open a pushed batch by its id, `Batch.id`; `BatchNotFound` if no batch has it.

        A batch that has ended is kept as long as the history of its queue; without a history, for a day.
        """
        return batches.find(self._runner, id, self._who)

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return catalogue.names(self._runner, "queue")

    def subscriptions(self) -> list[str]:
        """Return the names of all subscriptions, sorted, as `subscription` opens them: `events/mail`."""
        return catalogue.names(self._runner, "subscription")

    def create_topic(self, name: str, **options: Unpack[TopicOptions]) -> Topic:
        """Make a topic; or open it, if it exists with the same definition.

        payload   `json` (if not given), `text` or `bytes`: the type of the column.
        groups    whether each message names a group, by which a subscription may be ordered. False if not given: a
                  message may name one.
        keep      how long messages stay: `forever` (if not given); seconds, or a timedelta; or `consumed`, until every
                  subscription has passed them.

        An existing topic with another definition stays unchanged, and `QueueDiffers` says what differs. `BadDefinition`
        for values that are not possible. A crash leaves the whole topic, or nothing of it.
        """
        unknown = options.keys() - TopicOptions.__annotations__.keys()
        if unknown:
            raise BadInput(
                f"create_topic got an unexpected option {min(unknown)!r}.",
                f"Options are: {', '.join(TopicOptions.__annotations__)}.",
            )
        return self._topic(catalogue.create(self._runner, name, TopicDefinition(**options)))

    def topic(self, name: str) -> Topic:
        """Open an existing topic; `QueueNotFound` suggests the nearest name."""
        return self._topic(catalogue.find(self._runner, name, "topic"))

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return catalogue.names(self._runner, "topic")

    def rename(self, old: str, new: str) -> None:
        """Give a queue or a topic another name, or a subscription: `rename("events/mail", "events/letters")`.

        Its tables and its stored procedures keep their names, and its messages stay as they are. Programs that have it
        open go on; a program that opens it by the old name gets `QueueNotFound`. The subscriptions of a topic go with
        it. A new queue may have the old name; it gets a table of its own.

        `QueueDiffers` if the new name is taken. One transaction: a crash leaves the old name, or the new.
        """
        catalogue.rename(self._runner, old, new)

    def identity(self) -> str:
        """Return the identity of the database, or of the schema given to `connect`: 32 hexadecimal digits.

        It is made once, with the first queue, and stays the same under another URL, and after a dump and a restore. A
        checkpoint of Spark, an archive and the lake of reports have it, and are refused by any other database.
        `QueueNotFound` if there never was a queue.
        """
        return catalogue.identity(self._runner)

    def renew_identity(self) -> str:
        """Declare the database an independent copy: give it another identity, and return the new identity.

        Call it in a copy before anything reads its queues, for example in a copy of production for staging. Checkpoints
        and archives of the original are then refused here. A crash leaves the old identity, or the new one.
        """
        return catalogue.renew_identity(self._runner)

    def has_schema(self) -> bool:
        """Whether the schema given to `connect` exists; True if none was given. The first `create_queue` makes it."""
        return catalogue.has_schema(self._runner)

    @property
    def schema_version(self) -> int:
        """The version of the tables that this tablequeue makes, and works with, on this kind of database."""
        return self._runner.engine.schema_version

    def upgrade(self) -> dict[str, int]:
        """Bring the tables of all queues, topics and subscriptions to the schema version of this tablequeue.

        Returns the version that each had before. Idempotent, and many processes may call it at once. Each is upgraded
        in a transaction of its own, which waits for other transactions on the same queue. A crash leaves the queue as
        it was. If one is refused, the error is raised after all others are upgraded.
        """
        return catalogue.upgrade_all(self._runner)

    def doctor(self, name: str | None = None) -> list[Finding]:
        """Find dangers to the queues and topics of this database, or to the named one, each with its remedy.

        It only reads.

        A check that the database user has no right to make is a finding too, and so is a queue that cannot be opened.
        """
        findings = [*doctor.of_database(self._runner)]
        of_topics = catalogue.names(self._runner, "topic")
        for each in catalogue.names(self._runner) if name is None else [name]:
            try:
                if each in of_topics:
                    findings += doctor.of_topic(context_of(self.topic(each)))
                else:
                    findings += doctor.of_queue(context_of(self.consumer(each)))
            except TablequeueError as error:
                if name is not None and isinstance(error, QueueNotFound):
                    raise
                findings.append(Finding(each, error.cause, error.remedy))
        return findings

    def sizes(self) -> list[TableSize]:
        """Return the rows and the bytes of each table of the library, sorted by name; on SQLite, of the whole file.

        It only reads. The numbers of rows are estimates of the server.
        """
        return sizes(self._runner)

    def install_procedures(self, name: str) -> list[str]:
        """Make or replace the stored procedures of a queue: its verbs for other languages (docs/procedures.md).

        On PostgreSQL also of a topic (they push), and of a subscription (they pop and finish).

        Returns their names. Until rights are granted, only their owner may call them. `drop` of the queue drops them.
        """
        return catalogue.install_procedures(self._runner, name)

    def close(self) -> None:
        """Close the connections that are not in use. The database can still be used: it opens new ones."""
        self._runner.close()

    def _queue(self, table: Table) -> Queue:
        return Queue(self._context(table))

    def _topic(self, table: Table) -> Topic:
        return Topic(self._context(table))

    def _context(self, table: Table) -> Context:
        return Context.at(self._runner, table, self._who)

    @property
    def _who(self) -> str:
        return self._name or f"{socket.gethostname()}:{os.getpid()}"


def destination(database: Database, name: str) -> Queue | Topic:
    """Open an existing queue or topic, to push to it."""
    return database.topic(name) if name in database.topics() else database.queue(name)


def overview_of(database: Database) -> Overview:
    """Return what reads the numbers of all queues in a few statements, again and again."""
    return Overview(database._runner, database._who)  # noqa: SLF001  (for rooms of the library alone)


def _engine_of(url: str | sa.URL) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        # The text is not repeated: it may hold a password.
        raise BadUrl(
            "The database URL cannot be read.",
            "Write it as sqlite:///work.db or postgresql+psycopg://user:password@host/database.",
        ) from None
    if parsed.password is not None and "@" in f"{parsed.host}{parsed.database}":
        # The text after that @ would be taken for the host, and shown in the error.
        raise BadUrl("The password in the database URL has an @.", "Write %40 for it.")
    kind = parsed.get_backend_name()
    check_kind(kind)
    try:
        driver = parsed.get_dialect().driver
    except sa.exc.NoSuchModuleError:
        cause = f"SQLAlchemy {sa.__version__} has no database driver {parsed.drivername!r}."
        raise BadUrl(cause, "Correct the URL before the ://.") from None
    # Before SQLAlchemy imports the driver: no error must tell people to install one that is of no use here.
    engine_type = _load(kind, driver, chosen="+" in parsed.drivername)
    if parsed.host and not engine_type.has_servers:
        path = "/".join(filter(None, (parsed.host, parsed.database)))
        raise BadUrl(
            f"The database URL names the server {parsed.host!r}, and {kind} has files.",
            f"Write three slashes before a relative path, and four before an absolute one: {kind}:///{path}.",
        )
    preferred = engine_type.drivers[0]
    arguments = {name: value for name, value in engine_type.connect_args.items() if name not in parsed.query}
    try:
        sa_engine = sa.create_engine(parsed, connect_args=arguments)
        with warnings.catch_warnings():
            # SQLAlchemy only warns of an option that the driver does not have, and goes on without it.
            warnings.simplefilter("error", sa.exc.SAWarning)
            sa_engine.dialect.create_connect_args(parsed)
        return sa_engine
    except ImportError as error:
        if driver == preferred:
            raise driver_missing(kind, error) from None
        raise DriverMissing(
            f"The Python driver {driver} is not installed ({error}).",
            f"Install it, or write {kind}+{preferred}:// in the URL.",
        ) from None
    except (sa.exc.ArgumentError, sa.exc.SAWarning, TypeError, ValueError) as error:
        words = str(error).rstrip(".")
        raise BadUrl(f"The database URL has a wrong option: {words}.", "Correct the URL after the ?.") from None


def _load(kind: str, driver: str, chosen: bool = True) -> type[Engine]:
    """Return the class of the engine. `chosen`: whether the URL names the driver; else SQLAlchemy chose it."""
    engine_type = engine_class(kind)
    if driver not in engine_type.drivers:
        whose = "" if chosen else f", which SQLAlchemy takes for {kind}://"
        raise BadUrl(
            f"tablequeue does not speak {kind} through the driver {driver}{whose}.",
            f"Write {kind}+{engine_type.drivers[0]}:// in the URL.",
        )
    return engine_type


__all__ = ["Database", "connect"]
