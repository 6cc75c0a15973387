"""Tables of the user on SQLite, where the type of a column is only a preference."""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.user_tables import UserTables


class SQLiteUserTables(UserTables):
    among: ClassVar = "in (select value from json_each(:attempts))"
    digits: ClassVar = 15  # it makes a floating-point number of a decimal one
