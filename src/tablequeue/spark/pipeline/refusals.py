"""What Spark and the functions of a stage raise, in two sentences: theirs are pages of two languages."""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tablequeue.errors import TablequeueError

REMEDY = "See to the cause and run it again: it goes on with that batch."
LONGEST = 400

# What Spark says of the driver's workers, which look for the format, and of those of the executors.
_MISSING = re.compile(r"\[DATA_SOURCE_NOT_FOUND\] [^.]*: tablequeue\.|No module named 'tablequeue'")
_PLACE = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+: .+|\w+)$", re.MULTILINE)


def words_of(error: Exception) -> tuple[str, str]:
    """Cause and remedy: of a traceback, which Spark has of its workers too, the error and the line that raised it."""
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
            "The Python that Spark starts its workers with has no tablequeue.",
            "Name one that has it by PYSPARK_PYTHON, on the driver and on every executor; see docs/spark.md.",
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
