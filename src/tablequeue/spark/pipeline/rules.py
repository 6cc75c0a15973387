"""Rules about the rows of a stage: what is done with a row that breaks one, and how many rows did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.listener import StreamingQueryProgress

from tablequeue.errors import BadInput
from tablequeue.spark.pipeline import rejects
from tablequeue.spark.pipeline.failures import ERROR, values_of

OnViolation = Literal["dead", "drop", "stop", "warn"]

# The column with the rules that a row breaks, as an error says it, and what Spark reports of them by batch.
BROKEN = "tablequeue_broken"
OBSERVED = "tablequeue.rules"


@dataclass(frozen=True, slots=True)
class Rules:
    """Conditions by name, of which each must be true, not null; and what is done with a row for which one is not."""

    conditions: Mapping[str, Column | str]
    on_violation: OnViolation

    def __post_init__(self) -> None:
        if self.on_violation not in get_args(OnViolation):
            raise BadInput(
                f"on_violation is {self.on_violation!r}.", f"Give one of: {', '.join(get_args(OnViolation))}."
            )
        if not all(self.conditions):
            raise BadInput("A rule has no name.", "Give each one a name, by which it is counted.")

    def applied(self, rows: DataFrame, stage: str, *, of_queue: bool) -> DataFrame:
        """Return the rows without those to drop, and with the errors of those that fail or are rejected.

        Spark reports how many rows break each rule. A row with an error breaks none.
        """
        broken = [
            f.when(~f.coalesce(f.expr(one) if isinstance(one, str) else one, f.lit(False)), f.lit(name))
            for name, one in self.conditions.items()
        ]
        if ERROR in rows.columns:
            broken = [f.when(f.col(ERROR).isNull(), one) for one in broken]
        names = f.array_compact(f.array(*broken))
        whole = rows.withColumn(BROKEN, names)
        if self.on_violation == "dead" and not of_queue:
            whole = whole.withColumn(
                rejects.REJECTED,
                f.when(f.size(BROKEN) > 0, rejects.message(rows, stage, rule=f.array_join(BROKEN, "; "))),
            )
        whole = whole.observe(
            OBSERVED,
            *(f.count_if(f.array_contains(BROKEN, name)).alias(str(n)) for n, name in enumerate(self.conditions)),
        )
        if self.on_violation == "drop":
            whole = whole.where(f.size(BROKEN) == 0)
        elif self.on_violation == "dead" and of_queue:
            told = f.when(f.size(BROKEN) > 0, f.concat(f.lit("Broken rule: "), f.array_join(BROKEN, "; ")))
            before = [f.col(ERROR)] if ERROR in rows.columns else []
            whole = whole.withColumn(ERROR, f.coalesce(*before, told))
        return whole if self.on_violation == "stop" else whole.drop(BROKEN)

    def reported(self, progress: StreamingQueryProgress) -> dict[str, int]:
        """Return how many rows of a batch break each rule."""
        return dict(zip(self.conditions, values_of(progress, OBSERVED) or [0] * len(self.conditions), strict=True))


def checked(rows: DataFrame) -> DataFrame:
    """Return the rows of a batch. Raises `BadInput` if one breaks a rule at which the stage stops."""
    if BROKEN not in rows.columns:
        return rows
    first = rows.where(f.size(BROKEN) > 0).first()
    if first is not None:
        whose = f" of message {first['id']}" if "id" in rows.columns else ""
        raise BadInput(
            f"A row{whose} breaks the rule {'; '.join(first[BROKEN])}.",
            "Correct the stage or the rule; or go on by another on_violation.",
        )
    return rows.drop(BROKEN)
