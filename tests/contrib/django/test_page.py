"""The page about Django: its blocks make a project, whose tests pass."""

from __future__ import annotations

import re
from pathlib import Path

import django

from tests.contrib.django.test_project import made, run

PAGE = Path(__file__).parents[3] / "docs" / "django.md"
URLS = """
from django.urls import path
from shop.views import buy

urlpatterns = [path("buy/<int:order>/<int:amount>", buy)]
"""


def test_the_page_makes_a_project_whose_tests_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"^<!-- (\w+\.py) -->\n```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [name for name, _ in blocks] == ["settings.py", "tasks.py", "views.py", "tests.py"]
    files = dict(blocks) | {"urls.py": URLS}
    if django.VERSION < (6, 0):
        files["settings.py"] += 'INSTALLED_APPS += ["django_tasks"]\n'
        files["tasks.py"] = files["tasks.py"].replace("from django.tasks", "from django_tasks")
    made(tmp_path, files)
    run(tmp_path, "manage.py", "test", "--verbosity", "0")
