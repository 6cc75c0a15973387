"""Stored procedures on MariaDB: session settings, transactions, promotion."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from tablequeue import Database
from tests.procedures import PLAIN
from tests.servers import Kind
from tests.sessions import call, made, session, transaction
from tests.support import counts


@pytest.fixture
def kind() -> Kind:
    return next(kind for kind in PLAIN if kind.name == "mariadb")


def test_settings_of_a_session_that_must_not_matter(db: Database) -> None:
    queue = made(db)
    settings = (
        "set session sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES', tx_isolation = 'SERIALIZABLE', "
        "time_zone = '+09:00', group_concat_max_len = 4, character_set_results = utf8mb4"
    )
    with session(db) as one:
        for statement in ("set names latin1", settings):
            one.cursor.execute(statement)
        one.call("push_many", messages=json.dumps(["plain"] * 30, ensure_ascii=False))
        one.cursor.execute(f"call {one.queue}_push('\"{{}}\"', null)".encode().replace(b"{}", b"\xe9"))
        popped = one.call("pop", n=31, lease=60)
        ids = [row[0] for row in popped]
        assert len(set(ids)) == 31
        assert popped[-1][1] == '"é"'
        assert [row[0] for row in one.call("complete", ids=ids, token=popped[0][-1])] == ids
    lease_end = popped[0][6].replace(tzinfo=UTC)
    assert abs((lease_end - datetime.now(UTC)).total_seconds()) < 3600, "in UTC"
    assert counts(queue) == {"finished": 31}


def test_a_transaction_without_begin(db: Database) -> None:
    """With autocommit off, a call is part of the caller's transaction too."""
    queue = made(db)
    with session(db) as one:
        one.cursor.execute("set autocommit = 0")
        one.call("push", payload="1")
        one.cursor.execute("rollback")
    assert counts(queue) == {}


def test_a_promotion_that_fails_does_not_fail_the_completion(db: Database) -> None:
    """The completion took effect and must not be repeated. The next pop promotes."""
    queue = made(db, groups=True)
    assert queue.push_many([1, 2], group="a") == [1, 2]
    with session(db) as one, transaction(db) as other:
        one.execute("set session innodb_lock_wait_timeout = 1")
        [(id, *_, token)] = one.call("pop")
        other.execute("select id from {queue} where id = 2 for update")
        assert (id, one.call("complete", ids=[id], token=token)) == (1, [(1,)])
    assert counts(queue) == {"blocked": 1, "finished": 1}
    assert [row[0] for row in call(db, "pop")] == [2]
