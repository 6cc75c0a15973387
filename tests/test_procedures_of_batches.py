"""Stored procedures of queues with batches and with dependencies: no verb of Python sweeps here, or completes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest

from tablequeue import Database, Queue
from tablequeue.engines import procedures
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.model.definition import History
from tests import batches, dependencies
from tests.batches import FAILED, HEADER, called, opened, progress
from tests.dependencies import rows
from tests.servers import Kind, Place, only
from tests.sessions import Session, call, engine_of, session, transaction
from tests.support import at, claimed, refuses, rewritten

pytestmark = only("postgresql", "mariadb")


def made(db: Database, **options: Any) -> Queue:
    queue = batches.made(db, **options)
    db.install_procedures("work")
    return queue


def popped(db: Database, n: int = 9, **options: Any) -> tuple[list[int], Any]:
    """Pop messages by the procedure. Return their ids, and the token."""
    found = call(db, "pop", n=n, **options)
    return [row[0] for row in found], found[0][-1] if found else None


@contextmanager
def isolated(db: Database, level: str) -> Iterator[Session]:
    """A session whose calls are in one transaction of this isolation level."""
    with db.engine.connect().execution_options(isolation_level=level) as connection, connection.begin():
        yield Session(db, connection)


# -- batches -----------------------------------------------------------------------------------------------------------


def check_complete(db: Database) -> None:
    """The completion of the last message ends the batch, and pushes its callback once."""
    id = opened(made(db))
    ids, token = popped(db)
    call(db, "complete", ids=ids[:2], token=token)
    assert popped(db) == ([], None)
    assert called(db) == [], "one is in progress"
    call(db, "complete", ids=ids[2:], token=token)
    assert called(db) == [("ended", id, {"total": 3, "finished": 3})], "at once"
    assert popped(db) == ([], None)
    assert len(called(db)) == 1
    assert progress(db, id) == {"finished": 3}


def check_swept(db: Database) -> None:
    """What a transaction of the caller's has completed, a later pop ends."""
    id = opened(made(db), "ab")
    ids, token = popped(db)
    with transaction(db) as one:
        one.call("complete", ids=ids, token=token)
        one.connection.rollback()
    assert (popped(db), called(db)) == (([], None), [])
    with transaction(db) as one:
        one.call("complete", ids=ids[:1], token=token)
        one.call("complete", ids=ids[1:], token=token)
    assert called(db) == []
    assert popped(db) == ([], None)
    assert popped(db) == ([], None)
    assert called(db) == [("ended", id, {"total": 2, "finished": 2})]


def check_dead(db: Database) -> None:
    """A dead letter calls `failed` once, and cancels the others of its batch."""
    queue = made(db)
    id = opened(queue, failed=FAILED, on_dead="cancel")
    waits = opened(queue, "d")
    ids, token = popped(db, 2)
    assert call(db, "fail", id=ids[0], token=token, error="no") == [("dead",)]
    assert called(db) == [("failed", id, {"total": 3, "dead": 1, "cancelled": 1})]
    assert call(db, "release", ids=ids[1:], token=token) == [(ids[1],)], "told to stop, so it ends"
    assert called(db)[1:] == [("ended", id, {"total": 3, "dead": 1, "cancelled": 2})]
    ids, token = popped(db)
    call(db, "fail", id=ids[0], token=token, error="no")
    assert (len(called(db)), progress(db, waits)) == (2, {"dead": 1})
    call(db, "cancel", ids=ids)
    assert called(db)[2:] == [("ended", waits, {"total": 1, "cancelled": 1})]


def check_lost_lease(db: Database) -> None:
    """A sweep that makes a dead letter pushes what follows, in the same call."""
    id = opened(made(db), "a", failed=FAILED, on_dead="continue")
    popped(db, lease=0)
    assert popped(db) == ([], None)
    assert called(db) == [("failed", id, {"total": 1, "dead": 1}), ("ended", id, {"total": 1, "dead": 1})]


