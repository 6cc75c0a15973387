"""The stress command: a short round on each engine, and broken engines that it must detect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.nightly import by_night
from tests.servers import Kind, only

ROOT = Path(__file__).parent.parent
ENGINES = [kind for kind in servers.KINDS if kind.name in ("sqlite", "postgresql", "mariadb")]
# Kinds of actions that need no private server, and take no longer than the round itself.
KINDS = "many,large,late,take,fail,release,delay,keys,kill,stop,step"


def stress(kind: Kind, request: pytest.FixtureRequest, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a round in a process of its own, because it forks."""
    url = ["--url", kind.url(request)] if kind.server else []
    command = [sys.executable, "-m", "tests.stress", "--engine", kind.name, *url, "--folder", str(folder)]
    command += ["--rounds", "1", "--seconds", "2", "--seed", "1", "--shrink", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ, timeout=200)


@pytest.mark.parametrize("kind", by_night(ENGINES, lambda kind: kind.name == "postgresql"), ids=lambda kind: kind.name)
def test_a_round(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    queues = "fifo,due,once" if kind.side_by_side else "fifo,due,once,grouped"
    # The delay of a message on a busy machine is not tested.
    options = ["--kind", "queues", "--only", KINDS, "--queues", queues, "--late", "60"]
    done = stress(kind, request, tmp_path / "stress", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout


@pytest.mark.parametrize("kind", by_night(ENGINES, lambda kind: kind.name == "mariadb"), ids=lambda kind: kind.name)
def test_a_round_of_topics(kind: Kind, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    done = stress(kind, request, tmp_path / "stress", "--kind", "topics", "--only", KINDS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout


@only("sqlite")
@pytest.mark.parametrize(
    ("mutant", "queue", "action", "violation"),
    [
        ("two in progress in a group", "grouped", "many", "two of a group"),
        ("a push that ignores the key", "fifo", "keys", "key twice"),
        ("a claim of messages that are scheduled", "fifo", "delay", "early"),
    ],
)
def test_a_broken_engine_is_caught(
    kind: Kind, request: pytest.FixtureRequest, tmp_path: Path, mutant: str, queue: str, action: str, violation: str
) -> None:
    options = ["--kind", "queues", "--mutant", mutant, "--queues", queue, "--only", action, "--seconds", "1"]
    found = stress(kind, request, tmp_path / "stress", *options)
    assert found.returncode == 1, found.stdout + found.stderr
    assert f"  {violation}: " in found.stdout
    assert f'--mutant "{mutant}"' in found.stdout, "it says how to see it again"
