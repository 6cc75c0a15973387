"""The options that the workloads share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def parser(doc: str | None, engines: Sequence[str], repeats: int = 5) -> argparse.ArgumentParser:
    """`engines` are those that the workload is for; it may add options of its own."""
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--engines", type=lambda text: text.split(","), default=list(engines), help=",".join(engines))
    made.add_argument("--repeats", type=int, default=repeats, help=f"rounds that count; {repeats} if not given")
    size = made.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few messages, to see it work; no figure is kept")
    size.add_argument("--full", action="store_true", help="as many messages as the figures are about, for everybody")
    return made
