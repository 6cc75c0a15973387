"""The sources of other projects, whose tests run against this one: fetched from PyPI into the machine's cache.

Nothing of them is a part of this project.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def prepared(
    cache: str, name: str, requirement: str, needed: Sequence[str], interpreter: str = sys.executable
) -> tuple[Path, Path]:
    """Return the folder with the sources of a package, and a Python that has it and what its tests need.

    cache         the folder in the machine's cache.
    requirement   the package with its extras and its version.
    needed        further packages, or arguments of pip.
    interpreter   the Python of the environment.
    """
    release = subprocess.run([interpreter, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    place = CACHE / cache
    folder, environment = place / name, place / f"{name}-{release}"
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if not environment.exists():
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run([interpreter, "-m", "venv", str(environment)], check=True)
        subprocess.run([*pip, "install", requirement, *needed], check=True)
    if not folder.exists():
        version = requirement.partition("[")[0].partition("==")[0] + "==" + requirement.partition("==")[2]
        fetch = ["download", "--no-binary", name, "--no-deps", "-d", str(place), version]
        subprocess.run([*pip, *fetch], check=True)
        (archive,) = place.glob(f"{name.replace('-', '?')}-*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(place, filter="data")
        (place / archive.name.removesuffix(".tar.gz")).rename(folder)
    return folder, python
