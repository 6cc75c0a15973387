"""Readers of streams that a daemon forks: each is as the process that Spark started, and ends with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tablequeue.spark import fork

# With a part of its text replaced: a mutant.
DAEMON = """
import sys
from pathlib import Path
from tablequeue.spark import forks
_, folder, old, new = sys.argv
text = Path(forks.__file__).read_text("utf-8")
assert old in text
exec(compile(text.replace(old, new), forks.__file__, "exec"), vars(forks))
forks.begin(folder)
print("begun", flush=True)
sys.stdin.read()
"""
READER = """
import json, os
def main(infile, outfile):
    outfile.write(json.dumps([os.getcwd(), os.environ["WORD"]]).encode() + b"\\n")
    outfile.flush()
    print("written", flush=True)
    infile.read(1)
if __name__ == "__main__":
    print("by itself")
"""


@contextmanager
def begun(folder: Path, old: str = "", new: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", DAEMON, str(folder), old, new]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield process


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with begun(tmp_path) as process:
        yield process


class Started:
    """What Spark starts, in a folder of its own; `pid` and `told` are what it answers, as to Spark."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "place"
        self.place.mkdir(exist_ok=True)
        (self.place / "reader.py").write_text(READER)
        with socket.socket(socket.AF_UNIX) as server:
            path = folder / f"s{len([*folder.iterdir()])}"
            server.bind(str(path))
            server.listen()
            self.process = process(folder, PYTHON_WORKER_FACTORY_SOCK_PATH=str(path))
            self.connection, _ = server.accept()
        self.file = self.connection.makefile("rwb")
        self.pid = int.from_bytes(self.file.read(4), "big")
        self.told: Any = json.loads(self.file.readline())

    def close(self) -> None:
        self.file.close()
        self.connection.close()


def process(folder: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-S", fork.__file__, str(folder), "reader"]
    environment = {**os.environ, "WORD": "here", **environment}
    return subprocess.Popen(command, cwd=folder / "place", env=environment, stdout=subprocess.PIPE, text=True)


def check_as_started(folder: Path) -> None:
    """A fork has the environment, the folder and the files of what Spark started."""
    started = Started(folder)
    started.close()
    written, _ = started.process.communicate(timeout=60)
    assert started.told == [str(folder / "place"), "here"]
    assert started.pid != started.process.pid
    assert (written, started.process.returncode) == ("written\n", 0), "it ends with the fork"


def check_private(folder: Path) -> None:
    """No other user may have something forked."""
    assert (folder / fork.NAME).stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("check", [check_as_started, check_private])
def test_promises(check: Callable[[Path], None], tmp_path: Path) -> None:
    check(tmp_path)


@pytest.mark.usefixtures("daemon")
def test_a_fork_ends_with_what_spark_started(tmp_path: Path) -> None:
    started = Started(tmp_path)
    started.process.kill()
    started.process.communicate(timeout=60)
    assert started.file.read() == b"", "it has closed its connection to Spark"
    started.close()


def test_a_fork_outlives_the_daemon(daemon: subprocess.Popen[str], tmp_path: Path) -> None:
    started = Started(tmp_path)
    os.killpg(daemon.pid, signal.SIGHUP)  # as Spark's daemon ends
    assert daemon.communicate(timeout=60)[0] == "", "the process that forks has ended too"
    assert started.process.poll() is None
    started.close()
    assert started.process.communicate(timeout=60)[0] == "written\n"


def test_without_a_daemon_the_reader_is_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "reader.py").write_text(READER)
    assert process(tmp_path).communicate(timeout=60)[0] == "by itself\n"


MUTANTS = [
    ("update(environment)", "update(environment, WORD='of the daemon')", check_as_started),
    ("files[:3]", "files[:0]", check_as_started),
    ("os.umask(0o177)", "os.umask(0)", check_private),
]


@pytest.mark.parametrize(("old", "new", "check"), MUTANTS, ids=["environment", "files", "socket"])
def test_a_broken_mutant_is_caught(old: str, new: str, check: Callable[[Path], None], tmp_path: Path) -> None:
    with begun(tmp_path, old, new), pytest.raises(AssertionError):
        check(tmp_path)
