"""The health of a pipeline: whether its database answers, whether it stops, and the progress of its stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from threading import Event
from time import time

from tablequeue.observe.health import Health
from tablequeue.observe.metrics import Metric
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline.progress import Progress
from tablequeue.spark.pipeline.stages import Pipeline

# A metric for each of these values of `Progress`.
METRICS = {
    "messages": ("messages_total", "Messages that a stage has read."),
    "written": ("written_rows_total", "Rows that a stage has returned to be written."),
    "failed": ("failed_messages_total", "Messages that failed in a stage."),
    "dropped": ("dropped_rows_total", "Rows that the watermarks of a stage have dropped."),
    "seconds": ("batch_duration_seconds", "Duration of the last batch of a stage."),
    "lag": ("lag_messages", "Messages that a stage has not read yet."),
    "lag_seconds": ("lag_seconds", "Age of the first message that a stage has not read yet."),
}


class Watched:
    """A pipeline whose progress is noted by `watch`. `health` is for a `HealthServer`.

    /readyz fails when the database does not answer, before the first stage runs, and from the stop on.
    """

    def __init__(self, pipeline: Pipeline, stop: Event) -> None:
        self._pipeline = pipeline
        self._progress: Sequence[Progress] = ()
        self._last_batch: dict[str, float] = {}
        """When each stage last ended a batch, in seconds since 1970."""
        self.health = Health(
            self._check,
            stopping=stop.is_set,
            details=lambda: {"stages": [asdict(stage) for stage in self._progress]},
            metrics=self._metrics,
        )

    def watch(self, progress: Sequence[Progress]) -> None:
        before = {stage.stage: stage.batch for stage in self._progress}
        for stage in progress:
            if stage.batch is not None and stage.batch != before.get(stage.stage):
                self._last_batch[stage.stage] = time()
        self._progress = progress

    def _check(self) -> None:
        assert self._progress, "no stage runs yet"
        Options.of_database(self._pipeline.database).connect().queues()

    def _metrics(self) -> Iterable[Metric]:
        violations = Metric(
            "tablequeue_pipeline_violations_total", "Rows that have broken a rule of a stage, by rule.", "counter"
        )
        last = Metric(
            "tablequeue_pipeline_last_batch_time_seconds", "When a stage last ended a batch, in seconds since 1970."
        )
        metrics = {
            value: Metric(f"tablequeue_pipeline_{name}", help, "counter" if name.endswith("_total") else "gauge")
            for value, (name, help) in METRICS.items()
        }
        for stage in self._progress:
            labels = {"pipeline": self._pipeline.name, "stage": stage.stage}
            last.add(self._last_batch.get(stage.stage), **labels)
            for rule, number in stage.violations.items():
                violations.add(number, **labels, rule=rule)
            for value, metric in metrics.items():
                metric.add(getattr(stage, value), **labels)
        return last, violations, *metrics.values()
