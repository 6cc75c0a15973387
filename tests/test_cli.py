"""The command line: every command, every exit code, both forms of output."""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tablequeue import Backoff, Database, Queue, connect
from tablequeue.cli import main
from tablequeue.engines import ENGINES
from tablequeue.engines.base import operations_of
from tablequeue.operations.maintain import SCHEMA_VERSION

Run = Callable[..., Result]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture
def db(url: str) -> Database:
    return connect(url)


@pytest.fixture
def run(url: str) -> Run:
    def run(*words: object, input: str | bytes | None = None, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*map(str, words)], input=input, env={"TABLEQUEUE_URL": url})
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- queue -------------------------------------------------------------------------------------------------------------


def test_create_takes_every_option(run: Run, db: Database) -> None:
    options = "--order heap --payload text --lease 5 --max-attempts 2 --history none --backoff-base 2 "
    options += "--backoff-factor 3 --backoff-cap 4 --backoff-jitter 0"
    created = lines(run("queue", "create", "emails", *options.split(), "--json"))[0]
    shown = lines(run("queue", "show", "emails", "--json"))[0]
    assert created["definition"] == shown["definition"]
    definition = db.queue("emails").definition
    assert (definition.order, definition.payload, definition.lease) == ("heap", "text", 5)
    assert (definition.max_attempts, definition.history, definition.backoff.cap) == (2, "none", 4)
    assert shown["stats"]["finished"] is None


def test_create_twice_is_a_no_op_and_differing_is_refused(run: Run) -> None:
    assert run("queue", "create", "emails").stdout == "emails\n"
    run("queue", "create", "emails")
    refused = run("queue", "create", "emails", "--lease", 5, code=1)
    assert refused.stdout == ""
    assert "lease" in refused.stderr


def test_list_show_stats(run: Run) -> None:
    assert run("queue", "list").stdout == ""
    assert run("stats").stdout == ""
    run("queue", "create", "b")
    run("queue", "create", "a")
    run("push", "a", "1")
    assert run("queue", "list").stdout == "a\nb\n"
    assert lines(run("queue", "list", "--json")) == [{"queue": "a"}, {"queue": "b"}]
    assert "max_attempts" in run("queue", "show", "a").stdout
    assert [each["ready"] for each in lines(run("stats", "--json"))] == [1, 0]
    assert [each["queue"] for each in lines(run("stats", "a", "--json"))] == ["a"]
    table = run("stats").stdout
    assert "oldest age" in table
    assert all(len(line) <= 80 for line in table.splitlines())


