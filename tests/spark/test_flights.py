"""The flights as a pipeline: what comes to the lake equals a direct computation over the file."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from examples.flights.data import Flight, airlines, flights
from examples.flights.fill import BROKEN
from examples.flights.fill import main as fill

import tablequeue
from tablequeue.spark.pipeline import run
from tablequeue.spark.pipeline.file import load
from tests.support import counts

FILE = Path(__file__).parents[2] / "examples" / "flights" / "pipeline.py"
SAMPLE = 1500


def test_the_flights(
    spark: Any, environment: tablequeue.Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill([str(SAMPLE)], os.environ["TABLEQUEUE_URL"])
    monkeypatch.chdir(tmp_path)  # where the lake is to be
    run(load(str(FILE)), spark, f"{tmp_path}/checkpoints", available_now=True)

    sample = [*islice(flights(), SAMPLE)]
    late = [flight for flight in sample if (flight["dep_delay"] or 0) > 60]
    kept = ds.dataset(tmp_path / "lake" / "flights", partitioning="hive").to_table().to_pylist()
    assert {row["n"] for row in kept} == {flight["n"] for flight in sample}
    assert len(kept) == SAMPLE
    assert all(row["airline"] == airlines()[row["carrier"]] for row in kept)
    assert any(row["plane"] and row["temp"] is not None for row in kept)
    totals = ds.dataset(tmp_path / "lake" / "delays").to_table().to_pylist()
    assert {row["airline"]: (row["flights"], row["longest"]) for row in totals} == delays_of(late)
    assert {message.payload["n"] for message in environment.queue("raw").dead()} == {row["n"] for row in BROKEN}
    assert counts(environment.queue("enriched")) == {"finished": SAMPLE}
    assert counts(environment.queue("delayed")) == {"finished": len(late)}


def delays_of(late: list[Flight]) -> dict[str, tuple[int, int]]:
    names = airlines()
    delays: dict[str, list[int]] = {}
    for flight in late:
        delays.setdefault(names[flight["carrier"]], []).append(flight["dep_delay"])
    return {airline: (len(those), max(those)) for airline, those in delays.items()}
