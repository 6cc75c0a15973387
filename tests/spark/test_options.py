"""The options of the data source: every mistake is refused with a cause and a remedy, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tablequeue.errors import BadInput, BadName
from tablequeue.spark.options import NAMES, Options, Use
from tests.support import refuses

GOOD = {"url": "sqlite:///work.db", "queue": "emails"}


def test_defaults() -> None:
    options = Options.parse(GOOD)
    assert (options.partitions, options.min_id, options.max_id) == (4, 0, (1 << 63) - 1)


def test_names_are_free_of_case() -> None:
    assert Options.parse({"URLENV": "TQ", "queue": "emails", "minid": "3"}).min_id == 3


def test_what_spark_itself_gives_to_a_stream_is_no_option_of_ours() -> None:
    options = {**GOOD, "queryname": "mails", "checkpointlocation": "checkpoints/mails"}
    assert Options.parse(options, "stream write").queue == "emails"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quue": "x"}, "no option 'quue'"),
        ({"urlEnv": "TQ"}, "Exactly one of url, urlEnv and urlFile"),
        ({"table": "messages"}, "table"),
        ({"onConflict": "return"}, "onConflict"),
        ({"writer": "me"}, "Only one of writer and batch"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-01-01T00:00:00"}, "until"),
        ({"maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger"),
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
    refuses(BadName, Options.parse, {**GOOD, "queue": " no queue"})


@pytest.mark.parametrize("option", NAMES)
@pytest.mark.parametrize("url", ["postgresql://ada:s3cret@host/db", "mariadb+pymysql://host/db?passwd=s3cret"])
def test_a_password_is_refused_and_not_repeated(option: str, url: str) -> None:
    """In whichever option it was put."""
    place = {} if option.startswith("url") else GOOD
    error = refuses(BadInput, Options.parse, {**place, "queue": "emails", option: url})
    assert option in error.cause
    assert "urlFile" in error.remedy
    assert "s3cret" not in str(error)


def test_a_password_in_an_option_that_there_is_not_is_not_repeated() -> None:
    error = refuses(BadInput, Options.parse, {**GOOD, "path": "postgresql://ada:s3cret@host/db"})
    assert "s3cret" not in str(error)


def test_the_environment_variable_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TQ_TEST_URL", raising=False)
    options = Options.parse({"urlEnv": "TQ_TEST_URL", "queue": "emails"})
    assert "TQ_TEST_URL" in refuses(BadInput, options.connect).cause


def test_an_option_of_another_use_is_refused() -> None:
    assert "no option 'onConflict' to read" in str(
        refuses(BadInput, Options.parse, {**GOOD, "onConflict": "skip"}, "read")
    )
    assert "stream is missing" in str(refuses(BadInput, Options.parse, GOOD, "stream"))
    options = Options.parse({**GOOD, "stream": "lake", "maxmessagespertrigger": "5"}, "stream")
    assert (options.stream, options.max_messages) == ("lake", 5)


def test_the_url_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    options = Options.parse({"urlFile": str(file), "queue": "emails"})
    assert str(file) in refuses(BadInput, options.connect).cause
    file.write_text(f"sqlite:///{tmp_path}/work.db\n")
    with options.connect() as database:
        assert database.queues() == []


TOPIC = {"url": "sqlite:///work.db", "topic": "events"}


def test_positions_of_a_topic() -> None:
    options = Options.parse({**TOPIC, "startingPosition": "7", "endingPosition": "2026-11-21T08:00:00+01:00"}, "read")
    assert (options.starting, options.ending) == (7, datetime(2026, 11, 21, 7, tzinfo=UTC))
    assert (Options.parse(TOPIC).starting, Options.parse(TOPIC).ending) == (None, None)
    assert Options.parse({**TOPIC, "startingposition": "end"}, "stream").starting == "end"


@pytest.mark.parametrize(
    ("change", "use", "words"),
    [
        ({"queue": "emails"}, None, "Exactly one of queue and topic"),
        ({"startingPosition": "tomorrow"}, None, "Give beginning, end, an offset, or a time"),
        ({"startingPosition": "-1"}, None, "startingPosition is '-1'"),
        ({"startingPosition": "0"}, None, "at least 1"),
        ({"failOnDataLoss": "no"}, None, "failOnDataLoss"),
        ({"minPartitions": "0"}, None, "minPartitions"),
        ({"stream": "lake"}, "stream", "no option 'stream' to stream a topic"),
        ({"endingPosition": "soon"}, "stream", "endingPosition is 'soon'"),
        ({"onConflict": "skip"}, "write", "no option 'onConflict' to write a topic"),
    ],
)
def test_refused_of_a_topic(change: dict[str, str], use: Use | None, words: str) -> None:
    assert words in str(refuses(BadInput, Options.parse, {**TOPIC, **change}, use))
