"""How MariaDB and MySQL write stored procedures, and how their texts are sent."""

from __future__ import annotations

import re

from tablequeue.definition import Definition
from tablequeue.engines.base import ProcedureSyntax
from tablequeue.engines.texts import quoted_role, statements_in
from tablequeue.errors import BadInput

# Hosts as accounts have them: 'ada'@'10.0.0.%'.
_HOST = re.compile(r"[\w.:%/-]{1,255}")
_DELIMITED = re.compile(r"(?m)^delimiter //\n(.*?)^delimiter ;$", re.DOTALL)
_END = re.compile(r"(?m) //$")


def split(text: str) -> list[str]:
    """The statements of a file. What is between `delimiter //` and `delimiter ;` ends with `//` instead, for there are
    semicolons in it; the two lines are for the client programs, as every text of theirs has them."""
    statements: list[str] = []
    for place, part in enumerate(_DELIMITED.split(text)):
        bodies = place % 2
        statements += [one.strip() for one in _END.split(part) if one.strip()] if bodies else statements_in(part)
    return statements


def role(name: str) -> str:
    """A role, or a user with a host: `web` or `web@10.0.0.%`."""
    user, at, host = name.partition("@")
    if at and not _HOST.fullmatch(host):
        raise BadInput(f"{host!r} cannot be the host of a user.", "Write user@host; the host may have % in it.")
    return quoted_role("``", user) + (f"@'{host}'" if at else "")


def words(dialect: str, definition: Definition) -> dict[str, str]:
    """Words of the procedures' texts. The character sets of a database's own choice may not hold every payload."""
    return {
        "create": "create" if dialect in SYNTAX.dropped_first else "create or replace",
        "text": "longtext character set utf8mb4",
        "token": "varchar(64) character set ascii collate ascii_bin",
        "payload": "longblob" if definition.payload == "bytes" else "longtext character set utf8mb4",
    }


SYNTAX = ProcedureSyntax(
    parameter="p_{}",
    role=role,
    head="-- A procedure keeps the mode it was made in: strict, so that what does not fit is an error, never cut off.\n"
    "set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';\ndelimiter //",
    foot="delimiter ;",
    dropped_first=("mysql",),
    # Dropping what is not there needs the right to drop it.
    there=(
        "select routine_name from information_schema.routines "
        "where routine_schema = {database} and routine_name like '{table}\\_%'"
    ),
)
