"""Producers and consumers that work while others die. Each records what it does, and the records are compared."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from tablequeue import Queue
from tablequeue.errors import ConnectionLost, Unreachable
from tablequeue.model.states import STATES
from tests.crowd import PATIENCE, processes
from tests.servers import Place
from tests.support import at, counts

# A time at which every lease has expired and every delay has passed.
LATER = at(1_000_000)


class Load:
    """Producers and consumers, each with its book."""

    PRODUCERS = CONSUMERS = 3

    def __init__(self, place: Place, folder: Path) -> None:
        self._place = place
        self._folder = folder
        self.books: list[Book] = []
        self._workers: dict[Connection, tuple[Any, Callable[..., None]]] = {}

    def __enter__(self) -> Load:
        for work in [produce] * self.PRODUCERS + [consume] * self.CONSUMERS:
            self._start(work)
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        try:
            if kind is None:
                self._stop()
        finally:
            for pipe, (worker, _) in self._workers.items():
                worker.kill()
                worker.join()
                pipe.close()

    def go_on(self, steps: int) -> None:
        """Wait until they have done this many more steps."""
        while steps > 0:
            for pipe in self._ready():
                said = pipe.recv()
                if said == "down":
                    pipe.send("up")
                else:
                    steps -= 1

    def kill_one(self, chance: random.Random) -> None:
        """Kill one of them, and start a new one in its place."""
        pipe = chance.choice(list(self._workers))
        worker, work = self._workers.pop(pipe)
        worker.kill()
        worker.join()
        pipe.close()
        self._start(work)

    def _start(self, work: Callable[..., None]) -> None:
        name = f"{work.__name__} {len(self.books)}"
        book = Book(name, self._folder / f"{name}.jsonl")
        ours, theirs = processes.Pipe()
        worker = processes.Process(target=work, args=(self._place, book, theirs))
        worker.start()
        theirs.close()
        self.books.append(book)
        self._workers[ours] = worker, work

    def _stop(self) -> None:
        for pipe in self._workers:
            pipe.send("stop")
        waiting = set(self._workers)
        while waiting:
            for pipe in self._ready():
                if pipe in waiting and pipe.recv() == "stopped":
                    waiting.remove(pipe)

    def _ready(self) -> list[Connection]:
        ready = wait(list(self._workers), PATIENCE)
        assert ready, "nobody does anything"
        return ready  # type: ignore[return-value]


def reconcile(queue: Queue, books: list[Book]) -> None:
    """Compare the books of the workers with the history."""
    end_all(queue)
    history = {message.id: message for message in queue.history(1_000_000)}
    payloads = Counter(message.payload for message in history.values())
    assert counts(queue) == {"finished": len(history)}, "every message ended"
    assert max(payloads.values()) == 1, "none is finished twice"
    attempted: set[str] = set()
    held: Counter[tuple[int, int]] = Counter()
    completed: Counter[int] = Counter()
    for book in books:
        pushing: list[str] = []
        for verb, *words in book.read():
            if verb == "pushing":
                (pushing,) = words
                attempted.update(pushing)
                assert len({payload in payloads for payload in pushing}) == 1, "all of a batch, or none"
            elif verb == "pushed":
                found = [history[id].payload if id in history else None for id in words[0]]
                assert found == pushing, "what was acknowledged is there"
            elif verb == "popped":
                held[tuple(words)] += 1
            elif verb == "completed":
                completed[words[0]] += 1
                assert history[words[0]].consumer == book.name, "who was told that it was completed, did it"
            else:
                assert verb == "refused"
                assert all(words)
    assert set(payloads) <= attempted
    assert max(held.values()) == 1, "no attempt is held by two"
    assert max(completed.values()) == 1, "none is completed twice"
    print(f"{len(history)} messages, {sum(held.values())} claims, {len(completed)} completed by those who lived")


def end_all(queue: Queue) -> list[Any]:
    """Pop and complete until only dead letters are left."""
    drained: list[Any] = []
    deadline = monotonic() + PATIENCE
    live = [state for state in STATES if state != "dead"]
    while any(queue.peek(1, state=state) for state in live):
        # The server may take a moment to notice that a client is dead, and keeps its locks until then.
        assert monotonic() < deadline, f"some messages never end: {counts(queue)}"
        batch = queue.pop_many(1000, now=LATER)
        queue.complete_many(batch, now=LATER)
        drained += batch
    return drained


# -- workers -------------------------------------------------------------------------------------------------------


@dataclass
class Book:
    """The record of a worker, line by line in a file of its own, which survives the worker."""

    name: str
    path: Path

    def read(self) -> list[list[Any]]:
        # A line without an end was being written when its worker died, and is ignored.
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def produce(place: Place, book: Book, pipe: Connection) -> None:
    """Push messages one by one and in batches, until told to stop."""
    chance = random.Random(book.name)

    def push(queue: Queue, note: Callable[..., None], n: int) -> None:
        payloads = [f"{book.name}/{n}/{k}" for k in range(chance.choice([1, 1, 5]))]
        note("pushing", payloads)
        ids = queue.push_many(payloads) if len(payloads) > 1 else [queue.push(payloads[0])]
        note("pushed", ids)

    _work(place, book, pipe, push)


def consume(place: Place, book: Book, pipe: Connection) -> None:
    """Pop messages and complete them, until told to stop."""

    def handle(queue: Queue, note: Callable[..., None], n: int) -> None:
        for claim in queue.pop_many(3):
            note("popped", claim.id, claim.attempt)
            claim.complete()
            note("completed", claim.id)

    _work(place, book, pipe, handle)


def _work(place: Place, book: Book, pipe: Connection, step: Callable[[Queue, Callable[..., None], int], None]) -> None:
    """Run and record steps. After a lost connection, wait until the server is reported back, and use the same
    Database."""
    with book.path.open("ab", buffering=0) as file:

        def note(*words: Any) -> None:
            file.write(json.dumps(words).encode() + b"\n")

        queue: Queue | None = None
        for n in count():
            try:
                # The server may be killed before a worker has reached it.
                queue = queue or place.open(book.name).queue("load")
                step(queue, note, n)
                pipe.send("done")
            except (ConnectionLost, Unreachable) as error:
                pipe.send("down")
                note("refused", type(error).__name__, error.cause, error.remedy)
                if pipe.recv() == "stop":
                    break
            if pipe.poll() and pipe.recv() == "stop":
                break
    place.close()
    pipe.send("stopped")
