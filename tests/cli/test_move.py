"""`tablequeue move` to another database, and the commands of its page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
import sqlalchemy as sa

from tablequeue import Backoff, Claim, Database, Queue, connect
from tests.cli.support import Run, lines
from tests.servers import KINDS
from tests.support import claimed, counts

PAGE = Path(__file__).parents[2] / "docs" / "moving.md"
NEW = "postgresql+psycopg://app@db.example.org/work/orders"


@pytest.fixture
def other(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'other.db'}"


def test_a_queue_moves_to_another_database(run: Run, db: Database, other: str) -> None:
    source = db.create_queue("Orders-EU.fifo 50%", order="lifo", max_attempts=7, backoff=Backoff(3, 2))
    source.push_many(range(5))
    claimed(source).complete()
    claim = claimed(source)
    done = run("move", source.name, f"{other}/new%2Fwork", code=1)  # no name of a queue
    assert "slash" in done.stderr
    done = run("move", source.name, f"{other}/Orders-EU.fifo 50%25", "--history")
    assert done.stdout == "3 moved, 1 of the history copied\n"
    assert "1 stay in 'Orders-EU.fifo 50%': 1 in progress" in done.stderr
    with connect(other) as database:
        target = database.queue(source.name)
        assert target.definition == source.definition, "it is made with the definition of the first"
        assert counts(target) == {"ready": 3, "finished": 1}
    claim.release()
    assert lines(run("move", source.name, f"{other}/{source.name.replace('%', '%25')}", "--json")) == [
        {"id": claim.id, "moved_to": 5}
    ]
    assert run("move", f"{other}/Orders-EU.fifo 50%25", f"{other}/Orders-EU.fifo 50%25", code=1).stderr


def test_what_is_refused(run: Run, db: Database, url: str, other: str) -> None:
    source = db.create_queue("work")
    source.push("x")
    for words in (
        ("work", other),  # no queue
        ("work", "sqlite:///work"),
        ("work", "postgresql://app@host/work"),  # no database
        ("work", "nonsense://x/y/work"),
        ("work", f"{url}/work"),
        ("work", f"{url.replace('work.db', './work.db')}/work"),  # the same file
        ("work", f"{other}/"),
        (f"{other}/work", "work"),
    ):
        assert "Traceback" not in run("move", *words, code=1).stderr, words
    for more in (f"{other}/work 1", f"{other}/work --state ready", "old --follow", "old --history"):
        run("move", "work", *more.split(), code=2)
    assert "secret" not in run("move", "work", "postgresql://app:secret@host/work", code=1).output
    with connect(other) as database:
        database.create_queue("work", payload="text")
    assert "payload" in run("move", "work", f"{other}/work", code=1).stderr
    assert counts(source) == {"ready": 1}


def test_in_one_database_both_forms_are_the_same(run: Run, db: Database, url: str) -> None:
    db.create_queue("work").push("x")
    db.create_queue("old")
    assert lines(run("move", "work", f"{url}/old", "--json")) == [{"id": 1, "moved_to": 1}]
    assert run("move", f"{url}/old", f"{url}/work").stdout == "1 moved\n"


@pytest.fixture
def new(request: pytest.FixtureRequest) -> Iterator[str]:
    """The queue on PostgreSQL that stands for the one of the page, in a schema of its own."""
    kind = next(kind for kind in KINDS if kind.name == "postgresql")
    url = kind.url(request)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("drop schema if exists moving cascade")
        connection.exec_driver_sql("create schema moving")
    yield f"{url}/orders?options=-csearch_path%3Dmoving"
    with engine.begin() as connection:
        connection.exec_driver_sql("drop schema moving cascade")
    engine.dispose()


def until(true: Callable[[], bool]) -> None:
    """Wait until another process has done it."""
    end = monotonic() + 60
    while not true():
        assert monotonic() < end, "the other process does not do it"


def taken(queue: Queue, number: int) -> list[Claim]:
    """Complete this many messages, which another process brings."""
    done: list[Claim] = []
    for claim in queue.consume(wait=60):
        claim.complete()
        done.append(claim)
        if len(done) == number:
            break
    return done


def commands(part: str, new: str) -> list[list[str]]:
    """The commands of a block of the page, as words."""
    block = re.search(rf"<!-- runs: {part} -->\s+```sh\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block
    texts = [line.strip().replace(NEW, new) for line in block[1].strip().splitlines()]
    assert all(text.startswith("tablequeue ") for text in texts)
    return [[sys.executable, "-m", *shlex.split(text)] for text in texts]


def test_start_on_sqlite_and_go_on_with_postgresql(new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the page, with producers and consumers at work on both."""
    monkeypatch.chdir(tmp_path)
    for words in commands("before", new):
        subprocess.run(words, check=True, capture_output=True)
    url, _, options = new.partition("?")
    there = f"{url.removesuffix('/orders')}?{options}"
    with connect("sqlite:///work.db") as first:
        old = first.queue("orders")
        claimed(old).complete()
        held = old.push("held")
        claim = claimed(old)
        (follow,) = commands("follow", new)
        mover = subprocess.Popen(follow, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
        try:
            old.push_many(range(100))
            with connect(there) as second:
                until(lambda: "orders" in second.queues())
                orders = second.queue("orders")
                done = [message.payload for message in taken(orders, 50)]
                old.push_many(range(100, 150))
                orders.push_many(range(150, 200))
                done += [message.payload for message in taken(orders, 150)]
                claim.release()
                (last,) = taken(orders, 1)
                assert (held, last.payload, last.attempt) == (claim.id, "held", 1)
                assert sorted(done) == [*range(200)]
                mover.send_signal(signal.SIGTERM)
                assert mover.communicate(timeout=60)[0] == "151 moved, 1 of the history copied\n"
                assert mover.returncode == 0
                old.push("finished here")
                claimed(old).complete()
                for words in commands("after", new):
                    subprocess.run(words, check=True, capture_output=True)
                assert counts(orders) == {"finished": 203}
                assert first.queues() == []
        finally:
            mover.kill()
            mover.communicate()
