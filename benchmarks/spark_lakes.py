"""Compare the sinks of lakes: ToDelta and ToIceberg beside ToParquet, for a batch that Spark has computed.

    python -m benchmarks.spark_lakes [--full] [--rows 1000000] [--repeats 5] [--memory ToDelta]

With --memory it writes one batch by one sink instead, as a stage does, with two executors apart from the driver, and
tells the greatest memory of the driver's processes, Python and Java. Every count is checked.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from deltalake import DeltaTable

import tablequeue
from benchmarks.options import REPEATS
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue.spark.pipeline import ToDelta, ToIceberg, ToParquet
from tablequeue.spark.pipeline.sinks import Batch, Sink
from tablequeue.spark.session import session

FULL, ROWS = 5_000_000, 1_000_000
CLUSTER = "local-cluster[2,1,1024]"
CONDITIONS = """Two cores; rows of an id and a payload of 100 random characters, in the memory of Spark. A batch is a
new folder or table, on the local disk."""
SINKS: dict[str, Callable[[str], Sink]] = {
    "ToParquet": lambda folder: ToParquet(folder),
    "ToDelta": lambda folder: ToDelta(folder),
    "ToIceberg": lambda folder: ToIceberg(f"bench.{Path(folder).name}", str(Path(folder).parent)),
}


def numbers(spark: Any, rows: int) -> Any:
    payload = "concat(sha2(cast(id as string), 256), substring(sha2(cast(-id as string), 256), 1, 36)) as payload"
    return spark.range(0, rows, 1, 8).selectExpr("id", payload)


def written(name: str, folder: Path) -> int:
    """The rows in the folder of a sink; of Delta those that the table names."""
    if name == "ToDelta":
        return int(DeltaTable(folder).to_pyarrow_dataset().count_rows())
    place = folder.parent / "bench" / folder.name / "data" if name == "ToIceberg" else folder
    return int(ds.dataset(place, partitioning=None).count_rows())


def peak(process: int | str) -> int:
    """The greatest memory of a process so far, in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="as much as the page is about, whose figures it replaces")
    parser.add_argument("--rows", type=int, help=f"{FULL:,} in a full run, else {ROWS:,}, if not given")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--memory", choices=SINKS, help="write one batch by this sink, and tell the driver's memory")
    arguments = parser.parse_args()
    rows = arguments.rows or (FULL if arguments.full else ROWS)
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as directory:
        folder = Path(directory)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = session("benchmark", CLUSTER if arguments.memory else "local[2]", folder / "spark", lasting=True)
        database = tablequeue.connect(f"sqlite:///{folder / 'queues.db'}")
        database.create_queue("work")
        frame = numbers(spark, rows).persist()
        attempts = count()

        def write(name: str) -> float:
            place = folder / f"{name.lower()}_{next(attempts)}"
            sink = SINKS[name](str(place))
            batch = Batch("bench/lake", "query", 0, database, {})
            found = rate(lambda: sink.write(frame, batch), rows)
            assert written(name, place) == rows
            shutil.rmtree(place if place.exists() else folder / "bench")
            return found

        if arguments.memory:
            found = write(arguments.memory)
            java = peak(spark.sparkContext._gateway.proc.pid)
            print(f"{arguments.memory}: {rows:,} rows, {found:,.0f}/s; Python {peak('self')} MB, Java {java} MB")
        else:
            assert frame.count() == rows
            rates = interleaved({name: partial(write, name) for name in SINKS}, arguments.repeats, "rounds")
            figures = []
            for name in ("ToDelta", "ToIceberg"):
                what = f"a batch of {rows:,} rows by {name}"
                figures.append(Figure("SQLite", what, OURS, "rows/s", rates[name]))
                figures.append(Figure("SQLite", what, "ToParquet", "rows/s", rates["ToParquet"], 0.7))
            save("spark_lakes", "Spark: sinks of lakes", CONDITIONS.replace("\n", " "), figures, keep=arguments.full)
        spark.stop()
        database.close()


if __name__ == "__main__":
    main()
