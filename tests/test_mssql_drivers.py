"""How the real drivers of SQL Server treat text, parameters and errors, with a stand-in for its protocol.

Those that are installed: `make setup` brings Microsoft's own. No server runs here. Its answer is made up from the
requested columns.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database, NewMessage, Queue, errors
from tablequeue.bulk import arrow
from tablequeue.engines import procedures
from tablequeue.engines.mssql.connection import LEVELS, REFUSED_LEVEL
from tablequeue.engines.mssql.engine import SQLServer
from tablequeue.engines.runner import Runner
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition
from tests import mssql_rules as rules
from tests import tds
from tests.procedures import on_mssql
from tests.support import refuses

TIME = "2040-01-01T00:00:00.000000"
# Beginnings of a text that are no byte-order mark, and endings that could be misread.
TEXTS = [
    "\ufeffabc",
    "\ufffeabc",
    "\ufeff",
    "\ufffe",
    "\ufeff\ufeff",
    "a\ufeffb",
    "",
    " ",
    "a ",
    "zw\u00f6lf",
    "\U0001f600\ufffe",
    "\ufffe" + "\u00e9" * 9000,
    "x" * 20_000,
]
# The types of the columns that are text, in a queue of text.
KINDS = {
    **dict.fromkeys(("payload", "headers", "errors"), "nvarchar(max)"),
    **dict.fromkeys(("group_key", "dedup_key", "stream"), "nvarchar(510)"),
    **dict.fromkeys(("producer", "consumer"), "nvarchar(512)"),
}
OTHERS = {"id": "bigint", "attempts": "int", "priority": "int", "state": "varchar(11)"}


# -- the drivers -------------------------------------------------------------------------------------------------------


def _mssql_python(port: int) -> Any:
    mssql_python = _import("mssql_python")
    try:
        return mssql_python.connect(f"{_odbc(port)};TrustServerCertificate=yes")
    except mssql_python.Error as error:
        if "Failed to load the driver" in str(error):
            # The ODBC driver needs libltdl.so.7, which scripts/install-servers installs.
            _missing(str(error))
        raise


def _pyodbc(port: int) -> Any:
    pyodbc = _import("pyodbc")
    drivers = [name for name in pyodbc.drivers() if "SQL Server" in name]
    spec = find_spec("mssql_python_odbc")  # which has one that needs no installation
    if not drivers and spec is not None and spec.origin is not None:
        drivers = [str(path) for path in Path(spec.origin).parent.glob("libs/linux/debian*/x86_64/lib/libmsodbcsql*")]
    if not drivers:
        _missing("There is no ODBC driver for SQL Server.")
    return pyodbc.connect(f"DRIVER={drivers[0]};{_odbc(port)}")


def _pymssql(port: int) -> Any:
    pymssql = _import("pymssql")
    login = {"server": "127.0.0.1", "port": port, "user": "sa", "password": "x", "database": "work"}
    return pymssql.connect(**login, encryption="off")


def _import(driver: str) -> Any:
    try:
        return import_module(driver)
    except ImportError as error:  # or a library that it loads is missing, which scripts/install-servers installs
        _missing(str(error))


def _missing(what: str) -> None:
    (pytest.fail if os.environ.get("CI") else pytest.skip)(what)


def _odbc(port: int) -> str:
    return f"Server=127.0.0.1,{port};Database=work;UID=sa;PWD=x;Encrypt=no"


DRIVERS: dict[str, Callable[[int], Any]] = {
    "mssql_python": _mssql_python,
    "pyodbc": _pyodbc,
    "pymssql": _pymssql,
}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    return DRIVERS[request.param]


@pytest.fixture
def server() -> Iterator[tds.Server]:
    with tds.serving(lambda sent: None) as server:
        yield server


def queue_on(server: tds.Server, driver: Callable[[int], Any], **definition: Any) -> Queue:
    """Return a queue whose calls go to the stand-in through the driver."""
    url = sa.make_url("mssql+pymssql://")
    pool = sa.NullPool(lambda: driver(server.port))
    sa_engine: Any = SimpleNamespace(url=url, pool=pool, raw_connection=pool.connect, dispose=lambda close=True: None)
    engine = SQLServer(url.get_dialect()())
    made = Definition(**definition)
    row = (engine.table("work", made).entry, engine.schema_version)
    there = [tds.Column("definition", "nvarchar(max)"), tds.Column("schema_version", "int")]

    def reply(sent: tds.Sent) -> tds.Rows | None:
        if "compatibility_level" in sent.text:
            return tds.Rows(
                [tds.Column("compatibility_level", "int"), tds.Column("place", "nvarchar(510)")], [(160, None)]
            )
        if "object_id(" in sent.text:
            return tds.Rows([tds.Column("there", "int")], [(1,)])
        return tds.Rows(there, [row]) if "select definition" in sent.text else None

    server.reply = reply
    queue = Database(sa_engine, Runner(sa_engine, engine), "me").queue("work")
    context_of(queue).table.next_sweep = float("inf")
    return queue


def selected(text: str, message: dict[str, Any]) -> tds.Rows | None:
    """Return the row that SQL Server would return for a message; None if the SQL returns no rows."""
    items = rules.answer(text)
    return _row(items, message) if items else None


def _row(items: list[str], message: dict[str, Any]) -> tds.Rows:
    columns, values = [], []
    for item in items:
        name = re.findall(r"\w+", item)[-1]
        value = message.get(name.removeprefix("utf16_"))
        kind = {**KINDS, **OTHERS}.get(name, "nvarchar(510)")
        if isinstance(value, bytes):
            kind = "varbinary(max)"
        if asked := re.match(r"convert\((varbinary\(\w+\)),", item):
            kind = asked[1]
            value = value.encode("utf-16-le", "surrogatepass") if isinstance(value, str) else value
        columns.append(tds.Column(name, kind))
        values.append(value)
    return tds.Rows(columns, [values])


def message_of(text: str, payload: Any = None) -> dict[str, Any]:
    """Return a message with the text in each of its fields, as far as the columns have room."""
    times = dict.fromkeys(("pushed_at", "popped_at", "due_at", "first_popped_at", "finished_at", "lease_until"), TIME)
    short = text[:100]
    return {
        **times,
        "id": 7,
        "state": "dead",
        "attempts": 1,
        "priority": 0,
        "payload": text if payload is None else payload,
        "headers": json.dumps({"trace": text}, ensure_ascii=False),
        "errors": json.dumps([{"attempt": 1, "at": TIME, "consumer": short, "error": text}], ensure_ascii=False),
        "group_key": short,
        "dedup_key": short,
        "producer": short,
        "consumer": short,
    }


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[1:20])
def test_text_comes_back_as_it_is_stored(server: tds.Server, driver: Callable[[int], Any], text: str) -> None:
    queue = queue_on(server, driver, payload="text")
    message = message_of(text)
    short = text[:100]
    server.reply = lambda sent: selected(sent.text, message)
    with_connection = driver(server.port)
    taken = queue.take(with_connection)
    claimed = queue.pop()
    for claim in (taken, claimed):
        assert claim is not None
        assert (claim.payload, claim.headers, claim.group or "", claim.key) == (text, {"trace": text}, short, short)
    found = queue.find(7)
    for stored in (found, *queue.peek(), *queue.dead(), *queue.history()):
        assert stored is not None
        assert (stored.payload, stored.headers) == (text, {"trace": text})
        assert (stored.group or "", stored.key, stored.producer, stored.consumer) == (short, short, short, short)
        assert [(error.error, error.consumer) for error in stored.errors] == [(text, short)]
    schema = arrow.columns(queue, "stream")
    (batch,) = arrow.stream_batches(queue, "ab" * 16, [7], schema)
    assert batch.to_pylist()[0]["payload"] == text


@pytest.mark.parametrize("payload", [b"", b"\xff\xfea\0", b"\xfe\xff\0a", b"\0", b"a\0\0", bytes(range(256)) * 100])
def test_bytes_come_back_as_they_are_stored(server: tds.Server, driver: Callable[[int], Any], payload: bytes) -> None:
    queue = queue_on(server, driver, payload="bytes")
    message = message_of("\ufeffx", payload)
    server.reply = lambda sent: selected(sent.text, message)
    claim = queue.pop()
    assert claim is not None
    assert (claim.payload, claim.headers) == (payload, {"trace": "\ufeffx"})
    assert [stored.payload for stored in queue.peek()] == [payload]
    (batch,) = arrow.stream_batches(queue, "ab" * 16, [7], arrow.columns(queue, "stream"))
    assert batch.to_pylist()[0]["payload"] == payload


def test_a_connection_that_the_server_closed_is_not_used(server: tds.Server, driver: Callable[[int], Any]) -> None:
    queue = queue_on(server, driver, payload="text")
    (raw,) = context_of(queue).runner.pool._idle
    raw.used_at -= 3600
    assert raw.is_open()
    server.close_sessions()
    server.reply = lambda sent: (
        tds.Rows([tds.Column("compatibility_level", "int"), tds.Column("place", "nvarchar(510)")], [(160, None)])
        if "compatibility_level" in sent.text
        else selected(sent.text, message_of("a"))
    )
    claim = queue.pop()
    assert claim is not None
    assert claim.payload == "a"
    assert raw not in context_of(queue).runner.pool._all


def test_half_a_surrogate_fails_no_message(server: tds.Server, driver: Callable[[int], Any]) -> None:
    """T-SQL stores half a surrogate. An error from the driver would come after the claim, and cost the whole batch an
    attempt."""
    queue = queue_on(server, driver, payload="text")
    server.reply = lambda sent: selected(sent.text, message_of("a\ud83d") | {"headers": None, "errors": None})
    claim = queue.pop()
    assert claim is not None
    assert claim.payload == "a\ud83d"


def test_the_check_notices_text_that_is_asked_for_as_it_is(server: tds.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a driver that misreads it. When the driver is fixed, this test fails."""
    monkeypatch.setattr("tablequeue.engines.mssql.engine.in_bytes", lambda batch, columns: batch)
    queue = queue_on(server, _mssql_python, payload="text")
    for text, misread in (("\ufeffabc", "abc"), ("\ufffea", "\u6100")):
        server.reply = lambda sent, text=text: selected(sent.text, message_of(text))  # type: ignore[misc]
        (stored,) = queue.peek()
        assert stored.payload == misread


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text)[1:20])
def test_text_is_sent_as_it_is(server: tds.Server, driver: Callable[[int], Any], text: str) -> None:
    queue = queue_on(server, driver, payload="text")
    server.reply = lambda sent: tds.Rows([tds.Column("id", "bigint")], [(1,)])
    headers = {"trace": text}
    queue.push(text, headers=headers, key=text[:100] or "k", delay=1.5)
    queue.push_many([text, text])
    single, many = (sent for sent in server.sent if "insert into tq_work " in sent.text)
    assert _has(single, text)
    assert _has(single, json.dumps(headers, ensure_ascii=False, separators=(",", ":")))
    assert _has(single, text[:100] or "k")
    assert _has(many, json.dumps([text, text], ensure_ascii=False))


