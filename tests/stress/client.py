"""A client: a process with a Database of its own, and the verbs of its queues, each recorded in its ledger."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import sqlalchemy as sa

from tablequeue import Claim, Database, NewMessage, Queue, TablequeueError
from tablequeue.engines import engine_class
from tests.crashes import Steps, stepping
from tests.servers import Place
from tests.stress.board import END, RUN, Board
from tests.stress.ledger import Ledger, New, Note, payload_of
from tests.stress.mix import LEASE, Mix

GROUPS, KEYS = 5, 4


@dataclass(frozen=True)
class Setting:
    """The settings of a client, which can be sent to a process that inherits nothing."""

    url: str
    schema: str | None
    mutant: str | None
    folder: str
    mix: Mix
    side_by_side: bool
    """Whether two transactions can write at the same time."""

    def board(self) -> Board:
        return Board(Path(self.folder) / "board", self.mix.queues)

    def open(self, name: str, steps: Steps | None = None) -> Database:
        """Return a Database; with `steps`, its cursors have these."""
        place = Place(self.url, self.schema)
        if self.mutant is None and steps is None:
            return place.open(name)
        engine = engine_class(sa.make_url(self.url).get_backend_name())
        if self.mutant:
            from tests.test_mutants import MUTANTS

            engine = MUTANTS[self.mutant][0](engine)
        return place.open_with(stepping(engine, steps) if steps else engine, name)

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Setting:
        words = json.loads(text)
        return Setting(**words | {"mix": Mix.loads(json.dumps(words["mix"]))})


class Suspension:
    """Suspends this process between two statements of a call, soon after SIGUSR2.

    Its ledger notes how long. The run continues it.
    """

    def __init__(self, ledger: Ledger, board: Board) -> None:
        self.steps = Steps(self._reached)
        self.steps.armed = True
        self._ledger, self._board, self._pid = ledger, board, os.getpid()
        self._left = 0
        signal.signal(signal.SIGUSR2, self._ask)

    def _ask(self, *_: object) -> None:
        self._left = random.randint(1, 20)

    def _reached(self, number: int, words: str) -> None:
        if self._left:
            self._left -= 1
            if self._left == 0 and self._board.phase == RUN and self._pid == os.getpid():
                with self._ledger.op("stop", whom=self._ledger.who, text=words):
                    # Of this thread: else it goes on for a moment, and notes an end before the process stands still.
                    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


@dataclass(frozen=True)
class Held:
    """A claim that the client holds."""

    queue: str
    claim: Claim

    @property
    def words(self) -> list[Any]:
        return [self.claim.id, self.claim.token]


class Ended(Exception):
    """The round ended before the client had begun."""


class Client:
    """The state that the threads of a client share. After a fork, `child` makes another one with the same Database."""

    def __init__(self, setting: Setting, who: str, database: Database | None = None, engine: Any = None) -> None:
        self.setting, self.who = setting, who
        self.mix = setting.mix
        self.board = setting.board()
        self.ledger = Ledger(Path(setting.folder), who)
        self.ledger.end(self.ledger.begin("born", whom=str(os.getpid()), text=since_when(os.getpid())))
        dump_stacks_when_asked(Path(setting.folder) / f"{who}.stacks")
        self.database: Any = database
        self._engine = engine
        self._queues: dict[str, Queue] = {}
        self.numbers = count()

    @property
    def engine(self) -> sa.Engine:
        """The engine for the client's own transactions: that of the Database, or a new one in the child of a fork."""
        return self._engine or self.database.engine

    def open(self) -> None:
        """Open the database and its queues, however long the server is down."""
        while self.database is None:
            with self._patiently():
                steps = Suspension(self.ledger, self.board).steps if "step" in self.mix.kinds else None
                self.database = self.setting.open(self.who, steps)
        for name in self.mix.queues:
            self.queue(name)

    def queue(self, name: str) -> Queue:
        while name not in self._queues:
            with self._patiently():
                self._queues[name] = self.database.queue(name)
        return self._queues[name]

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        if self.ended():
            raise Ended
        try:
            with self.ledger.op("open"):
                yield
        except TablequeueError:
            sleep(0.1)

    def child(self, who: str) -> Client:
        """Return the client of a forked child, with the same Database and Queue objects and nothing else of the
        parent."""
        new_engine = sa.create_engine(self.setting.url)
        child = Client(self.setting, who, self.database, new_engine)
        child._queues = dict(self._queues)
        return child

    def close_at_times(self, chance: random.Random) -> None:
        if self.mix.lonely and chance.random() < 0.3:
            with self.ledger.op("close"):
                self.database.close()

    def running(self) -> bool:
        return self.board.phase == RUN

    def ended(self) -> bool:
        return self.board.phase == END

    def new(self, queue: str, chance: random.Random, **options: Any) -> New:
        """Return a message for the queue, with the required options and some optional ones."""
        new = New(f"{self.who}-{next(self.numbers)}", **options)
        if queue == "grouped" and new.group is None:
            new = replace(new, group=f"g{chance.randrange(GROUPS)}")
        if queue == "priority":
            new = replace(new, priority=chance.randint(-2, 2))
        if "delay" in self.mix.kinds and not new.delay and chance.random() < 0.25:
            # Scheduled messages block a strict queue or a group.
            longest = 0.3 if queue in ("strict", "grouped") else 1.5
            new = replace(new, delay=round(chance.uniform(0.02, longest), 3))
        return new

    # -- verbs -----------------------------------------------------------------------------------------------------

    def push(self, queue: str, new: Sequence[New], conflict: str = "raise", txn: Txn | None = None) -> Any:
        words = {"new": [astuple(each) for each in new], "conflict": conflict}
        with self.ledger.op("push", queue=queue, txn=named(txn), **words) as note:
            ids = self._push(queue, new, conflict, connection_of(txn))
            note.pushed(ids)
        return ids

    def _push(self, queue: str, new: Sequence[New], conflict: str, connection: Any) -> Any:
        verbs: Any = self.queue(queue)
        if len(new) > 1:
            messages = [NewMessage(payload_of(each.uid, size_of(each)), **options(each)) for each in new]
            return verbs.push_many(messages, on_conflict=conflict, connection=connection)
        (one,) = new
        payload = payload_of(one.uid, size_of(one))
        return verbs.push(payload, on_conflict=conflict, connection=connection, **options(one))

    def pop(
        self, queue: str, n: int = 1, completing: Sequence[Held] = (), txn: Txn | None = None, lease: float = LEASE
    ) -> list[Held]:
        """Pop with `pop` if n is 1, otherwise with `pop_many`."""
        words = {"n": n, "lease": lease, "held": [held.words for held in completing]}
        verbs, connection = self.queue(queue), connection_of(txn)
        done = [held.claim for held in completing]
        with self.ledger.op("pop", queue=queue, txn=named(txn), **words) as note:
            if n == 1 and len(done) < 2:
                one = verbs.pop(
                    lease=lease_of(queue, lease), completing=done[0] if done else None, connection=connection
                )
                claims = [one] if one else []
            else:
                claims = verbs.pop_many(n, lease=lease_of(queue, lease), completing=done, connection=connection)
            note.got(claims)
        return [Held(queue, claim) for claim in claims]

    def take(self, queue: str, n: int, txn: Txn) -> list[Held]:
        verbs = self.queue(queue)
        with self.ledger.op("take", queue=queue, txn=txn.name, n=n) as note:
            one = verbs.take(txn.connection) if n == 1 else None
            claims = [one] if one else [] if n == 1 else verbs.take_many(n, txn.connection)
            note.got(claims)
        return [Held(queue, claim) for claim in claims]

    def complete(self, batch: Sequence[Held], txn: Txn | None = None) -> None:
        with self.finishing("complete", batch, txn):
            if len(batch) == 1:
                batch[0].claim.complete(connection=connection_of(txn))
            else:
                self.queue(batch[0].queue).complete_many([held.claim for held in batch], connection=connection_of(txn))

    def fail(self, held: Held, retry_in: float | None, retry: bool = True) -> None:
        soonest, latest = backoff(held.claim.attempt) if retry_in is None else (retry_in, retry_in)
        with self.finishing("fail", [held], soonest=soonest, delay=latest) as note:
            note.state(held.claim.fail("why", retry_in=retry_in, retry=retry))

    def release(self, batch: Sequence[Held], delay: float = 0) -> None:
        """If delivery is at most once, a message cannot be released."""
        if batch[0].queue == "once":
            return self.complete(batch)
        with self.finishing("release", batch, soonest=delay, delay=delay):
            if len(batch) == 1:
                batch[0].claim.release(delay=delay)
            else:
                self.queue(batch[0].queue).release_many([held.claim for held in batch], delay=delay)

    def extend(self, held: Held, seconds: float) -> None:
        if held.queue == "once":
            return
        with self.finishing("extend", [held], seconds=seconds):
            held.claim.extend(seconds)

    @contextmanager
    def finishing(self, verb: str, batch: Sequence[Held], txn: Txn | None = None, **words: Any) -> Iterator[Note]:
        """Record a verb that acts on claims."""
        held = [each.words for each in batch]
        with self.ledger.op(verb, queue=batch[0].queue, txn=named(txn), held=held, **words) as note:
            yield note

    @contextmanager
    def transaction(self, chance: random.Random) -> Iterator[Txn]:
        """Run a transaction of the client, at some isolation level. It is rolled back unless the block ends it.

        It may have a snapshot from before what others do meanwhile.
        """
        connection = self._connected(chance)
        txn = Txn(f"{self.who}/{next(self.numbers)}", connection, self.ledger)
        try:
            yield txn
        finally:
            if not txn.ended:
                txn.rollback()
            # SQLAlchemy sets the level of before, and leaves the driver's error as it is.
            with suppress(sa.exc.DBAPIError, self.engine.dialect.loaded_dbapi.OperationalError):
                connection.close()

    def _connected(self, chance: random.Random) -> sa.Connection:
        """Return a connection for a transaction. One that the server has closed while it was idle is replaced."""
        levels = LEVELS.get(self.engine.dialect.name, ())
        while True:
            connection = self.engine.connect()
            try:
                if levels and chance.random() < 0.7:
                    connection = connection.execution_options(isolation_level=chance.choice(levels))
                if levels and chance.random() < 0.5:
                    # A child's session has another schema.
                    connection.exec_driver_sql(f"select count(*) from {self.setting.schema}.tq_queues")  # noqa: S608
                    sleep(chance.random() * 0.02)
                return connection
            # SQLAlchemy leaves the driver's error of a level as it is.
            except (sa.exc.DBAPIError, self.engine.dialect.loaded_dbapi.OperationalError):
                connection.invalidate()
                connection.close()


