"""Spark sessions, on a cluster, or on this machine: these start fast, and write only to a folder of their own."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tablequeue.errors import BadInput, DriverMissing
from tablequeue.spark import fork
from tablequeue.spark.fork import READER
from tablequeue.spark.java import ensure_java
from tablequeue.spark.settings import LOG, hide_passwords

# How addresses of Spark Connect begin, and how many seconds a server has to answer.
CONNECT = "sc://"
ANSWER = 10
# Maximum bytes of a folder of sockets: Spark's names have 43 with the slash, and a path at most 103 (on macOS).
SOCKETS_PATH = 60
# The process from which Spark forks its Python workers, on a cluster.
DAEMON = "tablequeue.spark.daemon"
# Options of Java for short sessions, which mostly start up: without the second compiler they get more of the processor.
# Java would have a fifth of its cache of compiled code too: Spark generates code for each query, and after some
# hundreds the cache of 48 MB was full, and the session ended.
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# The loggers of PySpark for errors that it also raises.
LOGGERS = ("py4j", "DataFrameQueryContextLogger", "SQLQueryContextLogger")


def local_session(
    name: str, folder: Path, cores: int = 2, lasting: bool = False, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session on `cores` cores of this machine, with its temporary files in `folder`.

    A `lasting` session starts slower. Once it is warm, its Java code takes two thirds of the time for the same rows.
    `conf` are more settings, which override the settings here.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = quick_python(folder)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # Replanning between stages costs more than it saves on a few hundred thousand rows.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        # The serial collector suits short jobs and long ones.
        JAVA_OPTIONS: f"-XX:+UseSerialGC {'' if lasting else f'{QUICK} '}"
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
    }
    if len(os.fsencode(folder.absolute())) <= SOCKETS_PATH:
        # By TCP each task waits 40 ms: Java sends a task in two packets, and the second one only when the kernel has
        # acknowledged the first.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.python.unix.domain.socket.dir"] = str(folder.absolute())
    given = dict(conf or {})
    if JAVA_OPTIONS in given:
        given[JAVA_OPTIONS] = f"{settings[JAVA_OPTIONS]} {given[JAVA_OPTIONS]}"
    settings |= given
    session = _session(SparkConf().setMaster(f"local[{cores}]").setAppName(name).setAll([*settings.items()]))
    session.sparkContext.setLogLevel("ERROR")
    return session


def session(
    name: str,
    master: str,
    folder: Path,
    lasting: bool = False,
    log: Path | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session for the stages of a pipeline, whose errors Spark logs to a file, or nowhere.

    On a cluster with the settings of its spark-defaults.conf, except for the daemon of Python workers; by a server of
    Spark Connect (`sc://host:port`), or one of `local_session`.
    """
    if master.startswith(CONNECT):
        return _remote(master, conf or {})
    found = _classic(name, master, folder, lasting, conf or {})
    # An error of a stage is reported once, and not by everything that it passes through.
    if log is None:
        found.sparkContext.setLogLevel("OFF")
    else:
        _log_to(log, found)
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    return found


def _log_to(file: Path, session: SparkSession) -> None:
    """Write what Java logs to a file, for this user alone: an error may have a message in it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    log4j = session.sparkContext._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    settings = context.getConfiguration()
    layout = log4j.core.layout.PatternLayout.newBuilder().withPattern("%d{ISO8601} %p %c{1}: %m%n%ex").build()
    appender = log4j.core.appender.FileAppender.newBuilder().setName("tablequeue").setLayout(layout)
    appender = appender.withFileName(str(file.absolute())).build()
    appender.start()
    settings.addAppender(appender)
    root = settings.getRootLogger()
    for name in [*root.getAppenders().keySet()]:
        root.removeAppender(name)
    root.addAppender(appender, None, None)
    root.setLevel(log4j.Level.WARN)
    context.updateLoggers()
    session.conf.set(LOG, str(file.absolute()))


def _classic(name: str, master: str, folder: Path, lasting: bool, conf: Mapping[str, str]) -> SparkSession:
    local = re.fullmatch(r"local(?:\[(\*|[1-9]\d*)\])?", master)
    if local is None:
        ensure_java()
        settings = {"spark.python.daemon.module": DAEMON, **conf}
        return _session(SparkConf().setMaster(master).setAppName(name).setAll([*settings.items()]))
    cores = local[1] or "1"
    return local_session(name, folder, (os.cpu_count() or 1) if cores == "*" else int(cores), lasting, conf)


def _remote(address: str, conf: Mapping[str, str]) -> SparkSession:
    host, _, port = address.removeprefix(CONNECT).partition("/")[0].rpartition(":")
    try:
        # The client itself would try for ten minutes.
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, ValueError) as error:
        shown = address.partition("/;")[0]  # not a token, which may follow
        raise BadInput(
            f"No server of Spark Connect answers at {shown}: {error}.", "Name one: sc://HOST:PORT."
        ) from None
    try:
        session = SparkSession.builder.remote(address).getOrCreate()
    except ImportError as error:
        raise DriverMissing(
            "A client of Spark Connect needs packages that are not installed.", "Run: pip install 'pyspark[connect]'"
        ) from error
    for name, value in conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            raise BadInput(
                f"A client of Spark Connect cannot set {name}: the server has begun with it.",
                "Set it where the server starts.",
            ) from error
    return session


# Spark puts a zip of PySpark before the installed package. Importing the zip takes 1.4 s of a core, importing the
# package 0.8 s (Python 3.11, PySpark 4.3). A session starts about eight processes that import it. Spark waits 10 s for
# each, which is not enough on a busy machine.
# The daemon gets the folder, in which the readers of streams find it.
_PYTHON = """#!/bin/sh
export PYTHONPATH="${PYTHONPATH##*/pyspark.zip:}"
folder=$(dirname "$0")
case "$1 $2" in
"-m pyspark.daemon")
    shift 2
    set -- -m tablequeue.spark.daemon "$@" "$folder" ;;
"-m %s")
    set -- -I -S "%s" "$folder" "$2" ;;
esac
exec "%s" "$@"
"""


def quick_python(folder: Path) -> str:
    """Return a script that starts this interpreter for Spark's workers, faster than Spark does."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python"
    script.write_text(_PYTHON % (READER, fork.__file__, sys.executable))
    script.chmod(0o755)
    return str(script.absolute())


def _session(conf: SparkConf) -> SparkSession:
    if SparkContext._gateway is None:
        read, write = os.pipe()
        Thread(target=_pass_on, args=[read, os.dup(2)], daemon=True).start()
        try:
            # Ctrl-C signals every process of a terminal's session. Java ignores it, but its Python workers would end in
            # the middle of a batch. In a session of their own they end when the program says so.
            SparkContext._gateway = launch_gateway(conf, {"start_new_session": True, "stderr": write})
        finally:
            os.close(write)
        SparkContext._jvm = SparkContext._gateway.jvm
    hide_passwords(conf, SparkContext._jvm)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _pass_on(errors: int, to: int) -> None:
    """Pass on the output of Java, except the warning of each start: Spark's launcher adds a module to Java."""
    with open(errors, "rb") as lines, open(to, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(b"WARNING: Using incubator modules"):
                out.write(line)
