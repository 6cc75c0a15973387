"""The demo: real flights through a queue into Spark. `make demo`, or `python -m examples.flights [N] [--url URL]`."""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tablequeue
from examples.flights.data import TOTAL, carriers_of, flights
from examples.flights.processes import QUEUE, Participant, consume, produce
from tablequeue.spark.reports.page import cell

PRODUCERS, CONSUMERS = 3, 4
# The label of the queue, by which the next demo knows that it may drop it; and where Spark finds the URL.
LABELS = {"made-by": "make demo"}
URL_ENV = "TABLEQUEUE_DEMO_URL"
# Seconds; short, because the messages of the killed consumer come back when it expires.
LEASE = 5
# The approximate share of all messages that is delivered when the consumer is killed.
KILL_AT = 1 / 3

# The tables that are printed, with the columns that fit into 80 characters.
SHOWN = {
    "carriers": ("carrier", "name", "flights", "mean_dep_delay", "mean_arr_delay"),
    "times": ("time", "messages", "mean", "p50", "p95", "p99", "max"),
    "workers": ("role", "name", "messages", "share", "per_second", "retried", "run_p50"),
    "throughput": ("at", "pushed", "popped", "finished"),
}

console = Console()


@dataclass
class Run:
    """The state of the demo."""

    folder: Path
    total: int = TOTAL
    given: str | None = None
    """The URL of a database; None: SQLite in the folder."""
    stage: str = "starting"
    processes: list[BaseProcess] = field(default_factory=list)
    participants: dict[str, Participant] = field(default_factory=dict)
    jvm: subprocess.Popen[bytes] | None = None
    held: int = 0
    """The number of messages that the killed consumer held."""

    @property
    def url(self) -> str:
        return self.given or f"sqlite:///{self.folder / 'flights.db'}"

    def done(self, role: str) -> int:
        return sum(participant.done.value for name, participant in self.participants.items() if name.startswith(role))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description=__doc__)
    parser.add_argument("total", metavar="N", nargs="?", type=int, default=TOTAL, help="the number of flights")
    parser.add_argument("--url", help="a database; SQLite in demo/ if not given")
    given = parser.parse_args(arguments)
    run = Run(Path("demo"), given.total, given.url)
    listen(run)
    demo(run)
    return 0


def listen(run: Run) -> None:
    """Handle Ctrl-C at once: an exception would have to pass through Spark."""

    def interrupted(*_: object) -> None:
        for process in run.processes:
            process.kill()
        if run.jvm:
            run.jvm.kill()  # at a graceful end it would report every task that failed
        console.print(
            f"\nInterrupted while {run.stage}: {run.done('producer'):,} flights were pushed and "
            f"{run.done('consumer'):,} delivered. Nothing is running any more; run it again for a fresh start.",
            style="yellow",
        )
        sys.stdout.flush()
        os._exit(130)

    signal.signal(signal.SIGINT, interrupted)
    # The helper of multiprocessing removes the semaphores; its warning about them is not needed.
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker:UserWarning"


