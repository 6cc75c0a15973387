"""A schema that does not exist: no command creates it without being told to."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from tablequeue.cli import main
from tests.cli.support import COMMANDS
from tests.servers import Kind, Place, only

pytestmark = only("postgresql", "mariadb", "mssql")


def run(place: Place, *words: str) -> Result:
    assert place.schema
    result = CliRunner().invoke(main, ["--url", place.url, "--schema", place.schema, *words], input="")
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_makes_a_schema(place: Place, kind: Kind, command: str) -> None:
    result = run(place, *command.split())
    assert not place.open().has_schema()
    if result.exit_code and command != "doctor":  # which has something to say of a server for tests
        assert f"no schema '{place.schema}'" in result.stderr


def test_queue_create_makes_a_schema_when_asked(place: Place, kind: Kind) -> None:
    refused = run(place, "queue", "create", "work", "--json")
    assert refused.exit_code == 1
    assert "--create-schema" in json.loads(refused.stderr)["remedy"]
    assert not place.open().has_schema()
    assert run(place, "queue", "create", "work", "--create-schema").exit_code == 0
    assert place.open().queues() == ["work"]
    for words in (["work"], ["work", "--create-schema"], ["other"]):
        assert run(place, "queue", "create", *words).exit_code == 0
    assert place.open().queues() == ["other", "work"]
