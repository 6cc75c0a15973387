"""One local Spark session for all its tests: starting one takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Database, connect
from tablequeue.spark.session import local_session
from tests.servers import Place, free_port
from tests.spark.archive import submit_arguments

# Processes of Spark that no daemon forks.
SLOW = (
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
)


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """Sessions of this process, and of those that it starts, begin in half the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", submit_arguments())
        yield


@pytest.fixture(scope="session")
def driver(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Spark's workers have the environment of the session's start: see `environment`.
        patch.setenv("TABLEQUEUE_URL", f"sqlite:///{folder / 'environment.db'}")
        session = local_session("tests", folder)
    start = (folder / "python").read_text()
    early = f'case "$2" in {"|".join(SLOW)}) set -- {Path(__file__).with_name("early.py")} "$2";; esac'
    (folder / "python").write_text(start.replace("exec", f"{early}\nexec", 1))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark(driver: Any) -> Any:
    return driver


@pytest.fixture(scope="session")
def connect_server(driver: Any) -> str:
    """The address of a server of Spark Connect, in the Java that is there: another one would take long to start."""
    port = free_port()
    context = driver.sparkContext._jsc.sc()
    for name, value in {"address": "127.0.0.1", "port": str(port)}.items():
        context.conf().set(f"spark.connect.grpc.binding.{name}", value)
    driver.sparkContext._jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(context)
    return f"sc://127.0.0.1:{port}"


@pytest.fixture
def place(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The place, with its URL in a file."""
    place.url_file = tmp_path_factory.mktemp("secret") / "url"
    place.url_file.write_text(place.url)
    return place


@pytest.fixture
def environment(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database that TABLEQUEUE_URL names, here and in Spark's workers."""
    url = spark.sparkContext._jvm.System.getenv("TABLEQUEUE_URL")
    monkeypatch.setenv("TABLEQUEUE_URL", url)
    with connect(url) as database:
        yield database
        for queue in database.queues():
            database.queue(queue).drop()
