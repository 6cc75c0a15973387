"""Compare clusters of Spark with two workers and with one: a stream of a topic into Parquet.

    python -m benchmarks.spark_cluster [--full] [--messages 1000000] [--repeats 5]

Each cluster is a standalone one with a driver of its own, in a process of this benchmark. Its workers have one core
each, and their executors are processes of their own. Every count is checked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

import tablequeue
from benchmarks.options import REPEATS
from benchmarks.places import postgresql_url
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue.bulk import staging
from tablequeue.spark.session import session

FULL, MESSAGES = 5_000_000, 1_000_000
# Messages of a write.
PIECE = 10_000
CONDITIONS = """Two cores for the server, the drivers and the workers, of which each may use one core; payloads of 100
bytes. The messages are streamed by a query that is started for them and ends, in batches of 1,000,000."""


def stream(workers: int, url: str, folder: Path, asked: Connection) -> None:
    """Stream the topic into each folder that is asked for, on a cluster of this process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = session("benchmark", f"local-cluster[{workers},1,1024]", folder, lasting=True)
    asked.send("begun")
    while place := asked.recv():
        frame = spark.readStream.format("tablequeue").option("url", url).option("topic", "events").load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{place}-checkpoint")
        writer.trigger(availableNow=True).start(place).awaitTermination()
        asked.send("done")
    spark.stop()


@contextmanager
def cluster(workers: int, url: str, folder: Path) -> Iterator[Connection]:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=stream, args=[workers, url, folder / f"workers-{workers}", theirs])
    process.start()
    assert ours.recv() == "begun"
    yield ours
    ours.send("")
    process.join()


def fill(url: str, messages: int) -> None:
    database = tablequeue.connect(url)
    topic = database.create_topic("events", payload="text")
    staging.prepare(topic)
    piece = pa.RecordBatch.from_pydict({"payload": pa.array(["x" * 100] * PIECE)})
    staged = staging.stage(topic, "write", "attempt", 0, [piece] * (messages // PIECE))
    assert staging.publish(topic, "write", [staged]) == messages
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="as much as the page is about, whose figures it replaces")
    parser.add_argument("--messages", type=int, help=f"{FULL:,} in a full run, else {MESSAGES:,}, if not given")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    messages = arguments.messages or (FULL if arguments.full else MESSAGES)
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as name, postgresql_url() as url, ExitStack() as stack:
        folder = Path(name)
        fill(url, messages)
        clusters = {workers: stack.enter_context(cluster(workers, url, folder)) for workers in (1, 2)}
        numbers = count()

        def streamed(workers: int) -> float:
            place = folder / f"parquet-{next(numbers)}"

            def run() -> None:
                clusters[workers].send(str(place))
                assert clusters[workers].recv() == "done"

            found = rate(run, messages)
            assert ds.dataset(place, exclude_invalid_files=True).count_rows() == messages
            shutil.rmtree(place)
            return found

        rates = interleaved({str(n): partial(streamed, n) for n in clusters}, arguments.repeats, "rounds")
    what = f"{messages:,} messages of a topic into Parquet, by two workers of one core each"
    figures = [
        Figure("PostgreSQL", what, OURS, "messages/s", rates["2"]),
        Figure("PostgreSQL", what, "tablequeue, by one worker", "messages/s", rates["1"], 1.7),
    ]
    save("spark_cluster", "Spark: a cluster", CONDITIONS.replace("\n", " "), figures, keep=arguments.full)


if __name__ == "__main__":
    main()
