"""A topic as a DataFrame, as a stream and as a sink: ranges of offsets, which are read again with the same rows."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Database
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.errors import BadInput, MessagesDropped, PipelineFailed, StreamRefused
from tablequeue.ext import context_of
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline import ForeachBatch, FromTopic, ToParquet, ToTopic, run
from tablequeue.spark.topic import TopicReader, TopicStreamReader
from tablequeue.topic import Topic
from tablequeue.verbs import topics
from tests.servers import Place, only
from tests.spark import named
from tests.spark.named import by_options
from tests.support import refuses


def options(place: Place, **more: Any) -> dict[str, Any]:
    return {**by_options(place), "topic": "events", **more}


def reader(place: Place, **more: Any) -> TopicReader:
    given = {name: str(value) for name, value in options(place, **more).items()}
    return TopicReader(Options.parse(given, "read"), ["payload"])


def stream_reader(place: Place, **more: Any) -> TopicStreamReader:
    given = {name: str(value) for name, value in options(place, **more).items()}
    return TopicStreamReader(Options.parse(given, "stream"), ["payload"])


@pytest.fixture(autouse=True)
def connections_are_closed(place: Place) -> Iterator[None]:
    yield
    Options.parse(options(place)).connect().close()


def rows(source: TopicReader | TopicStreamReader, partitions: Any) -> list[int]:
    found = [batch["payload"].to_pylist() for part in partitions for batch in source.read(part)]
    return [int(payload) for payloads in found for payload in payloads]


def at(db: Database, offset: int) -> dict[str, Any]:
    return {"database": db.identity(), "table": "tq_events", "topic": "events", "offset": offset}


def numbered(db: Database, *ranges: range, **more: Any) -> Topic:
    topic = db.create_topic("events", payload="text", **more)
    for numbers in ranges:
        topic.push_many(map(str, numbers))
    return topic


def drop_before(topic: Topic, place: Place, offset: int) -> None:
    """As retention does, of whole segments: the log forgets all that comes before an offset."""
    pushed = datetime.now(UTC) + timedelta(days=1)
    for _ in range(3):
        topics.trim(context_of(topic), pushed)
    assert topics.bounds(context_of(topic)).first == offset


class TestWithSpark:
    """Each test sees much, because a batch of Spark takes seconds."""

    def test_batches_and_columns(self, spark: Any, db: Database, place: Place) -> None:
        topic = db.create_topic("events")
        topic.push({"n": 0}, group="ada", headers={"h": 1})
        topic.push_many({"n": n} for n in range(1, 6001))
        frame = spark.read.format("tablequeue").options(**options(place)).load()
        assert frame.columns == ["offset", "id", "payload", "headers", "group", "producer", "pushed_at"]
        found = sorted(frame.collect())
        assert [row.payload.replace(" ", "") for row in found] == [f'{{"n":{n}}}' for n in range(6001)]
        assert (found[0].headers.replace(" ", ""), found[0].group) == ('{"h":1}', "ada")
        assert [row.offset for row in found] == [*range(found[0].offset, found[0].offset + 6001)]
        some = spark.read.format("tablequeue").options(
            **options(place, columns="id", startingPosition=found[10].offset)
        )
        assert sorted(row.id for row in some.load().collect()) == [row.id for row in found[10:]]

    def test_a_stream_and_its_replay(self, spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
        topic = numbered(db, range(25))
        mail = topic.subscribe("mail")
        checkpoint, lake = tmp_path / "checkpoint", str(tmp_path / "lake")

        def drain() -> list[int]:
            given = options(place, subscription="mail", maxMessagesPerTrigger=10)
            writer = spark.readStream.format("tablequeue").options(**given).load().writeStream.format("parquet")
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(lake)
            query.awaitTermination()
            return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

        assert drain() == [10, 10, 5]
        assert mail.lag().messages == 0
        assert mail.stats().finished == 25
        topic.push_many(map(str, range(25, 30)))
        assert mail.lag().messages == 5
        # As if Spark had died before its commit log: it reads and writes the last batch again.
        for file in (checkpoint / "commits").glob("*2*"):
            file.unlink()
        drain()
        assert sorted(int(row.payload) for row in spark.read.parquet(lake).collect()) == [*range(30)]
        assert mail.stats().finished == 30

    def test_writes(self, spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
        topic = db.create_topic("events", payload="text", groups=True)
        mail = topic.subscribe("mail")
        source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
        source.mkdir()
        columns = ["value as payload", "'ada' as group", "'{\"h\": 1}' as headers"]
        frame = spark.readStream.text(str(source)).selectExpr(*columns)

        def drain(number: int) -> None:
            (source / f"{number}.txt").write_text(f"{number}\n")
            writer = frame.writeStream.format("tablequeue").options(**options(place))
            query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination()

        drain(0)
        for file in (checkpoint / "commits").glob("*0*"):
            file.unlink()  # as if Spark had died before its commit log: it writes the batch again
        drain(1)
        ahead = spark.range(2, 100).repartition(2).selectExpr("string(id) as payload", "'eve' as group")
        for _ in range(2):
            given = options(place, writer="etl", batch=1, producer="spark job")
            ahead.write.format("tablequeue").mode("append").options(**given).save()
        popped = mail.pop_many(200)
        assert sorted(int(message.payload) for message in popped) == [*range(100)]
        assert [(message.group, message.headers) for message in popped[:2]] == [("ada", {"h": 1})] * 2
        written = spark.read.format("tablequeue").options(**options(place)).load().where("group = 'eve'")
        assert {row.producer for row in written.collect()} == {"spark job"}
        failing = spark.range(100).selectExpr("if(id = 99, raise_error('boom'), string(id)) as payload", "'a' as group")
        for rows, words in ((failing, "boom"), (failing.selectExpr("payload", "'k' as key"), "takes no column 'key'")):
            with pytest.raises(Exception, match=words):
                rows.write.format("tablequeue").mode("append").options(**options(place)).save()
        assert mail.pop() is None
        topic.drop()
        assert db.queues() == []

    def test_a_pipeline(self, spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
        raw, out = numbered(db, range(30)), db.create_topic("out", payload="text")
        raw.subscribe("lake")
        broken: list[int] = []

        def break_off(rows: Any, number: int) -> None:
            if number == 1 and not broken:
                broken.append(number)
                raise RuntimeError("broken off")

        pipeline = named.pipeline(place)
        lake = str(tmp_path / "lake")
        source = FromTopic("events", subscription="lake", max_messages_per_trigger=20)
        sinks = (ToTopic("out"), ToParquet(lake), ForeachBatch(break_off))
        pipeline.stage(source, *sinks, name="keep")(lambda messages: messages)
        late = FromTopic("out", starting_position=datetime.now(UTC) + timedelta(days=1))
        pipeline.stage(late, ToParquet(str(tmp_path / "none")), name="late")(lambda messages: messages)
        for _ in range(2):
            try:
                progress = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
            except PipelineFailed:
                assert broken
        assert sorted(int(row.payload) for row in spark.read.parquet(lake).collect()) == [*range(30)]
        popped = out.subscribe("all").pop_many(100)
        assert sorted(int(message.payload) for message in popped) == [*range(30)]
        assert [(one.stage, one.messages, one.written, one.lag) for one in progress] == [
            ("keep", 10, 10, 0),
            ("late", 0, 0, 0),
        ]

    def test_a_pipeline_has_a_task_for_each_core(self, spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
        numbered(db, range(45_000))
        parts: list[int] = []
        writer = FromTopic("events").load(spark, by_options(place), "numbers/all").writeStream
        writer = writer.foreachBatch(lambda rows, number: parts.append(rows.rdd.getNumPartitions()))
        writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        assert parts == [2], "and not 3, of at least 20,000 messages"


class TestPositions:
    """Without Spark: what it would ask of the readers."""

    def test_from_one_position_to_another(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(10))
        first, end = topics.bounds(context_of(topic))
        topic.push_many(map(str, range(10, 20)), now=datetime.now(UTC) + timedelta(hours=2))
        later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

        def read(**positions: Any) -> list[int]:
            source = reader(place, **positions)
            return rows(source, source.partitions())

        assert read() == [*range(20)]
        assert read(startingPosition=later) == read(startingPosition=end) == [*range(10, 20)]
        assert read(endingPosition=later) == read(startingPosition="beginning", endingPosition=end) == [*range(10)]
        assert read(startingPosition=first + 3, endingPosition=first + 5) == [3, 4]
        assert read(startingPosition="end") == read(endingPosition="beginning") == []
        words = str(refuses(BadInput, reader(place, startingPosition=end + 11).partitions))
        assert "does not exist yet; the next offset is" in words

    def test_a_stream_has_the_end_that_its_checkpoint_began_with(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(10))
        first, end = topics.bounds(context_of(topic))
        source = stream_reader(place, startingPosition=first + 2, endingPosition="end", maxMessagesPerTrigger=5)
        limit = source.getDefaultReadLimit()
        begun = source.initialOffset()
        topic.push_many(map(str, range(10, 20)))
        half = source.latestOffset(begun, limit)
        later = stream_reader(place, startingPosition=first + 2, endingPosition="end", maxMessagesPerTrigger=5)
        whole = later.latestOffset(half, limit)
        assert rows(later, later.partitions(half, whole)) == [7, 8, 9], "a run with this checkpoint"
        assert (whole["offset"], later.latestOffset(whole, limit)) == (end, whole)

    def test_a_first_batch_is_read_again_with_the_same_messages(self, db: Database, place: Place) -> None:
        """Spark asks for the initial offset again, which is not in a checkpoint, and the end has moved."""
        topic = numbered(db, range(3))
        mail = topic.subscribe("mail", start="end")
        for more in ({}, {"subscription": mail.name.partition("/")[2]}):
            source = stream_reader(place, startingPosition="end", **more)
            start = source.initialOffset()
            topic.push("late")
            end = source.latestOffset(start, source.getDefaultReadLimit())
            later = stream_reader(place, startingPosition="end", **more)
            assert later.partitions(later.initialOffset(), end)[0].start == start["offset"]

    def test_all_that_is_there_and_parts(self, db: Database, place: Place) -> None:
        """More than one sequencing takes on; and messages that came before, though another session sequences."""
        topic = numbered(db, range(120_000), range(120_000, 250_000))
        source = stream_reader(place, minPartitions=3)
        source.prepareForTriggerAvailableNow()
        topic.push("too late")
        start = source.initialOffset()
        end = source.latestOffset(start, source.getDefaultReadLimit())
        assert end["offset"] - start["offset"] == 250_000
        parts = source.partitions(start, end)
        assert len(parts) == 3
        assert rows(source, parts) == [*range(250_000)]
        assert source.latestOffset(end, source.getDefaultReadLimit()) == end
        assert source.reportLatestOffset()["offset"] == end["offset"] + 1

    def test_what_was_dropped(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(3), keep=60)
        first, dropped = topics.bounds(context_of(topic))
        source = stream_reader(place)
        limit = source.getDefaultReadLimit()
        whole = source.latestOffset(at(db, first), limit)
        parts = source.partitions(at(db, first), whole)
        drop_before(topic, place, dropped)
        topic.push_many(["3", "4"])
        end = stream_reader(place).latestOffset(whole, limit)
        for ask in (
            lambda: source.latestOffset(at(db, first), limit),
            lambda: source.partitions(at(db, first), end),
            lambda: rows(source, parts),
            lambda: reader(place, startingPosition=first).partitions(),
        ):
            assert "were dropped by the retention" in str(refuses(MessagesDropped, ask))
        lenient = stream_reader(place, failOnDataLoss="false")
        assert lenient.latestOffset(at(db, first), limit) == end
        assert rows(lenient, lenient.partitions(at(db, first), end)) == [3, 4]
        assert rows(lenient, parts) == []
        batch = reader(place, startingPosition=first, failOnDataLoss="false")
        assert rows(batch, batch.partitions()) == [3, 4]

    def test_a_checkpoint_of_a_topic_that_was_dropped(self, db: Database, place: Place) -> None:
        numbered(db, range(3))
        source = stream_reader(place)
        limit = source.getDefaultReadLimit()
        begin = source.initialOffset()
        end = source.latestOffset(begin, limit)
        (part,) = source.partitions(begin, end)
        db.topic("events").drop()
        numbered(db, range(7))
        tasks = pickle.loads(pickle.dumps(source))
        later = stream_reader(place)
        for ask in (
            lambda: rows(tasks, [part]),
            lambda: rows(stream_reader(place), [part]),  # that of Spark's tasks has opened nothing
            lambda: later.latestOffset(end, limit),
            lambda: later.partitions(begin, end),
        ):
            assert "was dropped and created again" in refuses(StreamRefused, ask).cause

    def test_a_checkpoint_that_does_not_fit(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(3))
        end = topics.bounds(context_of(topic)).end
        source = stream_reader(place)
        limit = source.getDefaultReadLimit()
        assert "is older than the checkpoint" in str(
            refuses(StreamRefused, source.latestOffset, at(db, end + 1), limit)
        )

    def test_the_position_is_noted_in_a_subscription(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(10))
        mail = topic.subscribe("mail")
        mail.complete_many(mail.pop_many(2))
        source = stream_reader(place, subscription="mail", maxMessagesPerTrigger=4)
        limit = source.getDefaultReadLimit()
        start = source.initialOffset()
        first = source.latestOffset(start, limit)
        assert mail.lag().messages == 8, "the batch is not committed yet"
        assert rows(source, source.partitions(start, first)) == [2, 3, 4, 5]
        second = source.latestOffset(first, limit)
        assert (mail.lag().messages, mail.stats().finished) == (4, 6)
        source.latestOffset(second, limit)
        source.latestOffset(first, limit)
        assert (mail.lag().messages, mail.stats().finished) == (0, 10), "it never goes back"
        again = stream_reader(place, subscription="mail", startingPosition=first["offset"])
        assert again.initialOffset()["offset"] == first["offset"]
        assert mail.lag().messages == 4, "the subscription follows where the stream begins"
        message = mail.pop()
        assert message is not None
        refused = refuses(BadInput, stream_reader(place, subscription="mail").initialOffset)
        assert "ranges are in progress" in str(refused)
        mail.complete(message)
        begun = stream_reader(place, subscription="mail").initialOffset()
        assert begun.items() >= at(db, first["offset"] + 1).items()

    def test_a_seek_of_its_subscription_moves_the_stream(self, db: Database, place: Place) -> None:
        mail = numbered(db, range(10)).subscribe("mail")
        source = stream_reader(place, subscription="mail")
        limit = source.getDefaultReadLimit()
        start = source.initialOffset()
        read = source.latestOffset(start, limit)
        for _ in range(2):  # the second one is to the same place
            assert source.latestOffset(read, limit) == read
            assert mail.lag().messages == 0
            mail.seek("beginning")
            later = stream_reader(place, subscription="mail")  # a run with this checkpoint
            again = later.latestOffset(read, limit)
            assert rows(later, later.partitions(read, again)) == [*range(10)]
            assert rows(source, source.partitions(read, again)) == [*range(10)], "a replay"
            assert mail.lag().messages == 10, "the batch is not committed yet"
            source, read = later, again
        assert source.latestOffset(read, limit) == read
        assert mail.lag().messages == 0
        mail.seek("end")
        assert source.latestOffset(read, limit) == read

    def test_two_streams_of_one_subscription_are_refused(self, db: Database, place: Place) -> None:
        numbered(db, range(10)).subscribe("mail")
        slow = stream_reader(place, subscription="mail", maxMessagesPerTrigger=3)
        limit = slow.getDefaultReadLimit()
        first = slow.latestOffset(slow.initialOffset(), limit)
        second = slow.latestOffset(first, limit)
        other = stream_reader(place, subscription="mail")
        refused = refuses(StreamRefused, other.initialOffset)
        assert "notes the position of another stream" in refused.cause
        assert f"startingPosition={first['offset']}" in refused.remedy
        taking_over = stream_reader(place, subscription="mail", startingPosition=first["offset"])
        begun = taking_over.initialOffset()
        end = taking_over.latestOffset(begun, limit)
        assert rows(taking_over, taking_over.partitions(begun, end)) == [3, 4, 5]
        taking_over.latestOffset(end, limit)
        assert "another stream" in refuses(StreamRefused, slow.latestOffset, second, limit).cause

    def test_a_subscription_is_no_queue_of_spark(self, db: Database, place: Place) -> None:
        mail = numbered(db, range(3)).subscribe("mail")
        assert "Write into its topic 'events'" in str(refuses(BadInput, staging.prepare, mail))
        assert "read the topic 'events' with subscription=" in str(refuses(BadInput, Stream, mail, "lake"))

    def test_an_ordered_subscription_takes_no_position(self, db: Database, place: Place) -> None:
        db.create_topic("events", payload="text", groups=True).subscribe("mail", ordered=True)
        refused = refuses(BadInput, stream_reader(place, subscription="mail").initialOffset)
        assert "is ordered" in str(refused)


@only("postgresql")
class TestSequencing:
    """Where ids are given before commits."""

    def test_a_late_commit_comes_in_a_later_batch(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(1))
        source = stream_reader(place, maxMessagesPerTrigger=100)
        begun = source.initialOffset()
        with db.engine.begin() as late:
            topic.push("1", connection=late)
            topic.push("2")
            first = source.latestOffset(begun, source.getDefaultReadLimit())
            assert rows(source, source.partitions(begun, first)) == [0, 2]
        second = source.latestOffset(first, source.getDefaultReadLimit())
        assert rows(source, source.partitions(first, second)) == [1]
        assert rows(source, source.partitions(begun, first)) == [0, 2], "a replay"

    def test_a_session_that_sequences_is_waited_for(self, db: Database, place: Place) -> None:
        topic = numbered(db, range(3))
        table = context_of(topic).table
        source = stream_reader(place)
        start = source.initialOffset()
        found: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: found.append(source.latestOffset(start, source.getDefaultReadLimit())))
        with db.engine.begin() as other:
            for statement in table.statements("sequence"):
                other.exec_driver_sql(statement)
            topic.push("3")  # after the look of the other session
            asking.start()
            with db.engine.connect() as watch:
                waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
                while not watch.exec_driver_sql(waiting).scalar_one():
                    watch.rollback()
        asking.join()
        assert rows(source, source.partitions(start, found[0])) == [0, 1, 2, 3]
