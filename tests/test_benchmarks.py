"""The benchmarks' presentation of their figures. The figures themselves are not tested."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from benchmarks import page
from benchmarks.__main__ import parsed
from benchmarks.harness import alone
from benchmarks.results import Figure, Results

import tablequeue

OURS = Figure("SQLite", "push", "tablequeue", "messages/s", [90, 110, 100])


def results(*figures: Figure) -> Results:
    return Results("push", "Pushing", "In rounds.", figures, "2 cores")


def test_the_page_shows_the_figures_that_are_kept() -> None:
    assert page.text(page.measured()) == page.PAGE.read_text(), "run: python -m benchmarks.page"


def test_all_workloads_are_run_if_none_is_named() -> None:
    assert parsed([]).workloads == page.WORKLOADS
    assert parsed(["crowd", "--full"]).workloads == ["crowd"]
    with pytest.raises(SystemExit):
        parsed(["crowds"])


def test_every_plot_is_there() -> None:
    assert {path.stem for path in page.PLOTS.iterdir()} == {each.workload for each in page.measured()}


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    other = Figure("SQLite", "push", "other", "messages/s", [90, 100, 200], aim=1)
    assert results(OURS, other).reached(other) == 1
    assert results(OURS, other).met(other) is True


def test_of_times_the_shorter_is_better() -> None:
    ours = Figure("SQLite", "wait", "tablequeue", "ms", [2, 4, 6], aim=5)
    other = Figure("SQLite", "wait", "other", "ms", [4, 8, 12], aim=3)
    both = results(ours, other)
    assert (both.reached(ours), both.met(ours)) == (4, True)
    assert (both.reached(other), both.met(other)) == (2, False)


@pytest.mark.parametrize(
    ("aim", "rate", "line"),
    [
        (None, 50, None),
        (None, 104, None),
        (None, 200, "- Pushing: SQLite, push: 0.50 of other"),
        (0.4, 200, "- Pushing: SQLite, push: 0.50 of other"),
        (0.9, 200, "- Pushing: SQLite, push: 0.50 of other, **misses the aim of 0.9**"),
        (3, 50, "- Pushing: SQLite, push: 2.00 of other, **misses the aim of 3**"),
    ],
)
def test_what_is_slower_is_said(aim: float | None, rate: float, line: str | None) -> None:
    ours = Figure("SQLite", "push", "tablequeue", "messages/s", [100])
    other = Figure("SQLite", "push", "other", "messages/s", [rate], aim)
    assert list(page.slower(results(ours, other))) == ([] if line is None else [line])


@pytest.fixture
def adapter() -> Any:
    spec = importlib.util.spec_from_file_location("adapter", alone.ADAPTER)
    assert spec is not None
    assert spec.loader is not None
    adapter = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(adapter)
    return adapter


def test_the_adapter_fills_the_queue_without_asking_for_its_depth(adapter: Any, tmp_path: Path) -> None:
    """To ask before each push made the producer slower the longer it ran."""
    with tablequeue.connect(f"sqlite:///{tmp_path}/work.db") as database:
        bench = adapter.Bench(database)
        bench.queue.drop()  # so a question would be refused
        asked = bench._up_to_depth(300)
        for numbers in ([128, 128, 44], [100]):
            for number in numbers:
                assert next(asked) == number
                bench.pushed += number
            bench.claimed += 100


def test_the_percentiles_of_the_adapter_are_those_of_the_last_seconds(adapter: Any) -> None:
    latencies = adapter.Latencies()
    assert latencies.percentiles() == {"p50": 0.0, "p95": 0.0, "p99": 0.0}
    for milliseconds in range(1, 1001):
        latencies.add(milliseconds)
    for share, value in latencies.percentiles().items():
        assert value == pytest.approx(10 * int(share[1:]), rel=0.01)


def test_the_adapter_writes_what_the_independent_benchmark_requires(postgresql_url: str) -> None:
    descriptor, *samples = alone.run(postgresql_url, seconds=4.5, rate=200, workers=4)
    known = json.loads(alone.ADAPTER.with_name("adapter.json").read_text())
    relations = [*known["event_tables"], *known["event_indexes"]]
    with tablequeue.connect(postgresql_url) as database, database.engine.connect() as connection:
        there = [connection.execute(sa.select(sa.func.to_regclass(name))).scalar() for name in relations]
    with tablequeue.connect(postgresql_url) as database:
        database.queue("bench").drop()
    assert (descriptor["kind"], descriptor["system"]) == ("descriptor", known["system"])
    assert descriptor["event_tables"] == known["event_tables"]
    assert all(there), there
    assert {sample["metric"] for sample in samples} >= alone.REQUIRED
    assert max(sample["value"] for sample in samples if sample["metric"] == "completion_rate") > 0
