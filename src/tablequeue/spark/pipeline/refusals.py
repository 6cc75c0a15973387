"""Errors of Spark, and of the functions of a stage, as a cause and a remedy instead of pages of tracebacks."""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tablequeue.errors import TablequeueError

REMEDY = "Correct the cause and run the pipeline again: it continues with that batch."
LONGEST = 400

# Errors of workers without tablequeue: on the driver, where they look for the format, and on executors.
_MISSING = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] [^.]*: tablequeue\.|No module named 'tablequeue'")
_PLACE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+: .+|\w+)$", re.MULTILINE)


def cause_and_remedy(error: Exception) -> tuple[str, str]:
    """Return cause and remedy. Of a traceback, also of a worker, the cause is the error and the line that raised it."""
    if isinstance(error, TablequeueError):
        return error.cause, error.remedy
    if isinstance(error, PySparkException):
        text = str(error)
    elif isinstance(error, Py4JJavaError):
        text = str(error.java_exception.toString())
    else:
        text = "".join(traceback.format_exception(error))
    if _MISSING.search(text):
        return (
            "The Python of Spark's workers does not have tablequeue.",
            "Set PYSPARK_PYTHON to one that has it, on the driver and every executor; see docs/spark.md.",
        )
    _, python, after = text.rpartition("Traceback (most recent call last):")
    if not python:
        return _sentence(text.strip().partition("\n")[0]), REMEDY
    places = _PLACE.findall(after)
    words = _ERROR.findall(after[after.rindex('File "') :] if places else after)
    file, line = places[-1] if places else ("", "")
    cause = words[0] if words else after.strip()
    ours = "tablequeue.errors." in after
    return _sentence(cause.partition(": ")[2] if ours else f"{cause} ({PurePath(file).name}, line {line})"), REMEDY


def _sentence(words: str) -> str:
    words = re.sub(r"[.;]? *SQLSTATE: \w+[.;]*$", "", words).rstrip(".;")
    return f"{words[:LONGEST]}."
