"""Tables of the user on PostgreSQL: rows come by COPY."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.user_tables import UserTable, UserTables

if TYPE_CHECKING:
    import pyarrow as pa


class PostgreSQLUserTables(UserTables):
    among: ClassVar = "= any(:attempts)"
    truths: ClassVar = frozenset({bool})
    has_zones: ClassVar = True
    holds_nan: ClassVar = True
    singles: ClassVar = (sa.REAL,)
    refuses_twice: ClassVar = True

    def stage(self, cursor: Cursor, table: UserTable, attempt: str, batch: pa.RecordBatch) -> None:
        from tablequeue.engines.postgresql.copying import copied_rows

        with cursor.copy(table.statement("stage_rows")) as copy:
            copy.write(copied_rows(batch, attempt))
