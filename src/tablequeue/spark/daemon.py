"""The process from which Spark forks its Python workers on a machine. It has imported what they need.

Spark's own daemon imports PySpark alone, because other modules could start threads, which a fork loses. Each worker
then imports the rest, which takes 1.5 s of a core, and 2.5 s for a writer (Python 3.11, PySpark 4.3). The modules here
are safe: OpenBLAS starts no threads when told so, and the threads of pyarrow's allocator start again.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from socket import socket

from pyspark import daemon

from tablequeue.spark.forks import begin

# The daemon of a session that Spark starts before it reads a stream.
FIRST = "pyspark.sql.worker.create_data_source"

_worker = daemon.worker


def worker(connection: socket, authenticated: bool) -> int:
    """Work as Spark's worker does; end without a traceback if Java has closed the connection, as it ends a task."""
    loaded = len(sys.modules)
    try:
        return _worker(connection, authenticated)
    except BrokenPipeError:
        return 1
    finally:
        if len(sys.modules) > loaded:
            _freeze()


def _freeze() -> None:
    """Exclude loaded modules from garbage collection after each task, which takes 14 ms with a database driver."""
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import_module("tablequeue.spark.source")
    _, module, *folder = sys.argv
    if module == "pyspark.worker":
        import_module("pandas")  # pyarrow imports it at the first Python list
    # A worker collects garbage after each task. Without these modules that saves 0.1 s of a core.
    _freeze()
    if module == FIRST and folder:  # a local session
        begin(*folder)
    daemon.worker = worker
    daemon.manager()
