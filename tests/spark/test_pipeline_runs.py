"""`tablequeue pipeline run` as its users run it: in a process of its own, which is killed, stopped, started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import tablequeue
from tests.support import counts
from tests.web.support import Client

pytestmark = [pytest.mark.usefixtures("quick_java"), pytest.mark.nightly, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
# It dies in its first batch, when all sinks have it but the last, whose files are written and not committed.
PIPELINE = """
import os
from pathlib import Path
from pyspark.sql import functions as f
from tablequeue.spark.pipeline import FromQueue, Pipeline, ToDelta, ToIceberg, ToParquet, ToQueue, attempt, files

numbers = Pipeline("numbers")

def double(n):
    return 2 * n

write = files.write

def die_once(rows, folder, *arguments):
    written = write(rows, folder, *arguments)
    if folder.endswith("/iceberg/numbers/data") and not Path("died").exists():
        Path("died").touch()
        os._exit(9)
    if Path("died").exists():
        Path("zone").write_text(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return written

files.write = die_once
sinks = ToParquet("lake"), ToDelta("delta"), ToIceberg("iceberg.numbers", ".")

def as_messages(rows):
    return rows.select(f.to_json(f.struct("n")).alias("payload"))

@numbers.stage(FromQueue("raw", 3), ToQueue("doubled", as_messages), *sinks)
def doubled(messages):
    tried = attempt(double, "int")(f.get_json_object("payload", "$.n").cast("int"))
    return messages.select("id", tried.alias("tried")).select("id", f.col("tried.value").alias("n"), "tried.error")
"""


@contextmanager
def pipeline_run(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command, where another python3 is first on the path, and no variable says which one Spark is to take."""
    (folder / "python3").write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    (folder / "python3").chmod(0o755)
    given = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tablequeue", "--url", "sqlite:///queues.db", "pipeline", "run", *arguments],
        cwd=folder,
        env=given | {"PYTHONPATH": str(ROOT), "PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()  # Java ends with it
        process.communicate()


def test_killed_and_then_stopped(tmp_path: Path) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        raw, doubled = database.create_queue("raw"), database.create_queue("doubled")
        raw.push_many({"n": n} for n in range(40))

        with pipeline_run(tmp_path, "pipeline.py", "--available-now") as run:
            _, errors = run.communicate()
        assert run.returncode == 9, errors
        assert counts(doubled) == {"ready": 3}
        assert counts(raw) == {"ready": 37, "in_progress": 3}

        settings = ("--conf", "spark.sql.session.timeZone=Asia/Tokyo")
        with pipeline_run(tmp_path, "pipeline.py", "--trigger", "0.01", "--health-port", "0", *settings) as run:
            assert run.stderr is not None
            port = 0
            for line in run.stderr:
                assert re.match(r"doubled: |tablequeue: |[-\d:, ]+ health at ", line), "nothing of Spark's own"
                if found := re.search(r"health at http://127.0.0.1:(\d+)/", line):
                    port = int(found[1])
                    assert Client(port).get("/readyz").status == 503, "no stage runs yet"
                if re.match("doubled: [1-9]", line):
                    break
            assert Client(port).get("/readyz").status == 200
            metrics = Client(port).get("/metrics").text
            for name in ("messages_total", "lag_messages", "written_rows_total"):
                assert f'tablequeue_pipeline_{name}{{pipeline="numbers",stage="doubled"}} ' in metrics
            assert json.loads((tmp_path / "checkpoints/numbers/status.json").read_text())["running"]
            # As a terminal does it: to every process of its session.
            os.killpg(run.pid, signal.SIGINT)
            output, errors = run.communicate()
        assert run.returncode == 0, errors
        assert re.search(r"^ doubled +\d+ +\d+", output, re.MULTILINE), output
        assert (tmp_path / "zone").read_text() == "Asia/Tokyo"
        assert not json.loads((tmp_path / "checkpoints/numbers/status.json").read_text())["running"]
        assert raw.stats().in_progress == 0, "what was begun was ended"
        finished = raw.stats().finished or 0
        expected = Counter(2 * n for n in range(finished))
        assert Counter(message.payload["n"] for message in doubled.peek(100)) == expected
        assert Counter(ds.dataset(tmp_path / "lake").to_table()["n"].to_pylist()) == expected
        check_lakes(tmp_path, expected)


def check_lakes(folder: Path, expected: Counter[int]) -> None:
    assert Counter(DeltaTable(folder / "delta").to_pyarrow_table()["n"].to_pylist()) == expected
    catalogue = SqlCatalog("tablequeue", uri=f"sqlite:///{folder / 'queues.db'}")
    found = catalogue.load_table("iceberg.numbers").scan().to_arrow()
    catalogue.close()
    assert Counter(found["n"].to_pylist()) == expected
