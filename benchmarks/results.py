"""The figures of the benchmarks, stored in benchmarks/results/<workload>.json. docs/performance.md is made from
them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.places import machine

FOLDER = Path(__file__).parent / "results"

OURS = "tablequeue"
# Units in which less is better.
LESS = (
    "ms", "s", "statements/min", "% of a core", "bytes/message", "commits/message", "statements/message", "ms/message",
    "µs/message",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """The values of one contender, one for each round. Figures with the same engine and `what` are compared."""

    engine: str
    what: str
    contender: str
    unit: str
    values: Sequence[float]
    aim: float | None = None
    """For tablequeue: what the figure itself must reach. For another contender: the ratio that tablequeue must
    reach."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def beside(self, ours: Figure) -> list[float]:
        """Return how many times as good `ours` is, round by round."""
        pairs = zip(ours.values, self.values, strict=True)
        return [theirs / mine if self.unit in LESS else mine / theirs for mine, theirs in pairs]


@dataclass(frozen=True)
class Results:
    workload: str
    title: str
    conditions: str
    """The same for all contenders: sizes, settings, durability."""
    figures: tuple[Figure, ...]
    machine: str

    def ours(self, figure: Figure) -> Figure | None:
        """Return the figure of tablequeue to which that of another contender is compared."""
        same = (each for each in self.figures if (each.engine, each.what) == (figure.engine, figure.what))
        return next((each for each in same if each.contender == OURS and figure.contender != OURS), None)

    def reached(self, figure: Figure) -> float:
        """Return the value that the aim refers to: the figure, or the median of tablequeue's ratios to it."""
        ours = self.ours(figure)
        return figure.median if ours is None else statistics.median(figure.beside(ours))

    def met(self, figure: Figure) -> bool | None:
        """Return whether the aim is reached, or None if there is no aim."""
        if figure.aim is None:
            return None
        less = self.ours(figure) is None and figure.unit in LESS
        return self.reached(figure) <= figure.aim if less else self.reached(figure) >= figure.aim


def save(workload: str, title: str, conditions: str, figures: Iterable[Figure], keep: bool = True) -> Results:
    """Print the figures of a workload, and store them unless `keep` is false."""
    results = Results(workload, title, conditions, tuple(figures), machine())
    if keep:
        FOLDER.mkdir(exist_ok=True)
        text = json.dumps(asdict(results), indent=1, default=list)
        (FOLDER / f"{workload}.json").write_text(text + "\n")
    Console().print(table(results))
    return results


def load(workload: str) -> Results:
    kept: dict[str, Any] = json.loads((FOLDER / f"{workload}.json").read_text())
    return Results(**kept | {"figures": tuple(Figure(**each) for each in kept["figures"])})


def table(results: Results) -> Table:
    shown = Table(title=f"{results.title}\n{results.machine}")
    for name, side in (("engine", "left"), ("what", "left"), ("contender", "left"), ("median", "right"), ("", "left")):
        shown.add_column(name, justify=side)  # type: ignore[arg-type]
    shown.add_column("tablequeue / contender", justify="right")
    shown.add_column("aim", justify="right")
    for row in rows(results):
        shown.add_row(*row)
    return shown


def rows(results: Results) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each figure: engine, what, contender, median, unit, tablequeue's ratio to it, and the aim."""
    for figure in results.figures:
        ours = results.ours(figure)
        ratio = "" if ours is None else f"{results.reached(figure):.2f}"
        met = results.met(figure)
        aim = "" if figure.aim is None else f"{figure.aim:g} {'met' if met else 'not met'}"
        yield figure.engine, figure.what, figure.contender, number(figure.median), figure.unit, ratio, aim


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def named(package: str) -> str:
    """Return the name of a package with its version."""
    return f"{package} {version(package)}"
