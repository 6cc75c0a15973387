"""Rows that a stage cannot process: their messages become dead letters, and the others go on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StringType, StructField, StructType

from tablequeue.errors import BadInput

ERROR = "error"


def attempt(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """`function` as a UDF that does not fail: a struct of its `value`, and of the `error` if it raised.

    `returns` is the type of the value, as `udf` takes it. The error is the traceback, as text.
    """

    def tried(*values: Any) -> tuple[Any, str | None]:
        try:
            return function(*values), None
        except Exception as error:
            own = error.__traceback__.tb_next if error.__traceback__ else None
            return None, "".join(traceback.format_exception(type(error), error, own))

    def column(*columns: Column | str) -> Column:
        # Not before: a type in words is read by a running session.
        kind = DataType.fromDDL(returns) if isinstance(returns, str) else returns
        result = StructType([StructField("value", kind), StructField(ERROR, StringType())])
        return f.udf(tried, result)(*columns)

    return column


def check(rows: DataFrame) -> None:
    if ERROR in rows.columns and "id" not in rows.columns:
        raise BadInput(
            "The rows have a column error and no column id, which says whose error it is.",
            "Keep the id of the message, or give the column another name.",
        )


def divide(rows: DataFrame) -> tuple[DataFrame, dict[int, str]]:
    """The rows that can be written, and the errors of the messages that failed.

    Of a message that has an error anywhere no row is written: it will come back whole, if it is redriven.
    """
    if ERROR not in rows.columns:
        return rows, {}
    failed = rows.where(f.col(ERROR).isNotNull()).select("id", f.col(ERROR).cast("string"))
    errors = {row[0]: row[1] for row in failed.collect()}
    good = rows.where(f.col(ERROR).isNull()).drop(ERROR)
    return (good.join(failed.select("id"), "id", "left_anti") if errors else good), errors
