"""Run the tests of django-tasks-db with this backend and this worker in the place of its own.

    python -m tests.contrib.django.others [--python python3.13] [--url postgresql+psycopg://…] [-- arguments]

Its source distribution is fetched from PyPI (tests/others.py): with Django 6 if Python is 3.12 or newer, else with
Django 5.2 and django-tasks. MariaDB is used by mysqlclient if the environment has it, else by PyMySQL.
`stand_in/` has what the tests import of it, made of queues; what fails for reasons of theirs is in EXCUSED there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.others import prepared

PACKAGE = "django-tasks-db==0.13.0"
HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
OURS = ("--editable", f"{CHECKOUT}[django,postgresql,mysql]")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--url", default="")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    folder, python = prepared("tablequeue-django-tests", "django-tasks-db", PACKAGE, OURS, options.python)
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
