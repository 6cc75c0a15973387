"""Files around the code name only what exists: workflows, the Makefile, forms, CONTRIBUTING, versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from tablequeue.engines.mysql.connection import OLDEST as OLDEST_MYSQL
from tablequeue.engines.sqlite.connection import OLDEST as OLDEST_SQLITE

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSIONS = (ROOT / "docs" / "versions.md").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
AROUND = [
    *sorted((ROOT / ".github").rglob("*.*")),
    *(ROOT / name for name in ("Makefile", "compose.yaml", ".pre-commit-config.yaml")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
AT_THE_ROOT = {
    *".ci .editorconfig .gitattributes .github .gitignore .pre-commit-config.yaml".split(),
    *"ARCHITECTURE.md CHANGELOG.md CODE_OF_CONDUCT.md CONTRIBUTING.md LICENSE README.md SECURITY.md".split(),
    *"Makefile compose.yaml pyproject.toml uv.lock".split(),
    *"benchmarks deploy docs examples scripts src tests".split(),
}
PATH = re.compile(r"(?<![\w/.-])((?:docs|tests|scripts|examples|benchmarks|src|\.github)/[\w./-]*\w)(?![\w%*<{])")
VARIABLE = re.compile(r"\bTABLEQUEUE_TEST_\w+")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def jobs(workflow: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return found


def commands(workflow: Path) -> str:
    steps = chain.from_iterable(job["steps"] for job in jobs(workflow).values())
    return "\n".join(step.get("run", "") for step in steps)


def matrix(workflow: Path, key: str) -> set[str]:
    """Return the values of a key in the matrices of a workflow's jobs."""
    matrices = [job.get("strategy", {}).get("matrix", {}) for job in jobs(workflow).values()]
    listed = chain.from_iterable(each.get(key, []) for each in matrices)
    included = (row[key] for each in matrices for row in each.get("include", []) if key in row)
    return {*listed, *included}


def targets(makefile: str) -> set[str]:
    rules = re.findall(r"^([a-z][a-z -]*):(?!=)", makefile, re.MULTILINE)
    return set(" ".join(rules).split())


def code(text: str) -> str:
    """Return the commands of a page: its shell blocks, and text between backticks."""
    return "\n".join(
        [*re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE), *re.findall("`([^`\n]+)`", text)]
    )


def made(commands: str) -> set[str]:
    """Return the targets that the commands pass to `make`."""
    found = re.findall(r"(?:^|&& |[A-Z]=\S+ )make((?: [a-z][a-z-]*(?![\w=/.-]))+)", commands, re.MULTILINE)
    return set(" ".join(found).split())


def test_what_is_made_is_in_the_makefile() -> None:
    pages = [path for path in AROUND if path.suffix == ".md"]
    told = {name_of(page): made(code(page.read_text("utf-8"))) for page in pages}
    told |= {name_of(workflow): made(commands(workflow)) for workflow in WORKFLOWS}
    assert {name: there for name, names in told.items() if (there := names - targets(MAKEFILE))} == {}


def test_the_workflows_make_something() -> None:
    ours = {workflow.stem: made(commands(workflow)) for workflow in WORKFLOWS}
    assert ours["ci"] >= {"check", "lint", "test", "dist"}
    assert ours["release"] >= {"check", "dist"}


def test_help_names_every_target_that_a_person_calls() -> None:
    helped = "\n".join(re.findall('@echo "(.*)"', MAKEFILE))
    called = targets(MAKEFILE) - {"help", "servers", "clients"}
    assert {target for target in called if not re.search(rf"(?:make |; ){target}(?![\w-])", helped)} == set()


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="not a checkout of git")
def test_nothing_stray_is_committed_at_the_root() -> None:
    # In a container the checkout is another user's, which git refuses otherwise.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert {path.partition("/")[0] for path in listed.rstrip("\0").split("\0")} == AT_THE_ROOT


def test_the_gate_runs_lint_check_and_test() -> None:
    """`make check` has an environment of its own, where a test of a missing package fails that passes elsewhere."""
    gate = (ROOT / ".ci" / "run").read_text("utf-8")
    assert re.findall("^make (.*)$", gate, re.MULTILINE) == ["lint", "check", "test"]


def test_a_path_that_is_named_is_there() -> None:
    missing = []
    for file in AROUND:
        for path in PATH.findall(file.read_text("utf-8")):
            # A link is relative to its page; elsewhere a path is relative to the project.
            if not (ROOT / path).exists() and not (file.parent / path).exists():
                missing.append((name_of(file), path))
    assert missing == []


def test_a_variable_that_is_named_is_read() -> None:
    readers = [*(ROOT / "tests").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    readers.append(ROOT / "src" / "tablequeue" / "testing" / "plugin.py")
    read = "\n".join(path.read_text("utf-8") for path in readers)
    named = {(name_of(file), name) for file in AROUND for name in VARIABLE.findall(file.read_text("utf-8"))}
    assert {(file, name) for file, name in named if f'"{name}"' not in read} == set()


def test_the_servers_of_the_workflows_are_in_compose() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    named = {word for workflow in WORKFLOWS for word in matrix(workflow, "service")}
    for workflow in WORKFLOWS:
        named |= set(re.findall(r"docker compose .*?([a-z]+)$", commands(workflow), re.MULTILINE))
    assert named == set(services)


def test_the_pythons_of_the_workflow_are_those_of_the_package() -> None:
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert matrix(ROOT / ".github" / "workflows" / "ci.yml", "python") == named
    oldest = min(named, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={oldest}"


def test_pre_commit_runs_what_check_runs() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    for hook in repository["hooks"]:
        assert hook["entry"].removesuffix(" --force-exclude").replace(".venv-check/bin", "$(CHECK_RUN)") in MAKEFILE


def test_the_changelog_keeps_to_its_headings() -> None:
    releases = re.findall("^## (.*)$", CHANGELOG, re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", release) for release in releases[1:])
    kinds = set(re.findall("^### (.*)$", CHANGELOG, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize(
    ("name", "oldest"),
    [("SQLite", OLDEST_SQLITE), *((name, oldest) for name, oldest in OLDEST_MYSQL.items())],
)
def test_the_page_of_versions_has_the_oldest_servers(name: str, oldest: tuple[int, ...]) -> None:
    (row,) = re.findall(rf"^\| {name} \| ([\d.]+) \|", VERSIONS, re.MULTILINE)
    numbers = [int(part) for part in row.split(".")]
    padded = [*numbers, *[0] * (len(oldest) - len(numbers))]
    assert tuple(padded) == oldest
