"""`tablequeue serve` as a program: what it prints, what it serves, what it logs, how it ends."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tablequeue import Database
from tablequeue.cli.long_running import JsonLines
from tests.cli.support import Run
from tests.web.support import TOKEN, Client, bury


@contextmanager
def serving(url: str, *options: str, token: str = "") -> Iterator[tuple[dict[str, Any], Client, subprocess.Popen[str]]]:
    """Run the program on a free port; yields its first output, a client, and the process."""
    words = [sys.executable, "-m", "tablequeue", "--url", url, "serve", "--port", "0", "--json", *options]
    environment = os.environ | {"TABLEQUEUE_SERVE_TOKEN": token}
    program = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert program.stdout is not None
        printed = json.loads(program.stdout.readline())
        yield printed, Client(int(printed["url"].rstrip("/").rpartition(":")[2])), program
    finally:
        program.kill()
        program.communicate()


def test_it_serves_until_it_is_told_to_end(url: str, db: Database) -> None:
    queue = db.create_queue("work", max_attempts=1)
    bury(queue, ["a"])
    with serving(url, "--allow-actions") as (printed, client, program):
        assert printed["token"] is None
        assert 'href="/queues/work?window=300"' in client.get("/").text
        assert client.get("/static/style.css").headers["content-type"].startswith("text/css")
        client.post("/queues/work/dead", {"csrf": client.csrf(), "verb": "redrive", "all": "all"})
        program.send_signal(signal.SIGINT)
        _, log = program.communicate(timeout=60)
        assert program.returncode == 0
    assert queue.stats().ready == 1
    (line,) = [json.loads(line) for line in log.splitlines() if "dead letters" in line]
    assert line["message"] == "work: 1 dead letters redriven, from 127.0.0.1"
    assert (line["queue"], line["number"], line["ids"]) == ("work", 1, "all")
    assert (line["level"], line["logger"]) == ("info", "tablequeue.serve")


def test_another_address_wants_a_token(url: str, db: Database) -> None:
    db.create_queue("work")
    with serving(url, "--host", "0.0.0.0") as (printed, client, _):
        assert len(printed["token"]) >= 32
        assert client.get("/", host="queues.example.org").status == 303
        assert client.log_in(printed["token"]).status == 303
        assert client.get("/", host="queues.example.org").status == 200


def test_the_token_of_the_environment(url: str, db: Database) -> None:
    with serving(url, token=TOKEN) as (printed, client, _):
        assert printed["token"] is None, "it is not printed"
        assert client.get("/").status == 303
        assert client.get("/metrics", authorization=f"Bearer {TOKEN}").status == 200


def test_what_cannot_be_served(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Give another --host or --port" in run("serve", "--host", "203.0.113.1", code=1).stderr
    assert "Give another --host or --port" in run("serve", "--host", "no such host", code=1).stderr
    with monkeypatch.context() as patch:
        patch.setenv("TABLEQUEUE_SERVE_TOKEN", "short")
        assert "at least 16" in run("serve", "--port", "0", code=1).stderr
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "tablequeue.http.server", raising=False)
    assert "tablequeue[serve]" in run("serve", code=1).stderr


def test_a_log_line_is_an_object() -> None:
    try:
        raise ValueError("<no>")
    except ValueError:
        record = logging.getLogger("tablequeue.x").makeRecord(
            "tablequeue.x", logging.WARNING, "f", 1, "%d of %s", (3, "work"), sys.exc_info(), extra={"queue": "work"}
        )
    line = json.loads(JsonLines().format(record))
    assert line.pop("time").endswith("+00:00")
    assert line.pop("traceback").endswith("ValueError: <no>")
    assert line == {"level": "warning", "logger": "tablequeue.x", "message": "3 of work", "queue": "work"}
