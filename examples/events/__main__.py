"""One event, three services: the flights on a topic with three subscriptions, each killed (SIGKILL) on the way.

    python -m examples.events [--messages 336776] [--services alerts,audit,lake] [--url URL]

`alerts` is a worker, `audit` a slow consumer, and `lake` a stream of Spark into Parquet. They are processes that share
nothing but the database, by default an SQLite file. Each is killed in the middle of a batch when it has a third of the
flights, and started again. In the end each must have got every flight once.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import sqlalchemy as sa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tablequeue
from examples.events.services import SERVICES, TOPIC
from examples.flights.data import TOTAL, flights
from tablequeue import Subscription, Topic

FOLDER = Path("demo") / "events"
PUSH_BATCH = 2000
# Seconds; short, because the messages that a killed service held come back when it expires.
LEASE = 3

console = Console()


class Service:
    """A service: a process that is killed once, and started again."""

    def __init__(self, name: str, subscription: Subscription, url: str, folder: Path, share: int) -> None:
        self.name, self.subscription, self.folder = name, subscription, folder
        self._command = [sys.executable, "-m", "examples.events.services", name, url, str(folder)]
        self.process = self._start(share)
        self.killed = False

    def kill_once(self) -> str | None:
        """Kill it (SIGKILL) if it waits for that, and start it again. Return its state."""
        assert self.process.stdout is not None, "a pipe"
        if self.killed or not select.select([self.process.stdout], [], [], 0)[0]:
            return None
        state = self.process.stdout.readline().strip()
        if not state:
            self.process.wait()
            self.check()
        self.kill()
        self.killed, self.process = True, self._start(0)
        return state

    def is_drained(self) -> bool:
        stats = self.subscription.stats()
        return self.killed and not stats.ready + stats.scheduled + stats.in_progress

    def stop(self) -> str:
        """Let it end, and return what it has printed."""
        self.process.terminate()
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise SystemExit(f"{self.name} ended with exit code {self.process.returncode}: see {self._log}.")
        return output

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def check(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} has ended: see {self._log}.")

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def _start(self, share: int) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [*self._command, str(share)], stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )


class Producer(Thread):
    """Pushes every flight. It costs the same, however many subscriptions there are."""

    def __init__(self, topic: Topic, total: int) -> None:
        super().__init__(daemon=True)
        self.topic, self.total, self.pushed = topic, total, 0

    def run(self) -> None:
        rest = islice(flights(), self.total)
        while block := list(islice(rest, PUSH_BATCH)):
            self.pushed += len(self.topic.push_many(block))


class Count(NamedTuple):
    delivered: int
    distinct: int


def run(url: str, folder: Path, total: int, names: Sequence[str]) -> dict[str, Count]:
    """Push the flights, run the services, and return what each of them has got."""
    with tablequeue.connect(url) as database:
        topic = database.create_topic(TOPIC, keep="consumed")
        with database.engine.begin() as connection:
            connection.execute(sa.text("create table delivered (service varchar(10), n integer)"))
        services = [Service(name, topic.subscribe(name, lease=LEASE), url, folder, total // 3) for name in names]
        try:
            producer = Producer(topic, total)
            producer.start()
            watch(services, producer)
            printed = {service.name: service.stop() for service in services}
        finally:
            for service in services:
                service.kill()
        with database.engine.begin() as connection:
            rows = connection.execute(
                sa.text("select service, count(*), count(distinct n) from delivered group by service")
            )
            counts = {name: Count(*numbers) for name, *numbers in rows}
    if "lake" in printed:
        counts["lake"] = Count(*json.loads(printed["lake"]))
    return counts


def watch(services: Sequence[Service], producer: Producer) -> None:
    """Kill each service once, and wait until all of them have everything."""
    columns = (TextColumn("{task.description:<10}"), BarColumn(50), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        tasks = {service.name: bars.add_task(service.name, total=producer.total) for service in services}
        waiting = list(services)
        while waiting or producer.is_alive():
            ended = not producer.is_alive()
            for service in services:
                if state := service.kill_once():
                    bars.console.print(f"{service.name} is killed (SIGKILL) {state}, and started again.")
                service.check()
                pushed = producer.pushed
                bars.update(tasks[service.name], completed=pushed - service.subscription.lag().messages)
            if ended:
                waiting = [service for service in waiting if not service.is_drained()]
            time.sleep(0.1)
    if producer.pushed < producer.total:
        raise SystemExit(f"Only {producer.pushed:,} flights were pushed.")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.events")
    parser.add_argument("--messages", type=int, default=TOTAL)
    parser.add_argument("--services", default=",".join(SERVICES))
    parser.add_argument("--url", help="a database without a topic of this name")
    options = parser.parse_args(arguments)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    folder = FOLDER.absolute()
    counts = run(options.url or f"sqlite:///{folder}/events.db", folder, options.messages, options.services.split(","))
    table = Table("subscription", "pushed", "delivered", "distinct")
    for name, count in counts.items():
        table.add_row(f"{TOPIC}/{name}", f"{options.messages:,}", f"{count.delivered:,}", f"{count.distinct:,}")
    console.print(table)
    if set(counts.values()) != {Count(options.messages, options.messages)}:
        raise SystemExit("A subscription did not get each flight once.")
    console.print("Each subscription got each flight once, although each service was killed on the way.")


if __name__ == "__main__":
    main(sys.argv[1:])
