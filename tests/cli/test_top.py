"""`tablequeue top`, and `stats` with a window."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from time import monotonic

import pytest

from tablequeue import Database, Queue
from tablequeue.cli.top import spark
from tablequeue.errors import DatabaseError
from tablequeue.verbs import stats as numbers
from tests.cli.support import Run, lines
from tests.support import claimed


def fill(db: Database) -> Queue:
    queue = db.create_queue("emails", max_attempts=1)
    queue.push_many(range(5))
    claimed(queue).complete()
    claimed(queue).fail("no")
    db.create_queue("a_queue_with_a_name_as_long_as_a_name_may_be", strict=True).push_many(range(3))
    db.create_queue("bare", history="none")
    return queue


def test_one_look_fits_80_columns(run: Run, db: Database) -> None:
    fill(db)
    shown = run("top").stdout.splitlines()
    assert max(map(len, shown)) <= 80
    assert [line.split()[0] for line in shown[::2]] == ["queue", "pushed", "keeps", "pushed"]
    assert re.search(r"emails +3 +0 +0 +1 ", "\n".join(shown))
    assert "1+2" in shown[1]
    assert "█" in shown[-1]
    one = run("top", "emails").stdout
    assert "producer " in one
    assert "consumer " in one
    assert [each["queue"] for each in lines(run("top", "--json"))][1:] == ["bare", "emails"]
    assert run("top", "wrong", code=1).stderr.startswith("error: There is no queue 'wrong'")


def test_a_bad_queue_does_not_hide_the_others(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(db)
    stats = Queue.stats

    def broken(queue: Queue, **options: object) -> object:
        if queue.name == "bare":
            raise DatabaseError("It is broken.", "Mend it.")
        return stats(queue, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "stats", broken)
    shown = run("top").stdout
    assert "It is broken. Mend it." in shown
    assert "emails" in shown


def test_bars_are_as_high_as_their_counts() -> None:
    assert spark([0] * 60) == " " * 20
    assert spark([1, 0, 0] * 20) == "█" * 20
    assert spark([0] * 54 + [1000, 0, 0, 1, 0, 0]) == " " * 18 + "█▁"


def test_it_follows_the_queue_until_ctrl_c(url: str, db: Database) -> None:
    queue = fill(db)
    leader, follower = pty.openpty()
    words = [sys.executable, "-m", "tablequeue", "--url", url, "top", "--every", "0.1"]
    terminal = {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    program = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, env=os.environ | terminal)
    os.close(follower)
    try:
        _read_until(leader, r"emails[^\n]* 3 ")
        queue.push_many(range(120))
        _read_until(leader, r"emails[^\n]* 123 ")
        program.send_signal(signal.SIGINT)
        _read_until(leader, r"\x1b\[\?1049l")  # the screen as it was before
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.wait()
        os.close(leader)


def _read_until(terminal: int, pattern: str) -> None:
    seen, end = "", monotonic() + 100
    while not re.search(pattern, seen):
        assert select.select([terminal], [], [], end - monotonic())[0], seen
        seen += os.read(terminal, 1 << 16).decode(errors="replace")


def test_stats_of_a_window(run: Run, db: Database) -> None:
    fill(db)
    shown = run("stats", "emails").stdout
    assert re.search(r"last 300 s +pushed +pushed/s +finished +finished/s +redeliveries +failed\n", shown)
    assert re.search(r"emails +5 +0.0 +1 +0.0 +0 +1\n", shown)
    assert "from " in shown
    assert "to " in shown
    assert "wait 50 %" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    (found,) = lines(run("stats", "emails", "--window", "60", "--json"))
    assert (found["window"]["seconds"], found["window"]["queue"]["pushed"]) == (60, 5)
    assert found["window"]["queue"]["wait_time"].keys() == {"p50", "p95", "p99"}
    assert "window" in run("stats", "--window", "0", code=1).stderr


def test_estimates_look_like_estimates(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.create_queue("emails")
    queue.push_many(range(12))
    queue.complete_many(queue.pop_many(11))
    for words in (("stats",), ("stats", "emails"), ("top", "emails"), ("queue", "show", "emails")):
        assert "~" not in run(*words).stdout
    monkeypatch.setattr(numbers, "COUNTED", 11)
    monkeypatch.setattr(numbers, "MOST", 10)
    for words in (("stats",), ("stats", "emails")):
        shown = run(*words).stdout
        assert re.search(r"emails +1 +0 +0 +0 +\S+ +~11\n", shown), "to the right, as numbers are"
        assert re.search(r"emails +~12 +~\S+ +~10 +~\S+ +~0 +0\n", shown)
        assert "~ of finished messages: an estimate" in shown
        assert "~ of a time with more than" in shown
        assert all(len(line) <= 80 for line in shown.splitlines())
    assert re.search(r"finished +~11\n", run("queue", "show", "emails").stdout)
    top = run("top", "emails").stdout
    assert top.count("pushed ") == top.count("pushed   ~") + top.count("pushed    ~") + top.count("pushed  ~") == 2
    assert "~ of a time with more than" in top
    assert "finished messages" not in top, "it shows no number of them"
    for words in (("stats",), ("top",)):
        (found,) = lines(run(*words, "--json"))
        assert found["estimated"] == ["finished", "window"]
        assert (found["finished"], found["window"]["exact"]) == (11, False)
    assert lines(run("queue", "show", "emails", "--json"))[0]["stats"]["estimated"] == ["finished"]