def check_results(db: Database) -> None:
    """A result that a procedure keeps is one of its batch."""
    queue = made(db, results=True)
    id = opened(queue, "ab")
    ids, token = popped(db)
    call(db, "complete", ids=ids[:1], token=token, result='{"n": 1}')
    call(db, "complete", ids=ids[1:], token=token)
    assert db.batch(id).results() == {ids[0]: {"n": 1}}
    assert len(called(db)) == 1


def check_forgotten(db: Database) -> None:
    """Batches that have ended are forgotten with the history; of a queue without one, after a day."""
    now = engine_of(db).dump_time
    kept: list[tuple[str, History, int]] = [("work", 3600, 3601), ("other", "none", 86_401)]
    for name, history, seconds in kept:
        queue = db.create_queue(name, payload="text", batches=True, history=history)
        db.install_procedures(name)
        with queue.batch(now=at(0)) as ended, queue.batch(now=at(0)) as still_open:
            still_open.push("a")
        for moment, there in ((seconds - 2, True), (seconds, False)):
            with transaction(db, name) as one:
                one.call("pop", now=now(at(moment)))
            assert batches.is_there(db, ended.id) is there
        assert batches.is_there(db, still_open.id)


def check_isolation(db: Database) -> None:
    """In a transaction that does not see what others have added since it began, a pop ends no batch."""
    queue = made(db)
    id = opened(queue, "a")
    message = claimed(queue)
    with isolated(db, "REPEATABLE READ") as one:
        one.call("peek")
        with queue.batch_of(message) as batch:
            batch.push("b")
        one.call("complete", ids=[message.id], token=message.token)
        one.call("pop", now=one.engine.dump_time(at(0)))
    assert called(db) == []
    assert db.batch(id).progress().finished == 1


def test_the_queue_of_a_callback(db: Database) -> None:
    """The callback is stored as a push of that queue; it may be renamed, and if it is dropped the batch stays open."""
    queue = made(db)
    designs: dict[str, dict[str, Any]] = {
        "strict": {"strict": True},
        "fair": {"groups": "fair"},
        "bytes": {"payload": "bytes"},
        "text": {"payload": "text", "batches": True, "unique_for": 60},
        "due": {"order": "due"},
        "priority": {"order": "priority", "dependencies": True},
        "expires": {"expires": 60},
        "once": {"delivery": "at_most_once"},
    }
    for name, design in designs.items():
        db.create_queue(name, **design)
        payload = {"bytes": b"\x00\xff'\\", "text": "\U0001f600 'ü'\\\n"}.get(
            name, {"x": "\U0001f600 'ü'\\", "n": 1.50}
        )
        id = opened(queue, "a", then=(name, payload))
        db.rename(name, f"{name} renamed")
        other = db.queue(f"{name} renamed")
        own = other.push(payload)
        ids, token = popped(db)
        call(db, "complete", ids=ids, token=token)
        mine, callback = (message for state in ("ready", "blocked") for message in other.peek(state=state))
        assert (mine.id, callback.payload, callback.group) == (own, payload, mine.group)
        assert (callback.due_at is None) == (mine.due_at is None)
        assert callback.headers[HEADER] == {
            "id": id, "queue": "work", "total": 1, "finished": 1, "dead": 0, "cancelled": 0
        }  # fmt: skip
        if name == "expires":
            assert other.pop_many(2, now=at(10**9)) == []
        else:
            other.complete(claimed(other))
            assert claimed(other).payload == payload
    other = db.create_queue("other")
    id = opened(queue, "a", then=("other", 1))
    other.drop()
    ids, token = popped(db)
    call(db, "complete", ids=ids, token=token)
    assert popped(db) == ([], None)
    assert db.batch(id).progress().ended_at is None


