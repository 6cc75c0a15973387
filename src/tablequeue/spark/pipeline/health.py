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
        messages = Metric("tablequeue_pipeline_messages_total", "Messages that a stage has read.", "counter")
        failed = Metric("tablequeue_pipeline_failed_messages_total", "Messages that failed in a stage.", "counter")
        dropped = Metric(
            "tablequeue_pipeline_dropped_rows_total", "Rows that the watermarks of a stage have dropped.", "counter"
        )
        violations = Metric(
            "tablequeue_pipeline_violations_total", "Rows that have broken a rule of a stage, by rule.", "counter"
        )
        last = Metric(
            "tablequeue_pipeline_last_batch_time_seconds", "When a stage last ended a batch, in seconds since 1970."
        )
        for stage in self._progress:
            labels = {"pipeline": self._pipeline.name, "stage": stage.stage}
            messages.add(stage.messages, **labels)
            failed.add(stage.failed, **labels)
            dropped.add(stage.dropped, **labels)
            for rule, number in stage.violations.items():
                violations.add(number, **labels, rule=rule)
            last.add(self._last_batch.get(stage.stage), **labels)
        return messages, failed, dropped, violations, last
