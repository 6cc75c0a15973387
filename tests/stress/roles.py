"""The processes of a round. Each is a function that runs in a process of its own until it is told to end."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic, sleep, time
from typing import Any

import sqlalchemy as sa

from tablequeue import TablequeueError
from tablequeue.worker import DeadLetter, Done, Retry, Snooze, Worker
from tests.stress import actions, cancels, forks
from tests.stress.board import DRAIN, END
from tests.stress.client import Client, Ended, Setting, work
from tests.stress.ledger import Ledger, got_of
from tests.stress.mix import LEASE, definition, ordered
from tests.stress.story import LIVE, Row

# The number of messages in a queue above which clients stop pushing.
ENOUGH, ENOUGH_BEHIND, ENOUGH_IN_ORDER = 600, 3000, 60
# Seconds after which a round ends if its messages do not become fewer.
PATIENCE = 20.0


def mixed(client: Client, chance: random.Random) -> None:
    """Run threads with any actions."""
    client.open()
    work(client, {f"act {n}": _acting(client, chance.random()) for n in range(1 if client.mix.lonely else 3)})


def _acting(client: Client, seed: float) -> Callable[[], None]:
    return lambda: actions.act(client, random.Random(seed))


def canceller(client: Client, chance: random.Random) -> None:
    work(client, {"cancel": lambda: cancels.cancelling(client, chance)})


def forker(client: Client, chance: random.Random) -> None:
    """Fork in the middle of the threads' actions.

    On SQLite an application's own transaction does not survive a fork, so there its threads have none.
    """
    client.open()
    if not client.setting.side_by_side:
        client.mix = client.mix.without("late").without("take")
    threads = {f"act {n}": _acting(client, chance.random()) for n in range(2)}
    work(client, threads | {"fork": lambda: forks.forking(client, chance)})


def steady(client: Client, chance: random.Random) -> None:
    """Run consumers that are never killed or stopped, and complete every message."""
    client.open()
    queues = [queue for queue in client.mix.queues if queue not in actions.reserved(client)]
    threads = {}
    for number in range(1 if client.mix.lonely else 3):
        mine = chance.sample(queues, len(queues))
        threads[f"steady {number}"] = _consuming(client, chance.random(), mine)
    work(client, threads)


def _consuming(client: Client, seed: float, queues: list[str]) -> Callable[[], None]:
    return lambda: actions.steady(client, random.Random(seed), queues)


def waiter(client: Client, chance: random.Random) -> None:
    client.open()
    seeds = [chance.random() for _ in range(2)]
    work(client, {f"wait {seed}": _waiting(client, seed) for seed in seeds})


def _waiting(client: Client, seed: float) -> Callable[[], None]:
    return lambda: actions.waiting(client, random.Random(seed), "waited")


def worker(client: Client, chance: random.Random) -> None:
    """Run a worker with one of several kinds of handlers. A steady worker works until the end of the round."""
    client.open()
    until = END if client.who.startswith("steady") else DRAIN
    worker = Worker(maximum=3, shutdown_timeout=3)
    begun = monotonic()
    handle = _handler(client, chance, begun)
    way = chance.choice(["one", "batch", "async"])
    if way == "batch":
        worker.handler("worked", batch=10)(handle)
    elif way == "async":

        async def handle_async(claim: Any) -> Any:
            return handle([claim])[0]

        worker.handler("worked")(handle_async)
    else:
        worker.handler("worked")(lambda claim: handle([claim])[0])

    def stop_in_time() -> None:
        while client.board.phase < until:
            sleep(0.05)
        worker.stop()

    def run() -> None:
        while client.board.phase < until:
            try:
                with client.ledger.op("work", queue="worked") as note:
                    done = worker.run(client.database)
                    note.words |= {"n": done.get("completed", 0), "text": json.dumps(dict(done))}
            except (TablequeueError, sa.exc.SQLAlchemyError):
                sleep(0.1)

    threading.Thread(target=stop_in_time, daemon=True).start()
    work(client, {"worker": run})


def _handler(client: Client, chance: random.Random, begun: float) -> Callable[[Sequence[Any]], list[Any]]:
    """Record the message and the outcome that the handler returns. The worker applies it later without a record."""
    outcomes = ["complete", "complete", "complete"]
    outcomes += ["retry", "dead", "raise"] if "fail" in client.mix.kinds else []
    outcomes += ["snooze"] if "release" in client.mix.kinds else []
    said = {
        "complete": Done(),
        "retry": Retry(after=0.1, error="busy"),
        "dead": DeadLetter("no"),
        "snooze": Snooze(0.1),
    }
    verbs = {"complete": "complete", "snooze": "release"}

    def handle(claims: Sequence[Any]) -> list[Any]:
        ledger = client.ledger
        name = ledger.begin("pop", queue="worked", n=0, lease=LEASE, since=begun, kept=True)
        ledger.end(name, got=[got_of(claim) for claim in claims])
        sleep(chance.choice([0, 0.005, 0.02]))
        chosen = [chance.choice(outcomes) for _ in claims]
        if "raise" in chosen:
            chosen = ["raise" for _ in claims]
        for claim, outcome in zip(claims, chosen, strict=True):
            ledger.begin(verbs.get(outcome, "fail"), queue="worked", held=[[claim.id, claim.token]])
        if "raise" in chosen:
            raise ValueError("the handler's own")
        return [said[outcome] for outcome in chosen]

    return handle


ROLES: dict[str, Callable[[Client, random.Random], None]] = {
    "mixed": mixed,
    "canceller": canceller,
    "forker": forker,
    "steady": steady,
    "waiter": waiter,
    "worker": worker,
}


# -- those that are no clients -------------------------------------------------------------------------------------


def prepare(setting: Setting) -> None:
    """Create the queues."""
    database = setting.open("prepare")
    for queue in setting.mix.queues:
        database.create_queue(queue, **definition(queue))


class Patience:
    """Is over after some seconds. If the machine stood still between two looks, that time counts little."""

    def __init__(self, seconds: float) -> None:
        self._left, self._last = seconds, monotonic()

    def is_over(self) -> bool:
        now = monotonic()
        self._left -= min(now - self._last, STALL)
        self._last = now
        return self._left < 0


def watch(setting: Setting) -> None:
    """Report which queues have enough messages. When the round winds down, end as soon as only dead letters are
    left."""
    board = setting.board()
    enough = ENOUGH_BEHIND if "backlog" in setting.mix.kinds else ENOUGH
    ledger = Ledger(Path(setting.folder), "watch")
    database: Any = None
    least, patience = 1 << 60, Patience(PATIENCE)
    while board.phase < END:
        try:
            with ledger.op("look") as note:
                database = database or setting.open("watch")
                counts = {queue: _left(database.queue(queue).stats()) for queue in setting.mix.queues}
                note.words["text"] = json.dumps(counts)
                if setting.mix.lonely:
                    database.close()
        except TablequeueError:
            sleep(0.2)
            if board.quiet and patience.is_over():
                return
            continue
        for queue, count in counts.items():
            board.set_full(queue, count > (ENOUGH_IN_ORDER if ordered(queue) else enough))
        total = sum(counts.values())
        if not board.quiet or total < least:
            least, patience = total, Patience(PATIENCE)
        if board.quiet and (total == 0 or patience.is_over()):
            return
        sleep(0.3 if board.phase == 0 else 0.1)


def _left(stats: Any) -> int:
    return int(stats.ready + stats.scheduled + stats.in_progress + stats.blocked)


def conclude(setting: Setting, damages: Callable[[], list[str]]) -> None:
    """Record the content of the queues at the end, and the faults that the database finds in itself."""
    rows, faults = [], damages()
    if faults:
        (Path(setting.folder) / "end.json").write_text(json.dumps({"rows": [], "damages": faults}))
        return
    database = setting.open("conclude")
    for queue in setting.mix.queues:
        rows += list(_rows(database.queue(queue), queue))
        stats = database.queue(queue).stats()
        counted = {state: getattr(stats, state) or 0 for state in (*LIVE, "finished")}
        here = Counter(row.state for row in rows if row.queue == queue)
        if any(here[state] != count for state, count in counted.items()):
            faults.append(f"the statistics of {queue} say {counted}, and there are {dict(here)}")
    found = {"rows": [asdict(row) for row in rows], "damages": faults}
    (Path(setting.folder) / "end.json").write_text(json.dumps(found))


def _rows(queue: Any, name: str) -> Any:
    for state in LIVE:
        after = 0
        while batch := queue.peek(1000, state=state, after=after):
            after = batch[-1].id
            yield from (Row(name, message.payload["uid"], message.id, state, message.attempts) for message in batch)
    if name == "bare":
        return
    for message in queue.history(10_000_000):
        state = "finished" if message.finished_at else "lost"
        error = message.errors[-1].error if message.errors else ""
        yield Row(name, message.payload["uid"], message.id, state, message.attempts, error)


# The maximum number of seconds between two beats, above which the machine counts as having stood still.
STALL = 0.4


def heart(setting: Setting) -> None:
    """Record when the machine stood still: when a short sleep and a little work, or a disk flush, took long."""
    folder = Path(setting.folder)
    ledger, board = Ledger(folder, "heart"), setting.board()
    offset = time() - monotonic()

    def beat(step: Callable[[], None]) -> None:
        nonlocal offset
        while board.phase < END:
            begun = monotonic()
            step()
            if monotonic() - begun > STALL:
                _note(ledger, "stall", begun)
            if abs(time() - monotonic() - offset) > 0.005:
                offset = time() - monotonic()
                _note(ledger, "clock", begun)

    def doze() -> None:
        sleep(0.02)
        sum(range(20_000))

    def flush() -> None:
        sleep(0.2)
        with (folder / "beat").open("ab") as file:
            file.write(b".")
            file.flush()
            os.fsync(file.fileno())

    flushing = threading.Thread(target=beat, args=(flush,))
    flushing.start()
    beat(doze)
    flushing.join()


def _note(ledger: Ledger, verb: str, begun: float) -> None:
    name = ledger.begin(verb)
    # The stall was before this moment, but an operation begins when it is recorded, so the time is corrected.
    ledger.end(name, begin=begun)


def start_client(role: str, setting: Setting, who: str, seed: str) -> None:
    try:
        ROLES[role](Client(setting, who), random.Random(seed))
    except Ended:
        pass