def test_a_pop_that_ends_a_batch_keeps_nobody_waiting(db: Database) -> None:
    queue = made(db)
    id = opened(queue, "ab")
    ids, token = popped(db)
    with transaction(db) as one:
        one.call("complete", ids=ids[:1], token=token)
        one.call("complete", ids=ids[1:], token=token)
    with isolated(db, "READ COMMITTED") as one:
        one.call("pop")
        assert popped(db) == ([], None)
        assert called(db) == [], "not committed yet"
    assert [each for _, each, _ in called(db)] == [id]


def test_the_last_two_at_once(db: Database, place: Place) -> None:
    """Completions at the same moment: each batch has one callback, at the latest after the next pop."""
    made(db)
    barrier = Barrier(2)
    ids = [pushed(db, [{"payload": "a"}, {"payload": "b"}], then=ENDED) for _ in range(8)]
    held = [popped(db, 2) for _ in ids]

    def complete(number: int) -> None:
        own = place.open()
        for messages, token in held:
            barrier.wait(60)
            call(own, "complete", ids=messages[number : number + 1], token=token)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(complete, range(2)))
    assert popped(db) == ([], None)
    assert sorted(id for _, id, _ in called(db)) == ids


def test_no_take_of_a_queue_with_batches(db: Database) -> None:
    db.create_queue("work", batches=True)
    assert "tq_work_take" not in db.install_procedures("work")


def pushed(db: Database, messages: list[Any], **options: Any) -> int:
    """Push a batch by the procedure, and return its id."""
    given = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in options.items()}
    [(id,)] = call(db, "push_batch", messages=json.dumps(messages), **given)
    return id


ENDED, HAS_FAILED = ({"queue": "called", "payload": word} for word in ("ended", "failed"))


def check_push_batch(db: Database) -> None:
    """A batch of a procedure is one as any other; `batch` is its progress."""
    queue = made(db)
    call(db, "push", payload="another")
    later = {"payload": "b", "delay": 60, "headers": {"x": 1}}
    id = pushed(db, [{"payload": "a"}, later], then=ENDED, failed=HAS_FAILED, on_dead="continue")
    assert [batch.id for batch in queue.batches()] == [id]
    assert call(db, "batch", id=id)[0][:5] == (2, 0, 0, 0, 0)
    queue.reschedule(queue.peek(state="scheduled")[0].id, delay=0)
    ids, token = popped(db)
    call(db, "complete", ids=ids[:2], token=token)
    assert call(db, "batch", id=id)[0][:5] == (0, 1, 1, 0, 0)
    call(db, "fail", id=ids[2], token=token, error="no")
    numbers = {"total": 2, "finished": 1, "dead": 1}
    assert called(db) == [("failed", id, numbers), ("ended", id, numbers)]
    [(*numbers_now, opened_at, failed_at, ended_at)] = call(db, "batch", id=id)
    assert numbers_now == [0, 0, 1, 1, 0]
    assert opened_at <= failed_at <= ended_at
    assert db.batch(id).progress().ended_at == engine_of(db).load_time(ended_at)
    empty = pushed(db, [], then=ENDED)
    assert called(db)[2:] == [("ended", empty, {})]


def check_cancel_batch(db: Database) -> None:
    made(db)
    id = pushed(db, [{"payload": each} for each in "abc"], then=ENDED)
    call(db, "push", payload="another")
    ids, token = popped(db, 2)
    call(db, "fail", id=ids[0], token=token, error="no")
    assert call(db, "cancel_batch", id=id) == [(3,)]
    assert call(db, "batch", id=id)[0][:5] == (0, 1, 0, 0, 2)
    assert called(db) == []
    call(db, "release", ids=ids[1:], token=token)
    assert called(db) == [("ended", id, {"total": 3, "cancelled": 3})]
    waits = pushed(db, [{"payload": "d"}], then=ENDED)
    assert call(db, "cancel_batch", id=waits) == [(1,)]
    assert called(db)[1:] == [("ended", waits, {"total": 1, "cancelled": 1})], "at once"
    assert call(db, "cancel_batch", id=waits) == [(0,)]


