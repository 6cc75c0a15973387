"""Rows that a stage cannot process: their messages become dead letters, and other messages are processed."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.types import DataType, StringType, StructField, StructType

from tablequeue.errors import BadInput
from tablequeue.model.attempts import error_text
from tablequeue.spark.values import DoesNotFit, fit

ERROR = "error"
# The name under which Spark reports the failed messages of a batch.
OBSERVED = "tablequeue"
# And those of its messages that do not fit the schema of their payload.
UNFITTING = "tablequeue.unfitting"
# And the rows that a stage returned without an error.
WRITTEN = "tablequeue.written"
# What an error says of a value: a function does not know the message that it is called for.
UNFIT = ", for this message, which does not fit"


def attempt(function: Callable[..., Any], returns: DataType | str) -> Callable[..., Column]:
    """Return `function` as a UDF that does not fail. Its result is a struct of `value` and `error`.

    `error` is null, or a text: the traceback if the function raises, and otherwise the value and the type, if what it
    returned does not fit. `returns` is the type of the value, as for `udf`; docs/pipelines.md lists what fits.
    """
    name = getattr(function, "__name__", type(function).__name__)

    def column(*columns: Column | str) -> Column:
        # Not earlier: a session must run to parse a type that is given as text.
        kind = DataType.fromDDL(returns) if isinstance(returns, str) else returns
        fitted = fit(kind)

        def tried(*values: Any) -> tuple[Any, str | None]:
            try:
                return fitted(function(*values)), None
            except DoesNotFit as unfit:
                place = f" at {unfit.place}" if unfit.place else ""
                told = f"{name} returned{place} {unfit.shown}{UNFIT} the type {unfit.kind.simpleString()}."
                return None, error_text(f"TypeError: {told}")
            except BaseException as error:  # also of asyncio, or a call of sys.exit
                if isinstance(error, KeyboardInterrupt):
                    raise
                own = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
                return None, error_text(own)

        result = StructType([StructField("value", kind), StructField(ERROR, StringType())])
        return f.udf(tried, result)(*columns)

    return column


def observed(rows: DataFrame, name: str = OBSERVED) -> DataFrame:
    """Return the rows; Spark then reports of each batch how many messages failed, and the highest id of them.

    Not why: Spark logs what it reports, and errors often quote the message. Raises `BadInput` for an error without id.
    """
    if ERROR not in rows.columns:
        return rows
    if "id" not in rows.columns:
        raise BadInput(
            "The rows have a column error, of the function or of a rule in expect=, but no column id, which identifies "
            "the failed message.",
            "Keep the id of the message; a sink that has no such column gets transform=lambda rows: rows.drop('id').",
        )
    failed = f.when(f.col(ERROR).isNotNull(), f.col("id"))
    return rows.observe(name, f.size(f.collect_set(failed)).alias("failed"), f.max(failed).alias("last_id"))


def reported(progress: StreamingQueryProgress) -> tuple[int, int | None]:
    """Return what Spark reports of a batch for `observed`."""
    found = [values for name in (UNFITTING, OBSERVED) if (values := values_of(progress, name))]
    return sum(failed for failed, _ in found), max(
        (last_id for _, last_id in found if last_id is not None), default=None
    )


def values_of(progress: StreamingQueryProgress, name: str) -> Sequence[Any]:
    """Return what Spark reports of a batch under a name; nothing of a batch without rows."""
    row = progress.observedMetrics.get(name)
    return () if row is None else getattr(row, "values", row)  # beside their schema, over Spark Connect


def separated(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the messages that fit the schema of their payload, and those that do not, with the column error."""
    return rows.where(f.col(ERROR).isNull()).drop(ERROR), rows.where(f.col(ERROR).isNotNull())


def counted(rows: DataFrame, without: Container[str]) -> DataFrame:
    """Return the rows; Spark then reports of each batch how many have nothing in any of these columns."""
    empty = [f.col(name).isNull() for name in rows.columns if name in without]
    return rows.observe(WRITTEN, f.count_if(reduce(and_, empty, f.lit(True))).alias("written"))


def written(progress: StreamingQueryProgress) -> int:
    """Return what Spark reports of a batch for `counted`."""
    return sum(values_of(progress, WRITTEN))


def split(rows: DataFrame) -> tuple[DataFrame, dict[int, str]]:
    """Return the rows to write, and the errors of messages by id.

    If any row of a message has an error, none of its rows is written: a redriven message is processed completely.
    """
    if ERROR not in rows.columns:
        return rows, {}
    failed = rows.where(f.col(ERROR).isNotNull()).select("id", f.col(ERROR).cast("string"))
    errors = {
        row[0]: row[1].replace(UNFIT, UNFIT.replace("this message", f"message {row[0]}")) for row in failed.collect()
    }
    good = rows.where(f.col(ERROR).isNull()).drop(ERROR)
    return (good.join(failed.select("id"), "id", "left_anti") if errors else good), errors
