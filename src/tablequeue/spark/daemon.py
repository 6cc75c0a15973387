"""What Spark forks Python workers of, on this machine: a process that has imported what they need.

Spark's own has imported PySpark alone, because other modules might start threads, which a fork loses; each worker then
imports the rest, for 1.5 s of a core, and 2.5 s if it is to write (Python 3.11, PySpark 4.3). These here are safe:
OpenBLAS starts no thread if told so, and the allocator's in pyarrow starts again.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import_module("tablequeue.spark.source")
    if sys.argv[1:] == ["pyspark.worker"]:
        import_module("pandas")  # pyarrow does at the first Python list that it is given
    # A worker collects garbage after each task, and need not look through all of this: 0.1 s of a core.
    gc.freeze()
    manager()