def check_batch_refusals(db: Database) -> None:
    queue = made(db)
    other = db.create_queue("other", payload="text", batches=True)
    db.create_queue("groups", groups=True)
    db.create_queue("bytes", payload="bytes")
    db.create_topic("events")
    wrong: list[dict[str, Any]] = [{"queue": name, "payload": "x"} for name in ("none", "groups", "events", "bytes")]
    wrong += [{}, {"queue": "called"}, {"payload": "x"}, {"queue": "called", "payload": 1}, {"queue": 1, "payload": 1}]
    for callback in wrong:
        for which in ("then", "failed"):
            refuses(BadInput, pushed, db, [{"payload": "a"}], **{which: callback})
    refuses(BadInput, pushed, db, [{"payload": "a"}], on_dead="never")
    for messages in (
        None,
        "{}",
        "[1]",
        "[{}]",
        '[{"payload": 1}]',
        '[{"payload": null}]',
        '[{"payload": "a", "x": 1}]',
    ):
        refuses(BadInput, call, db, "push_batch", messages=messages)
    with pytest.raises(DuplicateKey):
        pushed(db, [{"payload": "a", "key": "k"}, {"payload": "b", "key": "k"}], then=ENDED)
    assert (queue.stats().ready, queue.batches()) == (0, [])
    for id in (99, opened(other)):
        refuses(BadInput, call, db, "batch", id=id)
        refuses(BadInput, call, db, "cancel_batch", id=id)
    assert other.stats().ready == 3


@pytest.mark.parametrize(
    ("payload", "given"),
    [("bytes", "AP8="), ("text", "\U0001f600 'ü'\\\n"), ("json", {"x": "\U0001f600\\", "n": [1.5, None]})],
)
def test_the_payload_of_a_callback(db: Database, payload: Any, given: Any) -> None:
    made(db)
    other = db.create_queue("other", payload=payload)
    pushed(db, [], then={"queue": "other", "payload": given})
    assert claimed(other).payload == (b"\x00\xff" if payload == "bytes" else given)


def test_a_batch_in_groups(db: Database) -> None:
    made(db, groups=True)
    id = pushed(db, [{"payload": each, "group": "g"} for each in "ab"], then=ENDED)
    for number in range(2):
        ids, token = popped(db)
        assert len(ids) == 1
        assert len(called(db)) == 0, number
        call(db, "complete", ids=ids, token=token)
    assert called(db) == [("ended", id, {"total": 2, "finished": 2})]


# -- dependencies ------------------------------------------------------------------------------------------------------


def waiting(db: Database, **options: Any) -> Queue:
    queue = dependencies.made(db, **options)
    db.install_procedures("work")
    return queue


def check_after(db: Database) -> None:
    """A message comes when all have ended that it waits for; one of a dropped queue has."""
    queue, other, gone = waiting(db), db.create_queue("other"), db.create_queue("gone")
    first = queue.push("a")
    queue.push("last", after=[first, ("other", other.push(1)), ("gone", gone.push(1))])
    ids, token = popped(db)
    assert ids == [first]
    gone.drop()
    claimed(other).complete()
    assert popped(db) == ([], None), "one is in progress"
    call(db, "complete", ids=ids, token=token)
    assert popped(db)[0] == [first + 1]
    assert rows(queue) == []


def check_delay(db: Database) -> None:
    """A delay begins when nothing is left to wait for."""
    now = engine_of(db).dump_time
    queue = waiting(db)
    ids = [queue.push("a", now=at(0))]
    queue.push("b", after=ids, delay=60, now=at(0))
    held, token = popped(db, now=now(at(1)))
    call(db, "complete", ids=held, token=token)
    assert popped(db, now=now(at(100)))[0] == []
    assert popped(db, now=now(at(150)))[0] == []
    assert len(popped(db, now=now(at(161)))[0]) == 1


