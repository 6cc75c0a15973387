"""Run those tests of dramatiq and of taskiq that take a broker, with ours.

    python -m tests.contrib.brokers [dramatiq|taskiq] [--url sqlite:///…] [-- arguments of pytest]

Their source distributions are fetched from PyPI (tests/others.py). What fails for reasons of theirs is `excused`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.others import prepared

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Suite:
    """The tests of a project.

    needs     packages of its tests, and of its build.
    files     the tests that take a broker.
    put       files of ours that stand in for theirs: what makes the broker.
    excused   tests, by a part of their name, and why they are left out.
    """

    version: str
    needs: tuple[str, ...]
    files: tuple[str, ...]
    put: dict[str, str]
    excused: dict[str, str]


# The source distribution lacks these two files. `Judged` has what the tests read of a StubBroker.
DRAMATIQ_COMMON = """
from contextlib import contextmanager
from dramatiq import Worker

RABBITMQ_CREDENTIALS = None
skip_on_pypy = skip_on_windows = skip_in_ci = lambda function: function

@contextmanager
def worker(*args, **options):
    worker = Worker(*args, **options)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
"""
DRAMATIQ_FIXTURES = """
import os
import dramatiq, pytest
from dramatiq.rate_limits.backends import StubBackend as RateLimits
from dramatiq.results.backends import StubBackend
from tablequeue.contrib.dramatiq import Broker
from tests.common import worker

class Judged(Broker):
    def __init__(self, url):
        super().__init__(url)
        self.dead_letters = []
        self.errors = []

    def emit_after(self, signal, *args, **options):
        super().emit_after(signal, *args, **options)
        if signal == "nack":
            self.dead_letters.append(args[0])
            self.errors.append(args[0]._exception)

    def join(self, queue_name, *, fail_fast=True, **options):
        super().join(queue_name, **options)
        if fail_fast and self.errors:
            raise self.errors[0] or Exception("Message failed with unknown error")

@pytest.fixture
def stub_broker(tmp_path):
    broker = Judged(os.environ["SUITE_URL"].format(tmp_path))
    broker.emit_after("process_boot")
    dramatiq.set_broker(broker)
    yield broker
    for name in [*broker.queues]:
        broker.queue(name).drop()
    broker.close()

@pytest.fixture
def redis_broker(stub_broker, monkeypatch):
    monkeypatch.setattr(stub_broker, "join", super(Judged, stub_broker).join)
    return stub_broker

@pytest.fixture
def stub_worker(stub_broker):
    with worker(stub_broker, worker_timeout=100, worker_threads=8) as running:
        yield running

redis_worker = stub_worker

@pytest.fixture
def result_backend():
    return StubBackend()

@pytest.fixture
def result_backends(result_backend):
    return {"stub": result_backend}

@pytest.fixture
def rate_limiter_backend():
    return RateLimits()
"""
# Instead of its broker on an asyncio.Queue.
TASKIQ_BROKER = """
import asyncio, os, tempfile, uuid
from pathlib import Path
from tablequeue.contrib.taskiq import Broker

FOLDER = tempfile.mkdtemp()

class Queue:
    def __init__(self, broker):
        self.broker = broker

    async def get(self):
        async for message in self.broker.listen():
            await message.ack()
            return message.data

class AsyncQueueBroker(Broker):
    def __init__(self):
        super().__init__(os.environ["SUITE_URL"].format(FOLDER), queue_name=uuid.uuid4().hex)
        self.queue = Queue(self)

    async def opened(self):
        if self._database is None:
            await self.startup()

    async def kick(self, message):
        await self.opened()
        await super().kick(message)

    async def listen(self):
        await self.opened()
        async for message in super().listen():
            yield message

    async def wait_tasks(self):
        await self.opened()
        while (stats := await self._queue.stats()).ready or stats.in_progress:
            await asyncio.sleep(0.01)
"""
SUITES = {
    "dramatiq": Suite(
        "2.2.1",
        ("pytest", "pytest-timeout", "redis", "pika", "prometheus-client"),
        tuple(f"tests/test_{name}.py" for name in "actors composition results worker callbacks barrier redis".split()),
        {"tests/__init__.py": "", "tests/common.py": DRAMATIQ_COMMON, "tests/conftest.py": DRAMATIQ_FIXTURES},
        {
            "test_actors_can_be_sent_messages": "reads the Queue inside the StubBroker",
            "eta": "puts a message into the Queue inside the StubBroker",
            "process_messages_in_order": "looks before a database can have delivered all messages",
            "doesnt_leak": "our stand-in keeps the errors, so that join can raise them",
            "lookup_options": "is about Redis as a result backend",
            **dict.fromkeys(
                "unacked_messages dead_lettered redis_messages_belonging connect_via requeues_unhandled redis_consumer "
                "join_race".split(),
                "reads what RedisBroker keeps in Redis",
            ),
        },
    ),
    "taskiq": Suite(
        "0.13.0",
        ("pytest", "pytest-timeout", "anyio", "freezegun", "polyfactory"),
        ("tests/api", "tests/scheduler/test_scheduling_identity.py", "tests/receiver/test_receiver.py"),
        {"tests/utils.py": TASKIQ_BROKER, "pytest.ini": "[pytest]\nanyio_mode = auto\n"},
        {},
    ),
}


def run(name: str, url: str, arguments: list[str]) -> int:
    suite = SUITES[name]
    needed = (*suite.needs, "psycopg[binary]", "--editable", str(ROOT))
    folder, python = prepared("tablequeue-contrib-tests", name, f"{name}=={suite.version}", needed)
    with TemporaryDirectory() as place:
        shutil.copytree(folder / "tests", Path(place, "tests"))
        for path, text in suite.put.items():
            Path(place, path).write_text(text)
        left_out = " or ".join(suite.excused)
        command = [str(python), "-m", "pytest", "-q", "--timeout=60", "-p", "no:cacheprovider", *suite.files]
        command += ["-k", f"not ({left_out})"] if left_out else []
        environment = {**os.environ, "SUITE_URL": url, "PYTHONPATH": f"{place}:{ROOT / 'src'}"}
        for test, reason in suite.excused.items():
            print(f"left out: {test}: {reason}")
        return subprocess.run([*command, *arguments], cwd=place, env=environment, check=False).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=SUITES)
    parser.add_argument("--url", default="sqlite:///{}/suite.db", help="{} is a folder of the test")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    names = [options.name] if options.name else [*SUITES]
    raise SystemExit(max(run(name, options.url, options.arguments) for name in names))


if __name__ == "__main__":
    main()
