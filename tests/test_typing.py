"""Types for editors and type checkers: the typed program passes pyright's strict mode, and its claims are true."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import tablequeue
from tablequeue import (
    Claim,
    Consumer,
    Database,
    Definition,
    Queue,
    QueueOptions,
    Subscription,
    SubscriptionOptions,
    Topic,
    TopicOptions,
)
from tablequeue.aio import AsyncClaim, AsyncConsumer, AsyncDatabase, AsyncQueue, AsyncSubscription, AsyncTopic
from tests import typed_program

pytestmark = pytest.mark.quick

PROGRAM = Path(typed_program.__file__)
MODULES = (
    "tablequeue tablequeue.aio tablequeue.bulk.stream tablequeue.consumer tablequeue.database tablequeue.errors "
    "tablequeue.model.definition tablequeue.model.message tablequeue.queue tablequeue.topic tablequeue.worker"
).split()


def pyright(program: Path) -> list[str]:
    """Return pyright's errors, by line."""
    if shutil.which("node") is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("pyright needs Node, and there is none.")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=program.parent)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in report["generalDiagnostics"]]


def test_a_typed_program_passes_the_strict_mode() -> None:
    assert pyright(PROGRAM) == []


def test_each_mistake_in_it_is_refused(tmp_path: Path) -> None:
    """Checked without the comments that suppress the errors."""
    lines = PROGRAM.read_text("utf-8").splitlines()
    mistakes = {number for number, line in enumerate(lines, 1) if line.endswith("# type: ignore")}
    assert len(mistakes) > 5
    bare = tmp_path / "bare.py"
    bare.write_text("\n".join(line.removesuffix("# type: ignore").rstrip() for line in lines), "utf-8")
    assert {int(one.partition(":")[0]) for one in pyright(bare)} == mistakes


def test_a_typed_program_does_what_it_says(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    typed_program.main(url)
    asyncio.run(typed_program.use_async(url))


def test_the_options_of_create_queue_are_those_of_a_definition() -> None:
    options, hints = get_type_hints(QueueOptions), get_type_hints(Definition)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(Definition)}
    assert options.keys() == fields.keys()
    for name, kind in fields.items():
        durations = {
            "lease": tablequeue.Duration,
            **dict.fromkeys(("expires", "unique_for"), tablequeue.Duration | None),
        }
        assert options[name] == durations.get(name, kind), name
    text = inspect.getdoc(Database.create_queue) or ""
    explained = [line.split()[0] for line in text.splitlines() if line[:1].isalpha() and "  " in line]
    assert sorted(explained) == sorted(fields)


@pytest.mark.parametrize(
    ("verb", "options"), [(Database.create_topic, TopicOptions), (Topic.subscribe, SubscriptionOptions)]
)
def test_each_option_of_a_topic_is_explained(verb: object, options: type) -> None:
    assert [name for name in get_type_hints(options) if name not in (inspect.getdoc(verb) or "")] == []


@pytest.mark.parametrize("name", MODULES)
def test_a_module_exports_what_it_has(name: str) -> None:
    module = importlib.import_module(name)
    exported = module.__all__
    assert len(set(exported)) == len(exported)
    assert not [one for one in exported if not hasattr(module, one)]
    own = [one for one, value in vars(module).items() if inspect.isclass(value) and value.__module__ == name]
    assert not [one for one in own if not one.startswith("_") and one not in exported]


SYNC = (Database, Consumer, Queue, Claim, Topic, Subscription)
ASYNC = (AsyncDatabase, AsyncConsumer, AsyncQueue, AsyncClaim, AsyncTopic, AsyncSubscription)


@pytest.mark.parametrize("kind", [*SYNC, *ASYNC])
def test_each_verb_is_explained(kind: type) -> None:
    assert inspect.getdoc(kind)
    verbs = {name: value for name, value in vars(kind).items() if callable(value) and not name.startswith("_")}
    assert verbs
    assert not [name for name, verb in verbs.items() if not inspect.getdoc(verb)]


@pytest.mark.parametrize(
    ("verb", "own", "result"),
    [
        (AsyncDatabase.create_queue, Database.create_queue, "AsyncQueue"),
        (AsyncDatabase.queue, Database.queue, "AsyncQueue"),
        (AsyncDatabase.create_topic, Database.create_topic, "AsyncTopic"),
        (AsyncDatabase.topic, Database.topic, "AsyncTopic"),
        (AsyncTopic.subscribe, Topic.subscribe, "AsyncSubscription"),
        (AsyncTopic.subscription, Topic.subscription, "AsyncSubscription"),
    ],
)
def test_help_says_what_an_async_verb_returns(verb: object, own: object, result: str) -> None:
    mine, theirs = inspect.signature(verb), inspect.signature(own)  # type: ignore[arg-type]
    assert mine.parameters == theirs.parameters
    assert mine.return_annotation == result


@pytest.mark.parametrize(("own", "async_one"), [*zip(SYNC, ASYNC, strict=True)])
def test_an_async_class_has_each_verb(own: type, async_one: type) -> None:
    verbs = {name for name in dir(own) if name[0] != "_" and callable(getattr(own, name))} - {"of"}
    assert [name for name in sorted(verbs) if not hasattr(async_one, name)] == []
