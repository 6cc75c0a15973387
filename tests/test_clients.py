"""The clients in other languages work a queue together with Python."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Backoff, connect
from tests.support import claimed, counts

CLIENTS = Path(__file__).parents[1] / "examples" / "clients"


def connection_of(url: str) -> dict[str, str]:
    """The environment in which PostgreSQL's clients connect to it."""
    parts = sa.make_url(url)
    settings: dict[str, Any] = {
        "PGHOST": parts.host,
        "PGPORT": parts.port,
        "PGUSER": parts.username,
        "PGPASSWORD": parts.password,
        "PGDATABASE": parts.database,
    }
    return os.environ | {name: str(value) for name, value in settings.items() if value is not None}


CLIENTS_OF = {"psql": [str(CLIENTS / "psql.sh")], "node": ["node", str(CLIENTS / "node" / "orders.js")]}


@pytest.mark.parametrize("client", CLIENTS_OF)
def test_a_client_of_postgresql(postgresql_url: str, client: str) -> None:
    if shutil.which(client) is None:
        pytest.skip(f"{client} is not installed")
    if client == "node" and not (CLIENTS / "node" / "node_modules").exists():
        pytest.skip("npm install has not been run in examples/clients/node")
    schema = f"clients_{secrets.token_hex(4)}"
    environment = connection_of(postgresql_url) | {"TABLEQUEUE_SCHEMA": schema}

    def run(*words: str) -> str:
        command = [*CLIENTS_OF[client], *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    database = connect(postgresql_url, schema=schema)
    queue = database.create_queue("orders", backoff=Backoff(base=600), max_attempts=2)
    try:
        database.install_procedures("orders")
        payload = {"of": "another's, with a \\ and a \" "}
        run("push", json.dumps(payload))
        message = claimed(queue)
        assert message.payload == payload
        message.release()
        good, bad = queue.push_many(["python", "bad"])
        done, also, failed = run("work").splitlines()
        assert (done.split()[:2], json.loads(done.split(maxsplit=2)[2])) == (["done", str(message.id)], payload)
        assert [also, failed] == [f'done {good} "python"', f"failed {bad}, attempt 1"]
        assert [each.id for each in queue.history(5)] == [good, message.id]
        assert {each.consumer for each in queue.history(5)} <= {"psql.sh", "node"}
        (scheduled,) = queue.peek(state="scheduled")
        assert "cannot do" in scheduled.errors[0].error
    finally:
        queue.drop()
        with database.engine.begin() as connection:
            connection.exec_driver_sql(f"drop schema {schema} cascade")
        database.close()
        database.engine.dispose()


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_the_sql_of_the_page_runs(postgresql_url: str) -> None:
    schema = f"clients_{secrets.token_hex(4)}"
    database = connect(postgresql_url, schema=schema)
    queue = database.create_queue("orders")
    try:
        database.install_procedures("orders")
        page = (CLIENTS.parents[1] / "docs" / "procedures.md").read_text("utf-8")
        blocks = re.findall(r"^```psql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        assert len(blocks) == 3
        environment = connection_of(postgresql_url) | {"PGOPTIONS": f"-c search_path={schema}"}
        command = ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"]
        run = subprocess.run(
            command, env=environment, input="\n".join(blocks), capture_output=True, text=True, check=False
        )
        assert (run.returncode, run.stderr) == (0, "")
        assert counts(queue) == {"ready": 1, "scheduled": 1, "finished": 2}
    finally:
        queue.drop()
        with database.engine.begin() as connection:
            connection.exec_driver_sql(f"drop schema {schema} cascade")
        database.close()
        database.engine.dispose()
