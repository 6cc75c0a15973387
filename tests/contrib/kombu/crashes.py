"""Real Celery workers that are killed, with a database that is killed too: what is lost, and what runs twice.

    python -m tests.contrib.kombu.crashes [sqlite|postgresql|mariadb] [--tasks 400] [--pool prefork]

A child of the pool is killed again and again, then the whole worker, then the server. Each task must run at least once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.servers import KINDS, Server

ROOT = Path(__file__).parents[3]
PATIENCE = 120.0


@contextmanager
def worker(pool: str, *options: str, app: str = "tests.contrib.kombu.app") -> Iterator[subprocess.Popen[bytes]]:
    """Run a Celery worker in a process group of its own; end it at once if it is there at the end."""
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "--loglevel", "warning"]
    running = subprocess.Popen([*command, "--pool", pool, "-c", "4", *options], cwd=ROOT, start_new_session=True)
    try:
        yield running
    finally:
        kill(running)


def kill(running: subprocess.Popen[bytes]) -> None:
    if running.poll() is None:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def done(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().split()) if notes.exists() else Counter()


def until(reached: Any, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def run(server: Server | None, url: str, tasks: int, pool: str, place: Path) -> int:
    notes = place / "notes"
    os.environ |= {"BROKER": f"tablequeue+{url}", "NOTES": str(notes)}
    from tests.contrib.kombu.app import again, app, work

    for number in range(tasks):
        (again if number % 10 == 0 else work).apply_async((number,), {} if number % 10 == 0 else {"seconds": 0.05})
    kills = Counter[str]()
    with worker(pool) as first:
        until(lambda: len(done(notes)) > tasks * 0.1, "a worker begins")
        while pool == "prefork" and len(done(notes)) < tasks * 0.4:
            if pids := children(first.pid):
                os.kill(random.choice(pids), signal.SIGKILL)
                kills["children"] += 1
            time.sleep(0.5)
    kills["workers"] += 1
    with worker(pool) as second:
        until(lambda: len(done(notes)) > tasks * 0.6, "another worker goes on")
        if server is not None:
            server.kill()
            kills["servers"] += 1
            time.sleep(1)
            server.start()
        until(lambda: len(done(notes)) == tasks, "every task has run")
        waiting = app.connection().default_channel
        until(lambda: not waiting.store.queue("celery").stats().in_progress, "every task is answered")
        left = waiting.store.queue("celery").stats()
        os.kill(second.pid, signal.SIGTERM)
        code = second.wait(30)
    counts = done(notes)
    print(f"{len(counts)} of {tasks} tasks ran, {sum(counts.values()) - len(counts)} more often than once")
    print(f"killed: {dict(kills)}; left: {left.ready} ready, {left.in_progress} in progress, {left.dead} dead")
    print(f"the worker ended with {code}")
    return int(len(counts) != tasks or left.dead > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[kind.name for kind in KINDS], nargs="?", default="sqlite")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--pool", default="prefork")
    options = parser.parse_args()
    (kind,) = (kind for kind in KINDS if kind.name == options.kind)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory()))
        start = kind.server() if kind.server is not None else None
        server = stack.enter_context(start) if start is not None else None
        url = f"sqlite:///{place}/work.db" if server is None else server.url
        return run(server, url, options.tasks, options.pool, place)


if __name__ == "__main__":
    sys.exit(main())
