"""`tablequeue sql`."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tablequeue import connect
from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.printed import kind_of, script
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import PAYLOADS, Definition, SubscriptionDefinition, TopicDefinition
from tests.cli.support import Run, lines
from tests.test_upgrade import next_version

pytestmark = pytest.mark.quick

WITH_TOPICS = [name for name in ENGINES if "create_topic" in operations_of(engine_class(name).name)]
DEFINITIONS: dict[str, list[Definition]] = {
    "queue": [
        *(
            Definition(),
            Definition(history="none"),
            Definition(order="due"),
            Definition(order="priority"),
            Definition(strict=True),
        ),
        *(Definition(groups=True), Definition(delivery="at_most_once")),
    ],
    "topic": [TopicDefinition(payload=payload) for payload in PAYLOADS],
    "subscription": [SubscriptionDefinition(payload=payload, topic="emails") for payload in PAYLOADS],
}


@pytest.mark.parametrize("dialect", ENGINES)
def test_every_operation_has_its_sql(run: Run, dialect: str) -> None:
    """Each operation, and each file by its name, for each kind of queue that has it: for one dialect by the command."""
    names = run("sql", "--dialect", dialect).stdout.split()
    assert {"create", "drop", "push", "pop", "take", "complete", "fail", "stats", "lost"} <= set(names)
    engine = engine_class(dialect)(sa.URL.create(dialect).get_dialect()())
    for name in {*names, *operations_of(engine.name)}:
        kind = kind_of(engine, name)
        queue = "emails/mail" if kind == "subscription" else "emails"
        texts = [script(engine, name, queue, each, "ready") for each in DEFINITIONS[kind]]
        if dialect == "postgresql":
            texts += [run("sql", name, queue, "--dialect", dialect).stdout]
        for text in texts:
            assert text.startswith("--")
            assert not re.search(r"\{\w+\}", text)


FILES = [
    ("create", "", "create_history", "create_groups"),
    ("create", "--groups", "create_groups", ""),
    ("create", "--strict --history none", "create_groups", "create_history"),
    ("create", "--history 3600", "create_history", "create_groups"),
    ("drop", "--history none", "drop", "drop_history"),
    ("pop", "", "claim", "take"),
    ("pop", "--delivery at_most_once", "take", "claim"),
    ("take", "", "take", "claim"),
    ("take", "--history none", "take", "claim"),
    ("complete", "", "complete", "complete_at_most_once"),
    ("complete", "--history none", "complete", "complete_at_most_once"),
    ("complete", "--delivery at_most_once", "complete_at_most_once", ""),
    ("fail", "", "fail", "fail_at_most_once"),
    ("fail", "--delivery at_most_once", "fail_at_most_once", ""),
    ("stats", "--history none", "stats", "stats_history"),
]


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize(("operation", "options", "there", "not_there"), FILES)
def test_an_operation_is_the_files_that_the_queue_needs(
    run: Run, dialect: str, operation: str, options: str, there: str, not_there: str
) -> None:
    def printed(name: str) -> str:
        # Without the note on what the library does between the statements.
        text = run("sql", name, "emails", "--dialect", dialect, *options.split()).stdout.strip()
        return re.sub(r"\n\n-- The library.*(\n--.*)*\n", "\n", text)

    if operation == "pop" and "at_most_once" in options and dialect in ("mariadb", "mysql"):
        pytest.skip("it is a packet of other texts: see test_printed_is_sent.py")
    assert printed(there) in printed(operation)
    if not_there:
        assert printed(not_there) not in printed(operation)


def test_sql_drops_what_groups_have(run: Run) -> None:
    words = "sql drop emails --dialect postgresql".split()
    assert "tq_emails__turns" in run(*words, "--groups").stdout
    assert "tq_emails__turns" not in run(*words).stdout


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_sql_upgrade(run: Run, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = engine_class(dialect).schema_version
    assert "index" not in run("sql", "upgrade", "emails", "--dialect", dialect).stdout, "there is one version"
    next_version(monkeypatch)
    text = run("sql", "upgrade", "emails", "--dialect", dialect).stdout
    assert text.index("create index") < text.index(f"set schema_version = {now + 1} where name = 'emails'")
    assert "index" not in run("sql", "upgrade", "emails", "--dialect", dialect, "--from-version", now + 1).stdout


def test_sql_create_is_what_a_dba_runs(run: Run) -> None:
    words = "sql create emails --dialect postgresql --schema work --payload text".split()
    text = run(*words).stdout
    tables = [
        "create schema",
        "work.tq_queues",
        "work.tq_emails (",
        "work.tq_emails_history",
        "insert into work.tq_queues",
    ]
    places = [text.index(each) for each in tables]
    assert places == sorted(places)
    assert '"payload": "text"' in text
    assert run(*words).stdout == text
    assert lines(run(*words, "--json"))[0]["sql"] + "\n" == text
    assert "tq_emails_history" not in run(*words, "--history", "none").stdout
    assert "create schema" not in run(*words[:-4]).stdout


def test_sql_create_makes_a_queue(run: Run, url: str, tmp_path: Path) -> None:
    text = run("sql", "create", "emails", "--dialect", "sqlite", "--lease", 7).stdout
    with closing(sqlite3.connect(tmp_path / "work.db")) as connection:
        connection.executescript(text)
    made = connect(url).create_queue("emails", lease=7)
    assert made.push(1) == 1


def test_sql_says_what_a_parameter_is(run: Run) -> None:
    words = "sql pop emails --dialect postgresql".split()
    text, example = run(*words).stdout, run(*words, "--values").stdout
    assert ("limit :n" in text, "limit 10" in example) == (True, True)
    assert "--values" in text.splitlines()[0]
    assert "Claim up to :n ready messages" in example, "a comment is about the parameter"
    assert "statement_timestamp() + cast(60.0 as float8)" in example
    assert "limit 10" in run(*words, "--values", "--json").stdout
    once = run("sql", "create", "emails", "--dialect", "postgresql").stdout
    assert once == run("sql", "create", "emails", "--dialect", "postgresql", "--values").stdout


def test_sql_of_sql_server_has_its_variables(run: Run) -> None:
    words = "sql pop emails --dialect mssql".split()
    text, example = run(*words).stdout, run(*words, "--values").stdout
    assert not re.search(r"(?<![:\w]):[a-z]", text + example), "parameters, also those in comments, are variables"
    assert text.startswith("-- A variable that begins with @p_ is a parameter; with --values")
    assert ("declare @n bigint = @p_n;" in text, "declare @n bigint = 10;" in example) == (True, True)


@pytest.mark.parametrize("dialect", ENGINES)
def test_bare_sql_has_no_comments_and_nothing_else_is_missing(run: Run, dialect: str) -> None:
    words = ["sql", "create", "emails", "--dialect", dialect]
    text, bare = run(*words).stdout, run(*words, "--bare").stdout
    assert "--" not in bare
    assert bare.split() == [
        word for line in text.splitlines() if not line.lstrip().startswith("--") for word in line.split()
    ]
    assert bare == bare.lstrip()


def test_sql_refuses(run: Run) -> None:
    assert "complete" in run("sql", "nonsense", "--dialect", "sqlite", code=2).stderr
    assert "no queue 'emails'" in run("sql", "create", "emails", code=1).stderr, "without a dialect it is read"
    run("sql", "create", " emails", "--dialect", "sqlite", code=1)
    run("--schema", "work", "sql", "create", "emails", "--dialect", "sqlite", code=1)
    assert "batches" in run("sql", "procedures", "emails", "--batches", "--dialect", "mssql", code=1).stderr


@pytest.mark.parametrize("dialect", WITH_TOPICS)
def test_sql_of_a_topic_and_of_a_subscription(run: Run, dialect: str) -> None:
    def printed(*words: str) -> str:
        text = run("sql", *words, "--dialect", dialect).stdout
        return text.partition("\n\n")[2].strip()  # without the heading

    created = printed("create", "events", "--topic", "--keep", "consumed")
    assert '"keep": "consumed"' in created
    assert "tq_events_history" not in created
    subscribed = printed("create", "events/mail", "--number", "2", "--ordered")
    assert "tq_events__s2__ranges" in subscribed
    assert "'events/mail'" in subscribed
    assert '"groups": true' in subscribed
    assert '"history": "keep"' in subscribed
    for keep, history in (("3600", "3600.0"), ("consumed", '"keep"')):
        assert f'"history": {history}' in printed("create", "events/mail", "--keep", keep)
    assert printed("topic_push", "events") in printed("push", "events", "--topic")
    for part in ("range_claim", "claim"):
        assert printed(part, "events/mail") in printed("pop", "events/mail")
    assert "range" not in printed("pop", "events/mail", "--ordered")
    assert "tq_example__s1__ranges" in printed("range_complete")


def test_a_queue_with_limits_completes_and_claims_by_two_operations(run: Run) -> None:
    words = "sql complete_and_claim calls --concurrency 3 --dialect postgresql"
    assert "no operation 'complete_and_claim'" in run(*words.split(), code=1).stderr


@pytest.mark.parametrize("dialect", WITH_TOPICS)
def test_sql_refuses_what_a_topic_has_not(run: Run, dialect: str) -> None:
    def refused(words: str, code: int = 1) -> str:
        return run("sql", *words.split(), "--dialect", dialect, code=code).stderr

    assert "no operation 'pop'" in refused("pop events --topic")
    assert "no operation 'peek'" in refused("peek events --topic")
    assert "no operation 'push'" in refused("push events/mail")
    assert "no operation 'take'" in refused("take events/mail")
    assert "events/mail" in refused("range_claim events")
    assert "--order does not go with a topic" in refused("create events --topic --order lifo", 2)
    assert "--max-attempts does not go with a topic" in refused("create events --topic --max-attempts 2", 2)
    assert "--history does not go with a subscription" in refused("create events/mail --history none", 2)
    assert "--keep does not go with a queue" in refused("create events --keep 5", 2)
    assert "--number does not go with a queue" in refused("create events --number 5", 2)


def test_sql_reads_the_options_from_the_database(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'work.db'}"
    with connect(url) as db:
        db.create_queue("old", groups=True, lease=7.0, payload="text")
        db.rename("old", "work")
        db.create_topic("events", payload="bytes", groups=True).subscribe("first")
        db.topic("events").subscribe("mail", ordered=True)

    def printed(*words: str) -> str:
        return run("sql", *words).stdout

    like = ("--groups", "--lease", "7", "--payload", "text", "--table", "tq_old")
    for operation in ("pop", "create", "push"):
        assert printed(operation, "work", "--url", url) == printed(operation, "work", "--dialect", "sqlite", *like)
    of_topic = ("--ordered", "--payload", "bytes", "--number", "2")
    there = printed("pop", "events/mail", "--url", url)
    assert there == printed("pop", "events/mail", "--dialect", "sqlite", *of_topic)
    assert "pop" in printed("--url", url).split()
    assert "no queue 'other'" in run("sql", "pop", "other", "--url", url, code=1).stderr
    assert "--lease is read from the database" in run("sql", "pop", "work", "--url", url, "--lease", "8", code=2).stderr


@pytest.mark.parametrize("dialect", ENGINES)
@pytest.mark.parametrize("option", ["--strict", "--groups"])
def test_a_printed_pop_says_that_a_promotion_comes_before_it(run: Run, dialect: str, option: str) -> None:
    """Where triggers do not promote."""
    said = "Before it comes `promote`" in run("sql", "pop", "work", "--dialect", dialect, option).stdout
    assert said == engine_class(dialect).promotes
    assert "`promote`" not in run("sql", "pop", "work", "--dialect", dialect).stdout.partition("-- Claim")[0]
