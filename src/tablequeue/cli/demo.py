"""`tablequeue demo`: producers and consumers on a queue in SQLite, and one consumer that is killed."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.output import print_json, print_table
from tablequeue.database import connect
from tablequeue.errors import TablequeueError
from tablequeue.model.message import Claim, Message
from tablequeue.queue import Queue

QUEUE = "orders"
PRODUCERS, CONSUMERS = 2, 3
BATCH = 200
# Seconds; short, because the messages of the killed consumer come back when it expires.
LEASE = 2.0
PAUSE = 0.05


@click.command(cls=Command)
@click.option("--messages", type=click.IntRange(2000, 1_000_000), default=10_000, show_default=True, help="How many.")
@click.pass_obj
def demo(settings: Settings, messages: int) -> None:
    """Show what a queue does, in a few seconds: nothing is lost when a consumer is killed.

    Two processes push messages into a queue in SQLite, in a temporary folder. Three others pop and complete them. One
    of these is killed on the way, by SIGKILL; its messages come back when its lease expires. In the end the history is
    compared with the pushed messages. Exit code 1 if they differ.
    """
    with tempfile.TemporaryDirectory(prefix="tablequeue-") as folder:
        url = f"sqlite:///{Path(folder) / 'demo.db'}"
        with connect(url) as database:
            queue = database.create_queue(QUEUE, lease=LEASE)
            began = monotonic()
            held = _move(url, queue, messages, quiet=settings.json)
            seconds = monotonic() - began
            history = _history(queue)
    summary = _summary(messages, history, held, seconds)
    if settings.json:
        print_json(summary)
    else:
        consumers = Counter(message.consumer for message in history)
        rows = [(name, number, f"{number / seconds:,.0f}") for name, number in sorted(consumers.items(), key=str)]
        print_table(("consumer", "completed", "a second"), rows)
        click.echo(
            f"\n{summary['pushed']:,} messages were pushed and {summary['delivered']:,} delivered in {seconds:.1f} s: "
            f"{summary['lost']} lost, {summary['duplicates']} twice. {summary['redelivered']} of them came back from "
            "the consumer that was killed.\n\n"
            "Your own:\n"
            "  export TABLEQUEUE_URL=sqlite:///work.db\n"
            "  tablequeue queue create emails\n"
            """  tablequeue push emails '{"to": "ada"}'\n"""
            "  tablequeue pop emails"
        )
    if summary["lost"] or summary["duplicates"]:
        raise TablequeueError("The history differs from what was pushed.", "Please report it, with the printed output.")


def _move(url: str, queue: Queue, messages: int, quiet: bool) -> int:
    """Run the processes until every message is finished. Return how many messages the killed consumer held."""
    context = multiprocessing.get_context("spawn")
    killed, drained = context.Event(), context.Event()
    here, there = context.Pipe()
    share = messages // CONSUMERS // 2
    processes: list[BaseProcess] = [
        context.Process(target=_produce, args=(url, f"producer-{n + 1}", range(n, messages, PRODUCERS)))
        for n in range(PRODUCERS)
    ]
    for n in range(CONSUMERS):
        pipe = None if n else there
        consumer = context.Process(target=_consume, args=(url, f"consumer-{n + 1}", share, pipe, killed, drained))
        processes.append(consumer)
    victim = processes[PRODUCERS]
    held = 0
    console = Console(stderr=True, quiet=quiet)
    bars = Progress(TextColumn("{task.description:<9}"), BarColumn(50), MofNCompleteColumn(), console=console)
    with _ended(processes), bars:
        pushed, delivered = (bars.add_task(name, total=messages) for name in ("pushed", "delivered"))
        for process in processes:
            process.start()
        while not bars.finished:
            if not held and here.poll(PAUSE):
                held = here.recv()
                victim.kill()
                killed.set()
                bars.console.print(
                    f"consumer-1 is killed with {held} messages under a lease; they come back in {LEASE:g} s.",
                    highlight=False,
                )
            sleep(PAUSE)
            _check(processes, victim)
            stats = queue.stats()
            finished = stats.finished or 0
            bars.update(pushed, completed=finished + stats.ready + stats.in_progress)
            bars.update(delivered, completed=finished)
        drained.set()
    return held


def _produce(url: str, name: str, numbers: range) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends all processes
    with connect(url, name=name) as database:
        queue = database.queue(QUEUE)
        for start in range(0, len(numbers), BATCH):
            queue.push_many({"order": number} for number in numbers[start : start + BATCH])


def _consume(url: str, name: str, share: int, pipe: Connection | None, killed: Event, drained: Event) -> None:
    """Pop and complete. The consumer with a `pipe` will be killed: after its part of the messages it holds a batch, and
    waits. The others pause after their part until then, so that some messages are left for it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    done, batch = 0, list[Claim]()
    with connect(url, name=name) as database:
        queue = database.queue(QUEUE)
        while not drained.is_set():
            if done >= share and pipe is None:
                killed.wait()
            batch = queue.pop_many(BATCH, completing=batch)
            done += len(batch)
            if pipe is not None and done >= share and batch:
                pipe.send(len(batch))
                # Not at an Event: its `set` waits until each process that waits has answered, and this one is killed.
                signal.pause()
            if not batch:
                drained.wait(PAUSE)


@contextmanager
def _ended(processes: list[BaseProcess]) -> Iterator[None]:
    """End all processes with the block: after an error, or Ctrl-C, at once."""
    try:
        yield
    except BaseException:
        for process in processes:
            if process.pid:
                process.kill()
        raise
    finally:
        for process in processes:
            if process.pid:
                process.join()


def _check(processes: list[BaseProcess], victim: BaseProcess) -> None:
    for process in processes:
        if process.exitcode and process is not victim:
            raise TablequeueError(f"A process of the demo has failed with {process.exitcode}.", "Its error is above.")


def _history(queue: Queue) -> list[Message]:
    messages: list[Message] = []
    while batch := queue.history(1000, after=messages[-1].id if messages else None):
        messages += batch
    return messages


def _summary(pushed: int, history: list[Message], held: int, seconds: float) -> dict[str, Any]:
    """Compare the history with the pushed messages. Each message has a number of its own."""
    times = Counter(message.payload["order"] for message in history)
    return {
        "pushed": pushed,
        "delivered": len(history),
        "lost": len(set(range(pushed)).difference(times)),
        "duplicates": len(history) - len(times),
        "redelivered": sum(message.attempts > 1 for message in history),
        "held_by_the_killed": held,
        "seconds": round(seconds, 1),
    }
