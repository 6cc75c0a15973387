"""The whole program: entry points, help, pipes, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tablequeue import Database
from tablequeue.cli import main


def program(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "tablequeue", *words], **{**pipes, **options})


def test_as_a_module_and_as_an_entry_point(url: str) -> None:
    out, err = program("--url", url, "queue", "create", "emails").communicate()
    assert (out, err) == (b"emails\n", b"")
    scripts = {each.name: each.load() for each in metadata.distribution("tablequeue").entry_points}
    assert scripts["tablequeue"] is main
    assert scripts["tq"] is main


def test_help_of_every_command() -> None:
    for words in ([], ["queue", "create"], ["push"], ["pop"], ["dead", "list"], ["sql"]):
        result = CliRunner().invoke(main, [*words, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.stdout


def test_a_broken_pipe_ends_quietly(url: str, db: Database) -> None:
    db.create_queue("emails").push_many(["x" * 1000] * 500)
    process = program("--url", url, "peek", "emails", "-n", "500", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.communicate()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written(url: str, db: Database) -> None:
    db.create_queue("emails")
    with Path("/dev/full").open("wb") as full:
        process = program("--url", url, "queue", "list", stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"error: ")
    assert b"Traceback" not in err


def test_interrupted_while_it_reads(url: str, db: Database) -> None:
    emails = db.create_queue("emails")
    process = program("--url", url, "push", "emails")
    assert process.stdin is not None
    process.stdin.write(b"1\n" * 100_000)  # more than a pipe holds: when it is written, the command reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == b"error: Interrupted: the command did not finish.\n"
    assert emails.stats().ready == 0


def test_a_terminal_without_unicode(url: str, db: Database) -> None:
    db.create_queue("texts", payload="text").push("é 漢")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    out, err = program("--url", url, "peek", "texts", env=environment).communicate()
    assert err == b""
    assert b"\xe9 \\u6f22" in out
