"""A Spark job that dies: two streams out of queues, into a queue and into files, killed at a point or from outside.

    python -m tests.spark.killing FOLDER POINT MASTER

FOLDER has a file `<engine>.url` for each engine, and gets the checkpoints and the files. POINT is one of POINTS: the
job dies when streams of every engine have come to it. `end` lets the job drain the queues and end; `never` lets it go
on for ever. MASTER is Spark's.
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

BATCH = 20

# One for each state that a death can leave behind: between them nothing is written.
POINTS = ("after a claim", "after partitions", "in a read", "after staging", "after a publication")


def kill(job: int) -> None:
    """Kill a process and all that descend from it: the driver, the JVM and its workers, at once."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # After the command's name: the state and the parent.
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(process.name))
    doomed = [job]
    for parent in doomed:
        doomed += children.get(parent, [])
    for process_id in doomed:
        try:
            os.kill(process_id, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reached(point: str, options: Options) -> None:
    """Wait here for the other engines, if this is the point of the job; the last of them kills it."""
    if os.environ["TABLEQUEUE_TEST_POINT"] != point:
        return
    assert options.url_file is not None
    engine = Path(options.url_file)
    engine.with_suffix(".reached").touch()
    while not all(url.with_suffix(".reached").exists() for url in engine.parent.glob("*.url")):
        sleep(0.02)
    kill(int(os.environ["TABLEQUEUE_TEST_JOB"]))


class DyingReader(MicroBatchReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        offset = super().latestOffset(start, limit)
        if offset != start:
            reached("after a claim", self._options)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]:
        partitions = super().partitions(start, end)
        reached("after partitions", self._options)
        return partitions

    def read(self, partition: Any) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            reached("in a read", self._options)


class DyingWriter(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> Any:
        message = super().write(iterator)
        reached("after staging", self._options)
        return message

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        reached("after a publication", self._options)


class DyingSource(TableQueueSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: Any) -> MicroBatchReader:  # noqa: N802
        return DyingReader(Options.parse(self.options, "stream"), schema.fieldNames())

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        return DyingWriter(Options.parse(self.options, "stream write"), schema, overwrite)


# Without its pages and its progress; what executors of their own need to find the driver.
QUIET = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def main(folder: Path, point: str, master: str) -> None:
    os.environ["TABLEQUEUE_TEST_POINT"] = point
    os.environ["TABLEQUEUE_TEST_JOB"] = str(os.getpid())
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(
        [f"--conf {name}={value}" for name, value in QUIET.items()] + ["pyspark-shell"]
    )
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost", "SPARK_WORKER_DIR": str(folder)}
    from tablequeue.spark.session import session

    spark = session("dying", master, folder)
    spark.dataSource.register(DyingSource)
    queries = []
    for url in sorted(folder.glob("*.url")):
        place = {"urlFile": str(url), **json.loads(url.with_suffix(".json").read_text())}
        size = 50 * BATCH if point == "end" else BATCH
        reader = spark.readStream.format("dying").options(**place, stream="lake", maxMessagesPerTrigger=size)
        streams = {name: reader.option("queue", name).load().select("payload") for name in ("to_queue", "to_files")}
        sinks = {
            "to_queue": streams["to_queue"].writeStream.format("dying").options(**place, queue="out"),
            "to_files": streams["to_files"].writeStream.format("parquet").option("path", str(url.with_suffix(""))),
        }
        for name, sink in sinks.items():
            sink = sink.option("checkpointLocation", str(folder / "checkpoints" / url.stem / name))
            queries.append((sink.trigger(availableNow=True) if point == "end" else sink).start())
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
