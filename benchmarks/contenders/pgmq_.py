"""pgmq: its functions of SQL, which are its interface, called by psycopg in transactions of one statement.

The package of its Python client brings the SQL. The client itself begins and commits each call apart, which makes three
round trips of one. A message is JSON there; these payloads are texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import psycopg
import sqlalchemy as sa
from pgmq.install import get_embedded_sql_version, install_pgmq_from_sql

from benchmarks.contenders import Contender

BATCH = 1_000
"""Messages read and deleted at a time."""
LEASE = 60
NAME = f"pgmq {get_embedded_sql_version()}"


class Pgmq(Contender):
    """Deletes what it has read, and so keeps no history."""

    name = NAME
    finish = "delete"

    def __init__(self, url: str) -> None:
        plain = sa.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection = psycopg.connect(plain, autocommit=True, prepare_threshold=None)
        with self._connection.transaction():
            # One at a time: many processes make contenders at once.
            self._connection.execute("select pg_advisory_xact_lock(1886219633)")
            if not self._connection.execute("select to_regclass('pgmq.meta')").fetchall()[0][0]:
                install_pgmq_from_sql(conn=self._connection)
            self._connection.execute("select pgmq.create(%s)", [self.finish])
        self._connection.prepare_threshold = 0

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._connection.execute("select pgmq.send(%s, %s::jsonb)", [self.finish, json.dumps(payload)])

    def push_bulk(self, payloads: Sequence[str]) -> None:
        messages = [json.dumps(payload) for payload in payloads]
        self._connection.execute("select pgmq.send_batch(%s, %s::jsonb[])", [self.finish, messages])

    def drain_singly(self, number: int) -> list[str]:
        return self._drain(number, 1)

    def drain(self, number: int) -> list[str]:
        return self._drain(number, BATCH)

    def close(self) -> None:
        self._connection.close()

    def _drain(self, number: int, size: int) -> list[str]:
        read = "select msg_id, message from pgmq.read(%s, %s, %s)"
        finish = f"select pgmq.{self.finish}(%s, %s::bigint[])"
        delivered: list[str] = []
        while len(delivered) < number:
            rows = self._connection.execute(read, [self.finish, LEASE, size]).fetchall()
            if not rows:
                break
            finished = self._connection.execute(finish, [self.finish, [row[0] for row in rows]]).fetchall()
            assert len(finished) == len(rows), "each read message is there until it is finished"
            delivered += [row[1] for row in rows]
        return delivered


class PgmqArchive(Pgmq):
    """Moves what it has read to the archive, which is its history."""

    name = f"{NAME}, archived"
    finish = "archive"