def demo(run: Run) -> dict[str, Any]:
    """Run the demo, and return the summary that it has written."""
    started = time.monotonic()
    console.print(
        f"[bold]tablequeue[/bold]: {run.total:,} flights, {PRODUCERS} producers, {CONSUMERS} consumers, "
        f"{sa.make_url(run.url).get_backend_name()}\n"
    )
    shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir(parents=True)
    with tablequeue.connect(run.url) as database:
        drop_last(database)
        queue = database.create_queue(QUEUE, order="fifo", lease=LEASE, labels=LABELS)
        move(run, queue)
        stats = queue.stats()

    run.stage = "computing the carriers directly from the file"
    direct = carriers_of(islice(flights(), run.total))

    run.stage = "reading the history with Spark"
    console.print("\nSpark reads the history ...")
    # Imported here, as it takes half a second, for which neither the processes nor an early Ctrl-C should wait.
    from examples.flights import analysis
    from tablequeue.spark.session import local_session

    os.environ[URL_ENV] = run.url  # of Spark's processes too: an option would show its password
    # In another thread, because in the main one Spark would replace our handler of Ctrl-C by its own.
    with ThreadPoolExecutor(1) as threads:
        spark = threads.submit(local_session, "flights", run.folder / "spark").result()
    run.jvm = spark.sparkContext._gateway.proc
    found = analysis.analyse(spark, URL_ENV, run.folder)
    carriers = {row["carrier"]: {k: v for k, v in row.items() if k != "carrier"} for row in found["carriers"]}
    if carriers != direct:
        raise SystemExit("The carriers that Spark found differ from a direct computation over the file.")

    pushed, counts = run.done("producer"), found["counts"]
    summary = {
        "pushed": pushed,
        "delivered": counts["delivered"],
        "distinct": counts["distinct"],
        "duplicates": counts["delivered"] - counts["distinct"],
        "lost": pushed - counts["distinct"],
        "redelivered": counts["redelivered"],
        "producers": PRODUCERS,
        "consumers": CONSUMERS,
        "seconds": round(time.monotonic() - started, 1),
        "carriers": carriers,
    }
    assert stats.finished == counts["delivered"], "Spark read the whole history"
    run.stage = "writing the report"
    shutil.rmtree(run.folder / "spark")
    analysis.write_page(run.folder / "report.html", found, {k: v for k, v in summary.items() if k != "carriers"})
    (run.folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    show(run, found, summary)
    expected = (run.total,) * 3
    if (summary["pushed"], summary["delivered"], summary["distinct"]) != expected:
        raise SystemExit("The counts are not what was pushed: see demo/summary.json.")
    return summary


def drop_last(database: tablequeue.Database) -> None:
    """Drop the queue of the last demo. One of this name that no demo has made is not touched."""
    if QUEUE in database.queues():
        queue = database.queue(QUEUE)
        if queue.definition.labels != LABELS:
            raise SystemExit(f"There is a queue {QUEUE!r} that the demo has not made. Name another database.")
        queue.drop()


def move(run: Run, queue: tablequeue.Queue) -> None:
    """Start the processes, kill a consumer on the way, and wait until every message is finished."""
    context = mp.get_context("spawn")
    killed, drained = context.Event(), context.Event()
    share = int(run.total * KILL_AT / CONSUMERS)
    ours, theirs = context.Pipe()
    for role, count in (("producer", PRODUCERS), ("consumer", CONSUMERS)):
        for i in range(count):
            name = f"{role}-{i + 1}"
            run.participants[name] = participant = Participant(run.url, name, context.Value("q", 0))
            process: BaseProcess
            if role == "producer":
                process = context.Process(target=produce, args=(participant, i, PRODUCERS, run.total), name=name)
            else:
                process = context.Process(
                    target=consume,
                    args=(participant, share, None if i else theirs, killed, drained),
                    name=name,
                )
            run.processes.append(process)
    victim = run.processes[PRODUCERS]
    run.stage = "moving the flights"
    bars = Progress(
        TextColumn("{task.description:<10}"), BarColumn(50), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with bars:
        pushing = bars.add_task("pushed", total=run.total)
        delivering = bars.add_task("delivered", total=run.total)
        # Ctrl-C reaches the whole process group, but only the parent handles it: it reports what happened and ends
        # the processes. They inherit the mask.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        for process in run.processes:
            process.start()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        while True:
            bars.update(pushing, completed=run.done("producer"))
            bars.update(delivering, completed=run.done("consumer"))
            if not run.held and ours.poll():
                run.held = ours.recv()
                victim.kill()
                killed.set()
                bars.console.print(
                    f"{victim.name} is killed (SIGKILL) with {run.held} messages under a lease; "
                    f"they come back when its lease of {LEASE} s ends."
                )
            check(run)
            if run.done("producer") == run.total and is_drained(queue):
                break
            time.sleep(0.1)
        bars.update(delivering, completed=queue.stats().finished)
    drained.set()
    for process in run.processes:
        process.join()


def is_drained(queue: tablequeue.Queue) -> bool:
    return not any(queue.peek(1, state=state) for state in ("ready", "scheduled", "in_progress"))


def check(run: Run) -> None:
    """Stop if a process has failed, other than the consumer that was killed."""
    victim = run.processes[PRODUCERS] if run.held else None
    for process in run.processes:
        if process.exitcode and process is not victim:
            for other in run.processes:
                other.kill()
            raise SystemExit(f"{process.name} ended with exit code {process.exitcode}.")


def show(run: Run, found: dict[str, Any], summary: dict[str, Any]) -> None:
    for title, columns in SHOWN.items():
        rows = found[title]
        table = Table(title=title, title_justify="left", title_style="bold")
        for name in columns:
            table.add_column(name, justify="right" if isinstance(rows[0][name], (int, float)) else "left")
        for row in rows:
            table.add_row(*(cell(row[name]) for name in columns))
        console.print(table)
    console.print(
        f"[bold]{summary['pushed']:,} pushed, {summary['delivered']:,} delivered, {summary['distinct']:,} distinct; "
        f"{summary['duplicates']} duplicates, {summary['lost']} lost.[/bold] "
        f"{summary['redelivered']} came back from the killed consumer (it held {run.held})."
    )
    console.print("The carriers equal a direct computation over all the flights in the file.")
    console.print(f"{summary['seconds']} s. Report: {run.folder}/report.html, summary: {run.folder}/summary.json")
