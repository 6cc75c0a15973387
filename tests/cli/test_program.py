"""The whole program: entry points, help, pipes, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import tablequeue
from tablequeue import Database
from tablequeue.cli import COMMANDS, main
from tests.support import counts


def program(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "tablequeue", *words], **{**pipes, **options})


def test_as_a_module_and_as_an_entry_point(url: str) -> None:
    out, err = program("--url", url, "queue", "create", "emails").communicate()
    assert (out, err) == (b"emails\n", b"")
    entries = metadata.distribution("tablequeue").entry_points.select(group="console_scripts")
    scripts = {each.name: each.load() for each in entries}
    assert scripts["tablequeue"] is main
    assert scripts["tq"] is main


def imported_by(code: str) -> set[str]:
    """Return the packages that a program has imported at its end."""
    shown = "import atexit, sys; atexit.register(lambda: print(*{name.partition('.')[0] for name in sys.modules}))\n"
    done = subprocess.run([sys.executable, "-c", shown + code], capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()[-1].split()}


HEAVY = {"sqlalchemy", "rich", "asyncio", "psycopg", "pymysql", "pyarrow"}


@pytest.mark.parametrize(
    "code",
    [
        "sys.argv[1:] = ['--version']; from tablequeue.cli import main; main()",
        "import tablequeue as tq, importlib.metadata as m; assert tq.__version__ == m.version('tablequeue')",
        "import tablequeue; tablequeue.errors.LeaseLost; dir(tablequeue)",
    ],
    ids=["the command", "the attribute", "the import"],
)
def test_the_version_needs_no_database(code: str) -> None:
    assert "tablequeue" in imported_by(code)
    assert not imported_by(code) & HEAVY


def test_the_package_has_its_public_names_and_no_others() -> None:
    assert {*tablequeue.__all__} <= {*dir(tablequeue)}
    assert [name for name in tablequeue.__all__ if not hasattr(tablequeue, name)] == []
    with pytest.raises(AttributeError, match="nonsense"):
        tablequeue.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_every_command_is_in_its_module() -> None:
    with click.Context(main) as context:
        commands = [main.get_command(context, name) for name in main.list_commands(context)]
        assert [command and command.name for command in commands] == sorted(COMMANDS)
        assert main.get_command(context, "nonsense") is None


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
    """What was done stays done, as the exit code says. Messages that were claimed and not printed are given back."""
    emails = db.create_queue("emails")
    for words in (["queue", "list"], ["push", "emails", "1"], ["pop", "emails"], ["--json", "pop", "emails"]):
        with Path("/dev/full").open("wb") as full:
            process = program("--url", url, *words, stdout=full)
            _, err = process.communicate()
        assert process.returncode == 4
        assert b"What the command did is done" in err
        assert b"Traceback" not in err
    assert counts(emails) == {"ready": 1}


def test_messages_that_a_pipe_did_not_take_are_released(url: str, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many(["x" * 1000] * 500)
    process = program("--url", url, "pop", "emails", "-n", "500", "--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait() == 141
    process.communicate()
    stats = emails.stats()
    assert 1 <= stats.in_progress < 500
    assert stats.ready == 500 - stats.in_progress


def test_a_closed_output_is_refused_before_anything_is_done(url: str, db: Database) -> None:
    emails = db.create_queue("emails")
    words = [sys.executable, "-m", "tablequeue", "--url", url, "push", "emails", "1"]
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *words], capture_output=True, check=False)
    assert (done.returncode, b"closed" in done.stderr) == (1, True)
    assert counts(emails) == {}


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