def test_drop_and_purge_want_to_be_confirmed(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    emails = db.create_queue("emails")
    emails.push_many([1, 2])
    for verb in ("purge", "drop"):
        assert "--yes" in run("queue", verb, "emails", code=1).stderr
    assert emails.stats().ready == 2
    assert run("queue", "purge", "emails", "--yes").stdout == "2 purged\n"
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    run("queue", "drop", "emails", input="n\n", code=1)
    assert db.queues() == ["emails"]
    assert run("queue", "drop", "emails", input="y\n").stdout == "emails dropped\n"
    assert db.queues() == []


# -- push --------------------------------------------------------------------------------------------------------------


def test_push_one(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    assert run("push", "emails", '{"to": "ada"}', "--header", "k=v=w", "--header", "l=").stdout == "1\n"
    assert lines(run("--name", "me", "--json", "push", "emails", '"x"')) == [{"id": 2}]
    first, second = emails.peek()
    assert (first.payload, first.headers) == ({"to": "ada"}, {"k": "v=w", "l": ""})
    assert second.producer == "me"


def test_push_later(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    run("push", "emails", "1", "--delay", 60)
    run("push", "emails", "2", "--due", "2999-01-01T00:00:00+02:00")
    _, due = emails.peek(state="scheduled")
    assert due.due_at is not None
    assert due.due_at.isoformat() == "2998-12-31T22:00:00+00:00"


def test_push_a_file(run: Run, db: Database, tmp_path: Path) -> None:
    emails = db.create_queue("emails")
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 1}\r\n\n  \n"two"\n[3]')
    assert run("push", "emails", "--file", path).stdout == "3 pushed, ids 1 to 3\n"
    pushed = lines(run("push", "emails", "--json", input="4\n5\n"))
    assert pushed == [{"pushed": 2, "skipped": 0, "first": 4, "last": 5}]
    assert lines(run("push", "emails", "--file", "-", "--json", input=""))[0]["pushed"] == 0
    assert [message.payload for message in emails.peek()] == [{"n": 1}, "two", [3], 4, 5]


def test_push_a_file_in_several_chunks(run: Run, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    emails = db.create_queue("emails")
    monkeypatch.setattr(sys.modules["tablequeue.cli.push"], "CHUNK", 2)
    pushed = lines(run("push", "emails", "--json", input="\n".join("12345")))
    assert pushed == [{"pushed": 5, "skipped": 0, "first": 1, "last": 5}]
    assert [message.payload for message in emails.peek()] == [1, 2, 3, 4, 5]


def test_text_and_bytes(run: Run, db: Database, tmp_path: Path) -> None:
    texts, blobs = db.create_queue("texts", payload="text"), db.create_queue("blobs", payload="bytes")
    run("push", "texts", "not {json")
    run("push", "texts", input=" a \r\nb\n")
    assert [message.payload for message in texts.peek()] == ["not {json", " a ", "b"]
    run("push", "blobs", "é")
    path = tmp_path / "blob"
    path.write_bytes(b"\xff\n\n\x00")
    assert run("push", "blobs", "--file", path).stdout == "2\n"
    assert [message.payload for message in blobs.peek()] == ["é".encode(), b"\xff\n\n\x00"]
    popped = lines(run("pop", "blobs", "-n", 5, "--json"))
    assert base64.b64decode(popped[1]["payload_base64"]) == b"\xff\n\n\x00"
    assert "payload" not in popped[1]


# -- pop, complete, fail -----------------------------------------------------------------------------------------------


def test_pop_and_complete(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many([{"to": "ada"}, 2], headers={"k": "v"})
    first, second = lines(run("--json", "pop", "emails", "-n", 10, "--lease", 30))
    assert list(first) == ["id", "token", "payload", "headers", "attempts", "pushed_at", "lease_until"]
    assert (first["id"], first["payload"], first["headers"], first["attempts"]) == (1, {"to": "ada"}, {"k": "v"}, 1)
    assert run("complete", "emails", 1, first["token"]).stdout == "finished\n"
    assert lines(run("complete", "emails", 2, second["token"], "--json")) == [{"id": 2, "state": "finished"}]
    assert emails.stats().finished == 2
    assert "lost" in run("complete", "emails", 1, first["token"], code=1).stderr


def test_pop_prints_id_token_and_payload(run: Run, db: Database) -> None:
    db.create_queue("emails").push("x" * 200)
    fields = dict(line.split(maxsplit=1) for line in run("pop", "emails").stdout.splitlines())
    assert (fields["id"], fields["payload"]) == ("1", f'"{"x" * 200}"')
    run("complete", "emails", 1, fields["token"])


def test_nothing_to_pop_or_peek(run: Run, db: Database) -> None:
    db.create_queue("emails")
    for command in ("pop", "peek"):
        result = run(command, "emails", "--json", code=3)
        assert result.stdout == ""
        assert "'emails'" in result.stderr


def test_fail_prints_the_new_state(run: Run, db: Database) -> None:
    emails = db.create_queue("emails", max_attempts=2)
    emails.push(1)
    token = lines(run("pop", "emails", "--json"))[0]["token"]
    assert run("fail", "emails", 1, token, "--error", "why", "--retry-in", 0).stdout == "ready\n"
    token = lines(run("pop", "emails", "--json"))[0]["token"]
    assert lines(run("fail", "emails", 1, token, "--json")) == [{"id": 1, "state": "dead"}]
    assert [error.error for error in emails.dead()[0].errors] == ["why", ""]
    assert "lost" in run("fail", "emails", 1, token, code=1).stderr
    assert "lost" in run("fail", "emails", 99, token, code=1).stderr


def test_fail_waits_the_longer_the_more_attempts_there_were(run: Run, db: Database) -> None:
    emails = db.create_queue("emails", backoff=Backoff(base=10, factor=100, jitter=0))
    emails.push(1)
    waits = []
    for retry in (["--retry-in", 0], []):
        token = lines(run("pop", "emails", "--json"))[0]["token"]
        run("fail", "emails", 1, token, *retry)
        message = emails.find(1)
        assert message is not None
        if message.due_at and message.popped_at:
            waits.append((message.due_at - message.popped_at).total_seconds())
    assert 1000 <= waits[-1] < 1100  # 10 * 100 ** (2 - 1), and not 10


# -- peek, dead --------------------------------------------------------------------------------------------------------

HOSTILE = "[red]x[/red] [/] \x1b[2J\x07 \u202e line\nnext " + "y" * 200


def test_peek_cuts_the_table_and_never_the_json(run: Run, db: Database) -> None:
    db.create_queue("texts", payload="text").push(HOSTILE)
    table = run("peek", "texts").stdout
    assert "[red]x[/red]" in table
    assert not {"\x1b", "\x07", "\u202e"} & set(table)
    assert all(len(line) <= 80 for line in table.splitlines())
    assert lines(run("peek", "texts", "--json"))[0]["payload"] == HOSTILE
    popped = run("pop", "texts").stdout
    assert "\\x1b[2J\\x07 \\u202e line\\nnext" in popped
    assert "\x1b" not in popped


def test_peek_in_a_state(run: Run, db: Database) -> None:
    emails = db.create_queue("emails")
    emails.push_many([1, 2, 3])
    emails.push(4, delay=60)
    emails.pop()
    assert [each["id"] for each in lines(run("peek", "emails", "-n", 1, "--json"))] == [2]
    assert [each["id"] for each in lines(run("peek", "emails", "--state", "scheduled", "--json"))] == [4]
    assert [each["id"] for each in lines(run("peek", "emails", "--state", "in_progress", "--json"))] == [1]


@pytest.fixture
def dead(db: Database) -> Queue:
    emails = db.create_queue("emails", max_attempts=1)
    emails.push_many(["a", "b", "c"])
    for claim in emails.pop_many(3):
        claim.fail(f"Traceback\nValueError: [bold]{claim.payload}[/bold]")
    return emails


def test_dead_list(run: Run, dead: Queue) -> None:
    assert "ValueError: [bold]b[/bold]" in run("dead", "list", "emails").stdout
    listed = lines(run("dead", "list", "emails", "--json"))
    assert [each["id"] for each in listed] == [1, 2, 3]
    assert listed[0]["errors"][0]["error"].startswith("Traceback")
    assert len(lines(run("dead", "list", "emails", "-n", 2, "--json"))) == 2
    one = run("dead", "list", "emails", "--id", 2).stdout
    assert "Traceback" in one
    assert "[bold]b[/bold]" in one
    assert "[bold]a[/bold]" not in one


def test_dead_redrive_and_purge(run: Run, dead: Queue) -> None:
    assert run("dead", "redrive", "emails", "--id", 1, "--id", 99).stdout == "1 redriven\n"
    assert lines(run("dead", "purge", "emails", "--id", 2, "--json")) == [{"purged": 1}]
    assert lines(run("dead", "--json", "redrive", "emails")) == [{"redriven": 1}]
    assert run("dead", "purge", "emails").stdout == "0 purged\n"
    assert dead.stats().ready == 2
    assert run("dead", "list", "emails").stdout == ""


# -- sql ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ENGINES)
def test_every_operation_has_its_sql(run: Run, dialect: str) -> None:
    names = run("sql", "--dialect", dialect).stdout.split()
    assert {"create", "drop", "push", "pop", "complete", "fail", "stats"} <= set(names)
    printed = ""
    for name in {*names, *operations_of(dialect)}:
        for history in ("keep", "none"):
            text = run("sql", name, "emails", "--dialect", dialect, "--history", history).stdout
            assert text.startswith("--")
            assert not {"{queue}", "{history}", "{now}"} & set(text.split())
            printed += text
    assert "tq_emails_history" in printed


def test_sql_create_is_what_a_dba_runs(run: Run) -> None:
    words = "sql create emails --dialect postgresql --schema work --payload text".split()
    text = run(*words).stdout
    tables = ["create schema", "work.tq_queues", "work.tq_emails (", "work.tq_emails_history", "insert into"]
    places = [text.index(each) for each in tables]
    assert places == sorted(places)
    assert '"payload": "text"' in text
    assert run(*words).stdout == text
    assert lines(run(*words, "--json"))[0]["sql"] + "\n" == text
    assert "tq_emails_history" not in run(*words, "--history", "none").stdout
    assert "create schema" not in run(*words[:-4]).stdout


def test_sql_create_makes_a_queue(run: Run, url: str, tmp_path: Path) -> None:
    text = run("sql", "create", "emails", "--dialect", "sqlite", "--lease", 7).stdout
    [definition] = [line.split("'")[1] for line in text.splitlines() if line.startswith("--   :definition")]
    values = {"name": "emails", "definition": definition, "schema_version": SCHEMA_VERSION, "now": None}
    connection = sqlite3.connect(tmp_path / "work.db")
    with connection:
        for statement in text.split(";\n"):
            named = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(statement, named)
    connection.close()
    made = connect(url).create_queue("emails", lease=7)
    assert made.push(1) == 1


def test_sql_refuses(run: Run) -> None:
    assert "complete" in run("sql", "nonsense", "--dialect", "sqlite", code=2).stderr
    run("sql", "create", "emails", code=2)
    run("sql", "create", "Emails", "--dialect", "sqlite", code=1)
    run("--schema", "work", "sql", "create", "emails", "--dialect", "sqlite", code=1)


# -- the whole program -------------------------------------------------------------------------------------------------


def program(*words: str, **options: Any) -> subprocess.Popen[bytes]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "tablequeue", *words], **{**pipes, **options})


def test_as_a_module_and_as_an_entry_point(url: str) -> None:
    out, err = program("--url", url, "queue", "create", "emails").communicate()
    assert (out, err) == (b"emails\n", b"")
    scripts = {each.name: each.load() for each in metadata.distribution("tablequeue").entry_points}
    assert scripts["tablequeue"] is main
    assert scripts["tq"] is main


def test_help_of_every_command() -> None:
    for words in ([], ["queue", "create"], ["push"], ["pop"], ["dead", "list"], ["sql"]):
        result = CliRunner().invoke(main, [*words, "--help"])
        assert result.exit_code == 0
        assert "--json" in result.stdout


def test_a_broken_pipe_ends_quietly(url: str, db: Database) -> None:
    db.create_queue("emails").push_many(["x" * 1000] * 500)
    process = program("--url", url, "peek", "emails", "-n", "500", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.communicate()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written(url: str, db: Database) -> None:
    db.create_queue("emails")
    with Path("/dev/full").open("wb") as full:
        process = program("--url", url, "queue", "list", stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err.startswith(b"error: ")
    assert b"Traceback" not in err


def test_interrupted_while_it_reads(url: str, db: Database) -> None:
    emails = db.create_queue("emails")
    process = program("--url", url, "push", "emails")
    assert process.stdin is not None
    process.stdin.write(b"1\n" * 100_000)  # more than a pipe holds: when it is written, the command reads
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == b"error: Interrupted: the command did not finish.\n"
    assert emails.stats().ready == 0


def test_a_terminal_without_unicode(url: str, db: Database) -> None:
    db.create_queue("texts", payload="text").push("é 漢")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    out, err = program("--url", url, "peek", "texts", env=environment).communicate()
    assert err == b""
    assert b"\xe9 \\u6f22" in out
