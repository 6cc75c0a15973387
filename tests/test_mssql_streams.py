"""Streams and staged writes on SQL Server with a stand-in for server and driver: what is sent in which transaction.

The stand-in returns prepared answers. Whether SQL Server would give them is not tested here.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pyarrow as pa
import pytest

from tablequeue import Queue, errors
from tablequeue.bulk import arrow, staging, stream
from tablequeue.bulk.staging import Staged
from tablequeue.bulk.stream import Stream
from tablequeue.engines.mssql.steps import STEP
from tests.mssql_stand_in import (
    LOCK_TIMEOUT,
    SAME_KEY,
    SAME_STREAM,
    TIME,
    Numbered,
    Server,
    new_server,
    queue_on,
    refusal,
)
from tests.support import refuses

TOKEN = "ab" * 16
DASHED = str(uuid.UUID(TOKEN))
WRITE = "cd" * 16
COUNT = 2500


@pytest.fixture
def server() -> Server:
    server = new_server()
    server.answers |= {
        "from tq_work__streams as streams": lambda params: [("lake", 1, 0, 0, None, None, 0)],
        "select epoch": lambda params: [(1, 0, 0, None, "{}")],
    }
    return server


def with_open_batch(server: Server) -> None:
    server.answers["select epoch"] = lambda params: [
        (1, 1, 0, TOKEN, json.dumps({"begun": 1, "errors": {"bad row": [2]}}))
    ]
    server.answers["select id\n"] = lambda params: [(3,), (1,), (2,)]


def sent_with(server: Server, words: str) -> list[tuple[Any, ...]]:
    return [params for text, params in server.sent if words in text]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_claimed_in_steps_in_one_transaction(server: Server) -> None:
    run = Stream(queue_on(server), "lake")
    server.sent.clear()
    server.answers["update next"] = Numbered(lambda params: params[0], lambda ids: [(id,) for id in ids])
    assert run.advance(0, COUNT) == 1
    claims = sent_with(server, "update next")
    assert [params[0] for params in claims] == [STEP, STEP, COUNT - 2 * STEP]
    (noted,) = sent_with(server, "update tq_work__streams with (rowlock)\nset batch")
    assert noted[:4] == ("lake", 1, 0, claims[0][1]), "under the token of the claim, a uniqueidentifier"
    last = server.texts()[server.texts().index("with next as (") - 1 :]
    assert last[0] == "begin transaction"
    assert last[-3].startswith("select epoch"), "the row of the stream is locked after the claim"
    assert last[-1] == "commit transaction"
    assert last.count("commit transaction") == 1


def test_nothing_is_noted_of_an_empty_batch(server: Server) -> None:
    run = Stream(queue_on(server), "lake")
    assert run.advance(0, COUNT) == 0
    assert sent_with(server, "set batch") == []


def test_a_batch_is_read_by_its_token_and_ids(server: Server) -> None:
    queue = queue_on(server, payload="text")
    run = Stream(queue, "lake")
    with_open_batch(server)
    assert run.batch(1) == (TOKEN, [1, 2, 3])
    server.answers["as message with .forceseek"] = lambda params: [
        (id, "x", None, "in_progress", 1, 0, None, None, "me", "lake", TIME, None, TIME, TIME, None, None, None)
        for id in json.loads(params[0])
    ]
    schema = arrow.columns(queue, "stream")
    (batch,) = arrow.stream_batches(queue, TOKEN, [1, 2, 3], schema)
    assert [row["id"] for row in batch.to_pylist()] == [1, 2, 3]
    assert server.sent[-1][1] == ("[1, 2, 3]", DASHED)


def test_a_batch_is_completed_in_one_transaction_with_its_failures(server: Server) -> None:
    run = Stream(queue_on(server), "lake")
    with_open_batch(server)
    server.answers[r"output inserted\.id, inserted\.state"] = lambda params: [(2, "dead")]
    server.sent.clear()
    run.complete(1)
    (failed,) = sent_with(server, "output inserted.id, inserted.state")
    (done,) = sent_with(server, "delete from message")
    assert (failed[:2], done[:2]) == (("[[2, 0]]", DASHED), ("[1, 3]", DASHED))
    ended = server.texts().index("commit transaction")
    assert server.texts()[0] == "begin transaction"
    assert server.texts()[ended - 1] == "update tq_work__streams with (rowlock)"


def test_a_stream_that_two_begin_at_once_is_tried_again(server: Server) -> None:
    queue = queue_on(server)
    answers = iter([SAME_STREAM, []])
    server.answers["set epoch = epoch"] = lambda params: next(answers)
    assert Stream(queue, "lake").found.batch == 0
    assert next(answers, None) is None, "both were asked for"
    assert "if @@trancount > 0 rollback transaction" in {text for text, _ in server.sent}


def test_a_run_that_another_one_has_locked_is_refused_in_the_end(server: Server) -> None:
    run = Stream(queue_on(server), "lake")
    server.answers["select epoch"] = lambda params: LOCK_TIMEOUT
    refuses(errors.Locked, run.advance, 0, 1)


def test_a_queue_without_streams_has_none(server: Server) -> None:
    queue = queue_on(server)
    missing = refusal(208, "Invalid object name 'tq_work__streams'.", "42S02")
    server.answers["from tq_work__streams as streams"] = lambda params: missing
    assert stream.streams(queue) == []


# -- writes of many processes ------------------------------------------------------------------------------------------


def staged(queue: Queue, **columns: Any) -> Staged:
    types = staging.written(queue)
    batch = pa.RecordBatch.from_pydict({name: pa.array(values, types[name]) for name, values in columns.items()})
    return staging.stage(queue, WRITE, TOKEN, 7, [batch])


def test_what_is_staged_goes_in_steps(server: Server) -> None:
    queue = queue_on(server, payload="bytes")
    assert staged(queue, payload=[b"\0\xff"] * COUNT, key=[f"k{n}" for n in range(COUNT)]).messages == COUNT
    assert server.texts() == ["begin transaction", *["insert into tq_work__staged ("] * 3, "commit transaction"]
    steps = [json.loads(params[0]) for params in sent_with(server, "into tq_work__staged")]
    assert [len(step) for step in steps] == [STEP, STEP, COUNT - 2 * STEP]
    rows = [row for step in steps for row in step]
    assert [row["place"] for row in rows] == [*range(COUNT)]
    assert (rows[0]["payload"], rows[-1]["key"], rows[0]["due"]) == ("00ff", f"k{COUNT - 1}", None)
    assert {params[1:4] for params in sent_with(server, "into tq_work__staged")} == {(WRITE, TOKEN, 7)}


@pytest.mark.parametrize("design", [{}, {"strict": True}])
def test_all_is_published_in_one_transaction(server: Server, design: dict[str, Any]) -> None:
    queue = queue_on(server, payload="text", **design)
    one = staged(queue, payload=["a", "b"])
    server.answers["rowcount_big"] = lambda params: [(2,)]
    server.answers[r"output inserted\.batch"] = lambda params: [(5,)]
    server.sent.clear()
    assert staging.publish(queue, WRITE, [one], writer="query", batch=5) == 2
    (published,) = sent_with(server, "rowcount_big")
    assert published[:3] == (WRITE, json.dumps([TOKEN]), "me")
    noted, *_ = sent_with(server, "into tq_work__turns") if design else [None]  # a promotion may note again
    assert noted == ((WRITE, json.dumps([TOKEN]), "") if design else None)
    ended = server.texts().index("commit transaction")
    assert server.texts()[0] == "begin transaction"
    assert [text.split(" (")[0] for text in server.texts()[1:ended]] == [
        "insert into tq_work__writers",
        "insert into @given",
        *(["insert into @given"] if design else []),
        "while @deleted = @step",
    ]


def test_a_batch_of_a_writer_that_was_written_before_adds_nothing(server: Server) -> None:
    queue = queue_on(server, payload="text")
    one = staged(queue, payload=["a"])
    server.answers["select batch from tq_work__writers"] = lambda params: [(5,)]
    assert staging.publish(queue, WRITE, [one], writer="query", batch=5) is None
    assert sent_with(server, "rowcount_big") == []


def test_a_key_that_came_between_is_tried_again(server: Server) -> None:
    queue = queue_on(server, payload="text")
    one = staged(queue, payload=["a"], key=["k"])
    answers = iter([SAME_KEY, [(0,)]])
    server.answers["rowcount_big"] = lambda params: next(answers)
    server.answers["count_big"] = lambda params: [(1,)]
    assert staging.publish(queue, WRITE, [one], on_conflict="skip") == 0
    assert next(answers, None) is None, "both were asked for"