# The isolation levels of callers' transactions, where transactions write side by side.
LEVELS = {
    "postgresql": ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"),
    **dict.fromkeys(("mysql", "mariadb"), ("READ COMMITTED", "REPEATABLE READ")),
}


class Txn:
    """A transaction of a client, and the record of its end."""

    def __init__(self, name: str, connection: sa.Connection, ledger: Ledger) -> None:
        self.name, self.connection, self._ledger = name, connection, ledger
        self.ended = False

    def commit(self) -> None:
        self.ended = True
        with self._ledger.op("commit", txn=self.name):
            self.connection.commit()

    def rollback(self) -> None:
        self.ended = True
        with self._ledger.op("rollback", txn=self.name):
            self.connection.rollback()


def named(txn: Txn | None) -> str:
    return txn.name if txn else ""


def connection_of(txn: Txn | None) -> Any:
    return txn.connection if txn else None


def lease_of(queue: str, lease: float) -> float | None:
    return None if queue == "once" else lease


def options(new: New) -> dict[str, Any]:
    return {
        "group": new.group,
        "key": new.key,
        "priority": new.priority or None,
        "delay": new.delay or None,
    }


def size_of(new: New) -> int:
    """Return the size of the padding. A few are stored outside of their rows on PostgreSQL."""
    return 3000 if new.uid.endswith("77") else len(new.uid) * 3