def _has(sent: tds.Sent, text: str) -> bool:
    """As a parameter, or as a literal with a driver that has no parameters."""
    return text in sent.values or f"N'{text.replace(chr(39), chr(39) * 2)}'" in sent.text


def test_a_call_of_a_procedure(server: tds.Server, driver: Callable[[int], Any]) -> None:
    """Like the calls of the suites that use procedures, which need a server."""
    queue = queue_on(server, driver)
    token = "0123456789abcdef" * 2
    row = tds.Rows([tds.Column("id", "bigint")], [(5,)])
    server.reply = lambda sent: row if "exec tq_" in sent.text else None
    cursor = SQLServer(context_of(queue).table.engine.dialect).join(driver(server.port))
    table = context_of(queue).table
    assert on_mssql(cursor, table, "complete", {"ids": "[1, 2]", "token": token, "now": None}) == [(5,)]
    messages = '[{"payload": {"b": 1.50}, "headers": {"a": 1}, "key": "k"}, {"payload": "x"}]'
    assert on_mssql(cursor, table, "push_each", {"messages": messages, "producer": "me"}) == [(5,)]
    completed, pushed = (sent for sent in server.sent if "exec tq_" in sent.text)
    assert "exec tq_work_complete @p_ids = " in completed.text
    assert completed.text.endswith("@p_now = null")
    assert _has(completed, "01234567-89ab-cdef-0123-456789abcdef")
    given = [{"headers": '{"a": 1}', "key": "k", "payload": '{"b": 1.50}'}, {"payload": '"x"'}]
    assert _has(pushed, json.dumps(given))


