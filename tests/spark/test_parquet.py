"""The columns of `ToParquet`, which no table knows: a batch that does not fit the files there is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tablequeue
from tablequeue.errors import PipelineFailed
from tablequeue.spark.pipeline import FromTopic, Pipeline, ToParquet, run, sinks

N = "cast(payload as int) as n"


@pytest.mark.timeout(900)
def test_a_column_of_another_type_or_case_is_refused_before_a_row_is_written(spark: Any, tmp_path: Path) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as db:
        events = db.create_topic("events", payload="text")
        lake = tmp_path / "lake [1]"

        def written(*columns: str, checkpoints: str = "checkpoints") -> None:
            shop = Pipeline("shop", url=db.engine.url.render_as_string())
            stage = shop.stage(FromTopic("events"), ToParquet(str(lake), partition_by=["day"]), name="keep")
            stage(lambda messages: messages.selectExpr("'2026-01-31' as day", *columns))
            run(shop, spark, f"{tmp_path}/{checkpoints}", available_now=True)

        def refused(*columns: str, checkpoints: str = "checkpoints") -> str:
            before = sorted(lake.rglob("*"))
            with pytest.raises(PipelineFailed) as caught:
                written(*columns, checkpoints=checkpoints)
            assert sorted(lake.rglob("*")) == before
            return caught.value.cause

        events.push("1")
        written(N, "'a' as name")
        events.push("2")
        written(N, "1.5d as extra")  # without the name, which the last files have as null
        events.push("3")
        assert "The column name is of type int, and of type string in the files of" in refused(N, "1 as name")
        for checkpoints in ("checkpoints", "other"):  # with another one, no batch is the last one of the query
            words = refused("cast(payload as bigint) as n", checkpoints=checkpoints)
            assert "The column n is of type bigint, and of type int in the files of" in words
        assert "The column Name of the rows and name of the files differ only in case" in refused(N, "'c' as Name")
        written(N, "'c' as name")
        files = str(lake).replace("[", "\\[").replace("]", "\\]")
        rows = spark.read.option("mergeSchema", "true").parquet(files).orderBy("n").collect()
        assert [(row.n, row.name, row.extra) for row in rows] == [(1, "a", None), (2, None, 1.5), (3, "c", None)]


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", ["another type", "another case"])
def test_a_sink_that_does_not_look_is_found(
    spark: Any, tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "another type":
        monkeypatch.setattr(ToParquet, "_with_columns_there", lambda self, rows, batch: rows)
    else:
        monkeypatch.setattr(sinks, "check_case", lambda *given: None)
    with pytest.raises(BaseException, match="DID NOT RAISE"):  # pytest.fail is no Exception
        test_a_column_of_another_type_or_case_is_refused_before_a_row_is_written(spark, tmp_path)
