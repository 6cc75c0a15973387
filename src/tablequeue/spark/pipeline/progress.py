"""What is reported of a stage while a pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a stage in this run.

    batch      number of its last batch in the checkpoint, of an archive that of its last run; None before the first.
    messages   rows that it has read, or archived; `rate` is rows a second in the last batch. A stage that unites its
               messages with themselves reads each one twice.
    failed     messages that have failed, of a stage with rejects those that did not fit their schema; `error` is the
               last line of the last error.
    dropped    rows that watermarks of the stage have dropped, because they came too late. Spark counts them when each
               task has aggregated its rows: late rows of one group may be one.
    violations rows that have broken a rule of the stage, by rule.
    ready      messages that are ready in its queue or subscription; None if it reads neither.
    """

    stage: str
    batch: int | None
    messages: int
    rate: float
    failed: int
    error: str | None
    ready: int | None
    dropped: int = 0
    violations: Mapping[str, int] = field(default_factory=dict)
