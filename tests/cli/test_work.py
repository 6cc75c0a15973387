"""`tablequeue work`: the handlers that it runs, and the mistakes that it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from tablequeue import Claim, Database
from tablequeue.worker import Retry, Worker
from tests.cli.support import Run
from tests.support import counts
from tests.web.support import Client
from tests.worker.support import until


def handle(message: Claim) -> Retry | None:
    return Retry(500) if message.payload == "busy" else None


worker = Worker()
worker.handler("emails")(handle)
worker.handler("other", consumers=3)(handle)


def test_a_function(db: Database, run: Run) -> None:
    queue = db.create_queue("emails")
    queue.push_many(["a", "b", "busy"])
    result = run("work", "tests.cli.test_work:handle", "--queue", "emails:2", "--drain", "--json")
    assert json.loads(result.stdout) == {"completed": 2, "scheduled": 1}
    assert counts(queue) == {"finished": 2, "scheduled": 1}
    assert run("work", "tests.cli.test_work:handle", "--queue", "emails", "--drain").stdout == "nothing to do\n"


def test_a_worker_and_those_of_its_queues_that_are_named(
    db: Database, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "handlers", dict(worker.handlers))
    emails, other = db.create_queue("emails"), db.create_queue("other")
    emails.push("a")
    other.push("b")
    assert run("work", "tests.cli.test_work:worker", "--queue", "other:1", "--drain").stdout == "1 completed\n"
    assert (counts(emails), counts(other)) == ({"ready": 1}, {"finished": 1})
    assert worker.handlers["other"].consumers == 1


def wait_for_file(message: Claim) -> None:
    Path(message.payload).with_suffix(".begun").touch()
    while not Path(message.payload).exists():
        sleep(0.01)


def test_the_health_of_the_program(url: str, db: Database, tmp_path: Path) -> None:
    """From the signal on it is not ready, and it lives until its last handler has ended."""
    go = tmp_path / "go"
    db.create_queue("emails").push(str(go))
    words = ["work", "tests.cli.test_work:wait_for_file", "--queue", "emails", "--health-port", "0", "--json"]
    program = subprocess.Popen(
        [sys.executable, "-m", "tablequeue", "--url", url, *words], stderr=subprocess.PIPE, text=True
    )
    try:
        assert program.stderr is not None
        client = Client(int(json.loads(program.stderr.readline())["url"].rstrip("/").rpartition(":")[2]))
        until(go.with_suffix(".begun").exists, "the handler has begun")
        ready = json.loads(client.get("/readyz").text)
        assert (ready["alive"], ready["connected"], ready["stopping"]) == (True, True, False)
        assert ready["queues"]["emails"]["oldest_lease"] > 0
        assert 'tablequeue_popped_messages_total{queue="emails"} 1.0\n' in client.get("/metrics").text
        program.send_signal(signal.SIGTERM)
        until(lambda: client.get("/readyz").status == 503, "it is not ready")
        assert client.get("/healthz").status == 200
        go.touch()
        program.communicate(timeout=60)
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()
    assert counts(db.queue("emails")) == {"finished": 1}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tests.cli.test_work:handle"], 2, "No queue is given"),
        (["tests.cli.test_work:handle", "--queue", "emails:many"], 2, "no number of consumers"),
        (["tests.cli.test_work:handle", "--queue", "emils"], 1, "Did you mean 'emails'?"),
        (["tests.cli.test_work:handle", "--queue", "emails", "--timeout", "0"], 1, "timeout is 0"),
        (["tests.cli.test_work:handle", "--queue", "emails", "--min", "9"], 1, "more than 8"),
        (["tests.cli.test_work:handle", "--queue", "emails", "--queue", "emails:2", "--drain"], 0, ""),
        (["tests.cli.test_work:nobody", "--queue", "emails"], 1, "has no 'nobody'"),
        (["tests.cli.test_work", "--queue", "emails"], 1, "names no handler"),
        (["no_such_module:f", "--queue", "emails"], 1, "There is no module"),
        (["tests.cli.test_work:worker", "--batch", "2"], 2, "set --batch"),
        (["tests.cli.test_work:worker", "--queue", "neither"], 1, "Name one of: emails, other"),
        (["tests.cli.test_work:counts", "--queue", "emails", "--processes", "--drain"], 0, ""),
    ],
)
def test_refusals(db: Database, run: Run, words: list[str], code: int, said: str) -> None:
    db.create_queue("emails")
    result = run("work", *words, code=code)
    assert said in result.output
    assert "Traceback" not in result.output
