"""Rows that a stage cannot process: their messages become dead letters, and other messages are processed."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import DataType, StringType, StructField, StructType

from tablequeue.errors import BadInput
from tablequeue.model.message import error_text

ERROR = "error"
# The name under which Spark reports the failed messages of a batch.
OBSERVED = "tablequeue"


def attempt(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """Return `function` as a UDF that does not fail. Its result is a struct of `value` and `error`.

    `error` is the traceback as text if the function raises, and null otherwise. `returns` is the type of the value, as
    for `udf`.
    """

    def tried(*values: Any) -> tuple[Any, str | None]:
        try:
            return function(*values), None
        except Exception as error:
            own = error.__traceback__.tb_next if error.__traceback__ else None
            return None, error_text("".join(traceback.format_exception(type(error), error, own)))

    def column(*columns: Column | str) -> Column:
        # Not earlier: a session must run to parse a type that is given as text.
        kind = DataType.fromDDL(returns) if isinstance(returns, str) else returns
        result = StructType([StructField("value", kind), StructField(ERROR, StringType())])
        return f.udf(tried, result)(*columns)

    return column


def observed(rows: DataFrame) -> DataFrame:
    """Return the rows; Spark then reports of each batch how many messages failed, and the highest id of them.

    Not why: Spark logs what it reports, and errors often quote the message. Raises `BadInput` for an error without id.
    """
    if ERROR not in rows.columns:
        return rows
    if "id" not in rows.columns:
        raise BadInput(
            "The rows have a column error but no column id, which identifies the failed message.",
            "Keep the id of the message, or give the column another name.",
        )
    failed = f.when(f.col(ERROR).isNotNull(), f.col("id"))
    return rows.observe(OBSERVED, f.size(f.collect_set(failed)).alias("failed"), f.max(failed).alias("last_id"))


def reported(progress: StreamingQueryProgress) -> tuple[int, int | None]:
    """Return what Spark reports of a batch for `observed`."""
    row = progress.observedMetrics.get(OBSERVED)
    if row is None:
        return 0, None
    failed, last_id = getattr(row, "values", row)  # beside their schema, over Spark Connect
    return failed, last_id


def split(rows: DataFrame) -> tuple[DataFrame, dict[int, str]]:
    """Return the rows to write, and the errors of messages by id.

    If any row of a message has an error, none of its rows is written: a redriven message is processed completely.
    """
    if ERROR not in rows.columns:
        return rows, {}
    failed = rows.where(f.col(ERROR).isNotNull()).select("id", f.col(ERROR).cast("string"))
    errors = {row[0]: row[1] for row in failed.collect()}
    good = rows.where(f.col(ERROR).isNull()).drop(ERROR)
    return (good.join(failed.select("id"), "id", "left_anti") if errors else good), errors
