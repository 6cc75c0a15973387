"""SQL Server's engine with a stand-in for server and driver: what it sends, in which transaction, and how it treats
errors.

The stand-in returns prepared answers. Whether SQL Server would give them is not tested here.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tablequeue import ALL, Database, NewMessage, aio, errors
from tablequeue.aio.threads import Threads
from tablequeue.engines.mssql.connection import Batch
from tablequeue.engines.mssql.engine import SQLServer
from tablequeue.engines.mssql.listener import SQLServerPoll
from tablequeue.engines.mssql.steps import STEP
from tablequeue.engines.runner import Runner
from tablequeue.errors import DriverMissing
from tablequeue.ext import context_of
from tablequeue.verbs import schedule
from tests.mssql_stand_in import (
    DEADLOCK,
    LOCK_TIMEOUT,
    NOT_GRANTED,
    SAME_FRONT,
    SAME_KEY,
    TIME,
    Numbered,
    Server,
    claims,
    new_server,
    queue_on,
    refusal,
    rows,
)
from tests.support import refuses


@pytest.fixture
def server() -> Server:
    return new_server()


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_connection_of_ours_is_made_so(server: Server) -> None:
    sa_engine: Any = server
    assert Runner(sa_engine, SQLServer(server.dialect)).pool.connect()
    assert server.autocommit
    assert "set transaction isolation level read committed" in server.sent[0][0]
    assert not any(params for _, params in server.sent)


@pytest.mark.parametrize("level", [[], [(120, "dbo")]])
def test_a_database_that_is_too_old_is_refused(server: Server, level: list[Any]) -> None:
    server.answers["compatibility_level"] = lambda params: level
    sa_engine: Any = server
    runner = Runner(sa_engine, SQLServer(server.dialect))
    refuses(errors.DatabaseError, runner.pool.connect)


def test_a_claim_is_one_batch_in_one_round_trip(server: Server) -> None:
    queue = queue_on(server)
    server.answers["update next"] = lambda params: rows(range(1, 4))
    assert [claim.id for claim in queue.pop_many(3, lease=5)] == [1, 2, 3]
    ((text, params),) = server.sent
    assert "cast(null as datetime2(6))" in text, "no now: the clock of the database"
    assert params[0] == 3
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", params[1]), "a uniqueidentifier"
    assert params[2:] == ("me", 5)


def test_a_time_keeps_its_microseconds(server: Server) -> None:
    queue = queue_on(server)
    queue.pop_many(3, now=datetime(2040, 1, 1, 0, 0, 0, 7, UTC))
    assert "2040-01-01T00:00:00.000007" in server.sent[-1][1]
    engine = SQLServer(server.dialect)
    expected = datetime(2040, 1, 1, 0, 0, 0, 7, UTC)
    assert engine.load_time(TIME.replace(microsecond=7)) == expected
    assert engine.load_time("2040-01-01T00:00:00.000007") == expected
    assert engine.load_time("2040-01-01 00:00:00.0000070") == expected


@pytest.mark.parametrize("n", [STEP, STEP + 1, 2500])
def test_a_large_claim_is_made_of_steps_in_one_transaction(server: Server, n: int) -> None:
    queue = queue_on(server)
    server.answers["update next"] = Numbered(lambda params: params[0], rows)
    assert [claim.id for claim in queue.pop_many(n)] == [*range(1, n + 1)]
    sizes = [params[0] for text, params in server.sent if "update next" in text]
    assert max(sizes) <= STEP
    assert sum(sizes) == n
    if n > STEP:
        assert server.texts()[0] == "begin transaction"
        assert server.texts()[-1] == "commit transaction"


def test_a_large_push_is_made_of_steps_and_its_ids_are_aligned(server: Server) -> None:
    queue = queue_on(server)
    server.answers["insert into tq_work "] = Numbered(
        lambda params: len(json.loads(params[0])), lambda ids: [(id,) for id in reversed(ids)]
    )
    assert queue.push_many(range(2500)) == [*range(1, 2501)]
    assert server.texts()[0] == "begin transaction"
    assert server.texts()[-1] == "commit transaction"
    pushed = [text for _, params in server.sent if params for text in json.loads(params[0])]
    assert [json.loads(text) for text in pushed] == [*range(2500)]


def test_bytes_go_in_hexadecimal_digits(server: Server) -> None:
    queue = queue_on(server, payload="bytes")
    server.answers["insert into tq_work "] = lambda params: [(1,), (2,)]
    queue.push_many([b"\x00\xff", b""])
    text, params = server.sent[-1]
    assert json.loads(params[0]) == ["00ff", ""]
    assert "convert(varbinary(max), batch.value, 2)" in text


def test_rows_with_options_and_taken_keys(server: Server) -> None:
    queue = queue_on(server, groups=True, payload="text")
    server.answers["from @batch"] = lambda params: [(5,), (None,)]
    messages = [NewMessage("x", group="a", key="k", delay=5), NewMessage("y", group="b", key="k")]
    assert queue.push_many(messages, on_conflict="skip") == [5, None]
    (text, params) = next(sent for sent in server.sent if "@batch" in sent[0])
    given = json.loads(params[0])
    assert [(row["payload"], row["group"], row["key"], row["delay"]) for row in given] == [
        ("x", "a", "k", 5),
        ("y", "b", "k", None),
    ]
    assert "insert into tq_work__turns (group_key)\nselect group_key" in text


@pytest.mark.parametrize("history", ["keep", "none"])
@pytest.mark.parametrize("design", [{}, {"groups": True}])
def test_a_large_complete_is_made_of_steps(server: Server, design: dict[str, Any], history: str) -> None:
    queue = queue_on(server, history=history, **design)
    server.answers["delete from message"] = lambda params: [(id, f"g{id % 2}") for id in json.loads(params[0])]
    queue.complete_many(claims(queue, range(1500)))
    sizes = [len(json.loads(params[0])) for text, params in server.sent if "delete from message" in text]
    assert sizes == [1000, 500]
    commit = server.texts().index("commit transaction")
    assert server.texts()[0] == "begin transaction"
    if design and history == "keep":
        text, params = server.sent[commit - 1]
        assert text.startswith("insert into tq_work__turns")
        assert json.loads(params[0]) == ["g0", "g1"]
    assert commit == (4 if design and history == "keep" else 3)


def test_every_verb_binds_its_parameters(server: Server) -> None:
    """The stand-in counts the parameters."""
    for definition in ({}, {"groups": True}, {"strict": True, "history": "none"}, {"order": "due", "history": 60}):
        queue = queue_on(server, **definition)
        group = "g" if queue.definition.groups else None
        server.answers["insert into tq_work "] = lambda params: [(1,)]
        server.answers[r"output inserted\.id, inserted\.lease_until"] = lambda params: [(1, TIME)]
        server.answers[r"output inserted\.id, inserted\.state"] = lambda params: [(1, "ready")]
        server.answers["delete from message|update message"] = lambda params: [(1, "g")]
        server.answers["count_big"] = lambda params: [(0, 0, 0, 0, 0, None)]
        server.answers[r"min\(id\)"] = lambda params: [(None, None)]
        assert queue.push("x", key="k", delay=1, headers={"a": 1}, group=group) == 1
        (claim,) = claims(queue, range(1, 2))
        claim.extend()
        claim.fail("why")
        claim.release()
        claim.complete()
        queue.purge()
        queue.redrive(ALL)
        queue.redrive([1])
        queue.purge_dead([1])
        queue.peek()
        queue.find(1)
        queue.stats()
        queue.pop()
        context_of(queue).table.next_sweep = 0
        queue.pop()
        queue.take(server)
        if queue.definition.keeps_history:
            queue.history()
            queue.history_bounds()
            queue.purge_history(5)
        queue.drop()
    once = queue_on(server, delivery="at_most_once")
    once.pop()
    once.lost()
    claims(once, range(1, 2))[0].complete()
    server.answers["delete from message|update message"] = lambda params: [(1, "lost")]
    assert claims(once, range(1, 2))[0].fail("why") == "lost"


def test_null_and_style_are_bound_when_it_is_known_what_they_are() -> None:
    batch = Batch("declare @a int = :a;\nselect @a, cast(:token as uniqueidentifier)")
    assert batch == "declare @a int = ?;\nselect @a, cast(? as uniqueidentifier)"
    token = "00112233445566778899aabbccddeeff"
    dashed = "00112233-4455-6677-8899-aabbccddeeff"
    assert batch.bind({"a": 1, "token": token}, "qmark") == (str(batch), (1, dashed))
    assert batch.bind({"a": None, "token": token}, "qmark") == (str(batch).replace("?", "null", 1), (dashed,))
    text, values = batch.bind({"a": 1, "token": token, "more": 2}, "pyformat")
    assert text == "declare @a int = %(a)s;\nselect @a, cast(%(token)s as uniqueidentifier)"
    assert values == {"a": 1, "token": dashed}


def test_only_a_token_that_is_stored_as_one_gets_dashes(server: Server) -> None:
    """The tables of moves have tokens of all databases, as text: with dashes none fitted."""
    token = "00112233445566778899aabbccddeeff"
    batch = Batch("declare @token char(32) = cast(:token as char(32))")
    assert batch.bind({"token": token}, "qmark")[1] == (token,)
    for text in context_of(queue_on(server)).table.statements("set_aside"):
        if isinstance(text, Batch) and "token" in text.names:
            assert token in text.bind({"ids": "[1]", "token": token}, "qmark")[1]


def test_there_is_no_async_engine(server: Server) -> None:
    sa_engine: Any = server
    own = Database(sa_engine, Runner(sa_engine, SQLServer(server.dialect)), "me")
    with pytest.raises(DriverMissing, match="no async driver of mssql"):
        _ = aio.AsyncDatabase(own, Threads(1), None).engine


@pytest.mark.parametrize("due", [True, False])
def test_a_schedule_is_advanced_by_one(server: Server, due: bool) -> None:
    """Only the worker that is told that a row was changed pushes."""
    queue = queue_on(server)
    server.answers["set last_due"] = lambda params: [(TIME,)] if due else []
    assert schedule.push(context_of(queue), "nightly", TIME.replace(tzinfo=UTC), None, lambda connection: None) is due


# -- a caller's transaction --------------------------------------------------------------------------------------------


def test_a_callers_transaction_is_never_ended(server: Server) -> None:
    queue = queue_on(server, groups=True)
    server.answers["delete from next"] = lambda params: rows(range(1, 3))
    server.answers["insert into tq_work "] = Numbered(
        lambda params: len(json.loads(params[0])), lambda ids: [(id,) for id in ids]
    )
    queue.take_many(2, server)
    queue.push_many(["x"] * 1500, group="g", connection=server)
    sent = server.texts()
    assert not [text for text in sent if text.startswith(("begin", "commit"))]
    assert [text.splitlines()[-1] for text, _ in server.sent].count("save transaction tablequeue") == 2
    assert [params for text, params in server.sent if "into tq_work__turns" in text] == [('["g"]',), ('["g"]',)]


def test_what_fails_half_way_is_undone_and_no_more(server: Server) -> None:
    queue = queue_on(server)
    answers = iter([[(1,)] * 1000, refusal(1105, "Could not allocate space for object 'x' because it is full.")])
    server.answers["insert into tq_work "] = lambda params: next(answers)
    refuses(errors.Full, queue.push_many, ["x"] * 1500, connection=server)
    assert server.texts()[-1] == "if xact_state() = 1"
    assert server.sent[-1][0].endswith("rollback transaction tablequeue")


def test_a_savepoint_in_the_words_of_others(server: Server) -> None:
    queue = queue_on(server)
    server.answers["from @batch"] = lambda params: [(None,)]
    refuses(errors.DuplicateKey, queue.push_many, [NewMessage("x", key="k")], connection=server)
    said = [text for text, _ in server.sent if "transaction tablequeue_call" in text]
    assert [text.splitlines()[-1] for text in said] == [
        "save transaction tablequeue_call",
        "if xact_state() = 1 rollback transaction tablequeue_call",
    ]
    assert said[0].startswith("if @@trancount = 0\n    select top (0)"), "else ODBC has not begun a transaction yet"


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_deadlock_is_tried_again(server: Server) -> None:
    queue = queue_on(server)
    answers = iter([DEADLOCK, LOCK_TIMEOUT, NOT_GRANTED, rows(range(1, 2))])
    server.answers["update next"] = lambda params: next(answers)
    claim = queue.pop()
    assert claim is not None
    assert claim.id == 1


def test_a_claim_in_turn_chooses_again_if_others_claimed_what_it_chose(server: Server) -> None:
    queue = queue_on(server, groups="fair")
    server.answers["order by newid"] = lambda params: [(7,)]  # a group has something ready
    answers = iter([[], [(1, '"x"', None, 1, TIME, TIME, TIME, 0, "g", None, None, 7)], []])
    server.answers["update next"] = lambda params: next(answers)
    claim = queue.pop()
    assert claim is not None
    assert claim.id == 1


def test_a_claim_in_turn_of_an_empty_queue_ends(server: Server) -> None:
    queue = queue_on(server, groups="fair")
    assert queue.pop() is None
    assert sum("update next" in text for text, _ in server.sent) <= 2


def test_a_key_that_came_between(server: Server) -> None:
    queue = queue_on(server)
    server.answers["insert into tq_work "] = lambda params: SAME_KEY
    refuses(errors.DuplicateKey, queue.push, "x", key="k")
    assert queue.push("x", key="k", on_conflict="skip", connection=server) is None
    server.answers["select xact_state"] = lambda params: [(0,)]
    refuses(errors.DatabaseError, queue.push, "x", key="k", on_conflict="skip", connection=server)


def test_a_key_that_came_between_many(server: Server) -> None:
    queue = queue_on(server)
    for connection in (None, server):
        answers = iter([SAME_KEY, [(None,)]])
        server.answers["from @batch"] = lambda params, answers=answers: next(answers)  # type: ignore[misc]
        assert queue.push_many([NewMessage("x", key="k")], on_conflict="skip", connection=connection) == [None]


def test_the_same_front_twice_is_tried_again(server: Server) -> None:
    queue = queue_on(server, groups=True)
    server.answers["insert into tq_work "] = lambda params: [(1,)]
    answers = iter([SAME_FRONT, [(1,)]])
    server.answers["update message"] = lambda params: next(answers)
    assert queue.push("x", group="g") == 1
    assert next(answers, None) is None, "both were asked for"


def test_a_front_that_is_locked_is_let_be(server: Server) -> None:
    queue = queue_on(server, groups=True)
    server.answers["insert into tq_work "] = lambda params: [(1,)]
    server.answers["update message"] = lambda params: LOCK_TIMEOUT
    assert queue.push("x", group="g") == 1
    assert server.sent[-1][0] == "if @@trancount > 0 rollback transaction"


def test_a_strict_queue_whose_front_is_being_taken_is_empty(server: Server) -> None:
    queue = queue_on(server, strict=True)
    server.answers["update next"] = lambda params: LOCK_TIMEOUT
    assert queue.pop() is None
    server.answers["delete from next"] = lambda params: LOCK_TIMEOUT
    refuses(errors.Locked, queue.take, server)


def test_a_lock_timeout_is_no_empty_queue_elsewhere(server: Server) -> None:
    queue = queue_on(server)
    server.answers["update next"] = lambda params: LOCK_TIMEOUT
    refuses(errors.Locked, queue.pop)


def test_a_completion_looks_at_its_batch_after_the_commit(server: Server) -> None:
    """Its text is several statements, because of the trigger, so it is a transaction of its own."""
    queue = queue_on(server, batches=True, groups=True)
    server.answers["delete from message"] = lambda params: [(1, 7, "g")]
    server.answers["insert into @open"] = lambda params: []
    claims(queue, range(1, 2))[0].complete()
    begin, complete, note, commit = (text for text, _ in server.sent[:4])
    assert (begin, commit) == ("begin transaction", "commit transaction")
    assert complete.index("insert into @done") < complete.index("delete from message") < complete.index("from @done as")
    assert note.startswith("insert into tq_work__turns")
    ((n, after),) = [params for text, params in server.sent[4:] if "insert into @open" in text]
    assert (n, after) == (1, 6)


def test_a_purge_in_a_queue_with_batches_notes_groups_in_one_transaction(server: Server) -> None:
    queue = queue_on(server, batches=True, groups=True)
    server.answers["delete from"] = lambda params: []
    queue.purge_dead([1])
    assert [text for text in server.texts() if "transaction" in text] == ["begin transaction", "commit transaction"]


def test_batches_that_a_look_waits_for_in_vain_are_left_for_the_next_one(server: Server) -> None:
    """Without READ_COMMITTED_SNAPSHOT. In a transaction, which the error has ended, it is an error."""
    queue = queue_on(server, batches=True)
    server.answers["insert into @open"] = lambda params: LOCK_TIMEOUT
    assert queue.batches() == []
    server.answers["select message.batch_id"] = lambda params: [(7,)]
    with pytest.raises(errors.Locked), queue.batch_of(claims(queue, range(1, 2))[0]) as batch:
        batch.push("x")


def test_what_messages_wait_for_is_noted_in_steps(server: Server) -> None:
    queue = queue_on(server, dependencies=True, history="none")
    server.answers["insert into tq_work "] = lambda params: [(5000,)]
    queue.push("x", after=range(1, 2001), now=TIME.replace(tzinfo=UTC))
    noted = [json.loads(params[0]) for text, params in server.sent if "insert into tq__dependencies" in text]
    assert [*map(len, noted)] == [1000, 1000, 1]
    assert {row["message"] for rows in noted for row in rows} == {5000}
    assert [row["on_table"] for row in noted[0][:2]] == ["", "tq_work"]
    begin, commit = (server.texts().index(f"{word} transaction") for word in ("begin", "commit"))
    assert (begin, commit) == (0, 5), "with the push"


def test_a_sweep_that_waits_in_vain_for_what_others_wait_for_goes_on(server: Server) -> None:
    """Without READ_COMMITTED_SNAPSHOT; and a report is kept though old ones stay."""
    queue = queue_on(server, dependencies=True)
    server.answers["select distinct on_table"] = lambda params: [("tq_work",)]
    server.answers["select name, definition"] = lambda params: [("work", '{"table": "tq_work"}')]
    server.answers["insert into @found|insert into @old"] = lambda params: LOCK_TIMEOUT
    server.answers["select @kept"] = lambda params: [(1,)]
    context_of(queue).table.next_sweep = 0
    assert queue.pop() is None
    claims(queue, range(1, 2))[0].progress(0.5)
    assert sum("insert into @old" in text for text, _ in server.sent) == 1


def test_a_result_and_its_part_of_a_chord_are_one_transaction(server: Server) -> None:
    context = context_of(queue_on(server))
    part: Any = {"chord": "c", "member": "m", "place": 0, "returned": b"1", "now": None}
    result: Any = {**part, "key": "a", "body": b"1", "success": True, "expires": 60.0}
    context.run(context.engine.task_results.store_result, result)
    assert [text.split()[0] for text in server.texts()] == ["begin", "update", "insert", "commit"]
    server.sent.clear()
    context.run(context.engine.task_results.store_result, result | {"chord": None})
    assert [text.split()[0] for text in server.texts()] == ["update"]
    server.answers["from openjson"] = lambda params: [(key, b"1") for key in json.loads(params[0])]
    found = context.run(context.engine.task_results.read_results, {"keys": ["a", "b"], "now": None})
    assert found == {"a": b"1", "b": b"1"}


def test_the_seconds_of_a_key_are_noted_with_its_message(server: Server) -> None:
    queue = queue_on(server, unique_for=60)
    server.answers["insert into tq_work__keys"] = lambda params: [("a",), ("b",)]
    server.answers["from @batch where fresh"] = server.answers["row_number"] = lambda params: [(1, 0), (2, 1)]
    queue.push_many([NewMessage("x", key="a"), NewMessage("y", key="b", unique_for=2.5)])
    (named,) = [params for text, params in server.sent if "update taken" in text]
    assert named == ('[["a", 1, null], ["b", 2, 2.5]]',)


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_one_thread_polls_for_all_consumers_of_a_process(server: Server) -> None:
    """Each queue by a statement of its own: a look is a batch with variables."""
    queue = queue_on(server)
    table = context_of(queue).table
    other = context_of(queue).engine.table("other", table.definition)
    server.answers["from tq_other"] = lambda params: [(0.0, 0)]
    server.answers["as seconds"] = lambda params: [(None, 0)]
    listener = SQLServerPoll(context_of(queue).runner.pool.connect())
    for each in (table, other):
        listener.attend(each)
    server.sent.clear()
    assert [*(listener.listen() or ())] == ["tq_other"]
    assert ["from tq_other" in text for text, _ in server.sent] == [False, True]
    listener.close()
    assert listener.listen() is None


def test_a_consumer_that_waits_is_woken_by_the_poll(server: Server) -> None:
    queue = queue_on(server)
    looks = iter([(None, 0)] * 3)
    server.answers["as seconds"] = lambda params: [next(looks, (0.0, 0))]
    answers = iter([rows(range(0))])
    server.answers["update next"] = lambda params: next(answers, rows(range(1, 2)))
    server.answers[r"message.token = @token"] = lambda params: [(1, None)]
    with queue.receive(wait=60) as claim:
        assert claim is not None
        assert claim.id == 1
    context_of(queue).runner.close()
