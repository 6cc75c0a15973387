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
    written    rows that its function has returned, without an error; each sink gets them. Of an archive 0.
    seconds    duration of the last batch; None before the first, and of an archive.
    dropped    rows that watermarks of the stage have dropped, because they came too late. Spark counts them when each
               task has aggregated its rows: late rows of one group may be one.
    violations rows that have broken a rule of the stage, by rule.
    lag        messages that it has not read yet: those that are ready in its queue, or that follow its position in the
               topic. `lag_seconds` is the age of the first one. None of other sources, and while no position is known.
    offset     its position in a topic, after the last batch.
    """

    stage: str
    batch: int | None = None
    messages: int = 0
    rate: float = 0.0
    failed: int = 0
    error: str | None = None
    written: int = 0
    seconds: float | None = None
    dropped: int = 0
    violations: Mapping[str, int] = field(default_factory=dict)
    lag: int | None = None
    lag_seconds: float | None = None
    offset: int | None = None