# -- a caller's isolation level ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "level"), LEVELS.items())
def test_a_transaction_of_another_level_is_refused(
    server: tds.Server, driver: Callable[[int], Any], number: int, level: str
) -> None:
    """The server answers to the first batch, which it then ends."""
    queue = queue_on(server, driver)
    answer = tds.Rows([tds.Column(REFUSED_LEVEL, "bigint")], [(number,)])
    server.reply = lambda sent: answer if "as refused_level" in sent.text else None
    connection = driver(server.port)
    claim = Claim.of(queue, 1, "ab" * 16)
    calls: list[Callable[[], object]] = [
        partial(queue.push, "x", connection=connection),
        partial(queue.push_many, ["x"] * 1500, connection=connection),
        partial(queue.take, connection),
        partial(queue.pop, connection=connection),
        partial(claim.complete, connection=connection),
        partial(claim.fail, "why", connection=connection),
        partial(claim.release, connection=connection),
        partial(queue.cancel, 1, connection=connection),
    ]
    for call in calls:
        server.sent.clear()
        assert level in refuses(errors.BadInput, call).cause
        asked = [sent.text for sent in server.sent if "tq_" in sent.text]
        assert len(asked) == 1, "nothing runs after the refusal"
        assert asked[0].lstrip().startswith("if (select transaction_isolation_level from sys.dm_exec_sessions")
        assert asked[0].index("return;") < asked[0].index("tq_")


