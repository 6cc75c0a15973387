"""A round: processes that act, kills and stops, and the verdict from the ledgers at the end."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tests.servers import free_port
from tests.stress import checks, lateness, order, roles
from tests.stress.board import DRAIN, END
from tests.stress.client import Setting, die_with_the_parent, since_when
from tests.stress.ground import Ground
from tests.stress.ledger import Ledger, Op, read
from tests.stress.mix import BEFALLING, Mix, defined
from tests.stress.proxy import by_way_of, forward
from tests.stress.story import Row, Story
from tests.stress.violation import Violation

SELF = "self"
# Seconds that a client stays stopped.
STOPS = (0.05, 0.05, 0.3, 0.3, 1.0, 1.0, 3.0, 3.0, 15.0)
# Seconds within which clients must end when they are told to.
WIND_DOWN = 40.0
# The minimum size of the ledgers in bytes for a verdict, and seconds after which a smaller one is accepted.
ENOUGH, LONGEST = 40_000, 60.0


@dataclass
class Result:
    mix: Mix
    folder: Path
    story: Story | None
    """None of a round of topics, which has no rows and no history."""
    violations: list[Violation]
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Process:
    role: str
    who: str
    pid: int
    born: float
    spared: bool = False
    """Whether it is neither killed nor stopped."""
    stopped: str = ""
    """The name of the operation that stopped the client, while it is stopped; SELF if it has stopped itself."""
    until: float = 0


class Round:
    """Plays a mix on a ground, in a folder of its own. TopicRound is another one (topics.py)."""

    def __init__(self, ground: Ground, mix: Mix, folder: Path, mutant: str | None = None, late: float = 2.0) -> None:
        url, schema = ground.place(folder)
        self.ground, self.mix, self.folder, self.late = ground, mix, folder, late
        self.setting = Setting(url, schema, mutant, str(folder), mix, ground.kind.side_by_side)
        # The distance of the clients; the processes that watch and conclude are near the server.
        self.port = free_port() if mix.way and ground.url else 0
        self.theirs = replace(self.setting, url=by_way_of(url, self.port)) if self.port else self.setting
        self.board = self.setting.board()
        self.ledger = Ledger(folder, "run")
        self.chance = random.Random(f"run {mix.seed}")
        self._running: list[Process] = []
        self._steady: list[Process] = []
        self._number = 0
        self.befell = dict.fromkeys(BEFALLING, 0)

    def play(self, tell: Callable[[str], None] = lambda line: None) -> Result:
        try:
            self._await(fork(self._prepare), "the queues could not be made")
            others = [fork(self._forward)] if self.port else []
            heart = fork(lambda: roles.heart(self.setting))
            watch = fork(self._watch)
            self._start_all()
            self._befall(tell)
            self._wind_down()
            self.board.quiet = True
            os.waitpid(watch, 0)
            self.board.phase = END
            self._end(self._steady)
            for pid in (heart, *others):
                os.waitpid(pid, 0)
            os.waitpid(fork(self._conclude), 0)
            return self._judge()
        finally:
            self._kill_all()

    def _forward(self) -> None:
        forward(self.setting.url, self.port, self.mix.way, lambda: self.board.phase == END)

    def _prepare(self) -> None:
        roles.prepare(self.setting)

    def _watch(self) -> None:
        roles.watch(self.setting)

    def _begin(self, role: str, who: str, seed: str) -> None:
        roles.start_client(role, self.theirs, who, seed)

    def _conclude(self) -> None:
        roles.conclude(self.setting, lambda: self.ground.damages(self.setting.url, self.setting.schema))

    def _await(self, pid: int, words: str) -> None:
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise RuntimeError(words)

    # -- processes -------------------------------------------------------------------------------------------------

    def _start_all(self) -> None:
        kinds = self.mix.kinds
        # Steady processes run until the end, and so empty the queues.
        if set(self.mix.queues) - {"waited" if "wait" in kinds else "", "worked" if "worker" in kinds else ""}:
            self._steady.append(self._start("steady", "steady"))
        if "wait" in kinds and "waited" in self.mix.queues:
            self._steady += [self._start("waiter", f"steady waiter {n}") for n in range(2)]
        if "worker" in kinds and "worked" in self.mix.queues:
            self._steady.append(self._start("worker", "steady worker"))
            self._running.append(self._start("worker"))
        for kind, role in (("cancel", "canceller"), ("fork", "forker")):
            if kind in kinds:
                self._running.append(self._start(role))
        self._running += [self._start("mixed") for _ in range(self.mix.clients)]

    def _start(self, role: str, who: str | None = None, spared: bool = False) -> Process:
        self._number += 1
        who = who or f"c{self._number}"
        seed = f"{self.mix.seed} {who} {role}"
        pid = fork(lambda: self._begin(role, who, seed))
        return Process(role, who, pid, monotonic(), spared)

    def _end(self, processes: list[Process]) -> None:
        """Wait until the processes have ended. Those that do not end print their stacks and are killed."""
        deadline = monotonic() + WIND_DOWN
        while processes and monotonic() < deadline:
            for process in processes:  # one may have stopped itself in its last moment
                os.kill(process.pid, signal.SIGCONT)
            processes[:] = [process for process in processes if os.waitpid(process.pid, os.WNOHANG) == (0, 0)]
            sleep(0.02)
        for process in processes:
            os.kill(process.pid, signal.SIGUSR1)
        sleep(0.5 if processes else 0)
        while processes:
            process = processes.pop()
            with self.ledger.op("hung", whom=process.who):
                self._kill(process)

    def _kill(self, process: Process) -> None:
        with self.ledger.op("kill", whom=process.who):
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
        if process.stopped not in ("", SELF):
            self.ledger.end(process.stopped)

    def _wind_down(self) -> None:
        for process in self._running:
            if process.stopped:
                self._continue(process)
        self.board.phase = DRAIN
        self._end(self._running)
        self._await_orphans()

    def _await_orphans(self) -> None:
        """Wait until the children of clients have ended too. Their parents may be dead."""
        deadline = monotonic() + WIND_DOWN
        known = {process.who for process in self._steady}
        while True:
            born = [op for op in read(self.folder) if op.verb == "born" and op.who not in known]
            alive = [op for op in born if op.text and since_when(int(op.whom)) == op.text]
            if not alive:
                return
            for op in alive if monotonic() > deadline else []:
                os.kill(int(op.whom), signal.SIGUSR1)
                sleep(0.3)
                with self.ledger.op("hung", whom=op.who):
                    os.kill(int(op.whom), signal.SIGKILL)
            sleep(0.2)

    def _kill_all(self) -> None:
        for process in [*self._running, *self._steady]:
            try:
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        self.board.phase = END

    # -- what befalls them -----------------------------------------------------------------------------------------

    def _befall(self, tell: Callable[[str], None]) -> None:
        """Kill and stop clients, close connections, and bring down the server, until the time is over."""
        begun = monotonic()  # extended by the time for which the server was down
        events = [kind for kind in BEFALLING if kind in self.mix.kinds]
        following = begun + 1
        servers = 0
        while (now := monotonic()) < begun + self.mix.seconds or not (self._acted() or now > begun + LONGEST):
            for process in self._running:
                if process.stopped and now > process.until:
                    self._continue(process)
            self._look_after_clients()
            if events and now > following:
                following = now + self.chance.choice([0.1, 0.5, 1.0, 2.0, 3.0])
                event = self.chance.choice(events)
                if event == "server":
                    servers += 1
                    if servers > 1 + self.mix.seconds / 20:
                        continue
                getattr(self, f"_{event}_one")()
                self.befell[event] += 1
                begun += monotonic() - now if event == "server" else 0
            sleep(0.02)
            tell(f"{now - begun:.0f} s, " + ", ".join(f"{count} {event}s" for event, count in self.befell.items()))

    def _acted(self) -> bool:
        """Return whether enough was done, also on a busy machine."""
        return sum(path.stat().st_size for path in self.folder.glob("c*.jsonl")) > ENOUGH

    def _victim(self) -> Process | None:
        """Choose a client, mostly one that has begun to act."""
        old = self.chance.choice([0, 2, 2, 2, 2, 4])
        acting = [each for each in self._running if each.born + old < monotonic() and not each.spared]
        return self.chance.choice(acting) if acting else None

    def _kill_one(self) -> None:
        if process := self._victim():
            self._running.remove(process)
            self._kill(process)
            self._running.append(self._start(process.role))

    def _stop_one(self) -> None:
        process = self._victim()
        if process and not process.stopped:
            process.stopped = self.ledger.begin("stop", whom=process.who)
            process.until = monotonic() + self.chance.choice(STOPS)
            os.kill(process.pid, signal.SIGSTOP)

    def _step_one(self) -> None:
        """Ask a client to stop itself between two statements."""
        if process := self._victim():
            os.kill(process.pid, signal.SIGUSR2)

    def _idle_one(self) -> None:
        # As if the server was down for a moment: a call may begin just then, and break off.
        with self.ledger.op("server", text="closes connections"):
            os.waitpid(fork(lambda: self.ground.close_idle(self.setting.url, self.chance)), 0)

    def _continue(self, process: Process) -> None:
        os.kill(process.pid, signal.SIGCONT)
        if process.stopped != SELF:
            self.ledger.end(process.stopped)
        process.stopped = ""

    def _server_one(self) -> None:
        assert self.ground.server
        with self.ledger.op("server"):
            self.ground.server.kill()
            sleep(self.chance.choice([0, 0.2, 1.0]))
            self.ground.server.start()

    def _look_after_clients(self) -> None:
        """Note the clients that have stopped by themselves. A client that ends without an order has crashed."""
        for process in list(self._running):
            pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                if not process.stopped:
                    process.stopped, process.until = SELF, monotonic() + self.chance.choice(STOPS)
            elif pid:
                self.ledger.end(self.ledger.begin("crashed", text=f"{process.who} ended with status {status}"))
                self._running.remove(process)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _judge(self) -> Result:
        ops = read(self.folder)
        path = self.folder / "end.json"
        end: dict[str, Any] = {"rows": [], "damages": ["the end could not be read"]}
        if path.exists():
            end = json.loads(path.read_text())
        rows = [Row(**row) for row in end["rows"]]
        found = [Violation("damaged", damage) for damage in end["damages"]]
        # If nothing could be read, nothing can be missing.
        chosen: list[Check] = CHECKS if rows or not found else [checks.errors]
        story, violations = judge(ops, rows, self.mix, self.ground.kind.side_by_side, self.late, chosen)
        return Result(self.mix, self.folder, story, found + violations, self._counts(story))

    def _counts(self, story: Story) -> dict[str, int]:
        claims = sum(len(message.real) for message in story.messages.values())
        refused = Counter(op.error for op in story.ops if op.outcome == "refused")
        unknown = sum(op.outcome in ("unknown", "pending") for op in story.ops)
        cancelled = sum(op.outcome == "cancelled" for op in story.ops)
        forks = sum(op.verb == "fork" for op in story.ops)
        pushed = sum(message.push is not None for message in story.messages.values())
        stalls = sum(op.verb == "stall" for op in story.ops)
        return {
            "pushed": pushed,
            "claims": claims,
            **{f"of {error}": count for error, count in sorted(refused.items())},
            "unknown": unknown,
            "cancelled": cancelled,
            "forks": forks,
            **{f"{event}s": count for event, count in self.befell.items()},
            "stalls": stalls,
        }


Check = Callable[[Story], Iterable[Violation]]
CHECKS: list[Check] = [*checks.CHECKS, order.overtaken, order.out_of_turn]


def judge(
    ops: list[Op], rows: list[Row], mix: Mix, side_by_side: bool = True, late: float = 2.0, chosen: list[Check] = CHECKS
) -> tuple[Story, list[Violation]]:
    """Return the violations that the checks find in a story."""
    story = Story(ops, rows, {queue: defined(queue) for queue in mix.queues}, side_by_side)
    violations = [violation for check in chosen for violation in check(story)]
    if chosen is CHECKS:
        violations += lateness.late(story, late)
    return story, violations


def fork(act: Callable[[], None]) -> int:
    """Run the function in a child. The parent has no thread and no connection that a child could inherit."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # until a client has a use for it; it may come at once
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        die_with_the_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        logging.disable()  # broken connections would log much
        act()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
