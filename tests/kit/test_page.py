"""The page about tests: its blocks make projects, whose own test runners pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.support import run_pytest
from tests.nightly import by_night

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCKS = re.compile(r"^<!-- (\w+)/([\w/]+\.py) -->\n```py\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def project(name: str) -> dict[str, str]:
    return {file: text for folder, file, text in BLOCKS.findall(PAGE.read_text("utf-8")) if folder == name}


def test_every_block_is_of_a_project() -> None:
    assert {folder for folder, _, _ in BLOCKS.findall(PAGE.read_text("utf-8"))} == {
        "plain",
        "flask",
        "fastapi",
        "django",
    }
    assert PAGE.read_text("utf-8").count("```py\n") == len(BLOCKS.findall(PAGE.read_text("utf-8")))


def test_the_examples_pass(tmp_path: Path) -> None:
    pytest.importorskip("cronsim")
    run = run_pytest(tmp_path, project("plain"))
    assert run.counts == {"passed": 12}, run.output


def test_the_examples_pass_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    pytest.importorskip("cronsim")
    run = run_pytest(tmp_path, project("plain"), "--tablequeue-url", postgresql_url)
    assert run.counts == {"passed": 12}, run.output


def test_a_flask_application_is_rolled_back(tmp_path: Path) -> None:
    pytest.importorskip("flask")
    run = run_pytest(tmp_path, project("flask"))
    assert run.counts == {"passed": 2}, run.output


@pytest.mark.parametrize("kind", by_night(["postgresql", "mariadb"], "mariadb".__eq__))
def test_a_flask_application_is_rolled_back_on_a_server(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("flask")
    url = request.getfixturevalue(f"{kind}_url")
    run = run_pytest(tmp_path, project("flask"), environment={"TABLEQUEUE_TEST_URL": url})
    assert run.counts == {"passed": 2}, run.output


@pytest.mark.parametrize("plugin", by_night(["anyio", "asyncio"], "anyio".__eq__))
def test_a_fastapi_application_passes(tmp_path: Path, plugin: str) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    if plugin == "asyncio":
        pytest.importorskip("pytest_asyncio")
    files = project("fastapi")
    files["test_app.py"] = files["test_app.py"].replace("@pytest.mark.anyio", f"@pytest.mark.{plugin}")
    run = run_pytest(tmp_path, files, *(() if plugin == "asyncio" else ("-p", "no:asyncio")))
    assert run.counts == {"passed": 2}, run.output


SETTINGS = """
SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["tablequeue.contrib.django", "shop"]
TASKS = {"default": {"BACKEND": "tablequeue.contrib.django.Backend", "QUEUES": ["default"]}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""


def test_a_django_project_passes(tmp_path: Path) -> None:
    django = pytest.importorskip("django")
    tasks = "django.tasks" if django.VERSION >= (6, 0) else "django_tasks"
    settings = SETTINGS if django.VERSION >= (6, 0) else SETTINGS + 'INSTALLED_APPS += ["django_tasks"]\n'
    files = {
        **project("django"),
        "settings.py": settings,
        "shop/__init__.py": "",
        "shop/tasks.py": f"from {tasks} import task\n\n\n@task\ndef charge(order):\n    return order\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "django", "test", "--verbosity", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Ran 4 tests" in ran.stderr, ran.stdout + ran.stderr
