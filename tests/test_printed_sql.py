"""The clients psql, mariadb and sqlite3 run the output of `tablequeue sql` as it is printed."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tablequeue import Queue
from tablequeue.cli import main
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.printed import kind_of, operations, script
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import PAYLOADS, Definition, SubscriptionDefinition, TopicDefinition
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place, only
from tests.support import DESIGNS, claimed, counts, design_group
from tests.test_clients import mariadb, need, psql
from tests.test_upgrade import next_version

ROOT = Path(__file__).parent

# The client of each engine, and its arguments for a database.
PROGRAMS: dict[str, Callable[[sa.URL, str], tuple[list[str], dict[str, str]]]] = {
    "sqlite": lambda url, schema: (["sqlite3", "-bail", url.database or ""], {}),
    "postgresql": lambda url, schema: (
        ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"],
        psql(url, schema) | {"PGOPTIONS": f"-c search_path={schema} -c client_min_messages=warning"},
    ),
    "mariadb": lambda url, schema: (["sh", "-c", "$MARIADB"], mariadb(url, schema)),
}
# What a script says to its program between two texts, so that each has a session of its own.
ANEW: dict[str, Callable[[sa.URL], str]] = {
    "sqlite": lambda url: f".open {url.database}\n",
    "postgresql": lambda url: "\\connect -\n",
    "mariadb": lambda url: "\\r\n",
}
# Options of `sql` that make a queue of a design.
OPTIONS = {
    "fifo": "",
    "heap": "--order heap",
    "lifo": "--order lifo",
    "due": "--order due",
    "priority": "--order priority",
    "strict": "--strict",
    "groups": "--groups",
    "fair": "--groups fair",
}
# Operations that are no scripts: they read rows from the client, end what their session has begun, or undo part of it.
# And one that needs an index which queues have whose messages expire.
NO_SCRIPTS = {
    "expire",
    "push_copy",
    "topic_copy",
    "topic_stage_copy",
    "keep_results",
    "leave",
    "put_back",
    "close_holes",
    "push_keys",
}


@dataclass
class Shell:
    """The client program, in the schema of a test, which exists already."""

    place: Place
    kind: Kind

    def printed(self, operation: str, *options: str, queue: str = "work") -> str:
        words = ["sql", operation, queue, "--dialect", self.kind.name, *options]
        if self.place.schema and "--schema" not in options:
            words += ["--schema", self.place.schema]
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def run(self, *texts: str) -> str:
        """Run texts, each in a session of its own, in one process: its start takes longer than most of them."""
        url = sa.make_url(self.place.url)
        command, environment = PROGRAMS[self.kind.name](url, self.place.schema or "")
        need(command[0] if command[0] != "sh" else "mariadb")
        text = ANEW[self.kind.name](url).join(texts)
        done = subprocess.run(
            command, input=text, env=os.environ | environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr + text
        return done.stdout

    def kind_of(self, operation: str) -> str:
        return kind_of(self.kind.engine_class(sa.make_url(self.place.url).get_dialect()()), operation)

    def sql(self, operation: str, *options: str) -> str:
        return self.run(self.printed(operation, *options))


@pytest.fixture(params=[kind for kind in KINDS if kind.name in PROGRAMS], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


@pytest.fixture
def shell(place: Place, kind: Kind) -> Shell:
    if place.schema:
        place.execute(f"create schema {place.schema}")
    return Shell(place, kind)


def names_of(place: Place) -> set[str]:
    """Return the objects in the schema or the file, without the catalogue of an empty database."""
    inspector = sa.inspect(place.sa_engine())
    return {*inspector.get_table_names(place.schema), *inspector.get_view_names(place.schema)} - {"tq_queues"}


def indexes_of(place: Place) -> dict[str, list[Any]]:
    inspector = sa.inspect(place.sa_engine())
    tables = inspector.get_table_names(place.schema)
    return {table: sorted(map(_shape, inspector.get_indexes(table, place.schema)), key=str) for table in tables}


def _shape(index: Any) -> tuple[Any, ...]:
    return index["name"], tuple(index["column_names"]), index["unique"]


def forget_dropped(place: Place) -> None:
    """Let the library make tables with the names of dropped ones, to compare them."""
    place.execute(f"delete from {place.table('_dropped')}")  # noqa: S608 (a name of ours)


def use(queue: Queue) -> None:
    """Push, pop, fail and complete."""
    payload = {"json": {"to": "ada"}, "text": "x", "bytes": b"\0"}[queue.definition.payload]
    queue.push(payload, **design_group(queue, "g"))
    claimed(queue).fail("why", retry_in=0)
    message = claimed(queue)
    assert (message.payload, message.attempt) == (payload, 2)
    message.complete()


def test_a_program_that_gets_several_texts_stops_at_an_error(shell: Shell) -> None:
    assert shell.run("select 1;\n", "select 2;\n")
    with pytest.raises(AssertionError):
        shell.run("select 1;\n", "select nothing from nowhere;\n", "select 2;\n")


HISTORIES = ("keep", "none", 3600.0)


@pytest.mark.parametrize("design", DESIGNS)
def test_create_and_drop(shell: Shell, design: str) -> None:
    """Queues with every history, each with another payload from design to design."""
    definitions: dict[str, dict[str, Any]] = {}
    options: dict[str, list[str]] = {}
    for number, history in enumerate(HISTORIES, start=[*DESIGNS].index(design)):
        payload = PAYLOADS[number % len(PAYLOADS)]
        name = f"{payload}_{history:.0f}" if isinstance(history, float) else f"{payload}_{history}"
        definitions[name] = {**DESIGNS[design], "history": history, "payload": payload}
        options[name] = [*OPTIONS[design].split(), "--history", str(history), "--payload", payload]
    shell.run(*(shell.printed("create", *words, queue=name) for name, words in options.items()))
    database = shell.place.open()
    for name, definition in definitions.items():
        use(database.create_queue(name, **definition))
    assert [finding for finding in database.doctor() if finding.queue] == []
    printed = indexes_of(shell.place)
    shell.run(*(shell.printed("drop", *words, queue=name) for name, words in options.items()))
    assert database.queues() == []
    assert names_of(shell.place) == {"tq__dropped", "tq__identity", "tq__paused"}
    forget_dropped(shell.place)
    for name, definition in definitions.items():
        database.create_queue(name, **definition)
    assert indexes_of(shell.place) == printed, "as the library itself makes it"


def test_any_printable_name(shell: Shell) -> None:
    """A name is a value of the SQL, quoted. A queue may have a table that is not that of its name."""
    names = ["a'b \\\\' :now :payload", "\u8ba2\u5355-EU", 'a"b`c]d;']
    shell.run(*(shell.printed("create", queue=name) for name in names))
    shell.run(shell.printed("create", "--table", "tq_other", queue="Other"))
    database = shell.place.open()
    assert database.queues() == sorted([*names, "Other"])
    for name in database.queues():
        use(database.create_queue(name))
    assert "tq_other" in names_of(shell.place)
    shell.run(*(shell.printed("drop", queue=name) for name in names))
    assert database.queues() == ["Other"]


@pytest.mark.parametrize("design", ["fifo", "groups"])
def test_with_a_schema(shell: Shell, design: str) -> None:
    """The SQL names and creates the schema, while the connection is in another one."""
    if not shell.kind.has_schemas:
        pytest.skip("there are no schemas")
    schema = f"test_{secrets.token_hex(8)}"
    elsewhere = Place(shell.place.url, schema)
    options = [*OPTIONS[design].split(), "--schema", schema]
    try:
        for operation in (*MAKING, "procedures"):
            shell.sql(operation, *options)
        use(elsewhere.open().create_queue("work", **DESIGNS[design]))
        shell.sql("drop", *options)
        assert names_of(elsewhere) == {"tq__schedules", "tq__dropped", "tq__identity", "tq__paused"}
        assert names_of(shell.place) == set()
    finally:
        elsewhere.execute((shell.kind.drop_schema or "").format(schema))
        elsewhere.close()


MAKING = ("create", "create_streams", "create_staged", "create_schedules", "create_progress")
"""The operations that make tables."""
LIMITS = "_rates?$|_slots$|_stripes$|claim_rooms"


@pytest.mark.parametrize("design", by_night(DESIGNS, ("fifo", "strict", "groups", "fair").__contains__))
def test_every_operation_with_values(shell: Shell, design: str) -> None:
    """Each operation runs to its end, on a queue with all parts."""
    options = OPTIONS[design].split()
    makes = (*MAKING, "create_moving", "create_task_results")
    shell.run(*(shell.printed(operation, *options) for operation in makes))
    queue = shell.place.open().create_queue("work", **DESIGNS[design])
    shell.place.open().create_queue("other", **DESIGNS[design])  # from which messages are moved
    for _ in range(3):
        queue.push({"to": "ada"}, **design_group(queue, "g"))
    ours = {*operations(shell.kind.engine_class.name)} | {*operations_of(shell.kind.engine_class.name)}
    roles = {"procedures", "grant"}
    once = "create|drop|install|upgrade|register|unregister|unused|set_version"
    made = {name for name in ours if re.match(once, name)}
    of_groups = {"promote", "claim_run", "pop_same_group", "drop_groups"}
    needless = of_groups if not queue.definition.grouped else set()
    # Of queues that have limits, expiry, keys for a time, results, batches or dependencies.
    needless |= {
        name
        for name in ours
        if re.search(
            "_rates?$|_slots$|_stripes$|claim_rooms|^expire|^(take|end|name|taken|forget)_keys|^result$|^stats_expired$"
            "|batch|^note_failed$|^uncancelled$|dependencies|^(existing_ids|awaited_tables|is_awaited|freed_heads|free_heads|waits_for|waiting_fronts|block_fronts)$",
            name,
        )
    }
    fair = {"begin_ring", "claim_ring", "find_in_turn", "move_ring", "claim_alone", "claim_group", "pop_group"}
    needless |= fair if design != "fair" else set()
    # MariaDB refuses to print it: a take looks on a second connection.
    needless |= {"take"} if design == "fair" and shell.kind.name == "mariadb" else set()
    run = sorted(ours - roles - made - NO_SCRIPTS - needless)
    of_queues = [operation for operation in run if shell.kind_of(operation) == "queue"]
    shell.run(*(shell.printed(operation, *options, "--values") for operation in of_queues))


@pytest.mark.parametrize("ordered", [False, True])
def test_every_operation_of_topics_with_values(shell: Shell, ordered: bool) -> None:
    """As the one before; a pop between the others gives them a range."""
    need_topics(shell.kind)
    options = ["--ordered"] if ordered else []
    create = shell.printed("create", "--topic", "--groups", "--keep", "consumed", queue="events")
    staged = shell.printed("create_staged", "--topic", queue="events")
    shell.run(create, shell.printed("create", *options, queue="events/mail"), staged)
    ours = {*operations(shell.kind.engine_class.name)} | {*operations_of(shell.kind.engine_class.name)}
    run = [name for name in sorted(ours - NO_SCRIPTS) if not re.match("create|drop", name)]
    of = {name: shell.kind_of(name) for name in run}
    both = "pop complete fail release extend sweep until_next stats peek redrive purge history find".split()
    texts = [
        shell.printed(name, "--topic", "--groups", "--values", queue="events")
        for name in ("push", *({"push_many"} & ours), *(name for name in run if of[name] == "topic"))
    ]
    for name in [*both, *(name for name in run if of[name] == "subscription")]:
        texts += [shell.printed(each, *options, "--values", queue="events/mail") for each in ("pop", name)]
    shell.run(*texts)


@pytest.mark.parametrize(("payload", "ordered"), [*zip(PAYLOADS, (False, True, False), strict=True)])
def test_create_and_drop_a_topic(shell: Shell, payload: Any, ordered: bool) -> None:
    """It is the topic that the library makes, and it works."""
    need_topics(shell.kind)
    topic = ["--topic", "--groups", "--payload", payload]
    mail = ["--payload", payload, *(["--ordered"] if ordered else [])]
    shell.run(shell.printed("create", *topic, queue="events"), shell.printed("create", *mail, queue="events/mail"))
    database = shell.place.open()
    events = database.create_topic("events", payload=payload, groups=True)
    subscription = events.subscribe("mail", ordered=ordered)
    value = {"json": {"to": "ada"}, "text": "x", "bytes": b"\0"}[payload]
    events.push(value, group="g")
    claimed(subscription).fail("why", retry_in=0)
    message = claimed(subscription)
    assert (message.payload, message.attempt) == (value, 2)
    message.complete()
    printed = indexes_of(shell.place)
    shell.run(shell.printed("drop", *mail, queue="events/mail"), shell.printed("drop", *topic, queue="events"))
    assert (database.topics(), names_of(shell.place)) == ([], {"tq__dropped", "tq__identity", "tq__paused"})
    forget_dropped(shell.place)
    database.create_topic("events", payload=payload, groups=True).subscribe("mail", ordered=ordered)
    assert indexes_of(shell.place) == printed


def need_topics(kind: Kind) -> None:
    if "create_topic" not in operations_of(kind.engine_class.name):
        pytest.skip("it has no topics")


def test_a_life_with_values(shell: Shell) -> None:
    shell.sql("create", "--payload", "text")
    queue = shell.place.open().queue("work")
    shell.sql("push", "--payload", "text", "--values")
    assert queue.peek()[0].payload == "hello"
    shell.sql("pop", "--payload", "text", "--values")
    assert queue.peek(state="in_progress")[0].consumer == "me"
    shell.sql("fail", "--payload", "text", "--values")
    assert queue.peek()[0].errors[0].error == "why"
    shell.sql("pop", "--payload", "text", "--values")
    shell.sql("complete", "--payload", "text", "--values")
    assert counts(queue) == {"finished": 1}
    assert "hello" in shell.sql("history", "--payload", "text", "--values")


@only("postgresql", "mariadb")
@pytest.mark.parametrize("design", ["fifo", "groups", "due"])
def test_procedures_and_grants(shell: Shell, design: str) -> None:
    options = OPTIONS[design].split()
    shell.sql("create", *options)
    shell.sql("procedures", *options)
    queue = shell.place.open().create_queue("work", **DESIGNS[design])
    role = f"role_{secrets.token_hex(4)}"
    shell.place.execute(f"create role {role}")
    try:
        shell.sql("grant", *options, "--producer", role, "--consumer", role, "--observer", role)
        group = {"postgresql": ", p_group => 'g'", "mariadb": ', \'{"group": "g"}\''}[shell.kind.name]
        group = group if design == "groups" else {"postgresql": "", "mariadb": ", null"}[shell.kind.name]
        call = {"postgresql": "select {}.tq_work_push('1'{});", "mariadb": "call {}.tq_work_push('1'{});"}
        shell.run(f"set role {role};\n" + call[shell.kind.name].format(shell.place.schema, group))
        assert sum(counts(queue).values()) == 1
    finally:
        shell.sql("drop", *options)
        for statement in {"postgresql": [f"drop owned by {role}"], "mariadb": []}[shell.kind.name]:
            shell.place.execute(statement)
        shell.place.execute(f"drop role {role}")
    assert names_of(shell.place) == {"tq__dropped", "tq__identity", "tq__paused"}


@only("postgresql", "sqlite", "mariadb")
def test_upgrade(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.place.open().create_queue("work").push("old")
    next_version(monkeypatch)
    shell.sql("upgrade")
    queue = shell.place.open().queue("work")
    queue.push("new")
    assert [claim.payload for claim in queue.pop_many(10)] == ["old", "new"]


DEFINITIONS: dict[str, list[Definition]] = {
    "queue": [
        *(Definition(payload=payload) for payload in PAYLOADS),
        *(Definition(groups=True), Definition(strict=True), Definition(order="due")),
    ],
    "topic": [TopicDefinition(payload=payload) for payload in PAYLOADS],
    "subscription": [SubscriptionDefinition(payload=payload, topic="work") for payload in PAYLOADS],
}


@pytest.mark.parametrize("dialect", ENGINES)
def test_no_parameter_is_left(dialect: str) -> None:
    """No operation with values has a parameter, and no operation that runs once has one without values."""
    engine = engine_class(dialect)(sa.URL.create(dialect).get_dialect()())
    once = re.compile("create|drop|install|upgrade|register|unregister|set_version")
    wrong = []
    for operation in {*operations(engine.name), *operations_of(engine.name)} - {"procedures", "grant"}:
        kind = kind_of(engine, operation)
        queue = "work/mail" if kind == "subscription" else "work"
        for definition in DEFINITIONS[kind]:
            for values in (True, False) if once.match(operation) else (True,):
                parameters = left(script(engine, operation, queue, definition, "ready", values=values))
                wrong += [(operation, definition, values, parameters)] * bool(parameters)
    assert wrong == []


def left(text: str) -> list[str]:
    bare = re.sub(r"(?m)^\s*--.*$", "", text)
    return re.findall(r"(?<![:\w]):[a-z]\w*", bare)


def test_the_text_says_who_can_run_it() -> None:
    programs = {"postgresql": "psql", "sqlite": "sqlite3", "mariadb": "mariadb", "mysql": "mysql", "mssql": "sqlcmd"}
    for dialect, program in programs.items():
        for operation, words in {"create": "as it is", "push": "--values"}.items():
            first = CliRunner().invoke(main, ["sql", operation, "--dialect", dialect]).stdout.splitlines()[0]
            assert program in first
            assert words in first