def backoff(attempts: int) -> tuple[float, float]:
    """Return the minimum and the maximum wait of a failed message."""
    longest = min(1.0, 0.2 * 2 ** (attempts - 1)) if attempts < 10 else 1.0
    return longest * 0.9, longest


def dump_stacks_when_asked(path: Path) -> None:
    """Print the stacks of all threads on SIGUSR1, for clients that hang."""
    faulthandler.register(signal.SIGUSR1, file=path.open("a"), all_threads=True)


def work(client: Client, threads: dict[str, Callable[[], None]]) -> None:
    """Run these functions until they end. An error in one of them is a fault of the harness or of the library."""

    def guarded(act: Callable[[], None]) -> None:
        try:
            act()
        except Ended:
            pass
        except BaseException:
            client.ledger.end(client.ledger.begin("crashed", text=traceback.format_exc()[-2000:]))

    running = [threading.Thread(target=guarded, args=(act,), name=name) for name, act in threads.items()]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def since_when(pid: int) -> str:
    """Return the start time of the process, or nothing if it has ended. Another process may get its number."""
    try:
        # After the name, which may contain any characters. Z is a process that has ended.
        state, *words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else words[18]


def die_with_the_parent() -> None:
    """Kill this client if the run is killed (Linux)."""
    with_signal = 1  # PR_SET_PDEATHSIG
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(with_signal, signal.SIGKILL)