def check_dead_letters(db: Database) -> None:
    """What a message does that waits for a dead letter."""
    queue = waiting(db, max_attempts=1)
    first = queue.push("a")
    wait, go_on, cancel = (queue.push(each, after=[first], on_dead=each) for each in ("wait", "continue", "cancel"))
    _, token = popped(db)
    call(db, "fail", id=first, token=token, error="no")
    assert popped(db)[0] == [go_on]
    assert [message.id for message in queue.history()] == [cancel]
    assert [message.id for message in queue.peek(state="scheduled")] == [wait]


def test_a_pop_that_frees_messages_keeps_nobody_waiting(db: Database) -> None:
    queue = waiting(db)
    first = queue.push("a")
    queue.push_many([*"bc"], after=[first])
    ids, token = popped(db)
    call(db, "complete", ids=ids, token=token)
    with transaction(db) as one:
        assert [row[0] for row in one.call("pop")] == [first + 1]
        assert popped(db) == ([], None)
    assert popped(db)[0] == [first + 2]


def check_push_after(db: Database) -> None:
    """A push by a procedure waits for messages of its own queue and of others, until its delay is over after that."""
    queue, other, now = waiting(db), db.create_queue("other"), engine_of(db).dump_time
    [(first,)] = call(db, "push", payload="a", now=now(at(0)))
    after = json.dumps([first, ["other", other.push(1)], first])
    [(last,)] = call(db, "push", payload="b", after=after, delay=60, now=now(at(0)))
    assert len(rows(queue)) == 3
    held, token = popped(db, now=now(at(90)))
    assert held == [first]
    claimed(other).complete()
    assert popped(db, now=now(at(91)))[0] == []
    call(db, "complete", ids=held, token=token)
    assert popped(db, now=now(at(100)))[0] == []
    assert popped(db, now=now(at(159)))[0] == []
    assert popped(db, now=now(at(161)))[0] == [last]
    assert rows(queue) == []


def check_push_many_after(db: Database) -> None:
    """All wait for the same messages, and what `on_dead` says is done about each."""
    queue = waiting(db, max_attempts=1)
    [(first,)] = call(db, "push", payload="a")
    pushed = [
        call(db, "push_many", messages='["b", "c"]', after=f"[{first}]", on_dead=on_dead)
        for on_dead in ("cancel", "continue")
    ]
    held, token = popped(db)
    assert held == [first]
    call(db, "fail", id=first, token=token, error="no")
    assert popped(db)[0] == [id for (id,) in pushed[1]]
    assert {message.id for message in queue.history()} == {id for (id,) in pushed[0]}


def check_key_and_after(db: Database) -> None:
    """A message that had the key before waits for nothing."""
    queue = waiting(db)
    [(first,)] = call(db, "push", payload="a", key="k")
    [(other,)] = call(db, "push", payload="b")
    for on_conflict, id in (("return", first), ("skip", None)):
        call_after = {"after": f"[{other}]", "key": "k", "on_conflict": on_conflict}
        assert call(db, "push", payload="c", **call_after) == [(id,)]
        assert rows(queue) == []
    assert popped(db)[0] == [first, other]


