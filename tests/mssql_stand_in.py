"""A stand-in for SQL Server and its driver pyodbc. It records what is sent, and returns prepared answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from tablequeue import Claim, Consumer, Database, Queue
from tablequeue.engines.mssql.engine import SQLServer
from tablequeue.engines.runner import Runner
from tablequeue.ext import context_of
from tests import mssql_rules as rules

TIME = datetime(2040, 1, 1)


class Error(Exception):
    """An error with the module name of pyodbc."""


Error.__module__ = "pyodbc"


def refusal(number: int, words: str, state: str = "42000") -> Error:
    said = f"[{state}] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{words} ({number}) (SQLExecDirectW)"
    return Error(state, said)


DEADLOCK = refusal(1205, "Transaction (Process ID 51) was chosen as the deadlock victim. Rerun it.", "40001")
LOCK_TIMEOUT = refusal(1222, "Lock request time out period exceeded.", "HYT00")
NOT_GRANTED = refusal(51000, "tablequeue: other sessions are sequencing this topic")
SAME_KEY = refusal(
    2601, "Cannot insert duplicate key row in object 'dbo.tq_work' with unique index 'tq_work__key'.", "23000"
)
SAME_STREAM = refusal(
    2627,
    "Violation of PRIMARY KEY constraint 'pk_tq_work__streams'. Cannot insert duplicate key in object "
    "'dbo.tq_work__streams'. The duplicate key value is (0x6c0061006b006500).",
    "23000",
)
SAME_FRONT = refusal(
    2601, "Cannot insert duplicate key row in object 'dbo.tq_work' with unique index 'tq_work__front'.", "23000"
)


class Cursor:
    """A cursor that returns counts before rows, as without NOCOUNT."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.results: list[list[tuple[Any, ...]] | None] = []

    @property
    def description(self) -> Any:
        return None if not self.results or self.results[0] is None else [("column",)]

    def execute(self, text: str, params: tuple[Any, ...] = ()) -> None:
        assert text.count("?") == len(params)
        assert None not in params, "nulls are spelled into the text"
        text = text.replace("dbo.", "")  # the schema of the catalogue: tests name tables without it
        if text != "select 1":  # of a connection that was idle, if the machine is slow
            self.server.sent.append((text, params))
        answer = self.server.answer(text, params)
        if isinstance(answer, Exception):
            raise answer
        self.results = [None, None, answer, None]

    def fetchall(self) -> Any:
        return self.results[0]

    def nextset(self) -> bool:
        self.results = self.results[1:]
        return bool(self.results)


Answer = Callable[[tuple[Any, ...]], Any]


class Server:
    """A server, its connection pool and its connections in one object."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Answer] = {}
        self.dialect = sa.make_url("mssql+pyodbc://").get_dialect()()
        self.url = sa.make_url("mssql+pyodbc://")
        self.definition: str | None = None
        self.autocommit = False
        self.pool = sa.NullPool(lambda: self)  # type: ignore[arg-type]  # it is what the driver connects to

    # the methods that a Runner needs of a SQLAlchemy engine and its connections
    def cursor(self) -> Cursor:
        return Cursor(self)

    def close(self) -> None: ...

    def dispose(self, close: bool = True) -> None: ...

    def answer(self, text: str, params: tuple[Any, ...]) -> Any:
        """Return the prepared answer for a text. An UPDATE without OUTPUT returns no rows."""
        for pattern, answer in self.answers.items():
            if re.search(pattern, text):
                said = answer(params)
                return said if isinstance(said, Exception) or any(map(rules.says, rules.statements(text))) else None
        return []

    def texts(self) -> list[str]:
        """Return the first words of each text that was sent, without declarations."""
        bare = [re.sub(r"declare [^;]*;\n", "", text) for text, _ in self.sent]
        return [" ".join(text.split()[:4]) for text in bare]


Server.__module__ = "pyodbc"


def new_server() -> Server:
    """Return a server that accepts connections and has the catalogue."""
    server = Server()
    server.answers = {
        "compatibility_level": lambda params: [(160, "dbo")],
        "object_id": lambda params: [(1,)],
        "select xact_state": lambda params: [(1,)],
    }
    return server


def queue_on(server: Server, **definition: Any) -> Queue:
    sa_engine: Any = server
    database = Database(sa_engine, Runner(sa_engine, SQLServer(server.dialect)), "me")
    queue = database.create_queue("work", **definition)
    context_of(queue).table.next_sweep = float("inf")
    server.sent.clear()
    return queue


def rows(ids: range) -> list[tuple[Any, ...]]:
    """Return claimed rows out of order, because SQL Server promises no order."""
    return [(id, '"x"', None, 1, TIME, TIME, TIME, 0, "g", None, None) for id in reversed(ids)]


def claims(queue: Consumer, ids: range) -> list[Claim]:
    return [Claim.of(queue, id, "ab" * 16) for id in ids]


class Numbered:
    """Assigns ids from 1 on to each batch that is pushed or claimed."""

    def __init__(self, size: Callable[[tuple[Any, ...]], int], row: Callable[[range], list[Any]]) -> None:
        self.size, self.row, self.last = size, row, 0

    def __call__(self, params: tuple[Any, ...]) -> list[Any]:
        first, self.last = self.last + 1, self.last + self.size(params)
        return self.row(range(first, self.last + 1))
