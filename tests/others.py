"""The sources of other projects, whose tests run against this one: fetched from PyPI into the machine's cache.

Nothing of them is a part of this project.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import venv
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def prepared(cache: str, name: str, requirement: str, needed: Sequence[str]) -> tuple[Path, Path]:
    """Return the folder with the sources of a package, and a Python that has it and what its tests need.

    cache         the folder in the machine's cache.
    requirement   the package with its extras and its version.
    needed        further packages, or arguments of pip.
    """
    place = CACHE / cache
    folder, environment = place / name, place / f"{name}-env"
    python = environment / "bin" / "python"
    if not folder.exists():
        place.mkdir(parents=True, exist_ok=True)
        venv.create(environment, with_pip=True)
        pip = [str(python), "-m", "pip", "--quiet"]
        subprocess.run([*pip, "install", requirement, *needed], check=True)
        version = requirement.partition("[")[0].partition("==")[0] + "==" + requirement.partition("==")[2]
        subprocess.run([*pip, "download", "--no-binary", name, "--no-deps", "-d", str(place), version], check=True)
        (archive,) = place.glob(f"{name}-*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(place, filter="data")
        (place / archive.name.removesuffix(".tar.gz")).rename(folder)
    return folder, python