def check_refusals(db: Database) -> None:
    queue = waiting(db)
    db.create_queue("once", delivery="at_most_once")
    db.create_queue("buried", payload="text", dead_letter_to="work")
    db.create_topic("events")
    [(id,)] = call(db, "push", payload="a")
    wrong: list[Any] = [{}, 1, ["x"], [[id]], [[1, id]], [["work", "1"]], [1.5], [-1], [None], [["once", 1]]]
    wrong += [[["buried", 1]], [["none", 1]], [["events", 1]], [id, ["work", 99]]]
    # The id that the push itself gets; one that is refused leaves a gap.
    refuses(BadInput, call, db, "push", payload="b", after=f"[{id + 1}]")
    refuses(BadInput, call, db, "push_many", messages='["b"]', after=f"[{id + 2}]")
    for after in wrong:
        refuses(BadInput, call, db, "push", payload="b", after=json.dumps(after))
        refuses(BadInput, call, db, "push_many", messages='["b"]', after=json.dumps(after))
    refuses(BadInput, call, db, "push", payload="b", after=f"[{id}]", on_dead="never")
    assert (queue.stats().ready, queue.stats().scheduled, rows(queue)) == (1, 0, [])
    refusal = refuses(BadInput, call, db, "push", payload="b", after=f"[{id}, 97, 98]")
    if engine_of(db).dialect.name == "postgresql":
        assert refusal.cause == refuses(BadInput, queue.push, "b", after=[id, 97, 98]).cause


def test_in_groups_and_without_a_history(db: Database) -> None:
    other = db.create_queue("other")
    designs: dict[str, dict[str, Any]] = {"groups": {"groups": True}, "none": {"history": "none"}}
    for name, options in designs.items():
        queue = dependencies.made(db, name, **options)
        db.install_procedures(name)
        given = {"group": "g"} if name == "groups" else {}
        id = other.push(1)
        with session(db, name) as one:
            waits = [one.call("push", payload="a", after=json.dumps([["other", id]]), **given)[0][0]]
            if name == "none":  # which cannot tell that there was no message 99
                waits += one.call("push", payload="b", after="[99]")[0]
                assert [row[0] for row in one.call("pop")] == waits[1:]
            assert one.call("pop") == []
            claimed(other).complete()
            assert [row[0] for row in one.call("pop")] == waits[:1]
        assert rows(queue) == []


# -- mutants -----------------------------------------------------------------------------------------------------------

Check = Callable[[Database], None]
Texts = dict[str, Callable[[str], str]]


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, by, text)