def test_a_call_asks_for_the_level_once_and_our_own_never(server: tds.Server, driver: Callable[[int], Any]) -> None:
    queue = queue_on(server, driver)
    context_of(queue).table.engine.settle("dbo")
    queue.push_many(["x"] * 2500, connection=driver(server.port))
    pushes = ["refused_level" in sent.text for sent in server.sent if "insert into dbo.tq_work " in sent.text]
    assert pushes == [True, False, False]
    server.sent.clear()
    queue.push_many(["x"] * 2500)
    assert not [sent for sent in server.sent if "refused_level" in sent.text]


# -- errors ------------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[type[Exception], int, str]] = [
    (errors.Conflict, 1205, "Transaction (Process ID 51) was deadlocked on lock resources with another process and has "
     "been chosen as the deadlock victim. Rerun the transaction."),
    (errors.Locked, 1222, "Lock request time out period exceeded."),
    (errors.Locked, 51000, "tablequeue: another program is creating or dropping queues in this database"),
    (errors.BadInput, 650, "You can only specify the READPAST lock in the READ COMMITTED or REPEATABLE READ isolation "
     "levels."),
    (errors.QueueNotFound, 208, "Invalid object name 'tq_work'."),
    (errors.QueueDiffers, 2714, "There is already an object named 'tq_work_push' in the database."),
    (errors.QueueDiffers, 2010, "Cannot perform alter on 'tq_work_push' because it is an incompatible object type."),
    (errors.BadInput, 8114, "Error converting data type nvarchar to datetimeoffset."),
    (errors.NoRights, 229, "The EXECUTE permission was denied on the object 'tq_work_pop', database 'work', schema "
     "'dbo'."),
    (errors.Full, 9002, "The transaction log for database 'work' is full due to 'LOG_BACKUP'."),
    (errors.DatabaseError, 8134, "Divide by zero error encountered."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "number", "words"), REFUSED, ids=[str(refused[1]) for refused in REFUSED])
def test_errors_of_the_server(
    server: tds.Server, driver: Callable[[int], Any], kind: type[Exception], number: int, words: str
) -> None:
    queue = queue_on(server, driver)
    server.reply = lambda sent: tds.Refusal(number, words) if "select" in sent.text else None
    refusal = refuses(kind, queue.peek)
    assert words.rstrip(".") in refusal.cause


def test_the_same_key_from_elsewhere_is_recognised(server: tds.Server, driver: Callable[[int], Any]) -> None:
    queue = queue_on(server, driver)
    words = (
        "Cannot insert duplicate key row in object 'dbo.tq_work' with unique index 'tq_work__key'. "
        "The duplicate key value is (0x6b00)."
    )
    server.reply = lambda sent: tds.Refusal(2601, words) if "insert" in sent.text else None
    assert queue.push("x", key="k", on_conflict="skip") is None
    answers: Iterator[tds.Refusal | tds.Rows] = iter(
        [tds.Refusal(2601, words), tds.Rows([tds.Column("id", "bigint")], [(5,)])]
    )
    server.reply = lambda sent: next(answers) if "insert" in sent.text else None
    assert queue.push_many([NewMessage("x", key="k")]) == [5]


THROWN = sorted(
    {
        (int(number), words)
        for file in procedures.templates("mssql")
        for number, words in re.findall(r"throw (510\d\d), N'([^']+)'", procedures.template("mssql", file))
    }
)


@pytest.mark.parametrize(("number", "words"), THROWN)
def test_errors_of_the_procedures(server: tds.Server, driver: Callable[[int], Any], number: int, words: str) -> None:
    queue = queue_on(server, driver)
    server.reply = lambda sent: tds.Refusal(number, words) if "select" in sent.text else None
    refusal = refuses(procedures.RAISED[number], queue.peek)
    assert f"{refusal.cause} {refusal.remedy}" == words
