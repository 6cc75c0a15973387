"""A project as `startproject` makes it, with a server and workers in processes of their own, which are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from urllib.request import urlopen

import django
import pytest

import tablequeue

PATIENCE = 60

SETTINGS = """
INSTALLED_APPS += [{own} "tablequeue.contrib.django", "shop"]
DATABASES["default"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE", "timeout": 60}}
TASKS = {{
    "default": {{
        "BACKEND": "tablequeue.contrib.django.Backend",
        "QUEUES": ["default", "slow"],
        "OPTIONS": {{"lease": 2}},
    }}
}}
"""
TASKS = """
import os, time
from pathlib import Path
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

RAN = Path(__file__).parent / "ran"

@task()
def sell(n):
    with RAN.open("a") as file:
        file.write(f"{n}\\n")
    return n

@task(queue_name="slow", takes_context=True)
def wait(context):
    Path(f"{RAN}-{context.attempt}").touch()
    while context.attempt == 1:
        time.sleep(0.01)
    return context.attempt
"""
URLS = """
from django.db import transaction
from django.http import HttpResponse, JsonResponse
from django.urls import path
from shop.tasks import sell, wait

def order(request, n):
    with transaction.atomic():
        id = sell.enqueue(n).id
        if n % 10 == 9:
            transaction.set_rollback(True)
    return HttpResponse(id)

def begin(request):
    return HttpResponse(wait.enqueue().id)

def result(request, id):
    found = wait.get_backend().get_result(id)
    value = found.return_value if found.status == "SUCCESSFUL" else None
    errors = [error.exception_class_path for error in found.errors]
    return JsonResponse({"status": found.status, "value": value, "errors": errors})

urlpatterns = [path("order/<int:n>", order), path("begin", begin), path("result/<str:id>", result)]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    own = '"django_tasks",' if django.VERSION < (6, 0) else ""
    made(tmp_path, {"settings.py": SETTINGS.format(own=own), "tasks.py": TASKS, "urls.py": URLS})
    run(tmp_path, "manage.py", "migrate", "--verbosity", "0")
    return tmp_path


def made(folder: Path, files: dict[str, str]) -> None:
    """Make the project `shop` with these files, and these lines at the end of its settings."""
    run(folder, "-m", "django", "startproject", "shop", ".")
    before = (folder / "shop" / "settings.py").read_text()
    for name, text in files.items():
        (folder / "shop" / name).write_text(before + text if name == "settings.py" else text)


def run(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, timeout=PATIENCE, env=environment())


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("DJANGO")}


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-u", "manage.py", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str], words: str) -> str:
    """Wait until the process says it; then let it go on without a reader."""
    assert process.stdout is not None
    before = []
    for line in process.stdout:
        before.append(line)
        if words in line:
            Thread(target=process.stdout.read, daemon=True).start()
            return line
    raise AssertionError("".join(before))


def until(ready: object, *arguments: object) -> None:
    assert callable(ready)
    end = monotonic() + PATIENCE
    while not ready(*arguments):
        assert monotonic() < end
        sleep(0.1)


def test_tasks_of_killed_workers_run_and_those_of_rolled_back_requests_never(project: Path) -> None:
    worker = ("tablequeue_worker", "--no-reload", "--queue", "slow", "--queue", "default", "--max", "3")
    with started(project, "runserver", "--noreload", "127.0.0.1:0") as server:
        url = said(server, "http://127.0.0.1").split()[-1]

        def get(path: str) -> str:
            with urlopen(f"{url}{path}", timeout=PATIENCE) as answer:
                return str(answer.read().decode())

        with started(project, *worker) as first:
            waits = get("begin")
            until((project / "shop" / "ran-1").exists)
            for n in range(15):
                get(f"order/{n}")
            first.kill()
            first.wait()
        for n in range(15, 30):
            get(f"order/{n}")
        assert '"RUNNING"' in get(f"result/{waits}")
        with started(project, *worker) as second:
            until(lambda: '"SUCCESSFUL"' in get(f"result/{waits}"))
            assert '"value": 2' in get(f"result/{waits}")
            assert "LeaseLost" in get(f"result/{waits}")
            with tablequeue.connect(f"sqlite:///{project / 'db.sqlite3'}") as database:
                queue = database.queue("default_default")
                until(lambda: queue.stats().finished == 27)
                assert (queue.peek(), queue.dead()) == ([], [])
            second.terminate()
            assert second.wait(PATIENCE) == 0
    ran = Counter(map(int, (project / "shop" / "ran").read_text().split()))
    assert set(ran) == {n for n in range(30) if n % 10 != 9}
