"""The syntax of stored procedures on MariaDB and MySQL, and how their texts are split into statements."""

from __future__ import annotations

import re

from tablequeue.engines.procedure_syntax import ProcedureSyntax
from tablequeue.engines.texts import quoted_role, statements_in
from tablequeue.errors import BadInput
from tablequeue.model.definition import Definition

# The host of an account: 'ada'@'10.0.0.%'.
_HOST = re.compile(r"[\w.:%/-]{1,255}")
_DELIMITED = re.compile(r"(?m)^delimiter //\n(.*?)^delimiter ;$", re.DOTALL)
_END = re.compile(r"(?m) //$")


def split(text: str) -> list[str]:
    """Return the statements of a text.

    Between the lines `delimiter //` and `delimiter ;` a statement ends with `//`, because its body has semicolons. The
    two lines are for the client programs.
    """
    statements: list[str] = []
    for place, part in enumerate(_DELIMITED.split(text)):
        bodies = place % 2
        statements += [one.strip() for one in _END.split(part) if one.strip()] if bodies else statements_in(part)
    return statements


def role(name: str) -> str:
    """Quote the name of a role, or of a user with a host: `web` or `web@10.0.0.%`."""
    user, at, host = name.partition("@")
    if at and not _HOST.fullmatch(host):
        raise BadInput(f"{host!r} cannot be the host of a user.", "Write user@host; the host may have % in it.")
    return quoted_role("``", user) + (f"@'{host}'" if at else "")


def words(dialect: str, definition: Definition) -> dict[str, str]:
    """Return the `{words}` of the procedures' texts.

    They name character sets, because the default of a database may not be able to store every payload.
    """
    return {
        "create": "create" if dialect in SYNTAX.dropped_first else "create or replace",
        # Of the session. That of a transaction may be another one, which no variable tells.
        "isolation": "@@tx_isolation" if dialect == "mariadb" else "@@transaction_isolation",
        "text": "longtext character set utf8mb4",
        "token": "varchar(64) character set ascii collate ascii_bin",
        "payload": "longblob" if definition.payload == "bytes" else "longtext character set utf8mb4",
    }


SYNTAX = ProcedureSyntax(
    parameter="p_{}",
    role=role,
    dropped_first=("mysql",),
    # A drop needs the right to drop even if the procedure does not exist.
    there=(
        "select routine_name from information_schema.routines "
        "where routine_schema = {database} and routine_name like '{table}\\_%'"
    ),
)
