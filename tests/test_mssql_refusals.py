"""The translation of SQL Server's errors, for each driver. Their texts follow sys.messages, not a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tablequeue import errors
from tablequeue.engines import procedures
from tablequeue.engines.mssql.refusals import translated
from tests.mssql_stand_in import Error, refusal


class Mssql(Exception):
    """An error of mssql-python: the SQLSTATE in words, and no number."""

    def __init__(self, state: str, words: str) -> None:
        super().__init__(f"Driver Error: {state}; DDBC Error: [Microsoft][SQL Server]{words}")
        self.driver_error, self.ddbc_error = state, f"[Microsoft][SQL Server]{words}"


class Pymssql(Exception):
    """An error of pymssql: the number and the bytes of the text, followed by FreeTDS's own text."""

    def __init__(self, number: int, words: str) -> None:
        tail = (
            b"DB-Lib error message 20018, severity 16:\nGeneral SQL Server error: Check messages from the SQL Server\n"
        )
        super().__init__((number, words.encode() + tail))


Mssql.__name__ = Pymssql.__name__ = "Error"
Mssql.__module__, Pymssql.__module__ = "mssql_python.exceptions", "pymssql.exceptions"

SAID: list[tuple[type[Exception], int, str, str]] = [
    (errors.Conflict, 1205, "Serialization failure", "Transaction was deadlocked and chosen as the deadlock victim."),
    (errors.Locked, 1222, "General error", "Lock request time out period exceeded."),
    (errors.Locked, 51000, "General error", "tablequeue: another program is creating or dropping queues in this one"),
    (errors.Locked, 51000, "General error", "tablequeue: other consumers are claiming from this subscription"),
    (errors.Locked, 51000, "General error", "tablequeue: other sessions are sequencing this topic"),
    (errors.QueueNotFound, 2812, "General error", "Could not find stored procedure 'tq_work__sequence'."),
    (errors.BadInput, 650, "Syntax error or access violation", "You can only specify the READPAST lock in the READ "
     "COMMITTED or REPEATABLE READ isolation levels."),
    (errors.BadInput, 1934, "General error", "INSERT failed because the following SET options have incorrect settings: "
     "'QUOTED_IDENTIFIER'."),
    (errors.BadInput, 517, "Datetime field overflow", "Adding a value to a 'datetime2' column caused an overflow."),
    (errors.BadInput, 628, "General error", "Cannot issue SAVE TRANSACTION when there is no active transaction."),
    (errors.BadInput, 3918, "General error", "The statement or function must be executed in the context of a user "
     "transaction."),
    (errors.QueueNotFound, 208, "Base table or view not found", "Invalid object name 'tq_work'."),
    (errors.QueueDiffers, 2714, "Base table or view already exists", "There is already an object named 'tq_work' in "
     "the database."),
    (errors.NoRights, 229, "Syntax error or access violation", "The INSERT permission was denied on the object 'tq'."),
    (errors.NoRights, 262, "Syntax error or access violation", "CREATE TABLE permission denied in database 'work'."),
    (errors.Full, 9002, "General error", "The transaction log for database 'work' is full due to 'LOG_BACKUP'."),
    (errors.ReadOnly, 3906, "General error", "Failed to update database 'work' because the database is read-only."),
    (errors.ReadOnly, 978, "General error", "The target database ('work') is in an availability group and is currently "
     "accessible for connections when the application intent is set to read only."),
    (errors.Unreachable, 10928, "General error", "Resource ID : 1. The request limit for the database is 90 and has "
     "been reached."),
    (errors.Unreachable, 17809, "General error", "Could not connect because the maximum number of '100' user "
     "connections has already been reached."),
    (errors.Unreachable, 18456, "Invalid authorization specification", "Login failed for user 'sa'."),
    (errors.Unreachable, 4060, "Syntax error or access violation", 'Cannot open database "work" for the login.'),
    (errors.QueueDiffers, 2010, "General error", "Cannot perform alter on 'dbo.tq_work_push' because it is an "
     "incompatible object type."),
    (errors.BadInput, 245, "Syntax error or access violation", "Conversion failed when converting the nvarchar value "
     "'x' to data type int."),
    (errors.BadInput, 8114, "General error", "Error converting data type nvarchar to bigint."),
    (errors.BadInput, 8115, "General error", "Arithmetic overflow error converting expression to data type int."),
    (errors.BadInput, 13609, "General error", "JSON text is not properly formatted. Unexpected character 'x' is found "
     "at position 0."),
    (errors.DatabaseError, 8134, "General error", "Divide by zero error encountered."),
]  # fmt: skip


def drivers(number: int, state: str, words: str) -> Iterator[Exception]:
    yield refusal(number, words)
    yield Pymssql(number, words)
    yield Mssql(state, words)


@pytest.mark.parametrize(("kind", "number", "state", "words"), SAID, ids=[str(said[1]) for said in SAID])
def test_errors_have_a_cause_and_a_remedy(kind: type[Exception], number: int, state: str, words: str) -> None:
    for error in drivers(number, state, words):
        refused = translated(error)
        assert type(refused) is kind, error
        assert refused.remedy
        assert words.rstrip(".") in refused.cause
        assert "DB-Lib" not in refused.cause
        assert "[" not in refused.cause


THROWN = {
    (int(number), words)
    for file in procedures.templates("mssql")
    for number, words in re.findall(r"throw (510\d\d), N'([^']+)'", procedures.template("mssql", file))
}


@pytest.mark.parametrize(("number", "words"), sorted(THROWN))
def test_the_errors_of_the_procedures(number: int, words: str) -> None:
    for error in drivers(number, "General error", words):
        refused = translated(error)
        assert type(refused) is procedures.RAISED[number], error
        assert f"{refused.cause} {refused.remedy}" == words


@pytest.mark.parametrize(
    "error",
    [
        Error("08S01", "[08S01] [Microsoft][ODBC Driver 18 for SQL Server]TCP Provider: Error code 0x68 (104) (SQLEx)"),
        Mssql("Communication link failure", "TCP Provider: Error code 0x68"),
        Pymssql(20047, "DBPROCESS is dead or not enabled"),
    ],
)
def test_a_broken_connection(error: Exception) -> None:
    assert type(translated(error)) is errors.ConnectionLost


def test_what_is_no_error_of_a_driver_is_left_alone() -> None:
    assert translated(ValueError("x")) is None
    assert translated(KeyError("Error")) is None
