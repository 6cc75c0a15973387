"""A standalone cluster of Spark on this machine: a master, and a worker whose executors have processes of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pyspark

from tablequeue.spark import session
from tablequeue.spark.java import ensure_java

SOURCES = Path(__file__).parents[2] / "src"
OURS = ("tablequeue", "pyspark_tablequeue")
QUICK = f"-XX:+UseSerialGC {session.QUICK}"


@dataclass(frozen=True)
class Cluster:
    """master   its address, for Spark.
    pages    where the pages of the master and of the worker are.
    folder   what both log, and under `work` what executors have been given and what they say.
    """

    master: str
    pages: tuple[str, str]
    folder: Path


@contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """The folder is empty. Nothing of this environment reaches the executors but Spark itself."""
    package = "org.apache.spark.deploy"
    began = r"(spark://\S+)\n(?s:.*)MasterWebUI.* (http://\S+)\n(?s:.*)New state: ALIVE"
    with _daemon(folder / "master.log", began, f"{package}.master.Master", "--port", "0") as (master, its_pages):
        words = [master, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        began = r"WorkerWebUI.* (http://\S+)\n"
        with _daemon(folder / "worker.log", began, f"{package}.worker.Worker", *words) as (pages,):
            yield Cluster(master, (its_pages, pages), folder)


@contextmanager
def _daemon(log: Path, awaited: str, name: str, *words: str) -> Iterator[tuple[str, ...]]:
    """A program of Spark's, when it has said what is awaited; the groups of that. Its log is written at the end."""
    ensure_java()
    java = os.environ.get("JAVA_HOME") or str(Path(shutil.which("java") or "java").resolve().parents[1])
    home = Path(pyspark.__file__).parent
    process = subprocess.Popen(
        [home / "bin" / "spark-class", name, "--host", "127.0.0.1", "--webui-port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "JAVA_HOME": java,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
        },
    )
    assert process.stdout is not None
    said, found = "", None
    for line in process.stdout:
        said += line
        found = re.search(awaited, said)
        if found:
            break
    rest = Thread(target=lambda: log.write_text(said + process.stdout.read()))  # type: ignore[union-attr]
    rest.start()
    try:
        assert found, said
        yield found.groups()
    finally:
        process.kill()
        rest.join()
        process.stdout.close()
        process.wait()


def environment(folder: Path) -> None:
    """A virtual environment as `pip install` makes one, with the tablequeue of these sources.

    What that needs is linked: to pack all of it takes longer than everything else that a test does with it.
    """
    packages = Path(sysconfig.get_path("purelib"))
    there = folder / packages.relative_to(sys.prefix)
    there.mkdir(parents=True)
    for each in packages.iterdir():
        if each.suffix != ".pth" and not each.name.startswith(OURS):
            (there / each.name).symlink_to(each)
    for name in OURS:
        shutil.copytree(SOURCES / name, there / name)
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
