"""`tablequeue archive`, and the ages that it and `history purge` take."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tablequeue import Database
from tests.cli.support import Run, lines
from tests.support import claimed

pytestmark = pytest.mark.quick

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_old_messages_move_to_files(run: Run, db: Database, tmp_path: Path) -> None:
    queue = db.create_queue("emails", history="keep")
    queue.push_many([{"to": "ada"}, {"to": "bob"}], now=LONG_AGO)
    claimed(queue, now=LONG_AGO).complete(now=LONG_AGO)
    claimed(queue).complete()
    lake = tmp_path / "lake" / "emails"
    assert run("archive", "emails", "--to", lake, "--older", "30d").stdout == "1 archived\n"
    assert lines(run("archive", "emails", "--to", lake, "--older-than", "1.5h", "--json")) == [{"archived": 0}]
    assert lines(run("archive", "emails", "--to", lake, "--older-than", "0", "--json")) == [{"archived": 1}]
    assert pq.read_table(lake)["payload"].to_pylist() == ['{"to":"ada"}', '{"to":"bob"}']
    db.create_topic("events").subscribe("mail")
    assert "retention" in run("archive", "events/mail", "--to", tmp_path, "--older", "0", code=1).stderr
    other = db.create_queue("other")
    assert "the table tq_emails" in run("archive", other.name, "--to", lake, "--older", "0", code=1).stderr


def test_a_format_and_a_folder_that_do_not_fit(run: Run, db: Database, tmp_path: Path) -> None:
    db.create_queue("emails")
    words = ["archive", "emails", "--to", tmp_path / "lake", "--older", "0"]
    assert "--format" in run(*words, "--format", "csv", code=2).stderr
    assert "only Iceberg has" in run(*words, "--warehouse", tmp_path, code=1).stderr
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("age", ["d", "30 days", "-1d", "nan", "nand", "40000d", "1y", ""])
def test_an_age_that_is_none(run: Run, db: Database, tmp_path: Path, age: str) -> None:
    db.create_queue("emails")
    assert "--older-than" in run("archive", "emails", "--to", tmp_path / "lake", "--older-than", age, code=2).stderr
    assert "--older-than" in run("history", "purge", "emails", "--older-than", age, code=2).stderr
    assert not (tmp_path / "lake").exists()


def test_without_the_package_it_says_which_to_install(url: str, db: Database, tmp_path: Path) -> None:
    db.create_queue("emails")
    program = "import sys; sys.modules['pyarrow'] = None; from tablequeue.cli import main; main()"
    words = ["--url", url, "archive", "emails", "--to", str(tmp_path / "lake"), "--older-than", "0"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "tablequeue[archive]" in done.stderr


def test_it_needs_no_spark(url: str, db: Database, tmp_path: Path) -> None:
    db.create_queue("emails")
    program = "import sys; sys.modules['pyspark'] = sys.modules['adbc_driver_postgresql'] = None\n"
    program += "from tablequeue.cli import main; main()"
    words = ["--url", url, "archive", "emails", "--to", str(tmp_path / "lake"), "--older-than", "0"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout == "0 archived\n"
