"""The options that all workloads share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

REPEATS = 5


def parser(doc: str | None, engines: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser. `engines` are those that the workload supports; it may add options of its own."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--engines", type=lambda text: text.split(","), default=list(engines), help=",".join(engines))
    made.add_argument("--repeats", type=int, help=f"rounds that count; {REPEATS} if not given, in some full runs more")
    made.add_argument("--full", action="store_true", help="as much as the page is about, whose figures it replaces")
    return made


def chosen(options: argparse.ArgumentParser, full_repeats: int = REPEATS) -> argparse.Namespace:
    """Return the arguments, with the default number of rounds of a full or a short run."""
    arguments = options.parse_args()
    arguments.repeats = arguments.repeats or (full_repeats if arguments.full else REPEATS)
    return arguments
