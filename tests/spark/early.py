"""A Python process of Spark's that answers before it imports what it needs: `early.py MODULE`.

Spark waits ten seconds for the answer. The imports take two seconds of a core: too long beside busy neighbours.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from pyspark.worker_util import get_sock_file_to_executor

if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as for a module that Python is told to run
    with get_sock_file_to_executor(timeout=None) as file:
        import_module(sys.argv[1]).main(file, file)
