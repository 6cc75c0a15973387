"""Run the tests that kombu and Celery have for brokers against this one.

    python -m tests.contrib.kombu.others kombu [--url sqlite:///…] [-- arguments of pytest]
    python -m tests.contrib.kombu.others celery [--url …] [--broker redis] [--backend redis] [-- arguments of pytest]
    python -m tests.contrib.kombu.others compare ours.xml redis.xml

Without a URL: kombu's on SQLite, and on private PostgreSQL and MariaDB servers; Celery's on SQLite, or on a private
server with `--url postgresql` or `--url mariadb`. Celery's need Debian's redis-server. With `--broker redis` it is the
broker, and with `--backend redis` the result backend: give the runs `-- --junitxml=…`, and `compare` prints the tests
whose outcomes differ. A run takes 20 minutes, most of them pauses of the tests, so both can go at once. The source
distributions are fetched from PyPI (tests/others.py). What fails for reasons of theirs is in EXCUSED.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.others import prepared
from tests.servers import KINDS, free_port

ROOT = Path(__file__).parents[3]
EXTRAS = "redis,msgpack,yaml,auth,sqlalchemy,django,pydantic,pymemcache"
PACKAGES = {"kombu": "kombu==5.7.0", "celery": f"celery[{EXTRAS}]==5.7.0"}
NEEDED = {
    "kombu": ("pytest", "pytest-timeout"),
    "celery": ("pytest", "pytest-celery", "pytest-timeout", "pytest-rerunfailures", "pytest-order", "pytest-subtests"),
}
OURS = ("--editable", f"{ROOT}[postgresql,mysql]")
EXCUSED: dict[str, dict[str, str]] = {
    "kombu": {},
    "celery": {
        "test_chord_header_id_duplicated_on_rabbitmq_msg_duplication": "publishes an object that only AMQP drops",
        "test_scheduled": "a task with an ETA is in the table, and not in a worker",
        "test_fixture_teardown_releases_backend_connections": "uses no broker but the memory, and hangs with Redis too",
    },
}
# The classes of kombu's t/integration/common.py, with the connections of this transport.
SUITE = """
import os
import kombu, pytest
import tablequeue.contrib.kombu
from . import common

@pytest.fixture
def connection():
    with kombu.Connection("tablequeue+" + os.environ["TABLEQUEUE_URL"]) as connection:
        yield connection

@pytest.fixture
def invalid_connection():
    return kombu.Connection("tablequeue+sqlite:////no/such/folder/work.db")

NAMES = "BasicFunctionality BaseExchangeTypes BaseTimeToLive BasePriority BaseMessage BaseEventLoop"
for name in NAMES.split():
    if hasattr(common, name):
        globals()["test_" + name] = type("test_" + name, (getattr(common, name),), {})
"""


@contextmanager
def redis() -> Iterator[str]:
    """Run a private Redis server, and yield its URL."""
    port = free_port()
    options = ["--port", str(port), "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


def run(name: str, given: dict[str, str], arguments: list[str]) -> int:
    """Run the suite with these variables of the environment. Return the exit code of pytest."""
    folder, python = prepared("tablequeue-contrib-tests", name, PACKAGES[name], (*NEEDED[name], *OURS))
    if name == "kombu":
        (folder / "t" / "integration" / "test_tablequeue.py").write_text(SUITE)
        suite = ["t/integration/test_tablequeue.py"]
    else:
        # Some tests start workers in processes of their own.
        (folder / "sitecustomize.py").write_text("import tablequeue.contrib.celery\n")
        # Most tests that are for Redis as the result backend only note in a Redis what their tasks have done.
        for file in (folder / "t" / "integration").glob("test_*.py"):
            text = re.sub(r"(backend\.startswith\()(['\"]redis['\"])\)", r"\1(\2, 'tablequeue'))", file.read_text())
            if file.name != "test_redis_backend.py":
                file.write_text(text)
        # test_backend.py is of Azure.
        suite = ["t/integration", "--ignore=t/integration/test_backend.py"]
    left = " and ".join(f"not {test}" for test in EXCUSED[name])
    pytest = [str(python), "-m", "pytest", "-q", "-W", "ignore", "-k", left, *suite, *arguments]
    given |= {"PYTHONPATH": str(folder), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return subprocess.run(pytest, cwd=folder, env=os.environ | given).returncode


def run_kombu(url: str | None, arguments: list[str]) -> int:
    if url is not None:
        return run("kombu", {"TABLEQUEUE_URL": url}, arguments)
    failed = 0
    with TemporaryDirectory() as place:
        failed |= run_kombu(f"sqlite:///{place}/work.db", arguments)
    for kind in KINDS:
        server = kind.server() if kind.server is not None else None
        if server is not None:
            print(f"On {kind.name}:", flush=True)
            with server as running:
                failed |= run_kombu(running.url, arguments)
    return failed


def run_celery(url: str | None, broker: str, backend: str, arguments: list[str]) -> int:
    with ExitStack() as stack:
        place = stack.enter_context(TemporaryDirectory())
        theirs = stack.enter_context(redis())
        port = theirs.rpartition(":")[2].partition("/")[0]
        server = next((kind.server for kind in KINDS if kind.name == url and kind.server is not None), None)
        if server is not None and (running := server()) is not None:
            url = stack.enter_context(running).url
        ours = f"tablequeue+{url or f'sqlite:///{place}/work.db'}"
        places = {"redis": theirs, "tablequeue": ours}
        variables = {"TEST_BROKER": places[broker], "TEST_BACKEND": places[backend]}
        return run("celery", {**variables, "REDIS_HOST": "127.0.0.1", "REDIS_PORT": port}, arguments)


def outcomes(report: str) -> dict[str, str]:
    """Return the outcome of each test of a JUnit report: `passed`, `skipped`, or `failed` if any part of it did."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = f"{case.get('classname')}.{case.get('name')}"
        found[name] = "failed" if found.get(name) == "failed" else outcome
    return found


def compare(reports: list[str]) -> int:
    """Print how many tests have which outcome in each report, and where they differ. Return 1 if the first is worse."""
    ours, theirs = map(outcomes, reports)
    for report, found in zip(reports, (ours, theirs), strict=True):
        print(report, dict(Counter(found.values())))
    differ = [name for name in sorted(ours | theirs) if ours.get(name) != theirs.get(name)]
    for name in differ:
        print(f"{name}: {ours.get(name)}, {theirs.get(name)}")
    return int(any(ours.get(name) == "failed" for name in differ))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=(*PACKAGES, "compare"))
    parser.add_argument("--url")
    for place in ("--broker", "--backend"):
        parser.add_argument(place, choices=("tablequeue", "redis"), default="tablequeue")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_intermixed_args()  # what follows -- too
    if options.name == "compare":
        return compare(options.arguments)
    if options.name == "kombu":
        return run_kombu(options.url, options.arguments)
    return run_celery(options.url, options.broker, options.backend, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
