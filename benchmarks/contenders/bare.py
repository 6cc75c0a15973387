"""The limit: the project's own statements, sent by the bare driver without any code around them.

There are no claim objects, no checks of tokens, no retries after a rollback by the server, and no sweeps. The
statements of a call are one transaction, as in the library; on PostgreSQL each statement is one.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

import tablequeue
from benchmarks.contenders import Contender
from tablequeue.ext import context_of

BARE, BARE_COPY = "bare driver", "bare COPY"

# Parameters of push and push_many that are not used here.
_PLAIN: dict[str, Any] = dict.fromkeys(("headers", "delay", "due", "now", "group", "key"))
_PLAIN |= {"producer": "bare", "priority": 0, "within": False}


class Bare(Contender):
    """In bulk, it pushes, claims and completes `batch` messages at a time."""

    def __init__(self, url: str, batch: int = 1, **options: Any) -> None:
        self.name = BARE if batch == 1 else f"{BARE} by {batch:,}"
        self._database = tablequeue.connect(url)
        queue = self._database.create_queue(
            "_".join(["bare", str(batch), *options.values()]), payload="text", **options
        )
        proxy = self._database.engine.raw_connection()
        proxy.detach()
        self._held = context_of(queue).engine.adopt(proxy.dbapi_connection)
        self._table = context_of(queue).table
        self._cursor = self._held.dbapi.cursor()  # the driver's own cursor, because that of the engine takes short cuts
        self._batch = batch
        self._low_water = 0

    def push(self, payloads: Sequence[str]) -> None:
        statement = self._table.statement("push")
        for payload in payloads:
            self._begin()
            self._cursor.execute(statement, {**_PLAIN, "payload": payload})
            self._cursor.fetchone()
            self._commit()

    def push_bulk(self, payloads: Sequence[str]) -> None:
        for start in range(0, len(payloads), self._batch):
            self._begin()
            self._push_batch(payloads[start : start + self._batch])
            self._commit()

    def drain_singly(self, number: int) -> list[str]:
        return self._drain(number, 1)

    def drain(self, number: int) -> list[str]:
        return self._drain(number, self._batch)

    def close(self) -> None:
        self._held.close()
        self._database.close()

    # -- private -----------------------------------------------------------------------------------------------------

    def _drain(self, number: int, size: int) -> list[str]:
        claim, complete = self._table.statement("claim"), self._table.statements("complete")
        delivered: list[str] = []
        while len(delivered) < number:
            token = secrets.token_hex(16)
            params = {"n": size, "token": token, "consumer": "bare", "lease": 60.0, "now": None}
            self._begin()
            self._cursor.execute(claim, params | {"low_water": self._low_water})
            rows = self._cursor.fetchall()
            self._commit()
            if not rows:
                break
            ids = [row[0] for row in rows]
            self._low_water = max(ids)
            self._begin()
            for statement in complete:
                self._cursor.execute(statement, {"token": token, "ids": self._ids(ids), "now": None})
            self._cursor.fetchall()
            self._commit()
            delivered += [row[1] for row in rows]
        return delivered

    @abstractmethod
    def _push_batch(self, payloads: Sequence[str]) -> None: ...

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _ids(self, ids: list[int]) -> Any: ...


class BarePostgreSQL(Bare):
    def _push_batch(self, payloads: Sequence[str]) -> None:
        self._cursor.execute(self._table.statement("push_many"), {**_PLAIN, "payloads": payloads})
        self._cursor.fetchall()

    def _begin(self) -> None:
        """Each statement is a transaction."""

    def _commit(self) -> None:
        """Do nothing, because the statement has committed."""

    def _ids(self, ids: list[int]) -> list[int]:
        return ids


class BareCopy(BarePostgreSQL):
    """Everything at once: one claim, and a COPY of one text, in which these payloads need no escapes."""

    def __init__(self, url: str, batch: int) -> None:
        super().__init__(url, batch)
        self.name = BARE_COPY

    def _push_batch(self, payloads: Sequence[str]) -> None:
        now = datetime.now(UTC)
        with self._cursor.copy(f"copy tq_{self._table.name} (payload, pushed_at) from stdin") as copy:
            copy.write("".join(f"{payload}\t{now}\n" for payload in payloads))


class BareSQLite(Bare):
    """Uses SQLite's own flushes, each within its commit."""

    def __init__(self, url: str, batch: int = 1, **options: Any) -> None:
        super().__init__(url, batch, **options)
        self._cursor.execute("pragma synchronous = full")

    def _push_batch(self, payloads: Sequence[str]) -> None:
        statement = self._table.statement("push_many")
        self._cursor.executemany(statement, ({**_PLAIN, "payload": payload} for payload in payloads))

    def _begin(self) -> None:
        self._cursor.execute("begin immediate")

    def _commit(self) -> None:
        self._cursor.execute("commit")

    def _ids(self, ids: list[int]) -> str:
        return str(ids)


BY_ENGINE = {"postgresql": BarePostgreSQL, "sqlite": BareSQLite}


def bare(url: str, batch: int = 1, **options: Any) -> Bare:
    """Return the bare driver on a queue with these options."""
    return BY_ENGINE[sa.make_url(url).get_backend_name()](url, batch, **options)
