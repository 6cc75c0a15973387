"""What is in deploy/: generated files are current, metrics exist and have data, manifests fit the program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tablequeue import Database
from tablequeue.bulk.stream import Stream
from tablequeue.cli.serve import serve
from tablequeue.cli.work import work
from tablequeue.observe.counters import counters
from tablequeue.observe.health import PATHS, Health
from tablequeue.sqs import app
from tablequeue.web.metrics import health as health_of_dashboard
from tablequeue.worker import Worker
from tablequeue.worker.health import health as health_of_worker
from tablequeue.worker.worker import CLOSE_TIMEOUT
from tests.servers import Place, only
from tests.support import claimed
from tests.worker.support import PATIENCE, until, working

pytestmark = pytest.mark.quick

DEPLOY = Path(__file__).parents[1] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
# A metric of ours in an expression, with its matchers if it has any.
USED = re.compile(r"(tablequeue_\w+)(?:\{([^}]*)\})?")
# Those of a metric of labels that Prometheus adds.
ADDED = {"instance"}


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the manifests by kind and name."""
    found = [document for file in MANIFESTS for document in yaml.safe_load_all(file.read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def test_the_generated_files_are_current() -> None:
    pytest.importorskip("pyspark")
    from deploy.generate import files

    for path, content in files().items():
        assert path.read_text() == content, f"run: python -m deploy.generate ({path.name})"


@only("sqlite")
def test_every_metric_of_the_board_and_the_alerts_has_data(db: Database) -> None:
    pytest.importorskip("pyspark")
    found = samples(running(db))
    board = json.loads((DEPLOY / "grafana" / "tablequeue.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    assert len(expressions) > 20
    assert len(rules) > 5
    for expression in [*expressions, *(rule["expr"] for rule in rules)]:
        assert expression.count("(") == expression.count(")")
        for name, matchers in USED.findall(expression):
            having = [labels for labels in found.get(name, ()) if matched(matchers, labels)]
            assert having, f"{name}{{{matchers}}} has no data"
            grouped = {label.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for label in by.split(",")}
            assert grouped <= having[0].keys() | ADDED, expression
    for text in (text for rule in rules for text in rule["annotations"].values()):
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= {"queue", "stream", "table", "instance"}


def matched(matchers: str, labels: dict[str, str]) -> bool:
    for label, sign, value in re.findall(r'(\w+)(=~?)"([^"]*)"', matchers):
        if value == f"${label}":
            if label not in labels and label not in ADDED:
                return False
        elif not re.fullmatch(value if sign == "=~" else re.escape(value), labels.get(label, "")):
            return False
    return True


def running(db: Database) -> list[str]:
    """Return what processes answer to /metrics that have had something of everything to do."""
    from tablequeue.spark.pipeline import Pipeline
    from tablequeue.spark.pipeline.health import Watched
    from tablequeue.spark.pipeline.progress import Progress

    begun, go = Event(), Event()

    def handle(message: Any) -> None:
        if message.payload == "dead":
            raise ValueError
        if message.payload == "last":
            begun.set()
            assert go.wait(PATIENCE)

    queue = db.create_queue("work", max_attempts=1)
    events = db.create_topic("events")
    events.subscribe("mail")
    events.push("x")
    queue.push_many([*"ab"])
    Stream(queue, "numbers/doubled").advance(0, 1)
    claimed(queue).release()
    counters.add("lost_leases", "work", 1)
    worker = Worker(maximum=1)
    worker.handler("work")(handle)
    with working(worker, db):
        try:
            queue.push_many(["dead", "last"])
            assert begun.wait(PATIENCE)
            until(lambda: ("failed_messages", "work", "dead") in counters.read(), "the failure is counted")
            endpoint = app(db)
            endpoint.answered["SendMessage", "OK"] += 1
            watched = Watched(Pipeline("numbers", url=str(db.engine.url)), Event())
            watched.watch([Progress("doubled", 0, 40, 1.0, seconds=0.5, lag=3, lag_seconds=2.0)])
            healths = [health_of_worker(worker, db), health_of_dashboard(db), endpoint.health, watched.health]
            return [answered(health) for health in healths]
        finally:
            go.set()


def answered(health: Health) -> str:
    answer = health.answer("/metrics")
    assert answer is not None
    assert answer.status == 200
    return answer.body


def samples(texts: list[str]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def test_the_manifests_fit_the_program() -> None:
    found = documents()
    commands = {"work": work, "serve": serve}
    for (kind, name), one in found.items():
        if kind != "Deployment":
            continue
        template = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        (container,) = template["spec"]["containers"]
        command, *words = container["args"]
        with commands[command].make_context(command, words) as context:
            given = context.params
        port = given["health_port"] if command == "work" else given["port"]
        assert [container["ports"][0]["containerPort"]] == [port]
        for probe in ("livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["path"] in PATHS
            assert asked["port"] == container["ports"][0]["name"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", "a restart does not bring a database back"
        if command == "work":
            stops = container["lifecycle"]["preStop"]["sleep"]["seconds"] + given["shutdown_timeout"] + CLOSE_TIMEOUT
            assert template["spec"]["terminationGracePeriodSeconds"] > stops
            budget = found["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"]
            assert budget.items() <= template["metadata"]["labels"].items()
    scaled = found["ScaledObject", "emails-worker"]["spec"]
    assert ("Deployment", scaled["scaleTargetRef"]["name"]) in found
    trigger = scaled["triggers"][0]
    assert ("TriggerAuthentication", trigger["authenticationRef"]["name"]) in found
    assert ("Deployment", found["Service", "tablequeue-dashboard"]["metadata"]["name"]) in found


@only("postgresql")
def test_the_query_of_keda_counts_what_workers_are_needed_for(db: Database, place: Place) -> None:
    query = documents()["ScaledObject", "emails-worker"]["spec"]["triggers"][0]["metadata"]["query"]
    query = re.sub(r"\btq_", f"{place.schema}.tq_", query)
    emails = db.create_queue("emails", lease=3600)

    def needed() -> int:
        ((number,),) = place.execute(query)
        return int(number)

    assert needed() == 0
    emails.push_many(range(300))
    emails.push("later", delay=3600)
    assert needed() == 300
    emails.push_many(range(2), delay=0.001)
    held = emails.pop_many(200)
    claimed(emails).fail("no", retry=False)
    assert needed() == 301, "one is dead; 200 are in progress"
    emails.complete_many(held)
    assert needed() == 101
    with place.sa_engine().begin() as connection:
        emails_table = sa.table("tq_emails", sa.column("due_at"), sa.column("state"), schema=place.schema)
        connection.execute(
            emails_table.update().where(emails_table.c.state == "scheduled").values(due_at=sa.func.now())
        )
    assert needed() == 102, "it is due, and no claim has seen it"


def test_the_unit_of_systemd(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "tablequeue-worker.service").read_text()
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and line[0] not in "#[")
    _, command, *words = settings["ExecStart"].split()
    ports = set()
    for instance in ("", *"123456789"):
        with work.make_context(command, [word.replace("%i", instance) for word in words]) as context:
            assert int(settings["TimeoutStopSec"]) > context.params["shutdown_timeout"] + CLOSE_TIMEOUT
            ports.add(context.params["health_port"])
    assert len(ports) == 10, "each instance listens on a port of its own"
    assert min(ports) >= 1024, "a unit without capabilities cannot listen on lower ones"
    assert max(ports) < 32768, "the system gives the others to connections"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed.")
    copy = tmp_path / "tablequeue-worker.service"
    copy.write_text(unit.replace("/srv/app/.venv/bin/tablequeue", "/bin/true"))
    checked = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60)
    assert checked.stderr == "", checked.stderr
    # What is left: the network, and the memory of Java. 10 times the exposure that it prints, of 100 at most.
    security = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", "--no-pager", str(copy)]
    rated = subprocess.run(security, capture_output=True, text=True, timeout=60)
    assert rated.returncode == 0, rated.stdout


def test_the_dockerfile_starts_what_the_program_has() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    start = json.loads(next(line for line in lines if line.startswith("CMD [")).removeprefix("CMD "))
    assert start[:2] == ["--json", "work"]
    with work.make_context("work", start[2:]) as context:
        assert f"EXPOSE {context.params['health_port']}" in lines
        assert context.params["health_host"] == "0.0.0.0"
    assert any(line.startswith("USER ") for line in lines), "without root"
