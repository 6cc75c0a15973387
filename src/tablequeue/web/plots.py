"""Plots as SVG without scripts, style attributes or external resources, as the content security policy demands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from markupsafe import Markup

from tablequeue.verbs.readable import percent

WIDTH, HEIGHT = 600, 100


def spark(slices: Sequence[int], what: str, kind: str = "finished") -> Markup:
    """Return a small plot without axes: the messages in each slice of a window, the oldest slice first."""
    top = max(slices, default=0)
    words = escape(f"{what}: {sum(slices)} in all, at most {top} at a time")
    shape = _area(slices, top, kind) if top else f'<path class="zero" d="M0 {HEIGHT - 1}H{WIDTH}"/>'
    return Markup(_svg("spark" if top else "spark empty", words, shape))


def flow(pushed: Sequence[int], finished: Sequence[int], failed: Sequence[int], seconds: float) -> Markup:
    """Return a plot of pushed and finished messages and of failed attempts in a window.

    The page around it has the axes.
    """
    top = max((*pushed, *finished, *failed, 1))
    grid = "".join(f'<path class="grid" d="M0 {HEIGHT * part // 4}H{WIDTH}"/>' for part in (1, 2, 3))
    tips = "".join(_tips(pushed, finished, failed, seconds))
    lines = _line(pushed, top, "pushed") + (_line(failed, top, "failed") if any(failed) else "")
    shapes = grid + _area(finished, top, "finished") + lines + tips
    words = (
        f"{sum(pushed)} messages pushed, {sum(finished)} finished and {sum(failed)} attempts failed in "
        f"{seconds:g} seconds"
    )
    return Markup(_svg("flow", words, shapes))


def bar(shares: Mapping[str, int]) -> Markup:
    """Return a bar divided by these numbers, each in the colour of its name."""
    total = sum(shares.values()) or 1
    words = escape(", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in shares.items() if number))
    shapes, start = "", 0.0
    for name, number in shares.items():
        width = WIDTH * number / total
        shapes += f'<rect class="{name}" x="{start:.1f}" y="0" width="{width:.1f}" height="{HEIGHT}"/>'
        start += width
    return Markup(_svg("bar", words or "nothing", shapes))


def progress(fraction: float) -> Markup:
    """Return a bar of how much of the work on a message is done."""
    done = f'<rect class="in_progress" x="0" y="0" width="{WIDTH * fraction:.1f}" height="{HEIGHT}"/>'
    return Markup(_svg("bar", f"{percent(fraction)} done", done))


def _svg(kind: str, words: str, shapes: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{words}">{shapes}</svg>'
    )


def _points(slices: Sequence[int], top: int) -> Iterable[str]:
    """Yield the points of a line in steps: a count belongs to a slice of time, not to a moment."""
    step = WIDTH / len(slices)
    for place, count in enumerate(slices):
        height = HEIGHT - 1 - (HEIGHT - 4) * count / top
        yield f"{place * step:.0f} {height:.1f}H{(place + 1) * step:.0f}"


def _area(slices: Sequence[int], top: int, kind: str) -> str:
    steps = "L".join(_points(slices, top))
    return f'<path class="area {kind}" d="M0 {HEIGHT}L{steps}V{HEIGHT}Z"/>' + _line(slices, top, kind)


def _line(slices: Sequence[int], top: int, kind: str) -> str:
    return f'<path class="line {kind}" d="M{"L".join(_points(slices, top))}"/>'


def _tips(pushed: Sequence[int], finished: Sequence[int], failed: Sequence[int], seconds: float) -> Iterable[str]:
    """Yield rectangles with the tooltips of the slices."""
    step, length = WIDTH / len(pushed), seconds / len(pushed)
    for place, (new, done, no) in enumerate(zip(pushed, finished, failed, strict=True)):
        ago = seconds - place * length
        yield (
            f'<rect class="tip" x="{place * step:.0f}" y="0" width="{step:.0f}" height="{HEIGHT}">'
            f"<title>{ago:.0f} to {ago - length:.0f} s ago: {new} pushed, {done} finished, {no} failed</title></rect>"
        )
