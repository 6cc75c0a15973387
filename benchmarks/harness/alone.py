"""Run the adapter alone on a private PostgreSQL server, with the tokens of the harness, and print its last samples.

python -m benchmarks.harness.alone [--seconds 30] [--rate 800] [--workers 32] [--depth 1000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.places import postgresql_url

ADAPTER = Path(__file__).with_name("tablequeue-bench") / "main.py"
# The harness sends a token every 25 ms, and ends an adapter that has not ended 10 s after SIGTERM.
TOKENS_EVERY, GRACE = 0.025, 10
REQUIRED = {f"claim_{name}_ms" for name in ("p50", "p95", "p99")} | {"enqueue_rate", "completion_rate", "queue_depth"}


def run(url: str, seconds: float, rate: float, workers: int, depth: int | None = None) -> list[dict[str, Any]]:
    """Return what the adapter has written. With `depth` its producer fills the queue to that, without tokens."""
    settings = {
        "DATABASE_URL": url.replace("postgresql+psycopg", "postgres"),
        "SCENARIO": "long_horizon",
        "PRODUCER_PACING": "harness",
        "PRODUCER_RATE": str(rate),
        "WORKER_COUNT": str(workers),
        "SAMPLE_EVERY_S": "2",
    }
    if depth is not None:
        settings |= {"PRODUCER_MODE": "depth-target", "TARGET_DEPTH": str(depth)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(ADAPTER)], env=os.environ | settings, **pipes) as adapter:
        assert adapter.stdin is not None
        assert adapter.stdout is not None
        written = [adapter.stdout.readline()]  # the descriptor: it is there
        reader = Thread(target=lambda lines=adapter.stdout: written.extend(lines))
        reader.start()
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds:
            number = int(passed * rate) - sent
            if number and depth is None:
                print(f"ENQUEUE {number}", file=adapter.stdin, flush=True)
                sent += number
            time.sleep(TOKENS_EVERY)
        adapter.terminate()  # and stdin stays open, as in the harness
        assert adapter.wait(GRACE) == 0, f"it ends by itself, not by {adapter.returncode}"
        reader.join()
    return [json.loads(line) for line in written]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=800)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--depth", type=int, help="fill the queue to this depth, instead of a rate")
    arguments = parser.parse_args()
    with postgresql_url() as url:
        descriptor, *samples = run(url, arguments.seconds, arguments.rate, arguments.workers, arguments.depth)
    assert descriptor["kind"] == "descriptor", descriptor
    last = {sample["metric"]: sample["value"] for sample in samples}
    assert set(last) >= REQUIRED, last
    print(json.dumps(last, indent=1))


if __name__ == "__main__":
    main()
