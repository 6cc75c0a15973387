"""Values for the parameters of printed SQL, so that the client of the database can run it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tablequeue.engines.engine import Engine
from tablequeue.engines.table import Table
from tablequeue.engines.texts import chosen, texts_in
from tablequeue.model.definition import Definition

# Operations whose parameter `name` is that of a schedule.
_OF_SCHEDULES = ("enter_schedule", "schedule_state", "advance_schedule")
# Operations whose parameter `attempts` is that of a message.
_OF_A_MESSAGE = ("put_back", "put_aside", "put_history", "fail", "release", "range_detach")
# Operations whose parameter `expires` is that of a result or of a chord.
_OF_RESULTS = ("store_result", "store_part", "open_chord", "size_chord", "add_to_chord")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
# Example values in SQL that every database understands; those that differ are in the `client` of an engine.
_EXAMPLES = {
    "now": "null",
    "n": "10",
    "live": "10",
    "run": "1",
    "look": "10",
    "number": "2",
    "sum": "3",
    "start": "1",
    "end": "10",
    "final": "0",
    "least": "1",
    **dict.fromkeys(("first_offset", "last_offset", "last_id", "highest", "version"), "0"),
    **dict.fromkeys(("runs", "pieces", "left_ids", "apart_ids", "passed"), "'[]'"),
    "all_holes": "true",
    "consumed": "true",
    "id": "1",
    **{f"{operation}.id": id for operation, id in (("pump", "1000001"), ("range_pump", "1000002"))},
    "ids": "'[1]'",
    "after": "0",
    "low": "0",
    "high": "1000000",
    "low_water": "0",
    "since_sweep": "null",
    "until_lease": "null",
    "served": "0",
    "slot": "0",
    "starts": "0",
    "above": "9223372036854775807",
    "ends": "9223372036854775807",
    "noted": "0",
    "places": "'[]'",
    **dict.fromkeys(("claim_held.rows", "claim_find.rows"), "'[]'"),
    "by_group": "'[[0, 0, 1]]'",
    "slots": "'[]'",
    "removes": "0",
    "result": "'1'",
    "fraction": "0.5",
    "detail": "'{}'",
    "part": "0",
    "place": "0",
    "token": f"'{'0' * 32}'",
    "held": f"'{'0' * 32}'",
    "claim": f"'{'0' * 32}'",
    "producer": "'me'",
    "consumer": "'me'",
    "error": "'why'",
    "errors": "'[]'",
    "delay": "0",
    "delays": "'[[1, 0]]'",
    "expires": "null",
    **{f"{operation}.expires": "60" for operation in _OF_RESULTS},
    "age": "3600",
    "timeout": "1000",
    "priority": "0",
    "headers": "null",
    "key": "null",
    "store_result.key": "'task'",
    "seen": "0",
    "taken": "'[[\"key\", null]]'",
    "ended": "'[[\"key\", 1]]'",
    "keys": "'[\"key\"]'",
    "groups": "'[\"group\"]'",
    "due": "null",
    "since": "'2000-01-01 00:00:00'",
    "until": "'2030-01-01 00:00:00'",
    **dict.fromkeys(("pushed_at", "popped_at", "due_at", "lease_until", "finished_at"), "'2030-01-01 00:00:00'"),
    **dict.fromkeys(("first_popped_at", "expires_at", "outcome"), "null"),
    "new_id": "1",
    "state": "'ready'",
    "name": "'hourly'",
    "cron": "'0 * * * * UTC'",
    "stream": "'stream'",
    "batch": "1",
    "completed": "0",
    "batch_id": "1",
    **dict.fromkeys(("pushed", "cancelled", "dead"), "0"),
    **dict.fromkeys(("then_push", "failed_push"), "null"),
    "on_dead": "'wait'",
    **dict.fromkeys(("message", "on_id"), "1"),
    "on_table": "'tq_work'",
    "failures": "'{}'",
    "write": f"'{'0' * 32}'",
    "attempt": "'attempt'",
    "attempts": "'[\"attempt\"]'",
    **{f"{operation}.attempts": "1" for operation in _OF_A_MESSAGE},
    "writer": "'writer'",
    "stem": "'tq_'",
    "new_name": "'new'",
    "success": "true",
    **dict.fromkeys(("chord", "member"), "'task'"),
    "after_chord": "''",
    "within": "false",
    "force": "false",
}
_PAYLOADS = {"json": '\'{"to": "ada"}\'', "text": "'hello'"}


def parameters(text: str) -> set[str]:
    """Return the names of the parameters in a text, without its comments."""
    return {name for line in text.splitlines() if not _is_comment(line) for name in _PARAMETER.findall(line)}


def known(engine: Engine, operation: str, table: Table) -> dict[str, str]:
    """Return the parameters that have the same value at every run of an operation on that queue."""
    if operation in _OF_SCHEDULES:
        return {}
    catalogue = engine.words(table)["catalogue"]
    begins = {"start": "1"} if operation in ("create", "create_ranges") else {}
    return begins | {
        "name": engine.literal(table.name),
        "origin": engine.literal(table.name),
        "definition": engine.literal(table.entry),
        "schema_version": str(engine.schema_version),
        "table": f"'{catalogue}'",
    }


def found_between(engine: Engine, operation: str, text: str, table: Table) -> dict[str, str]:
    """Return expressions for the parameters of a text that Python takes from the rows of other statements.

    They are the texts of the folder `printed`, which may have the operation, and the name of the text, as conditions.
    """
    met = table.plan.met | {operation, text}
    words = engine.words(table)
    found = {
        name: engine.filled_in("\n".join(chosen(of_parameter, met)), words, table)
        for name, of_parameter in texts_in(engine.name, "printed").items()
    }
    return {name: expression for name, expression in found.items() if expression}


def examples(engine: Engine, operation: str, definition: Definition) -> dict[str, str]:
    """Return an example value for each parameter."""
    theirs = engine.client.values
    own = {
        "lease": repr(definition.lease),
        "max_attempts": str(definition.max_attempts),
        "payload": _PAYLOADS.get(definition.payload) or theirs["bytes"],
        **dict.fromkeys(("body", "returned"), theirs["bytes"]),
        "group": "'group'" if definition.groups else "''" if definition.strict else "null",
    }
    every = {**_EXAMPLES, **own, **theirs}
    return every | {name.partition(".")[2]: every[name] for name in every if name.startswith(f"{operation}.")}


def put(engine: Engine, text: str, values: Mapping[str, str]) -> str:
    """Replace parameters by these values. If `now` is among them, the SQL uses the database's own clock."""

    def line_of(line: str) -> str:
        if _is_comment(line):
            return line
        if "now" in values:
            line = line.replace(engine.clock, engine.own_clock)
        return _PARAMETER.sub(lambda match: values.get(match[1], match[0]), line)

    return "\n".join(map(line_of, text.splitlines()))


def named(engine: Engine, text: str) -> str:
    """Write the parameters, also those in comments, as the programmers of the database do."""
    return _PARAMETER.sub(lambda match: engine.client.parameter.format(match[1]), text)


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("--")
