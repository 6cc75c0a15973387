"""Stored procedures: their behaviour, their transactions, and that they are dropped with the queue."""

from __future__ import annotations

import json
import re
import secrets
from contextlib import nullcontext
from time import sleep
from typing import Any

import pytest
from psycopg import ClientCursor

from tablequeue import ALL, Backoff, Database, NewMessage, Queue, errors
from tablequeue.engines import procedures
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.ext import context_of
from tablequeue.model.attempts import LONGEST_ERROR, error_text
from tablequeue.model.definition import Delivery
from tests.procedures import PLAIN
from tests.servers import Kind, Place, only
from tests.sessions import Session, call, engine_of, made, session, transaction
from tests.support import DESIGNS, START, at, claimed, counts, found, ids_of, refuses

BY_NAME = {kind.name: kind for kind in PLAIN}
# On SQL Server an error always rolls back the caller's transaction.
UNDONE_ALONE = [kind for kind in PLAIN if kind.name != "mssql"]
UNDONE_ALL = [kind for kind in PLAIN if kind.name == "mssql"]
LEASE_LOST = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(params=PLAIN, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


def test_they_come_and_go_with_the_queue(place: Place, db: Database) -> None:
    queue = db.create_queue("work")
    names = db.install_procedures("work")
    assert names == db.install_procedures("work")
    assert {"tq_work_push", "tq_work_pop", "tq_work_stats"} <= set(names)
    there = f"select routine_name from information_schema.routines where routine_schema = '{place.schema}'"  # noqa: S608
    assert {row[0] for row in place.execute(there)} >= set(names)
    queue.drop()
    assert place.execute(there) == []
    with pytest.raises(errors.QueueNotFound):
        db.install_procedures("work")


def check_they_are_replaced(place: Place, db: Database) -> None:
    """Those of an older tablequeue, whose push had other parameters; also twice in one transaction."""
    db.create_queue("work")
    db.install_procedures("work")
    place.execute(
        f"create function {place.schema}.tq_work_push(p_payload json) returns bigint language sql as 'select -1'"
    )
    there = f"select oid from pg_proc where pronamespace = '{place.schema}'::regnamespace and proname ~ '_(push|pop)$'"  # noqa: S608
    before = place.execute(there)
    assert len(before) == 3
    table = context_of(db.queue("work")).table
    with place.sa_engine().begin() as connection:
        for _ in range(2):
            procedures.install(table.engine, connection.connection.cursor(), table)
    assert len(place.execute(there)) == 2
    assert {*place.execute(there)} < {*before}
    with session(db, "work") as one:
        assert one.call("push", payload="1") == [(1,)]


@only("postgresql")
def test_those_of_an_older_tablequeue_are_replaced(place: Place, db: Database) -> None:
    check_they_are_replaced(place, db)


@only("postgresql")
def test_the_check_notices_those_of_an_older_tablequeue(
    place: Place, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(monkeypatch, "after_all", "if outdated", "if false")
    with pytest.raises(AssertionError):
        check_they_are_replaced(place, db)


@only("postgresql")
def test_a_push_has_a_time(db: Database) -> None:
    """Else the statistics of the queue could not be read any more."""
    made(db)
    for verb, given in (
        ("push", {"payload": "1"}),
        ("push_many", {"messages": "[1]"}),
        ("push_each", {"messages": '[{"payload": 1}]'}),
    ):
        assert "infinity" in refuses(BadInput, call, db, verb, now="infinity", **given).cause


def test_without_a_schema_they_are_where_the_connection_is(place: Place) -> None:
    plain = Place(place.url, None)
    database = plain.open()
    name = f"plain_{secrets.token_hex(4)}"
    queue = database.create_queue(name)
    try:
        database.install_procedures(name)
        with session(database, name) as one:
            assert one.call("push", payload="1") == [(1,)]
        assert claimed(queue).payload == 1
    finally:
        queue.drop()
        plain.close()


def test_python_and_sql_share_a_queue(db: Database) -> None:
    queue = made(db)
    by_python = queue.push({"from": "python"})
    assert call(db, "push", payload='{"from": "sql"}', headers='{"a": 1}', producer="psql") == [(by_python + 1,)]
    [(id, payload, *_, token)] = call(db, "pop", consumer="psql")
    assert (id, payload) == (by_python, '{"from":"python"}')
    assert call(db, "complete", ids=[id], token=token) == [(id,)]
    message = claimed(queue)
    assert (message.payload, message.headers) == ({"from": "sql"}, {"a": 1})
    assert found(queue, message.id).producer == "psql"
    message.complete()
    [stats] = call(db, "stats")
    assert stats == (0, 0, 0, 0, 0, None, 2)
    assert ids_of(queue.history(5)) == [row[0] for row in call(db, "history", n=5)]


def test_dead_letters_move_to_another_queue(db: Database) -> None:
    failed = db.create_queue("failed")
    queue = made(db, dead_letter_to="failed", max_attempts=1)
    ids = queue.push_many([1, 2])
    [(id, *_, token)] = call(db, "pop")
    assert call(db, "fail", id=id, token=token, error="no") == [("dead",)]
    call(db, "pop", lease=0)
    assert call(db, "pop") == []
    assert [message.errors[-1].error for message in failed.peek()] == ["no", "lease expired"]
    assert [message.headers["tablequeue-origin"]["id"] for message in failed.peek()] == ids
    assert counts(queue) == {}
    assert queue.redrive(ALL) == 2


def test_expired_messages_without_a_history_move_there_too(db: Database) -> None:
    failed = db.create_queue("failed")
    queue = made(db, dead_letter_to="failed", expires=60, history="none")
    ids = queue.push_many([1, 2], now=at(-30 * 365 * 86400))  # long before the database's clock
    assert call(db, "pop") == []
    assert [message.errors[-1].error for message in failed.peek()] == ["expired", "expired"]
    assert [message.headers["tablequeue-origin"]["id"] for message in failed.peek()] == ids
    assert counts(queue) == {}


def test_the_ends_of_a_long_error_are_kept(db: Database) -> None:
    queue = made(db)
    queue.push(1)
    [(id, *_, token)] = call(db, "pop")
    text = "a" * 5_000 + "é" * 30_000 + "\N{SNAKE}" * 5_000
    call(db, "fail", id=id, token=token, error=text)
    assert found(queue, id).errors[-1].error == error_text(text)
    [(id, *_, token)] = call(db, "pop", now=engine_of(db).dump_time(START))
    call(db, "fail", id=id, token=token, error="\N{SNAKE}" * LONGEST_ERROR)
    assert found(queue, id).errors[-1].error == "\N{SNAKE}" * LONGEST_ERROR


@pytest.mark.parametrize("verb", ["complete", "release", "fail", "extend"])
def test_a_lost_lease_is_an_error(db: Database, verb: str) -> None:
    queue = made(db)
    id = queue.push(1)
    [(*_, token)] = call(db, "pop", lease=0)
    claimed(queue)  # no lease has expired
    given = {"ids": [id]} if verb in ("complete", "release") else {"id": id}
    refuses(errors.LeaseLost, call, db, verb, **given, token=token)
    assert counts(queue) == {"in_progress": 1}


def test_of_a_batch_those_that_are_held_are_completed(db: Database) -> None:
    queue = made(db)
    ids = queue.push_many([1, 2, 3])
    token = call(db, "pop", n=3)[0][-1]
    assert call(db, "complete", ids=ids[:1], token=token) == [(ids[0],)]
    assert sorted(call(db, "complete", ids=ids, token=token)) == [(ids[1],), (ids[2],)]
    assert call(db, "complete", ids=[], token=token) == []


BACKOFFS = [
    Backoff(base=10, jitter=0),
    Backoff(base=10, factor=3, cap=50, jitter=0),
    Backoff(base=7, factor=1, jitter=0),
    Backoff(base=0, jitter=0),
    Backoff(base=10, factor=0.5, jitter=0),
    Backoff(base=1, factor=1e300, cap=100, jitter=0),
    Backoff(base=500, cap=100, jitter=0),
]


@pytest.mark.parametrize("backoff", BACKOFFS, ids=str)
def test_the_backoff_is_that_of_python(place: Place, db: Database, backoff: Backoff) -> None:
    queue = made(db, backoff=backoff, max_attempts=2_000_000)
    id = queue.push(1)
    now = engine_of(db).dump_time(START)
    for attempts in (1, 2, 3, 4, 1_500_000):
        [(*_, token)] = call(db, "pop", lease=3_000_000)
        place.execute(f"update {place.table('work')} set attempts = {attempts}")  # noqa: S608 (a checked name)
        call(db, "fail", id=id, token=token, now=now)
        due_at = found(queue, id).due_at
        assert due_at is not None
        assert (due_at - START).total_seconds() == pytest.approx(backoff.seconds(attempts), abs=1e-5)
        queue.purge()
        id = queue.push(1)


def test_the_jitter_takes_at_most_its_share(db: Database) -> None:
    queue = made(db, backoff=Backoff(base=100, jitter=0.5))
    ids = queue.push_many(range(20))
    token = call(db, "pop", n=20)[0][-1]
    now = engine_of(db).dump_time(START)
    waits = set()
    for id in ids:
        call(db, "fail", id=id, token=token, now=now)
        due_at = found(queue, id or 0).due_at
        assert due_at is not None
        waits.add((due_at - START).total_seconds())
    assert 50 <= min(waits) < max(waits) <= 100
    assert len(waits) == 20


@pytest.mark.parametrize(
    ("verb", "options"),
    [("take", {}), ("take", {"history": "none"}), ("pop", {"delivery": "at_most_once"})],
    ids=["take", "take without history", "pop at most once"],
)
def test_fair_groups_take_turns_where_a_claim_removes(db: Database, verb: str, options: dict[str, Any]) -> None:
    queue = made(db, groups="fair", **options)
    first, _, other = [queue.push(group, group=group) for group in ("large", "large", "small")]
    assert {row[0] for row in call(db, verb, n=2)} == {first, other}
    assert counts(queue).get("ready") == 1


def test_what_is_due_or_abandoned_is_swept_on_a_busy_queue(db: Database) -> None:
    """A session that always finds enough messages sweeps once a second nevertheless."""
    queue = made(db)
    abandoned = queue.push("abandoned")
    queue.push_many(range(3))
    with session(db) as one:
        one.call("pop", lease=0)
        sleep(1.1)
        [(first, *_)] = one.call("pop")
    assert first == abandoned


def test_a_retention_is_kept_by_pop(db: Database) -> None:
    queue = made(db, history=60)
    queue.push(1)
    claimed(queue).complete()
    assert counts(queue) == {"finished": 1}
    assert call(db, "pop", now=engine_of(db).dump_time(START)) == []
    assert counts(queue) == {}


def test_groups_are_promoted_by_pop_and_complete(db: Database) -> None:
    queue = made(db, groups=True)
    for group in ("a", "a", "b"):
        call(db, "push", payload="1", group=group)
    assert counts(queue) == {"blocked": 3}
    popped = call(db, "pop", n=5)
    assert [row[0] for row in popped] == [1, 3]
    call(db, "complete", ids=[1], token=popped[0][-1])
    assert [row[0] for row in call(db, "pop", n=5)] == [2]


@pytest.mark.parametrize("options", [{}, {"strict": True}, {"groups": True}], ids=["fifo", "strict", "groups"])
def test_a_push_returns_the_id_of_its_message(db: Database, options: dict[str, Any]) -> None:
    """On SQL Server a push to a grouped queue also writes a note, which has an identity of its own."""
    queue = made(db, **options)
    queue.push_many([0, 0], group="x" if "groups" in options else None)  # messages and notes are not equally many
    group = {"group": "x"} if "groups" in options else {}
    pushed = [call(db, "push", payload=str(number), **group)[0][0] for number in range(3)]
    assert [found(queue, id).payload for id in pushed] == [0, 1, 2]


def test_the_first_pop_of_a_session_from_a_queue_that_delivers_at_most_once(db: Database) -> None:
    """It sweeps first: that executes the other procedures of the queue."""
    queue = made(db, delivery="at_most_once")
    id = queue.push(1)
    assert [row[0] for row in call(db, "pop")] == [id]


def test_a_key_is_taken_once(db: Database) -> None:
    queue = made(db)
    [(id,)] = call(db, "push", payload="1", key="k")
    refusal = refuses(DuplicateKey, call, db, "push", payload="2", key="k")
    assert "has the key k" in refusal.cause
    assert call(db, "push", payload="2", key="k", on_conflict="skip") == [(None,)]
    assert call(db, "push", payload="2", key="k", on_conflict="return") == [(id,)]
    refuses(DuplicateKey, call, db, "push_each", messages='[{"payload": 1}, {"payload": 2, "key": "k"}]')
    assert counts(queue) == {"ready": 1}
    batch = '[{"payload": 1, "key": "n"}, {"payload": 2, "key": "k"}, {"payload": 3, "key": "n"}, {"payload": 4}]'
    rows = [row[0] for row in call(db, "push_each", messages=batch, on_conflict="return")]
    assert (rows[1], rows[2]) == (id, rows[0])
    assert [message.payload for message in queue.peek()] == [1, 1, 4]


def test_messages_expire(db: Database) -> None:
    queue, now = made(db, expires=60), engine_of(db).dump_time(START)
    call(db, "push", payload="1", now=now)
    call(db, "push", payload="2", expires=10, now=now)
    call(db, "push_many", messages="[3, 4]", expires=5, now=now)
    call(db, "push_each", messages='[{"payload": 5, "expires": 30}, {"payload": 6}]', now=now)
    assert [message.payload for message in queue.pop_many(9, now=at(20))] == [1, 5, 6]
    for wrong in (0, -1, 1e12):
        refuses(BadInput, call, db, "push", payload="1", expires=wrong)
        refuses(BadInput, call, db, "push_many", messages="[1]", expires=wrong)
        refuses(BadInput, call, db, "push_each", messages=json.dumps([{"payload": 1, "expires": wrong}]))
    db.create_queue("plain")
    db.install_procedures("plain")
    with session(db, "plain") as plain:
        refuses(BadInput, plain.call, "push", payload="1", expires=5)
        refuses(BadInput, plain.call, "push_each", messages='[{"payload": 5, "expires": 30}]')


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_results(db: Database, delivery: Delivery) -> None:
    queue = made(db, results=True, delivery=delivery)
    ids = queue.push_many([1, 2, 3])
    token = call(db, "pop", n=3)[0][-1]
    call(db, "complete", ids=[*ids[:2], 99], token=token, result='{"a": [1, "\\u00e9"]}')
    assert [queue.result(id) for id in ids[:2]] == [{"a": [1, "\u00e9"]}] * 2
    call(db, "complete", ids=ids[2:], token=token)
    assert queue.result(ids[2]) is None
    plain = db.create_queue("plain")
    db.install_procedures("plain")
    plain.push(1)
    with session(db, "plain") as one:
        token = one.call("pop")[0][-1]
        refuses(BadInput, one.call, "complete", ids=[1], token=token, result="1")


# Elements of an array, and their values when popped. JSON is stored exactly.
PAYLOADS: dict[str, list[tuple[str, Any]]] = {
    "json": [(text, text) for text in ('{"b":1,  "a":[1.50, 1e400]}', "null", r'"\ud83d\ude00 \u00e9"', "[[]]")],
    "text": [(r'"\ud83d\ude00 \u00e9\n"', "\U0001f600 \u00e9\n"), ('"null"', "null"), ('""', "")],
    "bytes": [('"AP8="', b"\x00\xff"), ('""', b"")],
}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_in_arrays(db: Database, payload: str) -> None:
    queue = made(db, payload=payload, history="none")
    texts = [text for text, _ in PAYLOADS[payload]]
    ids = [row[0] for row in call(db, "push_many", messages=f"[{', '.join(texts)}]")]
    keys = [rf"\ud83d\ude00 {place}" for place in range(len(texts))]
    objects = [f'{{"key": "{key}", "payload": {text}}}' for key, text in zip(keys, texts, strict=True)]
    ids += [row[0] for row in call(db, "push_each", messages=f"[{', '.join(objects)}]")]
    assert ids == sorted(ids)
    again = json.loads(f'"{keys[0]}"')
    assert queue.push(b"" if payload == "bytes" else "", key=again, on_conflict="return") == ids[len(texts)]
    popped = [(row[0], row[1]) for row in call(db, "pop", n=len(texts))]
    popped += [(row[0], row[1]) for row in call(db, "take", n=10)]
    assert popped == list(zip(ids, [value for _, value in PAYLOADS[payload]] * 2, strict=True))
    assert counts(queue) == {"in_progress": len(texts)}


REFUSALS: list[tuple[str, str, dict[str, Any]]] = [
    ("fifo", "push", {"delay": 1, "due": "2040-01-01T00:00:00Z"}),
    ("fifo", "push", {"delay": -1}),
    ("fifo", "push", {"delay": "NaN"}),
    ("fifo", "push", {"priority": 1}),
    ("fifo", "push", {"group": "a"}),
    ("groups", "push", {}),
    ("groups", "push", {"group": ""}),
    ("fifo", "push", {"key": "k" * 256}),
    ("fifo", "push", {"on_conflict": "explode"}),
    ("fifo", "pop", {"n": 0}),
    ("fifo", "pop", {"lease": -1}),
    ("fifo", "take", {"n": 0}),
    ("fifo", "release", {"ids": [1], "token": LEASE_LOST, "delay": -1}),
    ("fifo", "fail", {"id": 1, "token": LEASE_LOST, "retry_in": 1e10}),
    ("fifo", "extend", {"id": 1, "token": LEASE_LOST, "seconds": -1}),
    ("fifo", "peek", {"state": "lost"}),
]


@pytest.mark.parametrize(("design", "verb", "params"), REFUSALS)
def test_what_python_refuses_is_refused(db: Database, design: str, verb: str, params: dict[str, Any]) -> None:
    queue = made(db, **DESIGNS[design])
    given = {"payload": "1", **params} if verb == "push" else params
    refuses(BadInput, call, db, verb, **given)
    assert counts(queue) == {}


# Further input that an engine must refuse, because its parameters have no types or accept null.
OWN_REFUSALS: list[tuple[Kind, str, dict[str, Any]]] = [
    *((BY_NAME["postgresql"], *refused) for refused in (
        ("take", {"n": None}),
        ("push", {"payload": None}),
        ("push", {"headers": "[1]"}),
        ("push_many", {"messages": "[1]", "headers": "2"}),
        ("push_many", {"messages": None}),
        ("push_many", {"messages": "{}"}),
        ("push_each", {"messages": "1"}),
        ("push_each", {"messages": "[1]"}),
        ("push_each", {"messages": '[{"payload": 1}, {}]'}),
        ("push_each", {"messages": '[{"payload": 1, "prority": 1}]'}),
        ("push_each", {"messages": '[{"payload": 1, "headers": 2}]'}),
        ("push_each", {"messages": '[{"payload": 1, "delay": "60"}]'}),
        ("push_each", {"messages": '[{"payload": 1, "key": 7}]'}),
        ("push_each", {"messages": '[{"payload": 1, "due": "tomorrow noon"}]'}),
        ("push_each", {"messages": '[{"payload": 1, "priority": 1.5}]'}),
    )),
    (BY_NAME["mariadb"], "push", {"payload": "{"}),
    (BY_NAME["mariadb"], "push", {"prority": 1}),
    (BY_NAME["mariadb"], "push", {"delay": "60"}),
    (BY_NAME["mariadb"], "push", {"key": 7}),
    (BY_NAME["mariadb"], "push", {"due": "tomorrow"}),
    (BY_NAME["mariadb"], "push", {"due": "2040-13-01 00:00:00"}),
    (BY_NAME["mariadb"], "push", {"due": "2040-01-01T00:00:00+02:00"}),
    (BY_NAME["mariadb"], "push", {"payload": None}),
    (BY_NAME["mariadb"], "push_many", {"messages": "{}"}),
    (BY_NAME["mariadb"], "push_many", {"messages": "[1"}),
    (BY_NAME["mariadb"], "push_each", {"messages": "[1]"}),
    (BY_NAME["mariadb"], "push_each", {"messages": '[{"payload": 1, "headers": 2}]'}),
    (BY_NAME["mariadb"], "push_each", {"messages": '[{"payload": 1}, {}]'}),
    (BY_NAME["mariadb"], "pop", {"n": 1.5}),
    (BY_NAME["mariadb"], "pop", {"n": 1e20}),
    *((kind, *refused) for kind in UNDONE_ALL for refused in (
        ("take", {"n": None}),
        ("pop", {"n": 1001}),
        ("push", {"payload": None}),
        ("push", {"payload": "{"}),
        ("push", {"payload": ""}),
        ("push", {"payload": "1, 2"}),
        ("push", {"headers": "[1]"}),
        ("push", {"headers": "{"}),
        ("push", {"key": ""}),
        ("push", {"key": "a\0"}),
        ("push", {"key": "\U0001f600" * 256}),
        ("push", {"due": "tomorrow"}),
        ("push", {"producer": "p" * 513}),
        ("push_many", {"messages": "{}"}),
        ("push_many", {"messages": "[1"}),
        ("push_each", {"messages": "[1]"}),
        ("push_each", {"messages": '[{"payload": 1}, {}]'}),
        ("peek", {"state": "in_progress_"}),
    )),
]  # fmt: skip


def test_what_python_takes_is_taken(db: Database) -> None:
    """Keys made of blanks, and keys with the maximum number of characters of any kind."""
    queue = made(db)
    keys = [" ", "a", "a ", "\U0001f600" * 255, "\ufeff", "'"]
    ids = [call(db, "push", payload="1", key=key)[0][0] for key in keys]
    assert len({*ids}) == len(keys)
    assert [queue.push(2, key=key, on_conflict="return") for key in keys] == ids


@pytest.mark.parametrize(("kind", "verb", "params"), OWN_REFUSALS, indirect=["kind"])
def test_what_the_parameters_of_an_engine_refuse(db: Database, verb: str, params: dict[str, Any]) -> None:
    queue = made(db)
    refuses(BadInput, call, db, verb, **{"payload": "1", **params} if verb == "push" else params)
    assert counts(queue) == {}


@pytest.mark.parametrize("kind", UNDONE_ALONE, indirect=True, ids=lambda kind: kind.name)
def test_messages_that_cannot_be_read(db: Database) -> None:
    queue = made(db, payload="bytes")
    for verb, messages in (("push_many", '["AA==", "A"]'), ("push_each", '[{"payload": "A"}]'), ("push_many", "[1]")):
        assert "payload" in refuses(BadInput, call, db, verb, messages=messages).cause
    late = '[{"payload": "", "due": "tomorrow noon"}]'
    assert re.search("due|tomorrow noon", refuses(BadInput, call, db, "push_each", messages=late).cause)
    assert counts(queue) == {}


# -- transactions ----------------------------------------------------------------------------------------------------


def test_they_are_part_of_the_callers_transaction(db: Database) -> None:
    queue = made(db)
    ids = queue.push_many([1, 2, 3])
    with transaction(db) as one:
        one.call("push", payload="4")
        popped = one.call("pop", n=2)
        one.call("complete", ids=[ids[0]], token=popped[0][-1])
        one.call("take")
        one.connection.rollback()
    assert counts(queue) == {"ready": 3}
    with transaction(db) as one:
        assert [row[0] for row in one.call("take", n=2)] == ids[:2]
        assert ids_of(queue.peek()) == ids, "the others see it when it commits"
    assert counts(queue) == {"ready": 1, "finished": 2}


@pytest.mark.parametrize("kind", UNDONE_ALONE, indirect=True, ids=lambda kind: kind.name)
def test_an_error_undoes_its_call_alone(db: Database) -> None:
    check_undone(db)


@pytest.mark.parametrize("kind", UNDONE_ALL, indirect=True, ids=lambda kind: kind.name)
def test_an_error_undoes_all_of_the_transaction_on_sql_server(db: Database) -> None:
    queue = made(db)
    queue.push(0, key="k")
    with db.engine.connect() as connection:
        one = Session(db, connection)
        one.call("push", payload="1")
        refuses(DuplicateKey, one.call, "push", payload="2", key="k")
        connection.rollback()
    assert counts(queue) == {"ready": 1}
    with session(db) as alone:
        refuses(DuplicateKey, alone.call, "push", payload="2", key="k")
        alone.call("push", payload="3")
    assert counts(queue) == {"ready": 2}


@pytest.mark.parametrize("kind", UNDONE_ALL, indirect=True, ids=lambda kind: kind.name)
def test_t_sql_reads_what_it_popped(db: Database) -> None:
    queue = made(db)
    queue.push_many([1, 2])
    columns = (
        "id bigint, payload nvarchar(max), headers nvarchar(max), attempts int, pushed_at datetime2(6), "
        "popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510), "
        "dedup_key nvarchar(510), due_at datetime2(6), errors nvarchar(max), token uniqueidentifier"
    )
    with session(db) as one:
        rows = one.cursor.execute(
            f"set nocount on; declare @popped table ({columns}); insert into @popped exec {one.queue}_pop @p_n = 5; "  # noqa: S608
            f"declare @token uniqueidentifier = (select max(cast(token as char(36))) from @popped); "
            f"exec {one.queue}_complete @p_ids = N'[1, 2]', @p_token = @token;"
        ).fetchall()
        assert sorted(rows) == [(1,), (2,)]
        words = f"set nocount on; declare @popped table ({columns}); insert into @popped exec {one.queue}_pop @p_n = 0;"
        assert "n is not from 1 to 1000" in refuses(BadInput, one.execute, words).cause
    assert counts(queue) == {"finished": 2}


@pytest.mark.parametrize("kind", UNDONE_ALL, indirect=True, ids=lambda kind: kind.name)
def test_a_name_that_another_queue_has_is_refused(db: Database) -> None:
    """Procedures and tables share a namespace there."""
    orders, neighbour = db.create_queue("orders"), db.create_queue("orders_push")
    refuses(errors.QueueDiffers, db.install_procedures, "orders")
    neighbour.push("stays")
    orders.drop()
    assert claimed(neighbour).payload == "stays"
    neighbour.drop()
    again = db.create_queue("orders")
    db.install_procedures("orders")
    refuses(errors.QueueDiffers, db.create_queue, "orders_push")
    again.drop()
    assert db.create_queue("orders_push").push(1)


def check_groups(db: Database) -> None:
    """What ends the first message of a group makes the next one ready at once, by both protocols of PostgreSQL."""
    queue = made(db, groups=True, max_attempts=1)
    with session(db) as one:
        # psycopg sends the parameters apart, as the extended protocol has it, but not with its ClientCursor.
        for cursor in (one.cursor, ClientCursor(one.cursor.connection)):
            one.cursor = cursor
            queue.push_many(NewMessage(each, group="g") for each in range(4))
            first, second, third, fourth = [*ids_of(queue.peek()), *ids_of(queue.peek(3, state="blocked"))]
            token = one.call("pop")[0][-1]
            one.call("complete", ids=[first], token=token)
            assert ids_of(queue.peek()) == [second]
            token = one.call("pop")[0][-1]
            one.call("fail", id=second, token=token, error="no")
            assert ids_of(queue.peek()) == [third]
            one.call("cancel", ids=[third])
            assert ids_of(queue.peek()) == [fourth]
            queue.cancel(fourth)


@only("postgresql")
def test_groups_go_on_by_both_protocols(db: Database) -> None:
    check_groups(db)


@only("postgresql")
@pytest.mark.parametrize("file", ["complete", "fail", "cancel"])
def test_the_check_notices_groups_that_go_on_by_one(db: Database, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(monkeypatch, file, r"not within(?= then\s+perform \{queue\}_promote)", "now() = statement_timestamp()")
    with pytest.raises(AssertionError):
        check_groups(db)


def rewrite(monkeypatch: pytest.MonkeyPatch, file: str, pattern: str, by: str) -> None:
    """Let procedures be made of another template than that of their file."""
    whole = procedures.template

    def template(engine: str, name: str) -> str:
        if name != file:
            return whole(engine, name)
        text, found = re.subn(pattern, by, whole(engine, name))
        assert found, "the mutant is no mutant"
        return text

    monkeypatch.setattr(procedures, "template", template)


# Of MariaDB's, which see to transactions themselves: what is wrong with which template.
BROKEN = {
    "no_savepoint": ("begin", "savepoint tablequeue"),
    "no_transaction": ("begin", "start transaction"),
    "no_rollback": ("undo", "rollback to savepoint tablequeue"),
}


@only("mariadb")
@pytest.mark.parametrize("broken", BROKEN)
def test_the_check_notices_procedures_that_undo_nothing(
    db: Database, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, part = BROKEN[broken]
    rewrite(monkeypatch, file, part, "do 0")
    with pytest.raises((AssertionError, errors.TablequeueError)):
        check_undone(db)


def check_undone(db: Database) -> None:
    """An error undoes the whole call and nothing else of the caller's transaction, and the same in autocommit."""
    queue = made(db)
    queue.push(0, key="k")
    batch = '[{"payload": 1}, {"payload": 2, "key": "n"}, {"payload": 3, "key": "k"}]'
    with transaction(db) as one:
        [(first,)] = one.call("push", payload="1")
        token = one.call("pop")[0][-1]
        # On these engines an error aborts the transaction if the caller has no savepoint.
        needs_savepoint = engine_of(db).dialect.name == "postgresql"
        with one.connection.begin_nested() if needs_savepoint else nullcontext() as saved:
            refuses(DuplicateKey, one.call, "push_each", messages=batch)
            if saved:
                saved.rollback()
        assert one.call("complete", ids=[1], token=token) == [(1,)]
    assert ids_of(queue.peek()) == [first]
    queue.push(0, key="k")
    with session(db) as alone:
        refuses(DuplicateKey, alone.call, "push_each", messages=batch)
        alone.call("push", payload="2")
    assert counts(queue) == {"ready": 3, "finished": 1}


def test_a_claim_in_a_transaction_does_not_wait_for_others(db: Database) -> None:
    """Other pushes and claims do not wait for it either, at any isolation level."""
    queue = made(db)
    ids = queue.push_many(range(4))
    with transaction(db) as one, transaction(db) as other:
        assert [row[0] for row in one.call("pop", n=2)] == ids[:2]
        assert [row[0] for row in other.call("pop", n=5)] == ids[2:]
        fifth = queue.push(4)
        assert claimed(queue).id == fifth


def test_sqlite_has_none(tmp_path: Any) -> None:
    database = Place(f"sqlite:///{tmp_path / 'work.db'}", None).open()
    queue: Queue = database.create_queue("work")
    refuses(BadInput, database.install_procedures, "work")
    queue.drop()


@only("postgresql", "mariadb")
def test_lone_surrogates_are_refused(db: Database) -> None:
    """As by `push`: no program that reads Unicode could be given them."""
    queue = db.create_queue("work")
    db.install_procedures("work")
    for text in ('{"a": "\\ud83c"}', '"\\udf89\\ud83c"', '"\\\\\\ud83c"', '"\\ud83c\\ud83c\\udf89"'):
        for verb, given in (
            ("push", {"payload": text}),
            ("push", {"payload": "1", "headers": f'{{"h": {text}}}'}),
            ("push_many", {"messages": f"[{text}]"}),
            ("push_many", {"messages": "[1]", "headers": f'{{"h": {text}}}'}),
        ):
            with session(db, "work") as one, pytest.raises(Exception, match=r"lone surrogate|JSON"):
                one.call(verb, **given)
    whole = ['"\\ud83c\\udf89"', '"\\\\ud83c"', '"\\\\\\\\ud83c"', '"\\ud7ff\\ue000"']
    with session(db, "work") as one:
        for text in whole:
            one.call("push", payload=text)
    assert [message.payload for message in queue.peek()] == [json.loads(text) for text in whole]
