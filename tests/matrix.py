"""One verb in an open transaction of a caller's, and everybody else beside it.

A call in a caller's transaction locks the messages that it acted on, and nothing else. `Ground.wrong` is one cell of
the matrix: it runs an act in a transaction that stays open, reads from the server which rows are locked, and has other
clients do all that they could do with other messages. Nobody may wait for the transaction: the server is asked who
waits for whom. The acts, and what the others do, are in matrix_rows.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, NewMessage, Queue, TablequeueError, Topic
from tablequeue.errors import Conflict
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition
from tests.servers import Kind, Place

# Seconds between two looks at the waits for locks. MariaDB shows the waits as of the last look of any session, if that
# was less than a tenth of a second ago.
PACE = 0.11
# Looks, one after the other, at which nobody has got on and somebody waits for the transaction.
LOOKS = 5
# Seconds within which the others end, or wait for a lock. They take a few milliseconds each.
PATIENCE = 60
# Messages that wait beside the open transaction, and those that others have popped.
WAITING, HELD = 16, 16
# A key that a message has, and a queue in which callbacks are pushed.
TAKEN, CALLED = "taken", "called"
LATER = 3600


@dataclass(frozen=True)
class Act:
    """A verb that is called in the open transaction."""

    verb: str
    """The method, as `Queue.push`."""
    run: Callable[[Ground, Any], Iterable[int] | None]
    """Takes the ground and the connection. Returns the ids of the messages that it acted on."""
    hold: int = 0
    """The number of messages that the caller has popped before."""
    away: str = ""
    """What has become of the first of them meanwhile: another consumer has popped it (`lost`), or it is `finished`."""
    empty: bool = False
    """Whether nothing is ready."""
    refused: type[TablequeueError] | None = None
    fits: Callable[[Design], bool] = lambda design: True
    """Whether a queue, or a subscription, of this design has the verb."""


@dataclass(frozen=True)
class Design:
    """What is made for a cell: a queue, or a topic with a subscription."""

    options: Mapping[str, Any]
    ordered: bool | None = None
    """Whether the subscription is ordered; None for a queue."""

    @property
    def of_topic(self) -> bool:
        return self.ordered is not None


Others = Callable[["Ground"], Iterable[Mapping[str, Callable[[], object]]]]
"""What others do: steps, one after the other, each with calls that are made at once."""


class Scene:
    """The sessions of some cells, on one database."""

    def __init__(self, place: Place, kind: Kind, acting: Any, threads: ThreadPoolExecutor) -> None:
        self.place, self.kind, self.threads = place, kind, threads
        self.acting, self.others = acting, place.open("the others")
        self.others.create_queue(CALLED, payload="text", batches=True, dependencies=True, unique_for=60)
        self.app = f"{place.schema}.app" if place.schema else "app"
        """A table of the application's."""
        place.execute(f"create table {self.app} (id int)")
        self._watch = place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT")
        self._looking = place.sa_engine().connect()
        if kind.side_by_side:
            self._looking = self._looking.execution_options(isolation_level="READ COMMITTED")

    def close(self) -> None:
        self._watch.close()
        self._looking.close()

    # -- locks ---------------------------------------------------------------------------------------------------------

    def rows(self, prefixes: Iterable[str]) -> dict[str, set[Any]]:
        """Return the rows that are committed in the tables with these names and beginnings, by their keys."""
        return {table: self._read(table, key) for table, key, _ in self._tables(prefixes)}

    def locked(self, known: Mapping[str, set[Any]], prefixes: Iterable[str]) -> dict[str, set[Any]]:
        """Return those of the known rows that another session has locked, in the table or in any index of it."""
        found: dict[str, set[Any]] = {}
        for table, key, indexes in self._tables(prefixes):
            for index in indexes:
                free = self._read(table, key, f"{index} for update skip locked")
                found[table] = found.get(table, set()) | (known.get(table, set()) - free)
        return {table: rows for table, rows in found.items() if rows}

    def _tables(self, prefixes: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
        """Yield the tables, the columns of their keys, and what makes a read go by each index."""
        indexes: dict[str, dict[str, str]] = {}
        for table, index, columns in self.select(INDEXES[self.kind.name].format(self.place.schema)):
            if table.startswith(tuple(prefixes)):
                indexes.setdefault(table, {})[index] = columns
        for table, there in indexes.items():
            key = there.get("PRIMARY") or next(iter(there.values()))
            yield table, key, [index and f"force index (`{index}`)" for index in there]

    def _read(self, table: str, key: str, how: str = "") -> set[Any]:
        return {tuple(row) for row in self.select(f"select {key} from {self.place.schema}.{table} {how}")}  # noqa: S608 (our names)

    def select(self, statement: str) -> list[Any]:
        rows = self._looking.exec_driver_sql(statement).all()
        self._looking.rollback()
        return [*rows]

    def content(self) -> dict[str, list[str]]:
        """Return all rows of all tables that have some, as text."""
        names = sa.inspect(self._looking).get_table_names(self.place.schema)
        tables = {name: f"{self.place.schema}.{name}" if self.place.schema else name for name in names}
        rows = {name: sorted(map(str, self.select(f"select * from {table}"))) for name, table in tables.items()}  # noqa: S608 (our names)
        return {name: there for name, there in rows.items() if there}

    # -- waits ---------------------------------------------------------------------------------------------------------

    def waiting_for(self, number: int) -> list[str]:
        """Return what those do who wait for this connection, as the server says it."""
        return [str(row[0]) for row in self._watch.exec_driver_sql(WAITING_FOR[self.kind.name].format(number))]

    def held_up(self, number: int, calls: Mapping[str, Callable[[], object]]) -> tuple[list[str], list[Future[object]]]:
        """Make calls at once. Return those that wait for this connection, and the ones that have not ended."""
        running = {name: self.threads.submit(call) for name, call in calls.items()}
        looks, left, until = 0, len(running), monotonic() + PATIENCE
        while pending := wait(running.values(), PACE).not_done:
            waiting = self.waiting_for(number)
            looks = looks + 1 if waiting and len(pending) == left else 0
            left = len(pending)
            if looks == LOOKS:
                return [name for name, call in running.items() if call in pending], [*pending]
            assert monotonic() < until, f"neither end nor wait for the transaction: {pending}"
        wrong = {name: call.exception() for name, call in running.items()}
        return [f"{name} ({error!r})" for name, error in wrong.items() if error], []


# The tables of a schema with their indexes, and the columns of these. On PostgreSQL a lock is in the row itself.
INDEXES = {
    "postgresql": "select table_name, '', 'ctid::text' from information_schema.tables where table_schema = '{}'",
    "mariadb": "select table_name, index_name, group_concat(column_name order by seq_in_index) "
    "from information_schema.statistics where table_schema = '{}' group by 1, 2",
}
# The statements of the sessions that wait for a connection.
WAITING_FOR = {
    "postgresql": "select query from pg_stat_activity where {} = any(pg_blocking_pids(pid))",
    "mariadb": "select waiting.trx_query from information_schema.innodb_lock_waits as waits "
    "join information_schema.innodb_trx as holder on holder.trx_id = waits.blocking_trx_id "
    "join information_schema.innodb_trx as waiting on waiting.trx_id = waits.requesting_trx_id "
    "where holder.trx_mysql_thread_id = {} "
    # These do not say for whom; nobody else keeps one.
    "union all select info from information_schema.processlist where state like 'Waiting for table metadata lock'",
}


class Ground:
    """A queue or a subscription of one design, with messages of the caller's, of others, and some that wait."""

    def __init__(self, scene: Scene, design: Design, act: Act) -> None:
        self.scene, self.act, self.name = scene, act, f"m{secrets.token_hex(4)}"
        self.of_topic = design.of_topic
        producers: list[Queue | Topic]
        if self.of_topic:
            made = scene.others.create_topic(self.name, payload="text", groups=bool(design.ordered))
            name = made.subscribe("one", ordered=bool(design.ordered)).name
            producers = [database.topic(self.name) for database in (scene.acting, scene.others)]
        else:
            name = scene.others.create_queue(self.name, payload="text", **design.options).name
            producers = [database.queue(name) for database in (scene.acting, scene.others)]
        self.producer: Any
        self.pushing: Any
        self.producer, self.pushing = producers
        """For the caller, and for the others."""
        self.acting: Any = scene.acting.consumer(name)
        self.others: Any = scene.others.consumer(name)
        self.definition: Definition = self.others.definition
        self.grouped = bool(self.definition.groups)
        self.leased = self.definition.delivery == "at_least_once"
        self.mine: list[Claim] = []
        self.theirs: list[Claim] = []
        self.scheduled: list[int] = []
        self.early: list[int] = []

    def message(self, **options: Any) -> NewMessage:
        """A message of a group of its own, where there are groups."""
        return NewMessage("x", group=secrets.token_hex(6) if self.grouped else None, **options)

    def messages(self, n: int, **options: Any) -> list[NewMessage]:
        return [self.message(**options) for _ in range(n)]

    def plain(self) -> dict[str, Any]:
        """The options of `push` that name a group, where there are groups."""
        return {"group": secrets.token_hex(6)} if self.grouped else {}

    # -- before the act ------------------------------------------------------------------------------------------------

    def before_the_snapshot(self) -> None:
        first = self.messages(self.act.hold + HELD + WAITING)
        if self.definition.batches:
            with self.pushing.batch(then=(CALLED, "x")) as batch:
                batch.push_many(first)
        else:
            self.pushing.push_many(first)
        if not self.of_topic:
            self.scheduled = self.pushing.push_many(self.messages(8, delay=LATER))
            self.pushing.push("x", key=TAKEN, delay=LATER, **self.plain())
        if self.act.hold:
            self.mine = self.acting.pop_many(1 if self.definition.strict else self.act.hold)
        if not (self.mine and self.definition.strict):
            self.theirs = self.others.pop_many(1 if self.definition.strict else HELD // 2)

    def after_the_snapshot(self) -> None:
        """What others do between the first read of the transaction and the act."""
        if self.act.away == "finished":
            self.others.complete(self.mine[0])
        elif self.act.away == "lost":
            self.acting.extend(self.mine[0], 0)
            self._get(self.mine[0].id)
        if not self.definition.strict:
            self.theirs[0].complete()
            if self.leased:
                self.theirs[1].release()
            self.theirs = self.theirs[2:] + self.others.pop_many(HELD // 2)
        self.pushing.push_many(self.messages(2))
        while self.act.empty and self.others.pop_many(100):
            pass

    def _get(self, id: int) -> None:
        """Have others hold this message."""
        claims = self.others.pop_many(1 if self.definition.strict else 100)
        while id not in {claim.id for claim in claims}:  # claims look below their mark when nothing is above it
            claims += self.others.pop_many(1 if self.definition.strict else 100)
        kept = {id, *[claim.id for claim in claims if claim.id != id][:2]}
        rest = [claim for claim in claims if claim.id not in kept]
        if rest:
            self.others.release_many(rest)
        self.theirs += [claim for claim in claims if claim.id in kept and claim.id != id]

    # -- the cell ------------------------------------------------------------------------------------------------------

    def wrong(self, connection: sa.Connection, others: Others, older: bool) -> list[str]:
        """Run the act at the isolation level of the connection, `older` than what others do; return what is wrong."""
        wrong: list[str] = []
        table = context_of(self.others).table.table_name.rpartition(".")[2]
        prefixes = [table, f"tq_{self.name}", "tq__", "tq_queues"]
        self.before_the_snapshot()
        with connection.begin() as transaction:
            number = self.scene.kind.number(connection.connection.dbapi_connection)
            if older:
                connection.exec_driver_sql(f"select * from {self.scene.app}").all()  # noqa: S608 (our names)
            self.after_the_snapshot()
            known = self.scene.rows(prefixes)
            ids = {name: self._ids_in(name) for name in known if name in (table, f"{table}__heads")}
            acted: set[int] = set()
            refusal: TablequeueError | None = None
            try:
                acted = {*(self.act.run(self, connection) or ())}
            except TablequeueError as error:
                refusal = error
            except AssertionError as error:
                wrong.append(str(error))
            if self._as_expected(refusal):
                locked = self.scene.locked(known, prefixes)
                for name, rows in locked.items():
                    keys = {ids.get(name, {}).get(row, row) for row in rows}
                    if name not in ids or not keys <= acted:
                        wrong.append(f"locks {name.replace(self.name, '*')}: {sorted(map(str, keys - acted))}")
                wrong += self._held_up(number, others, transaction)
            elif not (isinstance(refusal, Conflict) and older):
                wrong.append(f"ends with {refusal!r}")
            if transaction.is_active:
                (transaction.rollback if wrong or refusal else transaction.commit)()
        self.pushing.drop()
        return wrong

    def refused(self, connection: sa.Connection) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Run the act, which is refused, and commit. Return what is in all tables before it and after the commit."""
        self.before_the_snapshot()
        self.after_the_snapshot()
        before = self.scene.content()
        assert self.act.refused
        with connection.begin(), pytest.raises(self.act.refused):
            self.act.run(self, connection)
        after = self.scene.content()
        self.pushing.drop()
        return before, after

    def failed(self, connection: sa.Connection) -> tuple[dict[str, list[str]], list[dict[str, list[str]]]]:
        """Run the act with its first statement refused by the server, then with its second one, and so on, and commit.

        Return what is in all tables before, and after each commit.
        """
        self.before_the_snapshot()
        self.after_the_snapshot()
        before, after = self.scene.content(), list[dict[str, list[str]]]()
        engine = context_of(self.acting).engine
        for engine.fails in count(1):  # type: ignore[attr-defined]
            engine.number = 0  # type: ignore[attr-defined]
            refused = False
            with connection.begin():
                try:
                    self.act.run(self, connection)
                except TablequeueError:
                    refused = True
            if engine.number < engine.fails:  # type: ignore[attr-defined]
                break
            if refused:  # else it was a sweep, without which the call goes on
                after.append(self.scene.content())
            elif self.scene.content() != before:
                break
        self.pushing.drop()
        return before, after

    def _as_expected(self, refusal: TablequeueError | None) -> bool:
        return isinstance(refusal, self.act.refused) if self.act.refused else refusal is None

    def _ids_in(self, table: str) -> dict[Any, int]:
        """The ids of messages, by the keys of their rows."""
        key = "ctid::text" if self.scene.kind.name == "postgresql" else "group_key" if table[-7:] == "__heads" else "id"
        rows = self.scene.select(f"select {key}, id from {self.scene.place.schema}.{table}")  # noqa: S608 (our names)
        return {(key,): id for key, id in rows}

    def _held_up(self, number: int, others: Others, transaction: sa.Transaction) -> list[str]:
        for calls in others(self):
            wrong, pending = self.scene.held_up(number, calls)
            if wrong:
                transaction.rollback()
                wait(pending, PATIENCE)
                return [f"holds up {name}" for name in wrong]
        return []


class FailingCursor:
    """A cursor of a caller's connection. The server refuses one of its statements; see `Ground.failed`."""

    def __init__(self, cursor: Any, engine: Any) -> None:
        self._cursor, self._engine = cursor, engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_cursor", "_engine"):
            super().__setattr__(name, value)
        else:
            setattr(self._cursor, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)

    def execute(self, statement: Any, *params: Any) -> Any:
        self._count(statement)
        return self._cursor.execute(statement, *params)

    def executemany(self, statement: Any, *params: Any) -> Any:
        self._count(statement)
        return self._cursor.executemany(statement, *params)

    def packet(self, statements: Any, params: Any) -> Any:
        self._count(statements)
        return self._cursor.packet(statements, params)

    def copy(self, statement: Any) -> Any:
        self._count(statement)
        return self._cursor.copy(statement)

    def _count(self, statement: Any) -> None:
        if any(word in str(statement)[:40] for word in ("savepoint", "rollback")):
            return
        self._engine.number += 1
        if self._engine.number == self._engine.fails:
            self._cursor.execute("select * from no_such_table")


@contextmanager
def scene(place: Place, kind: Kind, acting: Any = None) -> Iterator[Scene]:
    """Yield the sessions of some cells; `acting` is the caller's Database, if it is not as every other one."""
    with (
        ThreadPoolExecutor(64) as threads,
        closing(Scene(place, kind, acting or place.open("the caller"), threads)) as one,
    ):
        yield one
