"""What a pipeline may be, and the files that define one: every mistake is refused with a cause and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tablequeue.cli import main
from tablequeue.errors import BadInput, BadName, QueueNotFound
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, ToDelta, ToParquet, ToQueue, run
from tablequeue.spark.pipeline.file import load
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
