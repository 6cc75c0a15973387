"""The content of a round, drawn from a seed: its queues, its kinds of action, its clients."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from tablequeue import Backoff, Definition

LEASE = 2.0
BACKOFF = Backoff(base=0.2, factor=2, cap=1.0, jitter=0.1)

# The designs of the queues, by the names of the queues.
QUEUES: dict[str, dict[str, Any]] = {
    "fifo": {},
    "heap": {"order": "heap"},
    "lifo": {"order": "lifo"},
    "due": {"order": "due"},
    "priority": {"order": "priority"},
    "strict": {"strict": True},
    "grouped": {"groups": True},
    "once": {"delivery": "at_most_once"},
    "bare": {"history": "none"},
    "waited": {},
    "worked": {},
}

# Kinds of action, and what they do. Without any of them a round only pushes, pops and completes.
KINDS: dict[str, str] = {
    "many": "pushes and claims of several messages, completed or released together",
    "large": "pushes and claims of hundreds",
    "backlog": "queues in which there is always more than consumers ask for",
    "late": "pushes in transactions that stay open, roll back, or commit in another order than their ids",
    "take": "take, pop and complete in open transactions that commit or roll back",
    "fail": "failures, dead letters and redrives",
    "release": "releases, with delays",
    "lease": "leases that expire in the consumer's hands, and extensions",
    "delay": "delays and due times",
    "keys": "deduplication keys",
    "consume": "consume and receive",
    "cancel": "asyncio tasks that are cancelled",
    "wait": "consumers that wait for messages instead of asking again and again",
    "worker": "workers",
    "close": "connections that are closed in between, by few clients, so that at times nobody has any",
    "fork": "forks of processes that have used the database",
    "kill": "SIGKILL of clients",
    "stop": "SIGSTOP and SIGCONT of clients",
    "step": "SIGSTOP of clients between two statements of a call",
    "idle": "connections that the server closes while they are idle",
    "server": "kills and restarts of the server",
    "slow": "a long way to the server: a round trip takes 10 to 200 ms",
}
# Those in a round of topics too (topics.py).
BEFALLING = ("kill", "stop", "step", "idle", "server")


def definition(queue: str) -> dict[str, Any]:
    """Return the options with which a queue is created."""
    options = {"lease": LEASE, "backoff": BACKOFF, "max_attempts": 6, **QUEUES[queue]}
    if ordered(queue):
        # A dead letter frees the messages behind it, and no ledger records a message that dies by itself.
        options["max_attempts"] = 1_000_000
    return options


def defined(queue: str) -> Definition:
    return Definition(**definition(queue))


def ordered(queue: str) -> bool:
    return queue in ("strict", "grouped")


@dataclass(frozen=True)
class Mix:
    """A round, drawn from a seed, the allowed kinds and the allowed queues."""

    seed: int
    kinds: tuple[str, ...]
    queues: tuple[str, ...]
    seconds: float
    clients: int
    """The number of mixed clients, which may be killed or stopped, in addition to the steady consumers."""
    pace: float
    """Seconds between two actions of a thread, on average."""
    way: float = 0
    """Seconds to the server, one way."""
    cancelled: tuple[str, ...] = ()
    """The queues of the client whose tasks are cancelled."""

    def dumps(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Mix:
        words: dict[str, Any] = json.loads(text)
        for name in ("kinds", "queues", "cancelled"):
            words[name] = tuple(words[name])
        return Mix(**words)

    @property
    def lonely(self) -> bool:
        """Whether there are moments without any open connection."""
        return "close" in self.kinds

    def without(self, kind: str) -> Mix:
        way = 0 if kind == "slow" else self.way
        return replace(self, kinds=tuple(each for each in self.kinds if each != kind), way=way)

    def of_queue(self, queue: str) -> Mix:
        return replace(self, queues=(queue,), cancelled=(queue,) if self.cancelled else ())

    def __str__(self) -> str:
        return (
            f"seed {self.seed}, {self.seconds:.0f} s, {self.clients} clients, "
            f"{'queues ' + ','.join(self.queues) if self.queues else 'topics'}, kinds {','.join(self.kinds) or 'none'}"
        )


def drawn(seed: int, kinds: list[str], queues: list[str], seconds: float | None = None, all_of: bool = False) -> Mix:
    """Return a mix of these kinds and queues, or of some of them unless `all_of` is true."""
    chance = random.Random(seed)
    some = kinds if all_of else [kind for kind in kinds if chance.random() < 0.6]
    needed = {"wait": "waited", "worker": "worked"}
    open_to = [queue for queue in queues if queue not in needed.values()]
    number = len(open_to) if all_of else chance.randint(min(2, len(open_to)), min(5, len(open_to)))
    chosen = chance.sample(open_to, number)
    chosen += [queue for kind, queue in needed.items() if kind in some and queue in queues]
    chosen = [queue for queue in QUEUES if queue in chosen] or list(queues)
    plain = [queue for queue in chosen if queue not in needed.values()] or chosen
    cancelled = chance.sample(plain, min(2, len(plain))) if "cancel" in some else []
    return Mix(
        seed=seed,
        kinds=tuple(kind for kind in KINDS if kind in some),
        queues=tuple(chosen),
        seconds=seconds or chance.choice([10, 15, 20, 30]),
        clients=1 if "close" in some else chance.randint(2, 4),
        pace=0.1 if "close" in some else chance.choice([0.01, 0.02, 0.05]),
        way=chance.choice([0.005, 0.05, 0.1]) if "slow" in some else 0,
        cancelled=tuple(cancelled),
    )
