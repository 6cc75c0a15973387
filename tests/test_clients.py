"""The clients in other languages share a queue with Python."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from tablequeue import Backoff, Queue, connect
from tablequeue.engines import procedures
from tablequeue.ext import context_of
from tests.sessions import engine_of
from tests.support import claimed, counts

CLIENTS = Path(__file__).parents[1] / "examples" / "clients"
PAGE = CLIENTS.parents[1] / "docs" / "procedures.md"


def psql(url: sa.URL, schema: str) -> dict[str, str]:
    """The environment in which PostgreSQL's clients connect to it."""
    settings: dict[str, Any] = {
        "PGHOST": url.host,
        "PGPORT": url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
        "PGOPTIONS": f"-c search_path={schema}",
        "TABLEQUEUE_SCHEMA": schema,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def mariadb(url: sa.URL, schema: str) -> dict[str, str]:
    options = f"--host={url.host} --port={url.port} --user={url.username} {schema}"
    return {"MARIADB": f"mariadb --no-defaults {options}", "MYSQL_PWD": str(url.password or "")}


JAVA = CLIENTS / "java" / "target"
# What `make clients` installs for a language, and the tool that installs it.
INSTALLED = {
    "node": (CLIENTS / "node" / "node_modules", "npm"),
    "go": (CLIENTS / "go" / "orders", "go"),
    "java": (JAVA, "mvn"),
}


class Client(NamedTuple):
    server: str
    program: str
    command: list[str]
    environment: Callable[[sa.URL, str], Mapping[str, str]]
    gone: str = "drop schema {} cascade"


CLIENTS_OF = {
    "psql.sh": Client("postgresql", "psql", [str(CLIENTS / "psql.sh")], psql),
    "node": Client("postgresql", "node", ["node", str(CLIENTS / "node" / "orders.js")], psql),
    "go": Client("postgresql", "go", [str(CLIENTS / "go" / "orders")], psql),
    "java": Client(
        "postgresql", "java", ["java", "-cp", f"{JAVA}/dependency/*", str(CLIENTS / "java" / "Orders.java")], psql
    ),
    "mariadb.sh": Client("mariadb", "mariadb", [str(CLIENTS / "mariadb.sh")], mariadb, "drop schema {}"),
}


# The program that runs a script, and the state in which the page's script leaves an empty queue.
RUNS = {
    "postgresql": (
        ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        {"in_progress": 1, "scheduled": 1, "finished": 2},
    ),
    "mariadb": (["sh", "-c", "$MARIADB"], {"ready": 2, "in_progress": 1, "finished": 1}),
}


@pytest.fixture(params=CLIENTS_OF)
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    need(CLIENTS_OF[name].program)
    there, tool = INSTALLED.get(name, (CLIENTS, ""))
    if not there.exists():
        # With a language but without its tool, the packages of the client cannot be installed.
        refuse = pytest.fail if os.environ.get("CI") and shutil.which(tool) else pytest.skip
        refuse(f"{tool} has not installed what examples/clients/{name} needs; `make clients` lets it.")
    return name


def need(program: str) -> None:
    if shutil.which(program) is None:
        # Nothing else needs these languages. The other clients come with the servers.
        refuse = pytest.fail if os.environ.get("CI") and program not in INSTALLED else pytest.skip
        refuse(f"{program} is not installed.")


@contextmanager
def orders(request: pytest.FixtureRequest, client: Client) -> Iterator[tuple[Queue, str, dict[str, str]]]:
    """The queue "orders" in a schema of its own, with its printed procedures, and the environment for a client."""
    url = request.getfixturevalue(f"{client.server}_url")
    schema = f"clients_{secrets.token_hex(4)}"
    with connect(url, schema=schema) as database:
        queue = database.create_queue("orders", backoff=Backoff(base=600), max_attempts=2)
        text = procedures.procedures(engine_of(database), context_of(queue).table)
        try:
            yield queue, text, os.environ | client.environment(sa.make_url(url), schema)
        finally:
            queue.drop()
            with database.engine.begin() as connection:
                connection.exec_driver_sql(client.gone.format(schema))
            database.engine.dispose()


def test_a_client_shares_a_queue_with_python(request: pytest.FixtureRequest, client: str) -> None:
    command = CLIENTS_OF[client].command
    program, _ = RUNS[CLIENTS_OF[client].server]
    with orders(request, CLIENTS_OF[client]) as (queue, text, environment):
        subprocess.run(program, env=environment, input=text, text=True, check=True)

        def run(*words: str) -> str:
            run = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=True)
            return run.stdout

        payload = {"of": "another's, with a \\ and a \" and a \t and \u00e9"}
        run("push", json.dumps(payload))
        message = claimed(queue)
        assert message.payload == payload
        message.release()
        good, bad = queue.push_many(["python", "bad"])
        done, also, failed = run("work").splitlines()
        assert (done.split()[:2], json.loads(done.split(maxsplit=2)[2])) == (["done", str(message.id)], payload)
        assert [also, failed] == [f'done {good} "python"', f"failed {bad}, attempt 1"]
        assert [each.id for each in queue.history(5)] == [good, message.id]
        assert {each.consumer for each in queue.history(5)} <= {client}
        (scheduled,) = queue.peek(state="scheduled")
        assert "cannot do" in scheduled.errors[0].error


@pytest.mark.parametrize("client", ["psql.sh", "mariadb.sh"], indirect=True)
def test_the_sql_of_the_page_runs(request: pytest.FixtureRequest, client: str) -> None:
    server, program, *_ = CLIENTS_OF[client]
    command, left = RUNS[server]
    blocks = re.findall(rf"^```{program}\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    with orders(request, CLIENTS_OF[client]) as (queue, text, environment):
        script = "\n".join([text, *blocks])
        run = subprocess.run(command, env=environment, input=script, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")
        assert counts(queue) == left
