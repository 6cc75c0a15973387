"""Metrics in the text format of Prometheus, and the counters of every process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tablequeue.observe.counters import COUNTED, counters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, with a sample for each set of labels.

    The name of a counter ends with `_total`. The help is one line without backslashes.
    """

    name: str
    help: str
    type: Literal["gauge", "counter"] = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: str) -> None:
        """Add a sample; None adds nothing."""
        if value is not None:
            self.samples.append((labels, value))


def text(metrics: Iterable[Metric]) -> str:
    """Return metrics as Prometheus reads them."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def counted() -> Iterator[Metric]:
    """Return the counters of this process.

    A used queue has every counter, also with 0: Prometheus does not see the first rise of a counter that begins with 1.
    """
    numbers = counters.read()
    for _, queue, _ in [*numbers]:
        for name in COUNTED.keys() - {"failed_messages"}:  # its outcomes are not known before
            numbers.setdefault((name, queue, ""), 0)
    for name, help in COUNTED.items():
        metric = Metric(f"tablequeue_{name}_total", help, "counter")
        for (counted, queue, outcome), number in sorted(numbers.items()):
            if counted == name:
                metric.add(number, queue=queue, **({"outcome": outcome} if outcome else {}))
        yield metric


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.type}"
    for labels, value in metric.samples:
        inside = ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items())
        yield f"{metric.name}{{{inside}}} {float(value)}" if inside else f"{metric.name} {float(value)}"
