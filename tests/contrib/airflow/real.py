"""Run the provider in a real Airflow, with its triggerer killed, and count the events.

    python -m tests.contrib.airflow.real [--messages 300] [--kills 3] [--python /environment/bin/python]

It needs PostgreSQL's programs. Airflow is installed into an environment of its own in the machine's cache, unless
--python names one that has it. It takes about three minutes, so it is not a part of the suite.

Airflow stores each event in its table `asset_event`; the script compares the ids there with those that it has pushed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import time
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

import tablequeue
from tests.servers import free_port, postgresql_bin, postgresql_server

ROOT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tablequeue-airflow"
PACKAGES = (
    "apache-airflow==3.3.2",
    "apache-airflow-providers-common-messaging==2.1.2",
    "apache-airflow-providers-standard",
    "asyncpg",
    "psycopg2-binary",
    "psycopg[binary]",
)
LEASE = 5


def installed() -> Path:
    """Return the Python of an environment that has Airflow and this checkout."""
    python = CACHE / "bin" / "python"
    if not python.exists():
        venv.create(CACHE, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES, "--editable", ROOT], check=True)
    return python


class Airflow:
    """The processes of one Airflow."""

    def __init__(self, python: Path, home: Path, url: sa.URL) -> None:
        self.program = str(python.parent / "airflow")
        self.logs = home / "out"
        self.logs.mkdir(parents=True)
        port, metadata = free_port(), url.set(drivername="postgresql", database="airflow")
        connection = {
            "conn_type": "tablequeue",
            "login": url.username,
            "host": url.host,
            "port": url.port,
            "schema": "work",
            "extra": {"drivername": url.drivername},
        }
        settings = {
            "AIRFLOW_HOME": home,
            "AIRFLOW_CONN_TABLEQUEUE_DEFAULT": json.dumps(connection),
            "AIRFLOW__API__PORT": port,
            "AIRFLOW__API__WORKERS": 1,
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__DAGS_FOLDER": Path(__file__).parent / "dags",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": False,
            "AIRFLOW__CORE__PARALLELISM": 2,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": True,
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": metadata.render_as_string(False),
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": 1,
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": 4,
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": ROOT,
        }
        self.environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *arguments: str) -> None:
        with (self.logs / "commands").open("ab") as log:
            subprocess.run([self.program, *arguments], env=self.environment, stdout=log, stderr=log, check=True)

    def start(self, name: str) -> None:
        """Start a part of Airflow, in a process group of its own."""
        with (self.logs / name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [self.program, name], env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, name: str, number: signal.Signals) -> None:
        """Send a signal to all processes of a part, and wait for it."""
        process = self.running.pop(name)
        os.killpg(process.pid, number)
        process.wait()

    @contextmanager
    def whole(self) -> Iterator[None]:
        self.run("db", "migrate")
        try:
            for name in ("api-server", "dag-processor", "scheduler", "triggerer"):
                self.start(name)
            yield
        finally:
            for name in [*self.running]:
                self.end(name, signal.SIGKILL)


def wait(what: str, check: Callable[[], Any], seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise SystemExit(f"Waited {seconds:g} s in vain: {what}.")
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--keep", type=Path, help="the folder for Airflow's files, instead of a temporary one")
    options = parser.parse_args()
    python = options.python or installed()
    programs = postgresql_bin()
    if programs is None:
        raise SystemExit("PostgreSQL's programs are not installed: scripts/install-servers.")
    with TemporaryDirectory() as folder, postgresql_server(programs, 300) as server:
        home = options.keep or Path(folder)
        url = sa.make_url(server.url)
        with sa.create_engine(url, isolation_level="AUTOCOMMIT").connect() as connection:
            for name in ("airflow", "work"):
                connection.exec_driver_sql(f"create database {name}")
        airflow = Airflow(python, home, url)
        metadata = sa.create_engine(url.set(database="airflow"))
        with tablequeue.connect(url.set(database="work")) as db, airflow.whole():
            check(airflow, db, metadata, options.messages, options.kills)
        metadata.dispose()


def check(airflow: Airflow, db: tablequeue.Database, metadata: sa.Engine, messages: int, kills: int) -> None:
    orders = db.create_queue("orders", lease=LEASE, max_attempts=kills + 3)
    seen, worked, told, _ = (db.create_queue(name) for name in ("seen", "worked", "told", "shared"))
    poking, deferred = db.create_queue("poking"), db.create_queue("deferred")

    def events() -> Counter[tuple[str, int]]:
        with metadata.connect() as connection:
            rows = connection.exec_driver_sql("select extra -> 'payload' from asset_event").scalars()
            return Counter((row["queue"], row["id"]) for row in rows)

    def more_than(count: int) -> bool:
        return len(events()) > count

    def has(dag: str, task: str, *states: str) -> bool:
        return state_of(metadata, dag, task) in states

    first = orders.push("the first")
    wait("the first event", lambda: ("orders", first) in events())
    print("the first event is stored")

    # What Airflow cannot store is a dead letter, and the triggerer lives.
    huge = orders.push(2**70)
    pushed = {first}
    for kill in range(kills + 1):
        pushed.update(orders.push_many(range(messages // (kills + 1))))
        if kill == kills:
            break
        wait("events between the kills", partial(more_than, len(events())))
        time.sleep(random.random() * 1.5)
        number = signal.SIGTERM if kill % 3 == 2 else signal.SIGKILL
        airflow.end("triggerer", number)
        stats = orders.stats()
        print(f"{number.name}: {len(events())} events stored, {stats.in_progress} in progress, {stats.ready} ready")
        airflow.start("triggerer")
    wait("an empty queue", lambda: not orders.peek() and not orders.peek(state="in_progress"))
    found = events()
    lost = pushed - {id for queue, id in found if queue == "orders"}
    again = sum(count - 1 for count in found.values())
    print(f"{len(pushed)} pushed, {len(lost)} lost, {again} events came again; finished: {orders.stats().finished}")
    assert not lost
    assert [message.id for message in orders.dead()] == [huge], orders.dead()
    print("refused:", orders.dead()[0].errors[-1].error)

    late = db.create_queue("missing").push("late")
    wait("an event of a queue that was made later", lambda: ("missing", late) in events())
    print("a queue that was made later is watched")

    shared = db.queue("shared").push_many(range(30))
    wait("events of two assets that watch one queue", lambda: all(events()["shared", id] >= 2 for id in shared))
    print("two assets that watch one queue get each message")

    expected = {("orders", id) for id in pushed} | {("missing", late)}

    def drained() -> bool:
        for message in seen.consume(wait=0, prefetch=100):
            expected.discard(tuple(message.payload))
            message.complete()
        return not expected

    wait("DAG runs for all events", drained, 300)
    print("every message was in the events of a DAG run")

    refused = db.create_queue("refused")
    refused.push("stays")
    airflow.run("dags", "trigger", "refused")
    wait("the end of a task that is deferred with this trigger", lambda: has("refused", "wait", "failed"))
    assert refused.stats().ready == 1
    print("a task that is deferred with this trigger fails, and takes no message")

    for name, queue in (("poking", poking), ("deferred", deferred)):
        airflow.run("dags", "trigger", f"chain_{name}")
        wait(f"the sensor of {name}", partial(has, f"chain_{name}", "wait", *WAITING))
        queue.push("work")
        wait(f"the end of {name}", partial(has, f"chain_{name}", "tell", "success"))
        assert queue.stats().finished == 1
    assert sorted(message.payload["by"] for message in worked.peek()) == ["deferred", "poking"]
    assert sorted(message.payload["of"] for message in told.peek()) == ["deferred", "poking"]
    print("sensors that poke and that are deferred, and pushes by an operator: done")


WAITING = ("running", "deferred", "up_for_reschedule")


def state_of(metadata: sa.Engine, dag: str, task: str) -> str | None:
    with metadata.connect() as connection:
        statement = sa.text("select state from task_instance where dag_id = :dag and task_id = :task")
        return connection.execute(statement, {"dag": dag, "task": task}).scalar()


if __name__ == "__main__":
    main()
