"""The row locks that a transaction holds, as the server tells."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import sqlalchemy as sa

from tests.servers import Place


class Held(NamedTuple):
    """The locks of one transaction of MariaDB."""

    rows: Mapping[str, set[int]]
    """The ids of the locked rows of each table, by the primary keys that are numbers."""
    gaps: set[str]
    """The indexes, after their tables, in which it has locked gaps."""


def mariadb_locks(watch: sa.Connection, thread: int) -> Held:
    """Return the row locks of the transaction of a session. Its schema may have no other table of the same name."""
    watch.exec_driver_sql("set global innodb_status_output_locks = on")
    words = watch.exec_driver_sql("show engine innodb status").one()[2]
    rows, gaps = defaultdict[str, set[int]](set), set[str]()
    for transaction in words.partition("LIST OF TRANSACTIONS")[2].split("---TRANSACTION")[1:]:
        if f"thread id {thread}," not in transaction:
            continue
        for lock in transaction.split("RECORD LOCKS ")[1:]:
            head, *records = re.split(r"\nRecord lock, ", lock.split("\nTABLE LOCK")[0])
            found = re.search(r"index (\S+) of table `\w+`\.`(\w+)` .* lock[_ ]mode (\S+)(.*)", head)
            assert found, head
            index, table, _, how = found.groups()
            if "rec but not gap" not in how and "insert intention" not in how:
                gaps.add(f"{table}.{index}")
            ids = [re.search(r"\n 0: len 8; hex 8([0-9a-f]{15});", record) for record in records]
            if index == "PRIMARY":
                rows[table] |= {int(id[1], 16) for id in ids if id}
    return Held(rows, gaps)


def locked_ids(place: Place, table: str) -> set[int]:
    """Return the ids of the rows of a table that some transaction has locked."""
    with place.sa_engine().connect().execution_options(isolation_level="READ COMMITTED") as other:
        free = {id for (id,) in other.exec_driver_sql(f"select id from {table} for update skip locked")}  # noqa: S608
        other.rollback()
        return {id for (id,) in other.exec_driver_sql(f"select id from {table}")} - free  # noqa: S608
