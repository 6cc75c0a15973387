"""On a standalone cluster: the executors get tablequeue from an archive, and nobody can read the password anywhere."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import sqlalchemy as sa

import tablequeue
from tests.servers import KINDS, Place
from tests.spark import shown
from tests.spark.cluster import QUICK, Cluster, environment, standalone
from tests.support import counts

pytestmark = [pytest.mark.usefixtures("quick_java"), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text("utf-8")
SETTING = "spark.executorEnv.TABLEQUEUE_URL"

# Its last sink looks around while the others' batch is still there, and does what is refused for the password in it.
PIPELINE = """
import json, os, sys
from pathlib import Path
import tablequeue
from pyspark.sql import functions as f
from shown import command_lines, pages, rest
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, ToQueue

schema = json.loads(os.environ["SCHEMA"])
numbers = Pipeline("numbers", schema=schema)

def look(rows, number):
    spark, base = rows.sparkSession, rows.sparkSession.sparkContext.uiWebUrl
    place = {"urlEnv": "TABLEQUEUE_URL", "schema": schema}
    source = spark.read.format("tablequeue").options(**place, queue="done", table="queue")
    there, said = source.load().count(), []
    wrong = {**place, "queue": os.environ["TABLEQUEUE_URL"]}
    words = ", ".join(f"{name} '{value}'" for name, value in wrong.items())
    for attempt in (
        lambda: spark.read.format("tablequeue").options(**wrong).load(),
        lambda: rows.select("payload").write.format("tablequeue").options(**wrong).mode("append").save(),
        lambda: spark.sql(f"create temporary view v using tablequeue options ({words})"),
    ):
        try:
            attempt()
        except Exception as error:
            said.append(str(error))
    seen = {"there": there, "refused": said, "shown": pages(base) | rest(base) | command_lines()}
    Path("seen.json").write_text(json.dumps(seen))

@numbers.stage(FromQueue("raw"), ToQueue("done"), ForeachBatch(look))
def doubled(messages):
    daemon = lambda: sys.modules["__main__"].__spec__.name
    where = f.udf(lambda n: json.dumps({"n": 2 * json.loads(n), "from": tablequeue.__file__, "by": daemon()}))
    return messages.select(where("payload").alias("payload"))
"""

# Sessions that are not made by tablequeue, as notebooks and hosted platforms have them. The Python of their workers has
# no tablequeue.
OTHERS = """
import json, sys, warnings
from pyspark.sql import SparkSession
from tablequeue.errors import PipelineFailed
from tablequeue.spark.pipeline import ForeachBatch, FromQueue, Pipeline, run
from tests.spark.shown import pages, rest

pipeline = Pipeline("numbers", url_file="url")
pipeline.stage(FromQueue("raw"), ForeachBatch(lambda rows, number: None), name="all")(lambda rows: rows)

for settings in map(json.loads, sys.argv[1:]):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.port", "0")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run(pipeline, spark, "checkpoints")
        except PipelineFailed as error:
            failed = [error.cause, error.remedy]
    base, warned = spark.sparkContext.uiWebUrl, [str(one.message) for one in caught]
    print(json.dumps({"warned": warned, "failed": failed, "shown": pages(base) | rest(base)}))
    spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder) as cluster:
        yield cluster


@pytest.fixture
def postgresql(request: pytest.FixtureRequest) -> Iterator[tuple[Place, str]]:
    """A place whose URL has a password, and that password."""
    kind = next(kind for kind in KINDS if kind.name == "postgresql")
    url = sa.make_url(kind.url(request))
    password = url.password or f"s3cr3t{secrets.token_hex(8)}"
    place = kind.place(url.set(password=password).render_as_string(hide_password=False), f"test_{secrets.token_hex(8)}")
    yield place, password
    place.execute((kind.drop_schema or "").format(place.schema))
    place.close()


def of_the_page(pattern: str) -> str:
    found = re.search(pattern, PAGE, re.MULTILINE)
    assert found, pattern
    return found[1]


def told(texts: Mapping[str, str], password: str) -> list[str]:
    """Which of the texts have the password in them."""
    return [name for name, text in texts.items() if password in text]


