"""Retries and dead letters, by the error that caused them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

LONGEST = 200


def errors(messages: DataFrame) -> DataFrame:
    """Return a row for each error of each queue, the most frequent first.

    Columns: queue, error, failures (attempts that ended with it), messages (that had it), finished (messages that had
    it and were finished later), dead (dead letters whose last error it was), first_at, last_at.
    """
    failures = messages.select(
        "queue", "id", "state", f.size("errors").alias("number"), f.posexplode("errors").alias("place", "failure")
    )
    dead = (f.col("state") == "dead") & (f.col("place") == f.col("number") - 1)
    return (
        failures.groupBy("queue", kind_of(f.col("failure.error")).alias("error"))
        .agg(
            f.count("*").alias("failures"),
            f.count_distinct("id").alias("messages"),
            f.count_distinct(f.when(f.col("state") == "finished", f.col("id"))).alias("finished"),
            f.count_if(dead).alias("dead"),
            f.min("failure.at").alias("first_at"),
            f.max("failure.at").alias("last_at"),
        )
        .orderBy("queue", f.desc("failures"), "error")
    )


def kind_of(error: Column) -> Column:
    """Return the text that errors of one kind have in common.

    This is the last line (the exception in a traceback), cut to 200 characters, with an ellipsis for each number of at
    least four digits, or eight hexadecimal ones. Long numbers identify a message; short ones are a part of the error,
    as in HTTP 503.
    """
    last = f.regexp_extract(error, r"([^\n]*\S)\s*$", 1)
    return f.substring(
        f.regexp_replace(last, r"\b(\d{4,}|(?=[a-f]*\d)[\da-f]{8,}|(?=[A-F]*\d)[\dA-F]{8,})\b", "…"), 1, LONGEST
    )
