"""By Spark Connect: the data source, and pipelines, for a client that has no Spark of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.cloudpickle import dumps, register_pickle_by_value, unregister_pickle_by_value
from pyspark.sql.connect.session import SparkSession

import tablequeue
from tablequeue import Database
from tablequeue.errors import BadInput, PipelineFailed
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, FromTopic, Pipeline, ToParquet, ToTopic, run
from tablequeue.spark.pipeline.writer import StageWriter
from tablequeue.spark.session import session
from tablequeue.spark.settings import exposed_passwords
from tests.servers import free_port
from tests.spark import test_pipeline, test_rules
from tests.spark.test_pipeline import (  # the same tests, by the session below
    pipeline_of,
    push,
    small,
    test_a_stop_ends_after_a_batch_and_the_next_run_goes_on,
    test_what_a_stage_raises_is_said_in_a_sentence,
)
from tests.spark.test_pipeline_runs import pipeline_run
from tests.support import counts, refuses

__all__ = [
    "small",
    "test_a_stop_ends_after_a_batch_and_the_next_run_goes_on",
    "test_what_a_stage_raises_is_said_in_a_sentence",
]

CLIENT = """
import sys
from pyspark.sql import SparkSession

server, url, folder = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
place = {"url": url}
numbers = spark.range(30).selectExpr("to_json(struct(id)) as payload")
numbers.write.format("tablequeue").options(**place, queue="first").mode("append").save()
waiting = spark.read.format("tablequeue").options(**place, queue="first", table="queue").load()
assert waiting.where("state = 'ready'").count() == 30
stream = spark.readStream.format("tablequeue").options(**place, queue="first", stream="on").load()
sink = stream.select("payload").writeStream.format("tablequeue").options(**place, queue="second")
sink.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start().awaitTermination()
try:
    spark.read.format("tablequeue").options(**place, queue="third").load().count()
except Exception as error:
    print(error)
spark.stop()
"""


PIPELINE = """
from pyspark.sql import functions as f
from tablequeue.spark.pipeline import FromQueue, Pipeline, ToParquet, ToQueue, attempt

numbers = Pipeline("numbers", url="{url}")

def double(n):
    return 2 * n

def as_messages(rows):
    return rows.select(f.to_json(f.struct("n")).alias("payload"))

@numbers.stage(FromQueue("raw", 3), ToQueue("doubled", as_messages), ToParquet("{lake}"))
def doubled(messages):
    tried = attempt(double, "int")(f.get_json_object("payload", "$.n").cast("int"))
    return messages.select("id", tried.alias("tried")).select("id", f.col("tried.value").alias("n"), "tried.error")
"""


@pytest.fixture(scope="module")
def spark(connect_server: str) -> Iterator[Any]:
    """A client in this process, which knows nothing of the session that the server has here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        for module in (test_pipeline, test_rules):  # the server would import them, with all that they need
            register_pickle_by_value(module)
        client = SparkSession.builder.remote(connect_server).create()
        yield client
        client.stop()
        for module in (test_pipeline, test_rules):
            unregister_pickle_by_value(module)


