"""Java's classes that Spark needs, loaded once and kept in a file: with it a session starts in half the time.

The file is made by the first test run of an environment, in half a minute, and belongs to one Spark on one Java:
another Java would leave it unread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tablequeue.spark.java import ensure_java
from tablequeue.spark.session import QUICK

FOLDER = Path(sys.prefix, "share", "tablequeue-tests")

# Something of all that the tests do.
USE = """
import sys, tempfile
from pathlib import Path
import tablequeue
from tablequeue.spark.session import local_session
with tempfile.TemporaryDirectory() as folder:
    url = f"sqlite:///{folder}/work.db"
    with tablequeue.connect(url) as database:
        database.create_queue("work")
        spark = local_session("archive", Path(folder))
        place = {"url": url, "queue": "work"}
        rows = spark.range(10).selectExpr("to_json(struct(id)) as payload")
        rows.write.format("tablequeue").options(**place).mode("append").save()
        stream = spark.readStream.format("tablequeue").options(**place, stream="s").load()
        sink = stream.select("payload").writeStream.format("parquet").option("path", f"{folder}/lake")
        sink.option("checkpointLocation", f"{folder}/c").trigger(availableNow=True).start().awaitTermination()
        spark.read.format("tablequeue").options(**place).load().groupBy("attempts").count().collect()
        spark.read.parquet(f"{folder}/lake").join(rows, "payload").toPandas()
        spark.stop()
"""


def submit_arguments() -> str:
    """What PYSPARK_SUBMIT_ARGS must say for sessions to use the archive."""
    ensure_java()
    java = Path(os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "java").resolve().parents[1])
    archive = FOLDER / f"{java.name}-spark-{version('pyspark')}.jsa"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            fresh = archive.with_suffix(".new")
            environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": _arguments(f"-XX:ArchiveClassesAtExit={fresh}")}
            # Java has ended, and written it, when nobody holds the pipes any more.
            subprocess.run([sys.executable, "-c", USE], env=environment, check=True, capture_output=True)
            fresh.rename(archive)
    return _arguments(f"-XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr")


def _arguments(java: str) -> str:
    """Sessions that are not made for long, or not by tablequeue, also begin with what suits a start."""
    return f"--conf 'spark.driver.defaultJavaOptions=-XX:+UseSerialGC {QUICK} {java}' pyspark-shell"