# Of the SQL of which procedures are made: what is wrong, and the check that notices it.
TEXTS: dict[str, tuple[Texts, Check]] = {
    "a batch that ends too early": ({"open_batches": replaced("'in_progress', ", "")}, check_complete),
    "a message that comes too early": ({"freed_heads": replaced(r"waiting\.on_table <> ''", "1 = 0")}, check_after),
    "a message without its delay": ({"free_heads": replaced(r"coalesce\(head\.delay, 0\)", "0")}, check_delay),
    "a dead letter that cancels nothing": (
        {"ended_dependencies": replaced("waiting.on_dead = 'cancel'", "1 = 0")},
        check_dead_letters,
    ),
}
END = r"perform \{queue\}_end_batches\((null|batch), p_now\)(\n *from .* as ended)?"
LOOK = r"call \{queue\}_look_after\((null|endings), p_now\)"
IN_SWEEP = r"moved := moved \+ \{queue\}_end_batches\(null, p_now\)|call \{queue\}_end_batches\(null, p_now, settled\)"
# Of the templates: which one, what is left out or put in its place, and the check that notices it.
NOTHING = {"postgresql": "perform 1", "mysql": "do 0"}
TEMPLATES: dict[str, tuple[str, str, str | None, Check]] = {
    "a completion that ends no batch": ("complete", f"{END}|{LOOK}", None, check_complete),
    "a failure that ends no batch": ("fail", f"{END}|{LOOK}", None, check_dead),
    "a release that ends no batch": ("release", f"{END}|{LOOK}", None, check_dead),
    "a cancel that ends no batch": ("cancel", f"{END}|{LOOK}", None, check_dead),
    "a sweep that ends no batch": ("sweep", IN_SWEEP, None, check_swept),
    "a sweep that pushes nothing of a dead letter": ("settle", "if tells and has_dead", "if false", check_lost_lease),
    "a batch that ends twice": ("settle", r"\{sql end_batch\}", None, check_complete),
    "a batch that ends at any isolation level": (
        "end_batches",
        r"if current_setting\('transaction_isolation'\) <> 'read committed'|if @`tablequeue.committed`",
        "if {}",
        check_isolation,
    ),
    "a result without its batch": (
        "complete",
        r"(message\.|done\.)?batch_id(?=, p_result|, json_extract)",
        "null",
        check_results,
    ),
    "a batch that is never forgotten": ("sweep", r"\{sql forget_batches.change ids=\w+\}", None, check_forgotten),
    "a sweep that frees nothing": (
        "sweep", r"moved := \{queue\}_free\(p_now\)|call \{queue\}_free\(p_now, freed\)", None, check_after
    ),
    "a batch whose messages are not in it": (
        "push_batch", "set batch_id = opened", "set batch_id = null", check_push_batch
    ),
    "an empty batch that stays open": ("push_batch", "p_pushed = 0", "1 = 0", check_push_batch),
    "a cancellation that leaves dead letters": (
        "cancel_batch", r"cancel_all\(p_id, 1", "cancel_all(p_id, 0", check_cancel_batch
    ),
    "a cancellation that ends no batch": (
        "cancel_batch",
        r"perform \{queue\}_end_batches\(p_id, p_now\)|call \{queue\}_look_after\(.*\)",
        None,
        check_cancel_batch,
    ),
    "a batch of another queue": ("batch progress", r" and queue = '\{table\}'", "", check_batch_refusals),
    "a push whose delay is forgotten": (
        "hold_back", r"0, (p_on_dead|does_about_dead), p_delay", r"0, \1, null", check_push_after
    ),
    "a push that does not wait": ("hold_back", r"set due_at = \{far\},", "set", check_push_after),
    "an id of no message": (
        "hold_back", r"(missing|@`tablequeue\.missing`) is not null", "1 = 0", check_refusals
    ),
    "a message that waits for itself": (
        "hold_back",
        r"(?<=where )(id = any\(\$2\)|json_contains\(@`tablequeue\.pushed`, cast\(given\.id as char\)\)) or",
        "",
        check_refusals,
    ),
    "a message that had the key": (
        "push", r"(?<=when )is_new|pushed = last_insert_id\(\)", "1 = 1", check_key_and_after
    ),
    "pushes of which none waits": (
        "push_many", r"(perform|call) \{queue\}_hold_back\(.*\)", None, check_push_many_after
    ),
}  # fmt: skip
CHECKS = {each[-1].__name__: each[-1] for each in TEXTS.values()}
CHECKS |= {each[-1].__name__: each[-1] for each in TEMPLATES.values()}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_procedures_pass(db: Database, check: Check) -> None:
    check(db)


@pytest.mark.parametrize(("texts", "check"), TEXTS.values(), ids=TEXTS)
def test_mutants_of_the_sql_are_noticed(place: Place, kind: Kind, texts: Texts, check: Check) -> None:
    noticed(place.open_with(rewritten(kind.engine_class, **texts)), check)


@pytest.mark.parametrize(("file", "pattern", "by", "check"), TEMPLATES.values(), ids=TEMPLATES)
def test_mutants_of_the_templates_are_noticed(
    db: Database, file: str, pattern: str, by: str | None, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, engine = procedures.template, engine_of(db).name
    there = {*file.split()} & {*procedures.templates(engine)}
    assert any(re.search(pattern, whole(engine, name)) for name in there), "nothing to rewrite"
    instead = NOTHING[engine] if by is None else by.format("false" if engine == "postgresql" else "true")

    def template(engine: str, name: str) -> str:
        text = whole(engine, name)
        return re.sub(pattern, instead, text) if name in there else text

    monkeypatch.setattr(procedures, "template", template)
    noticed(db, check)


def noticed(db: Database, check: Check) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)) as caught:
        check(db)
    assert "nothing to rewrite" not in str(caught.value)
