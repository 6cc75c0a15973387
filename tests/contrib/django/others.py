"""Run the tests of django-tasks-db with this backend and this worker in the place of its own.

    python -m tests.contrib.django.others [--python python3.13] [--url postgresql+psycopg://…] [-- arguments]

Its source distribution is fetched from PyPI into a folder of the machine's cache, with an environment of its own: with
Django 6 if Python is 3.12 or newer, else with Django 5.2 and django-tasks. Nothing of it is a part of this project.
`stand_in/` has what the tests import of it, made of queues; what fails for reasons of theirs is in EXCUSED there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tablequeue-django-tests"
PACKAGE = "django-tasks-db==0.13.0"
HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]


def prepared(python: str) -> tuple[Path, Path]:
    """Return the folder with the sources, and a Python that has Django and this checkout."""
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    folder, environment = CACHE / "sources", CACHE / f"env-{version}"
    own = environment / "bin" / "python"
    pip = [str(own), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if not environment.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-m", "venv", str(environment)], check=True)
        subprocess.run([*pip, "install", "--editable", f"{CHECKOUT}[django,postgresql,mysql]"], check=True)
        # Django's own driver, where it can be built. Else pymysql is installed in its place.
        subprocess.run([*pip, "install", "mysqlclient"], check=False)
    if not folder.exists():
        arguments = ["download", "--no-deps", "--no-binary", "django-tasks-db", "-d", str(CACHE)]
        subprocess.run([*pip, *arguments, PACKAGE], check=True)
        (archive,) = CACHE.glob("django_tasks_db-*.tar.gz")
        with tarfile.open(archive) as sources:
            sources.extractall(CACHE, filter="data")
        (CACHE / archive.name.removesuffix(".tar.gz")).rename(folder)
    return folder, own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--url", default="")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    folder, python = prepared(options.python)
    with TemporaryDirectory() as place:
        shutil.copytree(HERE / "stand_in", place, dirs_exist_ok=True)
        shutil.copy(folder / "tests" / "tests.py", Path(place, "tests", "tests.py"))
        given = {
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PLACE": place,
            "URL": options.url,
            "PYTHONPATH": f"{place}{os.pathsep}{CHECKOUT / 'src'}",
            "PYTHONWARNINGS": "ignore",
        }
        command = [str(python), "-m", "manage", "test", "--noinput", *(options.arguments or ["tests.tests"])]
        return subprocess.run(command, cwd=place, env=os.environ | given).returncode


if __name__ == "__main__":
    sys.exit(main())
