"""Errors of Spark, and of the functions of a stage, as a cause and a remedy instead of pages of tracebacks."""

from __future__ import annotations

import re
import signal
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
# Java's chain of causes, as py4j and Spark print it, and in it what an executor says of its task.
_JAVA = re.compile(r"^(?:: |Caused by: )((?:\w+\.)+[\w$]+(?:: .*)?)$", re.MULTILINE)
_TASK = re.compile(r"Lost task .*? \(TID \d+\) \(.*?executor [^)]*\): (.*)")
_CLASS = re.compile(r"^(?:\w+[.$])*(?=\w+(?:: |$))")
# What a worker writes when a signal ends it, if it can.
_FATAL = re.compile(r"Fatal Python error: (.*)")
_FATAL_PLACE = re.compile(r'File "(.+)", line (\d+) in (\w+)')
_DIED = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|OutOfMemoryError|Python worker .* was killed"
)
_EXIT = re.compile(r"exited? with (?:exit )?code (\d+)", re.IGNORECASE)
WORKER_ENDED = "A Python worker of Spark ended in the middle of the batch"


def cause_and_remedy(error: Exception) -> tuple[str, str]:
    """Return cause and remedy. Of a traceback, also of a worker, the cause is the error and the line that raised it."""
    if isinstance(error, TablequeueError):
        return error.cause, error.remedy
    text = _text(error)
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
    java = _java_chain(after)
    if not python:
        return _sentence("; ".join(java) or text.strip().partition("\n")[0]), REMEDY
    places = _PLACE.findall(after)
    words = _ERROR.findall(after[after.rindex('File "') :] if 'File "' in after else after)
    cause = _STATE.sub("", words[0] if words else after.strip()).rstrip(".")
    if java:  # py4j says only which call it was
        cause = "; in ".join(java)[:LONGEST]
    if "tablequeue.errors." in after:
        return _sentence(cause.partition(": ")[2]), REMEDY
    return _sentence(cause + "".join(f" ({PurePath(file).name}, line {line})" for file, line in places[-1:])), REMEDY


def died(error: Exception) -> bool:
    """Whether a process of Spark ended, and said nothing: any message of the batch may be why."""
    return _DIED.search(_text(error)) is not None


def failure(stage: str, error: Exception, place: str = "", log: str | None = None) -> PipelineFailed:
    """Return the error of a stage. `place` says in which batch it failed, and `log` is the file of Spark's log."""
    cause, remedy = cause_and_remedy(error)
    where = f"{cause.rstrip('.')}, {place}." if place else cause
    return PipelineFailed(f"The stage {stage!r} failed: {where}", f"{remedy} Spark's log is {log}." if log else remedy)


def _text(error: Exception) -> str:
    if isinstance(error, PySparkException):
        return str(error)
    if getattr(error, "java_exception", None) is not None:  # of py4j, which a client of Connect may lack
        return str(error)  # with Java's chain of causes
    return "".join(traceback.format_exception(error))


def _java_chain(text: str) -> list[str]:
    """Return what Java says, from the first cause to the last error, each once and without its package."""
    found: list[str] = []
    for words in reversed(_JAVA.findall(text)):
        task = _TASK.search(words)
        shown = _STATE.sub("", _CLASS.sub("", task[1] if task else words)).rstrip(".")
        if "Python worker exited unexpectedly" in shown:
            shown = _of_worker(text)
        elif code := _EXIT.search(shown):
            shown += _signal(int(code[1]) - 128)
        if shown != "EOFException" and not any(shown in one for one in found):  # that a stream ended, says nothing
            found.append(shown)
    return found


def _of_worker(text: str) -> str:
    fatal = _FATAL.search(text)
    if fatal is None:
        return f"{WORKER_ENDED} (by os._exit, a signal, or the kernel because it was out of memory)"
    place = _FATAL_PLACE.search(text, fatal.end())
    return f"{WORKER_ENDED}: {fatal[1]}" + (
        f" in {place[3]} ({PurePath(place[1]).name}, line {place[2]})" if place else ""
    )


def _signal(number: int) -> str:
    """The name of the signal behind an exit code, if it is one."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    return f" ({name}{', perhaps because it was out of memory' if name == 'SIGKILL' else ''})"


def _sentence(words: str) -> str:
    return f"{_STATE.sub('', words).rstrip('.;')[:LONGEST]}."
