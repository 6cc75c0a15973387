"""The pages of Spark: their programs run, one after another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tablequeue

BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = DOCS / "spark.md"
STATE = DOCS / "spark-state.md"


@pytest.mark.parametrize("page", [PAGE, STATE], ids=lambda page: page.stem)
def test_a_page_runs(page: Path, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's workers are elsewhere than this process: its paths are made whole.
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    # Settings of the page end with it. Spark sends classes of the main module themselves, not their names.
    namespace: dict[str, Any] = {"spark": spark.newSession(), "__name__": "__main__"}
    for block in BLOCK.finditer(text):
        program = block[1].replace("sqlite:///work.db", f"sqlite:///{tmp_path}/work.db")
        program = re.sub(r'"(lake|checkpoints)(?=[/"])', rf'"{tmp_path}/\1', program)
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + program, str(page), "exec"), namespace)


def test_what_spark_does_not_do_is_refused_as_the_page_says(spark: Any, tmp_path: Path) -> None:
    place = {"url": f"sqlite:///{tmp_path / 'work.db'}"}
    with tablequeue.connect(place["url"]) as database:
        database.create_queue("counts")
        database.create_topic("events").push({})
    events = spark.readStream.format("tablequeue").options(**place, topic="events").load()
    counts = events.groupBy("group").count().selectExpr("string(count) as payload")
    to_queue = counts.writeStream.format("tablequeue").options(**place, queue="counts")
    modes = {
        "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED": events.writeStream.format("console")
        .outputMode("update")
        .trigger(realTime="5 minutes"),
        "Data source tablequeue does not support continuous processing": events.writeStream.format("noop").trigger(
            continuous="1 second"
        ),
        "does not support Update mode": to_queue.outputMode("update"),
        "Queues and topics cannot be overwritten": counts.writeStream.format("tablequeue")
        .options(**place, queue="counts")
        .outputMode("complete"),
        "does not support async progress tracking": events.writeStream.format("parquet").options(
            path=str(tmp_path / "lake"), asyncProgressTrackingEnabled="true"
        ),
    }
    page = STATE.read_text("utf-8")
    for number, (words, writer) in enumerate(modes.items()):
        with pytest.raises(Exception, match=re.escape(words)):
            writer.option("checkpointLocation", str(tmp_path / str(number))).start().awaitTermination()
        assert words in page


@pytest.mark.timeout(900)
def test_the_first_example_runs_in_a_session_of_the_users(spark: Any, tmp_path: Path) -> None:
    session, place, *_ = BLOCK.findall(PAGE.read_text("utf-8"))
    read = 'print(spark.read.format("tablequeue").options(**place, queue="orders", table="queue").load().count())'
    assert printed_elsewhere("\n".join([session, place, read]), tmp_path) == "100"


@pytest.mark.nightly  # each is a session of its own
@pytest.mark.timeout(900)
def test_an_import_gives_the_format_to_a_session_that_runs(spark: Any, tmp_path: Path) -> None:
    session, place, *_ = BLOCK.findall(PAGE.read_text("utf-8"))
    first, *others = session.splitlines()
    assert first.startswith("import tablequeue.spark")
    read = 'print(spark.read.format("tablequeue").options(**place, queue="orders", table="queue").load().count())'
    assert printed_elsewhere("\n".join([*others, first, place, read]), tmp_path) == "100"


def test_an_import_puts_this_python_first_on_the_path_unless_one_is_chosen(tmp_path: Path) -> None:
    program = "import shutil, sys, tablequeue.spark; print(shutil.which('python3'))"
    (tmp_path / "python3").write_text("#!/bin/sh\n")
    (tmp_path / "python3").chmod(0o755)

    def found(**more: str) -> Path:
        process = subprocess.run(
            [sys.executable, "-c", program],
            env={"PATH": str(tmp_path), **more},
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(process.stdout.strip())

    assert found() == Path(sys.executable).with_name("python3")
    assert found(PYSPARK_PYTHON="python3") == tmp_path / "python3"


def printed_elsewhere(program: str, folder: Path) -> str:
    """Return what a program prints that runs in an empty folder, without a setting of Spark but how Java starts. A
    fixture provides Java.

    Spark's own choice is the python3 of the path, which need not have tablequeue.
    """
    (folder / "python3").write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    (folder / "python3").chmod(0o755)
    settings = {
        name: value
        for name, value in os.environ.items()
        if name == "PYSPARK_SUBMIT_ARGS" or not name.startswith(("PYSPARK_", "SPARK_"))
    }
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=settings | {"PATH": f"{folder}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
