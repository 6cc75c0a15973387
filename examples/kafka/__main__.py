"""The pipeline between Kafka, a queue and a topic, killed (SIGKILL) on the way, with a real broker: `make kafka`.

    python -m examples.kafka [--connector 4.3.0] [--messages 2000] [--kills 2]

Fetches Apache Kafka and Spark's connector from Maven Central. In the end each record of Kafka must be in the queue
once, in the order of its group, and each message of the topic in Kafka at least once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import sleep

import pyspark

import tablequeue
from examples.kafka.broker import broker
from tablequeue.spark.pipeline import run
from tablequeue.spark.pipeline.file import load
from tablequeue.spark.session import local_session

PIPELINE = Path(__file__).with_name("pipeline.py")
GROUPS = 7


class Example:
    """The broker, the queues, and a session of Spark beside the pipeline."""

    def __init__(self, folder: Path, address: str, packages: str) -> None:
        os.environ |= {"KAFKA": address, "TABLEQUEUE_URL": f"sqlite:///{folder}/work.db"}
        self.folder, self.packages = folder, packages
        self.database = tablequeue.connect(os.environ["TABLEQUEUE_URL"])
        self.orders = self.database.create_queue("orders", groups=True)
        self.shipped = self.database.create_topic("shipped")
        self.relayed = self.shipped.subscribe("kafka")
        self.database.create_topic("rejected", payload="text")
        self.spark = local_session("kafka", folder / "spark", conf={"spark.jars.packages": packages})
        self.options = {"kafka.bootstrap.servers": address}
        self.pushed: dict[str, tuple[str, int]] = {}
        """The group and the number of each message of the topic, by its id."""

    def feed(self, number: int) -> None:
        """Write as many records into Kafka, and messages into the topic that leads to Kafka."""
        first = len(self.pushed)
        numbers = self.spark.range(first, first + number, 1, 1)
        records = numbers.selectExpr(f"string(id % {GROUPS}) as key", "to_json(struct(id as n)) as value")
        records.write.format("kafka").options(**self.options, topic="orders").save()
        for n in range(first, first + number):
            group = str(n % GROUPS)
            self.pushed[str(self.shipped.push({"n": n}, group=group))] = group, n

    def kill_on_the_way(self) -> None:
        """Run the pipeline as a process, and kill it when both ways have moved something."""
        command = ["pipeline", "run", str(PIPELINE), "--checkpoints", f"{self.folder}/checkpoints"]
        before = self.moved()
        job = subprocess.Popen(
            [sys.executable, "-m", "tablequeue", *command, "--packages", self.packages, "--trigger", "0.01"],
            start_new_session=True,
        )
        while any(now <= then for now, then in zip(self.moved(), before, strict=True)):
            if job.poll() is not None:
                raise SystemExit(f"The pipeline ended with exit code {job.returncode}.")
            sleep(0.05)
        self.feed(100)
        sleep(random.uniform(0, 2))
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()

    def moved(self) -> tuple[int, int]:
        stats = self.orders.stats()
        return stats.ready + stats.blocked, len(self.pushed) - self.relayed.lag().messages

    def check(self) -> None:
        run(load(str(PIPELINE)), self.spark, f"{self.folder}/checkpoints", available_now=True)
        number = len(self.pushed)
        queue = self.spark.read.format("tablequeue").option("urlEnv", "TABLEQUEUE_URL").option("table", "queue")
        found = defaultdict(list)
        for row in queue.option("queue", "orders").load().orderBy("id").collect():
            found[row.group].append(json.loads(row.payload)["n"])
        expected = {str(group): [*range(group, number, GROUPS)] for group in range(GROUPS)}
        assert found == expected, "each record is in the queue once, in the order of its group"

        log = self.spark.read.format("kafka").options(**self.options, subscribe="shipped", includeHeaders="true").load()
        rows = log.selectExpr(
            "string(key) as key", "string(value) as value", "string(headers[0].value) as id"
        ).collect()
        assert {row.id: (row.key, json.loads(row.value)["n"]) for row in rows} == self.pushed, (
            "each message is in Kafka"
        )
        again = len(rows) - number
        print(f"{number:,} records came into the queue, each once; {number:,} messages went to Kafka, {again} again.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connector", default=pyspark.__version__, help="its version; that of PySpark if not given")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=2)
    given = parser.parse_args()
    packages = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{given.connector}"
    with tempfile.TemporaryDirectory(prefix="tablequeue-kafka-") as folder, broker(Path(folder)) as address:
        example = Example(Path(folder), address, packages)
        try:
            for _ in range(given.kills):
                example.feed(given.messages // given.kills)
                example.kill_on_the_way()
            example.check()
        finally:
            example.spark.stop()
            example.database.close()


if __name__ == "__main__":
    main()
