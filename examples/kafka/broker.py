"""A broker of Kafka on this machine, from Maven Central."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tablequeue.spark.java import ensure_java

KAFKA = "4.1.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tablequeue-kafka"
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
num.partitions=3
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


def java() -> str:
    ensure_java()
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


def jars() -> Path:
    """Return the folder with the broker, which Ivy, a part of PySpark, has fetched from Maven Central."""
    folder = CACHE / f"kafka-{KAFKA}"
    if not folder.exists():
        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        fresh = folder.with_suffix(".new")
        command = [java(), "-jar", str(ivy), "-cache", str(CACHE / "ivy"), "-confs", "default", "-m2compatible"]
        command += ["-types", "jar", "bundle", "-dependency", "org.apache.kafka", "kafka_2.13", KAFKA]
        done = subprocess.run([*command, "-retrieve", f"{fresh}/[artifact]-[revision].[ext]"], capture_output=True)
        if not (fresh / f"kafka_2.13-{KAFKA}.jar").exists():
            print(done.stdout.decode(errors="replace")[-2000:], done.stderr.decode(errors="replace")[-2000:])
            raise SystemExit("Maven Central did not answer, or does not have this version of Kafka: see above.")
        fresh.rename(folder)
    return folder


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """Run a broker with its files in a folder. Yields its address."""
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
    ports = dict(zip(("broker", "controller"), _free_ports(2), strict=True))
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(folder=folder, **ports))
    with (folder / "broker.log").open("wb") as log:
        tool = [*command, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
        subprocess.run(tool, stdout=log, stderr=log, check=True)
        process = subprocess.Popen([*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        try:
            yield f"127.0.0.1:{ports['broker']}"  # clients try until it listens
        finally:
            process.kill()
            process.wait()


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