@pytest.mark.nightly
def test_an_archive_and_no_password_anywhere(cluster: Cluster, postgresql: tuple[Place, str], tmp_path: Path) -> None:
    place, password = postgresql
    database = place.open()
    raw, done = database.create_queue("raw"), database.create_queue("done")
    raw.push_many(range(20))

    home = tmp_path / "home"
    environment(home / "environment")
    (home / "events").mkdir()
    (home / "conf").mkdir()
    # As the page has it, and the URL as nobody should give it.
    subprocess.run(of_the_page(r"^(tar .*?)(?: +#.*)?$"), shell=True, check=True, cwd=home)
    settings = {
        "spark.archives": of_the_page(r"^spark\.archives +(\S+)$"),
        SETTING: place.url,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{home}/events",
        "spark.ui.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
    }
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (home / "conf" / "spark-defaults.conf").write_text(lines)
    (home / "pipeline.py").write_text(PIPELINE)
    shutil.copy(shown.__file__, home)
    python = of_the_page(r"^export PYSPARK_PYTHON=(\S+)")
    driver = subprocess.run(
        [python, "-m", "tablequeue", "pipeline", "run", "pipeline.py", "--available-now", "--master", cluster.master],
        cwd=home,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "TABLEQUEUE_URL": place.url,
            "SCHEMA": json.dumps(place.schema),
            "PYSPARK_PYTHON": python,
            "SPARK_CONF_DIR": str(home / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
    )
    assert driver.returncode == 0, driver.stderr

    # It was done by an executor, with what came in the archive.
    assert (counts(raw), counts(done)) == ({"finished": 20}, {"ready": 20})
    messages = [message.payload for message in done.peek(20)]
    assert sorted(message["n"] for message in messages) == [2 * n for n in range(20)]
    assert {Path(message["from"]).is_relative_to(cluster.folder / "work") for message in messages} == {True}
    assert {message["by"] for message in messages} == {"tablequeue.spark.daemon"}
    seen = json.loads((home / "seen.json").read_text())
    assert (seen["there"], len(seen["refused"])) == (20, 3)

    environments = [text for page, text in seen["shown"].items() if page.endswith("/environment")]
    assert [SETTING in text and "*(redacted)" in text for text in environments] == [True]
    logs = {"output": driver.stdout, "errors": driver.stderr, "refused": str(seen["refused"])}
    written = shown.files(home / "events", home / "checkpoints", *cluster.folder.glob("work/*/*"))
    assert len(written) > 5
    cluster_pages = {page: text for base in cluster.pages for page, text in shown.pages(base).items()}
    assert told(seen["shown"] | logs | written | cluster_pages, password) == []


@pytest.mark.nightly
def test_sessions_of_others(tmp_path: Path) -> None:
    """One shows the password, which the search finds there, and a run warns; one has the setting of the page."""
    password = f"s3cr3t{secrets.token_hex(8)}"
    shows = {SETTING: f"postgresql+psycopg://ada:{password}@host/db"}
    hides = {**shows, "spark.redaction.regex": of_the_page(r"^spark\.redaction\.regex +(\S+)$")}
    (tmp_path / "url").write_text(f"sqlite:///{tmp_path / 'work.db'}")
    with tablequeue.connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        database.create_queue("raw")
    process = subprocess.run(
        [sys.executable, "-c", OTHERS, json.dumps(shows), json.dumps(hides)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(Path(sys.executable).resolve()),  # not the one of this environment
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    showing, hiding = map(json.loads, process.stdout.splitlines())
    assert [page.rpartition("/")[2] for page in told(showing["shown"], password)] == ["environment"]
    (warning,) = showing["warned"]
    assert SETTING in warning
    assert "url_file" in warning
    assert password not in warning
    assert (hiding["warned"], told(hiding["shown"], password)) == ([], [])
    for cause, remedy in (showing["failed"], hiding["failed"]):
        assert cause.endswith("does not have tablequeue.")
        assert "PYSPARK_PYTHON" in remedy
