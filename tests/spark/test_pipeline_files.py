"""What a pipeline may be, and the files that define one: every mistake is refused with a cause and a remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tablequeue
from tablequeue.cli import main
from tablequeue.errors import BadInput, BadName, QueueNotFound
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, Progress, ToDelta, ToParquet, ToQueue, run
from tablequeue.spark.pipeline.file import load
from tablequeue.spark.pipeline.status import StatusFile
from tests.support import refuses

GOOD = """
from tablequeue.spark.pipeline import *
one = Pipeline("one", url="sqlite:///work.db")
"""
TWO = f"{GOOD}two = Pipeline('two')"


def same(rows: Any) -> Any:
    return rows


def nothing(rows: Any, number: int) -> None:
    pass


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"pipeline_{abs(hash(request.node.name))}.py"
    path.write_text(GOOD)
    return path


def test_a_file_has_one_pipeline_or_it_is_named(file: Path) -> None:
    assert load(str(file)).name == "one"
    file.write_text(TWO)
    assert load(f"{file}:two").name == "two"


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (TWO, "", "has 2 pipelines: one, two. Name one: "),
        (GOOD, ":three", "has no pipeline 'three'. Name one of: one."),
        ("", "", "has no pipelines. Define one"),
        ("1 +", "", "cannot be loaded: SyntaxError: invalid syntax"),
        (f"{GOOD}\n1 / 0", "", "cannot be loaded: ZeroDivisionError: division by zero, line 5."),
        ("import nix", "", "ModuleNotFoundError: No module named 'nix', line 1."),
    ],
)
def test_files_that_are_refused(file: Path, text: str, name: str, words: str) -> None:
    file.write_text(text)
    assert words in str(refuses(BadInput, load, f"{file}{name}"))


def test_the_command_refuses_in_two_sentences(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["pipeline", "run", f"{tmp_path}/nix.py"])
    assert (result.exit_code, result.stderr.splitlines()) == (
        1,
        [f"error: There is no file '{tmp_path}/nix.py'.", "Write FILE or FILE:NAME."],
    )
    no_python = tmp_path / "pipeline.txt"
    no_python.write_text(GOOD)
    assert "is not a Python file" in CliRunner().invoke(main, ["pipeline", "run", str(no_python)]).stderr


@pytest.mark.parametrize(
    ("sinks", "words"),
    [
        ([], "The stage 'same' has no sink."),
        ([ToQueue("a"), ToQueue("b"), ToQueue("a", same)], "has two sinks to the queue a."),
        ([ToParquet("lake"), ToDelta("lake")], "has two sinks to the lake."),
    ],
)
def test_sinks_that_are_refused(sinks: list[Any], words: str) -> None:
    assert words in str(refuses(BadInput, Pipeline("test").stage(FromQueue("raw"), *sinks), same))


def test_a_stage_has_a_name_of_its_own() -> None:
    pipeline = Pipeline("test")
    declare = pipeline.stage(FromQueue("raw"), ForeachBatch(nothing), ForeachBatch(nothing))
    assert declare(same) is same
    assert "has two stages 'same'" in str(refuses(BadInput, declare, same))
    refuses(BadName, pipeline.stage(FromQueue("raw"), ToQueue("a")), lambda rows: rows)
    assert [*pipeline.stages] == ["same"]


def test_pipelines_that_are_refused(tmp_path: Path) -> None:
    refuses(BadName, Pipeline, "No Name")
    refuses(BadInput, Pipeline, "test", url="sqlite:///work.db", url_env="TQ")
    assert "holds a URL with a password" in str(
        refuses(BadInput, Pipeline, "test", url="postgresql://a:s3cret@host/db")
    )
    pipeline = Pipeline("test", url=f"sqlite:///{tmp_path / 'work.db'}")
    assert "has no stages" in str(refuses(BadInput, run, pipeline, None, "checkpoints"))
    pipeline.stage(FromQueue("raw"), ToQueue("raw"))(same)
    refuses(QueueNotFound, run, pipeline, None, "checkpoints")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--conf", "spark.master=yarn"], "Use --master."),
        (["--conf", "memory=4g"], "memory='4g' is no setting of Spark."),
    ],
)
def test_settings_that_are_refused(file: Path, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["pipeline", "run", str(file), *arguments])
    assert (result.exit_code, words in result.stderr) == (1, True), result.output
    assert "is no setting" in str(refuses(BadInput, Pipeline, "test", conf={"spark.ui.enabled": True}))


def test_the_status_is_that_of_the_last_run_with_the_lag_of_now(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    url = f"sqlite:///{tmp_path / 'work.db'}"
    stages = """
one.stage(FromQueue("raw"), ToQueue("raw"), name="keep")(lambda rows: rows)
one.stage(FromTopic("events"), ToQueue("raw"), name="read")(lambda rows: rows)
one.stage(FromTopic("events"), ToQueue("raw"), name="new")(lambda rows: rows)
"""
    file.write_text(GOOD.replace("sqlite:///work.db", url) + stages)

    def told(*more: str) -> Any:
        return CliRunner().invoke(main, ["pipeline", "status", str(file), "--checkpoints", str(folder), *more])

    assert "No run of the pipeline has noted its progress in" in told().stderr
    with tablequeue.connect(url) as db:
        raw, events = db.create_queue("raw"), db.create_topic("events")
        noted = StatusFile(folder / "status.json")
        read = Progress("read", batch=3, messages=30, rate=12.3, written=28, seconds=1.25, lag=0, offset=2)
        noted.note([Progress("keep", failed=1, error="boom"), read, Progress("new"), Progress("archive")])
        raw.push_many(range(2))
        events.push_many(range(3))
        keep, read_now, new, archive = map(json.loads, told("--json").stdout.splitlines())
    assert (keep["lag"], read_now["lag"], new["lag"], archive["lag"]) == (2, 2, None, None)
    assert keep["lag_seconds"] > 0 < read_now["lag_seconds"]
    assert (read_now["written"], read_now["seconds"], read_now["running"]) == (28, 1.25, True)
    shown = told().stdout
    assert re.search(r"^ read +3 +1.2 +30 +12 +28 +2 ", shown, re.MULTILINE), shown
    assert "boom" in shown
    assert "dropped" not in shown
    assert "The pipeline was running at 20" in shown
    noted.ended()
    assert "The run ended at 20" in told().stdout


@pytest.mark.parametrize("mutant", ["the lag of then", "it never ends"])
def test_a_status_without_a_promise_is_found(
    file: Path, tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "the lag of then":
        monkeypatch.setattr("tablequeue.spark.pipeline.status.behind", lambda lag: {})
    else:
        monkeypatch.setattr(StatusFile, "ended", lambda self: None)
    with pytest.raises(AssertionError):
        test_the_status_is_that_of_the_last_run_with_the_lag_of_now(file, tmp_path)


def test_the_page_of_kafka_is_the_pipeline_that_make_kafka_runs() -> None:
    root = Path(__file__).parents[2]
    (page,) = re.findall(
        r"^```py\n(.*?)^```", (root / "docs" / "kafka.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    program = (root / "examples" / "kafka" / "pipeline.py").read_text("utf-8")
    assert program.partition("from __future__ import annotations\n\n")[2] == page
