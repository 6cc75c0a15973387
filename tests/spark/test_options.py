"""The options of the data source: every mistake is refused with a cause and a remedy, without Spark."""

from __future__ import annotations

import pytest

from tablequeue.errors import BadInput, BadName
from tablequeue.spark.options import Options
from tests.support import refuses

GOOD = {"url": "sqlite:///work.db", "queue": "emails"}


def test_defaults() -> None:
    options = Options.parse(GOOD)
    assert (options.partitions, options.min_id, options.max_id) == (4, 0, (1 << 63) - 1)


def test_names_are_free_of_case() -> None:
    assert Options.parse({"URLENV": "TQ", "queue": "emails", "minid": "3"}).min_id == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quue": "x"}, "no option 'quue'"),
        ({"urlEnv": "TQ"}, "Exactly one of url and urlEnv"),
        ({"partitions": "0"}, "partitions"),
        ({"partitions": "many"}, "partitions"),
        ({"minId": "-1"}, "minId"),
        ({"maxId": str(1 << 63)}, "maxId"),
    ],
)
def test_refused(change: dict[str, str], words: str) -> None:
    assert words in str(refuses(BadInput, Options.parse, {**GOOD, **change}))


def test_the_queue_is_needed() -> None:
    refuses(BadInput, Options.parse, {"url": "sqlite:///work.db"})
    refuses(BadName, Options.parse, {**GOOD, "queue": "No Queue"})


@pytest.mark.parametrize("url", ["postgresql://ada:s3cret@host/db", "postgresql://host/db?password=s3cret"])
def test_a_password_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    error = refuses(BadInput, Options.parse, {**GOOD, "url": url})
    assert "urlEnv" in error.remedy
    assert "s3cret" not in str(error)


def test_the_environment_variable_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TQ_TEST_URL", raising=False)
    options = Options.parse({"urlEnv": "TQ_TEST_URL", "queue": "emails"})
    assert "TQ_TEST_URL" in refuses(BadInput, options.connect).cause
