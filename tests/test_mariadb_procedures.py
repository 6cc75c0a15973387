"""Stored procedures on MariaDB: session settings, transactions, promotion."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tablequeue import Database
from tablequeue.errors import Conflict, LeaseLost
from tests.procedures import PLAIN
from tests.row_locks import locked_ids
from tests.servers import Kind, Place
from tests.sessions import Session, call, made, session, transaction
from tests.support import counts, ids_of, refuses
from tests.test_procedures import rewrite


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


# -- what a call in a caller's transaction locks -----------------------------------------------------------------------


@contextmanager
def older(db: Database, level: str) -> Iterator[Session]:
    """A transaction that has read something, at an isolation level of its session."""
    with db.engine.connect().execution_options(isolation_level=level) as connection:
        one = Session(db, connection)
        one.execute("select * from {queue}")
        yield one
        connection.rollback()


def claim_after_others(place: Place, db: Database, level: str, verb: str, options: Mapping[str, Any]) -> None:
    """A claim locks what it returns, or is refused, if others have claimed since the transaction first read."""
    queue = made(db, payload="text", **options)
    for n in range(6):
        group: dict[str, Any] = {"group": str(n)} if "groups" in options else {}
        queue.push("x", **group)
    with older(db, level) as one:
        others = {*ids_of(queue.pop_many(1 if options.get("strict") else 5))}
        try:
            claimed = {row[0] for row in one.call(verb, n=6)}
        except Conflict:
            assert level == "REPEATABLE READ"
        else:
            assert locked_ids(place, place.table("work")) == claimed
            assert not claimed & others


CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "fifo": {},
    "priority": {"order": "priority"},
    "groups": {"groups": True},
    "fair": {"groups": "fair"},
    "strict": {"strict": True},
}


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("options", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_locks_no_message_of_others(place: Place, db: Database, level: str, options: Mapping[str, Any]) -> None:
    claim_after_others(place, db, level, "pop", options)


@pytest.mark.parametrize(
    ("file", "options"), [("find", {}), ("find", {"strict": True}), ("find_in_turn", CLAIMS["fair"])]
)
def test_a_claim_that_locks_messages_of_others_is_detected(
    place: Place, db: Database, file: str, options: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(monkeypatch, file, r"\{none_of_others\}", "")
    with pytest.raises(AssertionError):
        claim_after_others(place, db, "REPEATABLE READ", "take", options)


def finish_after_a_loss(place: Place, db: Database, verb: str, given: Mapping[str, Any]) -> None:
    """A message that belongs to another consumer by now is not locked."""
    queue = made(db, payload="text")
    lost, held = queue.push_many(["x", "y"])
    token = call(db, "pop", n=2)[0][-1]
    call(db, "extend", id=lost, token=token, seconds=0)
    assert ids_of(queue.pop_many(2)) == [lost]
    with older(db, "READ COMMITTED") as one:
        acted = {held} & {*given.get("ids", ())}
        if acted:
            assert one.call(verb, **given, token=token) == [(held,)]
        else:
            refuses(LeaseLost, one.call, verb, **given, token=token)
        assert locked_ids(place, place.table("work")) == acted


FINISHES: Mapping[str, Mapping[str, Any]] = {
    "complete": {"ids": [1]},
    "release": {"ids": [2, 1]},
    "fail": {"id": 1, "error": "why"},
    "extend": {"id": 1},
}


@pytest.mark.parametrize(("verb", "given"), FINISHES.items(), ids=FINISHES)
def test_a_finish_locks_no_message_of_others(place: Place, db: Database, verb: str, given: Mapping[str, Any]) -> None:
    finish_after_a_loss(place, db, verb, given)


@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_a_finish_that_does_not_look_is_detected(
    place: Place, db: Database, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(monkeypatch, verb, r"\{(this_)?held_by_now\}", "")
    with pytest.raises(AssertionError):
        finish_after_a_loss(place, db, verb, FINISHES[verb])


def test_what_another_session_has_claimed_since_is_finished(db: Database) -> None:
    """Under REPEATABLE READ a look returns the past, so it decides nothing there."""
    queue = made(db, payload="text")
    queue.push("x")
    with older(db, "REPEATABLE READ") as one:
        [(id, *_, token)] = call(db, "pop")
        assert one.call("complete", ids=[id], token=token) == [(id,)]


def wait_beside_a_claim(db: Database) -> bool:
    """Return whether a wait ends while a transaction has taken the first message."""
    queue = made(db, payload="text")
    queue.push("x")
    with older(db, "READ COMMITTED") as one, ThreadPoolExecutor(1) as threads, session(db) as waiting:
        waiting.execute("set session innodb_lock_wait_timeout = 1")
        assert one.call("take")
        return threads.submit(waiting.call, "wait", seconds=0.1).exception() is None


def test_a_wait_waits_for_no_transaction(db: Database) -> None:
    assert wait_beside_a_claim(db)


def test_a_wait_that_locks_what_it_reads_is_detected(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    subquery = r"select count\(\*\) into ready from \((?s:.*?)(select 1 .*?) limit 1\s+\) as message;"
    rewrite(monkeypatch, "wait", subquery, r"set ready = exists(\1);")
    assert not wait_beside_a_claim(db)
