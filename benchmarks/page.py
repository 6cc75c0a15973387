"""Write docs/performance.md and its plots from the results of the benchmarks.

python -m benchmarks.page
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Plot

from benchmarks.results import FOLDER, OURS, Figure, Results, load, number, rows

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
PLOTS = DOCS / "performance"

# In the order of the page.
WORKLOADS = (
    "one_by_one", "bulk", "side_by_side", "cost", "topics", "held_snapshot", "contention", "fan_in", "backlog", "crowd",
    "sizes", "spark", "spark_lakes", "spark_tables", "spark_cluster", "workers", "idle", "lateness", "sqs",
)  # fmt: skip

HEAD = """# Performance

The contenders in a table were measured in one run, in rounds in which each has its turn. A figure is the median of the
rounds. A ratio is the median of the ratios of the rounds, tablequeue over the other: above 1, tablequeue is faster (for
times: shorter). Every delivery is checked: each message must arrive once. A queue has its default features: leases,
fencing, retries and a history. Every commit is flushed. The other queues are used through their public API with their
best documented settings, which are in [benchmarks/contenders](../benchmarks/contenders).

`make bench` measures with fewer messages and rounds, in some minutes. `make bench-full` takes an hour and more, and
writes this page.
"""

MACHINES = "Measured on: {}."
NOTHING = "Nowhere: every aim is met, and no other contender is faster."
# A ratio above this counts as a draw: the difference is smaller than that between the rounds.
DRAW = 0.95

BLUE, GREY, INK = "#3b82c4", "#9aa5b1", "#888888"
mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tablequeue", "text.parse_math": False})


def text(all_results: Sequence[Results]) -> str:
    """The page."""
    machines = " / ".join(dict.fromkeys(each.machine for each in all_results))
    behind = [line for results in all_results for line in slower(results)] or [NOTHING]
    parts = [HEAD, MACHINES.format(machines), "## Where tablequeue is slower, or misses an aim", "\n".join(behind)]
    for results in all_results:
        parts += [
            f"## {results.title}",
            f"`python -m benchmarks.{results.workload} --full`. {results.conditions}",
            f"![{results.title}](performance/{results.workload}.svg)",
            "\n".join(markdown(results)),
        ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def slower(results: Results) -> Iterator[str]:
    """Yield a line for each figure in which another contender is better, and for each aim that is missed."""
    for figure in results.figures:
        ours, reached = results.ours(figure), results.reached(figure)
        missed = results.met(figure) is False
        # Other settings of tablequeue do not count as rivals.
        behind = ours is not None and reached < DRAW and not figure.contender.startswith(OURS)
        if missed or behind:
            what = f"- {results.title}: {figure.engine}, {figure.what}: "
            what += f"{number(reached)} {figure.unit}" if ours is None else f"{number(reached)} of {figure.contender}"
            yield what + (f", **misses the aim of {figure.aim:g}**" if missed else "")


def markdown(results: Results) -> Iterator[str]:
    yield "| engine | what | contender | median | | tablequeue / contender | aim |"
    yield "|---|---|---|---:|---|---:|---|"
    last = ("", "")
    for engine, what, *rest in rows(results):
        # A cell that repeats the one above stays empty.
        shown = ("" if engine == last[0] else engine, "" if (engine, what) == last else what)
        last = (engine, what)
        yield f"| {' | '.join([*shown, *rest])} |"


def plot(results: Results, path: Path) -> None:
    """Plot the medians as bars, one plot for each workload, with whiskers from the worst round to the best."""
    plots = panels(results.figures)
    height = sum(0.75 + 0.26 * len(bars) for _, bars in plots)
    figure = Plot(figsize=(7.2, height), layout="constrained")
    grid = figure.subplots(len(plots), 1, squeeze=False, height_ratios=[1.4 + len(bars) for _, bars in plots])
    for axes, (title, bars) in zip(grid[:, 0], plots, strict=True):
        names = [name for name, _ in bars]
        middles = [each.median for _, each in bars]
        spread = [
            [middle - min(each.values) for middle, (_, each) in zip(middles, bars, strict=True)],
            [max(each.values) - middle for middle, (_, each) in zip(middles, bars, strict=True)],
        ]
        colors = [BLUE if each.contender.startswith(OURS) else GREY for _, each in bars]
        axes.barh(range(len(bars)), middles, height=0.7, color=colors, xerr=spread, error_kw={"ecolor": INK})
        for place, (_, each) in enumerate(bars):
            axes.annotate(
                number(each.median),
                (max(each.values), place),
                (4, 0),
                textcoords="offset points",
                va="center",
                color=INK,
                fontsize=8,
            )
        axes.set_yticks(range(len(bars)), names, fontsize=8, color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_title(title, fontsize=9, color=INK, loc="left")
        axes.tick_params(colors=INK, labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(INK)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})


def panels(figures: Sequence[Figure]) -> list[tuple[str, list[tuple[str, Figure]]]]:
    """Group the figures into plots: the contenders of one workload, or all workloads of one engine and unit if there
    are none."""
    found = []
    for (engine, unit), same in groupby(figures, lambda each: (each.engine, each.unit)):
        things = [list(each) for _, each in groupby(same, lambda each: each.what)]
        if any(len(each) > 1 for each in things):
            for each in things:
                bars = [(one.contender, one) for one in each]
                found.append((f"{engine}: {each[0].what}, {unit}", bars))
        else:
            found.append((f"{engine}, {unit or 'ratio'}", [(named(one), one) for each in things for one in each]))
    return found


def named(figure: Figure) -> str:
    return figure.what if figure.contender == OURS else f"{figure.what}, {figure.contender}"


def measured() -> list[Results]:
    return [load(name) for name in WORKLOADS if (FOLDER / f"{name}.json").exists()]


def main() -> None:
    all_results = measured()
    PLOTS.mkdir(exist_ok=True)
    for results in all_results:
        plot(results, PLOTS / f"{results.workload}.svg")
    PAGE.write_text(text(all_results))


if __name__ == "__main__":
    main()
