"""The examples run, and print what they promise."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep

import pytest
import sqlalchemy as sa
import yaml
from examples.race import MESSAGES, WORKERS

from tests.servers import Kind, Place, free_port, only
from tests.worker.support import until

ROOT = Path(__file__).parents[1]


def test_the_burst(tmp_path: Path) -> None:
    plot = tmp_path / "burst.svg"
    command = [sys.executable, "-m", "examples.burst", "--messages", "500", "--consumers", "4", "--plot", str(plot)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    consumers = [int(number) for number in re.findall(r"│ +[\d.]+ +│ +[\d,]+ +│ (\d+)", run.stdout)]
    assert consumers[-1] == 0, "all have retired"
    assert 1 < max(consumers) <= 4
    assert plot.read_text().lstrip().startswith("<?xml")


@only("postgresql")  # on SQLite with the third service, Spark, in tests/spark/test_events.py
def test_the_events(place: Place, tmp_path: Path) -> None:
    place.execute(f"create schema {place.schema}")
    url = sa.make_url(place.url).update_query_dict({"options": f"-csearch_path={place.schema}"})
    command = [sys.executable, "-m", "examples.events", "--messages", "3000", "--services", "alerts,audit"]
    run = subprocess.run(
        [*command, "--url", url.render_as_string(hide_password=False)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("is killed (SIGKILL) with") == 2
    for service in ("alerts", "audit"):
        assert re.search(rf"events/{service} +│ 3,000 +│ 3,000 +│ 3,000", run.stdout), run.stdout


def test_the_race(kind: Kind, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "examples.race", "--url", kind.url(request)]
    for _ in range(2 if kind.name == "postgresql" else 1):  # it leaves nothing behind that would disturb the next one
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        naive, claiming = re.findall(r"│ (?:select|tablequeue)[^│]*│ +(\d+) │ +(\d+) │ +(\d+) │ +(\d+) │", run.stdout)
        assert naive == (str(MESSAGES * WORKERS), "0", str(MESSAGES), "0"), "every worker gets every message"
        assert claiming == (str(MESSAGES), str(MESSAGES), "0", "0"), "every message goes to one worker"


@only("postgresql")
def test_the_services_of_the_compose_file(place: Place, tmp_path: Path) -> None:
    """Each one with the command of the file, in the order in which they wait for each other."""
    place.execute(f"create schema {place.schema}")
    shutil.copy(ROOT / "examples" / "shop.py", tmp_path)
    services = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())["services"]
    assert {*services} == {"database", "web", "worker", "dashboard"}
    url = sa.make_url(place.url).update_query_dict({"options": f"-csearch_path={place.schema}"})
    token = secrets.token_hex(16)
    values = {"SHOP_URL": url.render_as_string(hide_password=False), "TABLEQUEUE_SERVE_TOKEN": token}
    values["TABLEQUEUE_URL"] = values["SHOP_URL"]
    ports = {number: str(free_port()) for number in ("8000", "8080", "9100")}
    health = {"web": "8000/openapi.json", "dashboard": "8080/readyz", "worker": "9100/readyz"}
    assert services["worker"]["depends_on"] == {"web": {"condition": "service_healthy"}}
    with ExitStack() as running:
        for name, path in health.items():
            service = services[name]
            assert service["environment"].keys() == values.keys()
            assert all(one.endswith(path.partition("/")[0]) for one in service.get("ports", ()))
            words = [*service.get("entrypoint", ["tablequeue"]), *service["command"]]
            words = [ports.get(word, "127.0.0.1" if word == "0.0.0.0" else word) for word in words]
            command = [str(Path(sys.executable).with_name(words[0])), *words[1:]]
            process = running.enter_context(_started(command, tmp_path, values))
            number, _, page = path.partition("/")
            while _answer(f"{ports[number]}/{page}") is None:
                assert process.poll() is None, f"{name} has ended"
                sleep(0.05)
        shown = f"{ports['8000']}/orders/7"
        _answer(shown, method="POST")
        until(lambda: _answer(shown) == '{"shipped":true}', "the worker")
        assert "orders" in (_answer(f"{ports['8080']}/", token=token) or "")


@contextmanager
def _started(command: list[str], folder: Path, values: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, cwd=folder, env={**os.environ, **values}, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def _answer(path: str, method: str = "GET", token: str | None = None) -> str | None:
    """Return the answer of a page; None if the server is not there yet, or not ready."""
    request = urllib.request.Request(f"http://127.0.0.1:{path}", method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError:
        return None