def test_by_spark_connect(connect_server: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with tablequeue.connect(url) as database:
        first, second = database.create_queue("first"), database.create_queue("second")
        client = [sys.executable, "-c", CLIENT, connect_server, url, str(tmp_path)]
        run = subprocess.run(client, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert "There is no queue 'third'" in run.stdout
        assert counts(first) == {"finished": 30}
        assert sorted(message.payload["id"] for message in second.peek(100)) == [*range(30)]


def test_a_stage_of_a_topic(spark: Any, small: Database, tmp_path: Path) -> None:
    events, out = small.create_topic("events"), small.create_topic("out")
    subscription, copied = events.subscribe("lake"), out.subscribe("all")
    events.push_many({"n": n} for n in range(30))
    pipeline = pipeline_of(small)
    source = FromTopic("events", subscription="lake", max_messages_per_trigger=20)
    pipeline.stage(source, ToTopic("out", lambda rows: rows.select("payload")), name="copy")(lambda rows: rows)
    (copy,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert (copy.messages, copy.batch, copy.failed, copy.lag) == (30, 1, 0, 0)
    assert subscription.stats().ready == 0
    assert Counter(claim.payload["n"] for claim in copied.pop_many(100)) == Counter(range(30))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "check",
    [
        test_pipeline.test_a_batch_that_broke_off_is_in_every_sink_once,
        test_pipeline.test_a_failing_stage_stops_the_others,
        test_pipeline.test_a_message_that_fails_in_one_row_is_in_no_sink,
    ],
    ids=lambda check: check.__name__,
)
def test_as_in_a_session_of_its_own(spark: Any, small: Database, tmp_path: Path, check: Any) -> None:
    check(spark, small, tmp_path)


@pytest.mark.nightly
def test_rules_and_rejects(spark: Any, small: Database, tmp_path: Path) -> None:
    test_rules.test_a_stage_of_a_topic_rejects_a_message_once_whatever_breaks_off(spark, small, tmp_path)


def test_a_client_that_is_killed_and_started_again(connect_server: str, tmp_path: Path) -> None:
    """Its queries go on in the server, until the next run takes over."""
    url = f"sqlite:///{tmp_path}/queues.db"
    (tmp_path / "pipeline.py").write_text(PIPELINE.format(url=url, lake=tmp_path / "lake"))
    command = ["pipeline.py", "--master", connect_server, "--checkpoints", f"{tmp_path}/checkpoints"]
    with tablequeue.connect(url) as database:
        raw, doubled = database.create_queue("raw"), database.create_queue("doubled")
        raw.push_many({"n": n} for n in range(12))
        with pipeline_run(tmp_path, *command) as killed:
            assert killed.stderr is not None
            assert any(re.match("doubled: [1-9]", line) for line in killed.stderr)
            os.killpg(killed.pid, signal.SIGKILL)
        raw.push_many({"n": n} for n in range(12, 20))
        with pipeline_run(tmp_path, *command, "--available-now") as again:
            _, errors = again.communicate()
        assert again.returncode == 0, errors
        assert all(line.startswith("doubled: ") for line in errors.splitlines()), "nothing of Spark's own"
        assert counts(raw) == {"finished": 20}
        expected = Counter(range(0, 40, 2))
        assert Counter(message.payload["n"] for message in doubled.peek(100)) == expected
        assert Counter(ds.dataset(tmp_path / "lake").to_table()["n"].to_pylist()) == expected


class Leaking(StageWriter):
    """Has the database: a mutant."""

    def __init__(self, *values: Any) -> None:
        super().__init__(*values)
        self.address = Options.parse({**self._options, "queue": "q"}).address()


@pytest.mark.parametrize(("writer", "leaks"), [(StageWriter, False), (Leaking, True)])
def test_no_password_is_sent_to_the_server(spark: Any, tmp_path: Path, writer: type[StageWriter], leaks: bool) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql+psycopg://ada:s3cret@host/db")
    pipeline = Pipeline("test", url_file=str(file))
    pipeline.stage(FromQueue("raw"), ToParquet("lake"), name="keep")(lambda rows: rows)
    sent = dumps(writer(spark, pipeline.stages["keep"], pipeline.database, "stop"))
    assert str(file).encode() in sent
    assert (b"s3cret" in sent) == leaks


def test_a_function_that_cannot_be_sent(spark: Any, small: Database, tmp_path: Path) -> None:
    push(small.create_queue("raw"), range(3))
    held = Lock()

    def hold(rows: Any, number: int) -> None:
        held.acquire()

    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("raw"), ForeachBatch(hold), name="keep")(lambda rows: rows)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "holds what cannot be sent to the server" in error.cause


def test_a_password_that_the_server_hides(spark: Any) -> None:
    spark.conf.set("spark.mine", "postgresql://ada:s3cret@host/db")
    try:
        assert "spark.mine" not in spark.conf.getAll
        assert exposed_passwords(spark) == []
    finally:
        spark.conf.unset("spark.mine")


@pytest.mark.parametrize("address", ["sc://127.0.0.1:{}", "sc://127.0.0.1", "sc://127.0.0.1:{}/;token=abc"])
def test_no_server(address: str, tmp_path: Path) -> None:
    error = refuses(BadInput, session, "test", address.format(free_port()), tmp_path)
    assert error.cause.startswith("No server of Spark Connect answers at sc://127.0.0.1")
    assert "abc" not in error.cause
