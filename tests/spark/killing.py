"""A Spark job that dies: streams out of queues and topics, and into them and files, killed at a point or from outside.

    python -m tests.spark.killing FOLDER HOW MASTER STREAM...

FOLDER has a file `<engine>.url` for each engine, and gets the checkpoints and the files. On each engine the streams
take messages from one queue, or each all messages of one topic. HOW is `points`: the job dies when every stream has
come to the point of its name; `never`: it goes on for ever; or `end`: it drains the queues and ends. MASTER is Spark's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from tablequeue.spark.microbatch import MicroBatchReader
from tablequeue.spark.options import Options
from tablequeue.spark.sink import StreamWriter
from tablequeue.spark.source import TableQueueSource
from tablequeue.spark.topic import TopicStreamReader
from tests.spark.cluster import QUICK

BATCH = 20

# One for each state that a death can leave behind, between which nothing is written; where its stream comes from, and
# where it leads. That of a topic has a subscription of its name.
POINTS = {
    "after a claim": ("queue", "queue"),
    "after partitions": ("queue", "queue"),
    "in a read": ("queue", "files"),
    "after staging": ("queue", "queue"),
    "after a publication": ("queue", "queue"),
    "after_an_offset": ("topic", "files"),
    "in_a_read_of_a_topic": ("topic", "topic"),
    "after_a_publication_in_a_topic": ("topic", "topic"),
}

TARGETS = {"queue": {"queue": "out"}, "topic": {"topic": "copies"}}


def descendants(job: int) -> list[int]:
    """The process, and all that descend from it, each after its parent."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # After the command's name: the state and the parent.
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(process.name))
    found = [job]
    for parent in found:
        found += children.get(parent, [])
    return found


def kill(job: int) -> None:
    """Kill a process and all that descend from it: the driver, the JVM and its workers, at once."""
    for process_id in descendants(job):
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reached(point: str, stream: str | None, options: Options) -> None:
    """If this is the point of that stream: wait here for all others; the last of them kills the job."""
    expected = int(os.environ.get("TABLEQUEUE_TEST_STREAMS", 0))
    if not expected or stream != point:
        return
    assert options.url_file is not None
    engine = Path(options.url_file)
    engine.with_suffix(f".{point}").touch()
    while sum(len([*engine.parent.glob(f"*.{each}")]) for each in POINTS) < expected:
        sleep(0.02)
    kill(int(os.environ["TABLEQUEUE_TEST_JOB"]))


class DyingReader(MicroBatchReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        offset = super().latestOffset(start, limit)
        if offset != start:
            reached("after a claim", self._options.stream, self._options)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        partitions = super().partitions(start, end)
        reached("after partitions", self._options.stream, self._options)
        return partitions

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            reached("in a read", self._options.stream, self._options)


class DyingTopicReader(TopicStreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        offset = super().latestOffset(start, limit)
        if offset != start:
            reached("after_an_offset", self._options.subscription, self._options)
        return offset

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            reached("in_a_read_of_a_topic", self._options.subscription, self._options)


class DyingWriter(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        message = super().write(iterator)
        reached("after staging", self._options.producer, self._options)
        return message

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        for point in ("after a publication", "after_a_publication_in_a_topic"):
            reached(point, self._options.producer, self._options)


class DyingSource(TableQueueSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: Any) -> MicroBatchReader | TopicStreamReader:  # noqa: N802
        options = Options.parse(self.options, "stream")
        return (DyingTopicReader if options.topic else DyingReader)(options, schema.fieldNames())

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        return DyingWriter(Options.parse(self.options, "stream write"), schema, overwrite)


def started(sink: Any) -> Any:
    """The query, when its source is there. Spark gives the Python process of one ten seconds to start: on a busy
    machine not always enough, so it is started again. Who says that it is terminated is active for a moment more."""
    while True:
        query = sink.start()
        while query.isActive and query.status["message"].startswith(("Initializing ", "Terminated ")):
            sleep(0.02)
        if query.isActive or "connect back" not in str(query.exception()):
            return query


def files(url: Path, kind: str) -> Path:
    """The folder of the files with what came from the queue or from the topic."""
    return url.with_suffix("") if kind == "queue" else url.with_suffix(".topic")


# Without its pages and its progress; what executors of their own need to find the driver, and to start fast.
QUIET = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": QUICK,
}


def main(folder: Path, how: str, master: str, streams: Sequence[str]) -> None:
    urls = sorted(folder.glob("*.url"))
    if how == "points":
        os.environ["TABLEQUEUE_TEST_STREAMS"] = str(len(urls) * len(streams))
    os.environ["TABLEQUEUE_TEST_JOB"] = str(os.getpid())
    settings = [f"--conf '{name}={value}'" for name, value in QUIET.items()]
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*settings, os.environ["PYSPARK_SUBMIT_ARGS"]])
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_WORKER_DIR": str(folder)}
    from tablequeue.spark.session import quick_python, session

    os.environ["PYSPARK_PYTHON"] = quick_python(folder)

    spark = session("dying", master, folder)
    run(spark, folder, how, streams)
    spark.stop()


def run(spark: Any, folder: Path, how: str, streams: Sequence[str]) -> None:
    """Run the streams in a session, until they end."""
    spark.dataSource.register(DyingSource)
    queries = []
    for url in sorted(folder.glob("*.url")):
        place = {"urlFile": str(url), **json.loads(url.with_suffix(".json").read_text())}
        size = 50 * BATCH if how == "end" else BATCH
        for name in streams:
            kind, leads_to = POINTS[name]
            taken = {"queue": "work", "stream": name} if kind == "queue" else {"topic": "events", "subscription": name}
            source = spark.readStream.format("dying").options(**place, **taken, maxMessagesPerTrigger=size)
            writer = source.load().select("payload").writeStream
            if leads_to == "files":
                sink = writer.format("parquet").option("path", str(files(url, kind)))
            else:
                sink = writer.format("dying").options(**place, **TARGETS[leads_to], producer=name)
            sink = sink.option("checkpointLocation", str(folder / "checkpoints" / url.stem / name))
            queries.append(started(sink.trigger(availableNow=True) if how == "end" else sink))
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
