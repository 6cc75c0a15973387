"""The flights as a declarative pipeline of Spark: it reads a queue, and writes tables and a queue."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from examples.flights.data import flights
from examples.flights.fill import BROKEN
from examples.flights.fill import main as fill

import tablequeue
from tests.support import counts

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flights" / "declarative"
SAMPLE = 500


def test_the_flights(spark: Any, connect_server: str, environment: tablequeue.Database, tmp_path: Path) -> None:
    # On the session that is there, as a client: `spark-pipelines` would start one, which takes a minute.
    folder = shutil.copytree(EXAMPLE, tmp_path / "declarative")
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/flights-declarative", str(tmp_path)))
    runner = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)]
    settings = {"SPARK_REMOTE": connect_server, "PYTHONPATH": str(ROOT)}
    fill([str(SAMPLE)], os.environ["TABLEQUEUE_URL"])
    try:
        run = subprocess.run(runner, env=os.environ | settings, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr

        late = sum((flight["dep_delay"] or 0) > 60 for flight in islice(flights(), SAMPLE))
        assert spark.table("enriched").selectExpr("count(distinct n)", "count(airline)").first()[:] == (SAMPLE, SAMPLE)
        assert spark.table("delays").selectExpr("sum(flights)", "sum(late)").first()[:] == (SAMPLE, late)
        assert counts(environment.queue("raw")) == {"finished": SAMPLE + len(BROKEN)}
        assert counts(environment.queue("delayed")) == {"ready": late}
    finally:
        for table in ("airlines", "enriched", "delays"):
            spark.sql(f"drop table if exists {table}")
