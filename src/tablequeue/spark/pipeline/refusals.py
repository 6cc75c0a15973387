"""Errors of Spark, and of the functions of a stage, as a cause and a remedy instead of pages of tracebacks."""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath

from pyspark.errors import PySparkException

from tablequeue.errors import PipelineFailed, TablequeueError

REMEDY = "Correct the cause and run the pipeline again: it continues with that batch."
LONGEST = 400

# Errors of workers without tablequeue: on the driver, where they look for the format, and on executors.
_MISSING = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] [^.]*: tablequeue\.|No module named 'tablequeue'")
# Not the lines of PySpark itself, in which an error of Spark is raised.
_PLACE = re.compile(r'^ *File "(?!.*(?:packages|[.]zip|python)/py(?:spark|4j)/)(.+)", line (\d+)', re.MULTILINE)
_STATE = re.compile(r"[.;]? *SQLSTATE: \w+[.;]*$")
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+: .+|\w+)$", re.MULTILINE)


def cause_and_remedy(error: Exception) -> tuple[str, str]:
    """Return cause and remedy. Of a traceback, also of a worker, the cause is the error and the line that raised it."""
    if isinstance(error, TablequeueError):
        return error.cause, error.remedy
    if isinstance(error, PySparkException):
        text = str(error)
    elif (java := getattr(error, "java_exception", None)) is not None:  # of py4j, which a client of Connect may lack
        text = str(java.toString())
    else:
        text = "".join(traceback.format_exception(error))
    if _MISSING.search(text):
        return (
            "The Python of Spark's workers does not have tablequeue.",
            "Set PYSPARK_PYTHON to one that has it, on the driver and every executor; see docs/spark.md.",
        )
    if "[STREAMING_CONNECT_SERIALIZATION_ERROR]" in text:
        return (
            "A function of a sink holds what cannot be sent to the server of Spark Connect, such as a connection.",
            "Open connections, and make locks, inside the function.",
        )
    _, python, after = text.rpartition("Traceback (most recent call last):")
    if not python:
        return _sentence(text.strip().partition("\n")[0]), REMEDY
    places = _PLACE.findall(after)
    words = _ERROR.findall(after[after.rindex('File "') :] if 'File "' in after else after)
    cause = _STATE.sub("", words[0] if words else after.strip()).rstrip(".")
    if "tablequeue.errors." in after:
        return _sentence(cause.partition(": ")[2]), REMEDY
    return _sentence(cause + "".join(f" ({PurePath(file).name}, line {line})" for file, line in places[-1:])), REMEDY


def failure(stage: str, error: Exception) -> PipelineFailed:
    cause, remedy = cause_and_remedy(error)
    return PipelineFailed(f"The stage {stage!r} failed: {cause}", remedy)


def _sentence(words: str) -> str:
    return f"{_STATE.sub('', words).rstrip('.;')[:LONGEST]}."
