"""A client that forks while its threads are busy, and the actions of its children."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count, islice
from time import monotonic, sleep
from typing import Any

from tests.stress import actions
from tests.stress.client import Client, Ended, Setting, work

LONGEST = 30.0
"""The maximum time of a child in seconds. Then it is killed. That is a fault of a child that was forked; one that
inherits nothing may have been importing until then, on a busy machine."""


def forking(client: Client, chance: random.Random) -> None:
    """Fork repeatedly, in one of several ways."""
    numbers = count()
    while client.running():
        sleep(chance.choice([0.05, 0.2, 0.5]))
        way = chance.choice([forked, forked, forked, a_daemon, a_process, a_spawned_one])
        way(client, chance, numbers)


def forked(client: Client, chance: random.Random, numbers: Any) -> None:
    """Fork one or more children. The parent, the children or nobody may close the Database."""
    children = []
    for _ in range(chance.choice([1, 1, 3])):
        who, seed = f"{client.who}.{next(numbers)}", chance.random()
        with client.ledger.op("fork", whom=who):
            pid = os.fork()
            if pid == 0:
                in_the_child(client, who, seed)
        children.append((pid, who))
    if chance.random() < 0.4:
        with client.ledger.op("close"):
            client.database.close()
    for pid, who in children:
        if "kill" in client.mix.kinds and chance.random() < 0.2:
            sleep(chance.choice([0, 0.05, 0.2]))
            kill(client, pid, who)
        reap(client, pid, who)


def in_the_child(client: Client, who: str, seed: float) -> None:
    """Act in the child. Never returns, because the child must not clean up the parent's stack."""
    gc.freeze()
    try:
        child_acts(client.child(who), random.Random(seed))
    finally:
        os._exit(0)


def child_acts(child: Client, chance: random.Random) -> None:
    """Act in a thread of the child, perhaps close the connections, and act again."""

    def some() -> None:
        sleep(chance.choice([0, 0, 0.05, 0.3]))
        for action in islice(actions.chosen_at_random(child.mix.kinds, chance), chance.randint(1, 8)):
            if child.running():
                actions.attempt(action, child, chance)
        if chance.random() < 0.3:
            with child.ledger.op("close"):
                child.database.close()
        if chance.random() < 0.3:
            some()

    work(child, {"child": some})


def a_daemon(client: Client, chance: random.Random, numbers: Any) -> None:
    """Fork a grandchild whose parent ends: the first process closes its connections and no longer knows it."""
    who, seed = f"{client.who}.{next(numbers)}", chance.random()
    with client.ledger.op("fork", whom=who):
        pid = os.fork()
        if pid == 0:
            if os.fork() == 0:
                in_the_child(client, who, seed)
            os._exit(0)
    os.waitpid(pid, 0)
    if chance.random() < 0.5:
        with client.ledger.op("close"):
            client.database.close()


def a_process(client: Client, chance: random.Random, numbers: Any) -> None:
    """Start a process by multiprocessing, as a pool does."""
    _of_multiprocessing(client, "fork", _process, (client, f"{client.who}.{next(numbers)}", chance.random()))


def a_spawned_one(client: Client, chance: random.Random, numbers: Any) -> None:
    """Start a process that inherits nothing. It takes a while to start, so there are few of them."""
    if chance.random() < 0.3:
        name = f"{client.who}.{next(numbers)}"
        _of_multiprocessing(client, "spawn", spawned, (client.setting.dumps(), name, chance.random()))


def _of_multiprocessing(client: Client, method: str, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    context: Any = multiprocessing.get_context(method)
    process = context.Process(target=target, args=args)
    with client.ledger.op("fork", whom=args[1]):
        process.start()
    reap(client, process.pid, args[1], forked=method == "fork")


def _process(client: Client, who: str, seed: float) -> None:
    child_acts(client.child(who), random.Random(seed))


def spawned(setting: str, who: str, seed: float) -> None:
    child = Client(Setting.loads(setting), who)
    try:
        child.open()
    except Ended:
        return
    child_acts(child, random.Random(seed))


def kill(client: Client, pid: int, who: str) -> None:
    with client.ledger.op("kill", whom=who):
        os.kill(pid, signal.SIGKILL)


def reap(client: Client, pid: int, who: str, *, forked: bool = True) -> None:
    """Wait until a child has ended. A child that hangs prints its stacks and is killed."""
    deadline = monotonic() + LONGEST
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if monotonic() > deadline:
            if forked:
                os.kill(pid, signal.SIGUSR1)
                sleep(0.2)
            with client.ledger.op("hung", whom=who) if forked else nullcontext():
                kill(client, pid, who)
                os.waitpid(pid, 0)
            return
        sleep(0.02)
