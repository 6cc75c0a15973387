"""Run all workloads, one after the other: briefly, or in full with the page of the figures.

python -m benchmarks [--full] [workload ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from benchmarks import page


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    # Not by choices=, which in Python 3.11 refuses an empty list of workloads.
    parser.add_argument("workloads", nargs="*", metavar="workload", help=f"of {', '.join(page.WORKLOADS)}; all if none")
    parser.add_argument("--full", action="store_true", help="as much as the page is about; takes an hour and more")
    chosen = parser.parse_args(arguments)
    if unknown := {*chosen.workloads} - {*page.WORKLOADS}:
        parser.error(f"there is no workload {', '.join(sorted(unknown))}; name some of {', '.join(page.WORKLOADS)}")
    chosen.workloads = chosen.workloads or page.WORKLOADS
    return chosen


def main() -> None:
    arguments = parsed()
    options = ["--full"] if arguments.full else []
    failed = []
    for workload in arguments.workloads:
        print(f"-- {workload}", flush=True)
        # Each workload has a process of its own, and so does not inherit caches, threads or signals of the one before.
        if subprocess.run([sys.executable, "-m", f"benchmarks.{workload}", *options], check=False).returncode:
            failed.append(workload)
    if arguments.full:
        page.main()
    if failed:
        raise SystemExit(f"Failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
