"""The Python of Spark's workers: without tablequeue in it, Spark says `DATA_SOURCE_NOT_FOUND`.

Spark runs `python3` from the path of its Java, unless PYSPARK_PYTHON names another one. A program that runs as
`venv/bin/python program.py` often has another `python3` on its path.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

VARIABLE = "PYSPARK_PYTHON"


def ensure_python() -> None:
    """Let the workers of Spark run this Python, where nobody has chosen one.

    The next session does so as with an activated environment: the folder of this Python comes first on the path. So
    nothing changes on the other machines of a cluster. A session that runs on this machine gets the format now, and its
    workers this Python. For one on a cluster it is too late, which a warning says.
    """
    session = _running()
    if session is not None:
        _correct(session)
    if not os.environ.get(VARIABLE) and not _is_this(os.environ.get("PATH")):
        os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _is_this(path: str | None) -> bool:
    """Whether the `python3` on a path is this Python, or a Python with the same packages."""
    found = shutil.which("python3", path=path)
    # Not what a link leads to: the Python of an environment is a link to one without its packages.
    return found is not None and Path(found).parent.absolute() == Path(sys.executable).parent.absolute()


def _running() -> Any:
    """Return the session of this process, if it has one and it is not a session of Spark Connect. It imports
    nothing."""
    module = sys.modules.get("pyspark.sql.session")
    return module and module.SparkSession.getActiveSession()


def _correct(session: Any) -> None:
    context = getattr(session, "_sc", None)
    if context is None:  # of Spark Connect
        return
    environment = context._jvm.System.getenv()
    if environment.get(VARIABLE) or _is_this(environment.get("PATH")):
        return
    if not context.master.startswith("local"):
        warnings.warn(
            f"The workers of this session run python3, and not {sys.executable}: Spark may not find tablequeue. "
            f"Set {VARIABLE} before the session begins, on the driver and every executor.",
            stacklevel=4,
        )
        return
    from tablequeue.spark.source import TableQueueSource

    context.pythonExec = sys.executable
    session.dataSource.register(TableQueueSource)
