"""The command line refuses bad input with a cause, a remedy and the right exit code, and without a traceback."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from tablequeue import Database, Queue, connect
from tablequeue.cli import main

pytestmark = pytest.mark.quick


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def db(path: Path) -> Database:
    return connect(f"sqlite:///{path}")


@pytest.fixture
def emails(db: Database) -> Queue:
    return db.create_queue("emails")


def run(place: Path | str, *words: object, input: str | bytes | None = None, code: int = 1) -> Result:
    url = f"sqlite:///{place}" if isinstance(place, Path) else place
    result = CliRunner().invoke(main, [*map(str, words)], input=input, env={"TABLEQUEUE_URL": url})
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def refusal(result: Result) -> tuple[str, str]:
    """Return the cause and the remedy, as printed for people."""
    cause, remedy = result.stderr.splitlines()
    assert cause.startswith("error: ")
    assert result.stdout == ""
    return cause, remedy


# -- the database ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("nonsense", "cannot be read"),
        ("postgresql://h:port/d", "cannot be read"),
        ("nosuchkind:///x", "nosuchkind"),
        ("postgres://h/d", "postgres"),
        ("sqlite://", "in-memory"),
        ("sqlite://work.db", "names the server 'work.db'"),
        ("sqlite://me:secret@folder/work.db", "names the server 'folder'"),
        ("sqlite:////no/such/folder/work.db", "cannot be opened"),
        ("postgresql+psycopg://nobody:secret@127.0.0.1:1/none", "cannot be reached"),
    ],
)
def test_a_wrong_url(url: str, word: str) -> None:
    cause, remedy = refusal(run(url, "stats"))
    assert word in cause
    assert remedy
    assert "secret" not in cause + remedy
    failure = json.loads(run(url, "stats", "--json").stderr)
    assert set(failure) == {"error", "remedy"}


def test_no_url() -> None:
    result = CliRunner(env={"TABLEQUEUE_URL": None}).invoke(main, ["stats"])
    assert result.exit_code == 2
    assert "TABLEQUEUE_URL" in result.stderr
    result = CliRunner(env={"TABLEQUEUE_URL": None}).invoke(main, ["stats", "--json"])
    assert result.exit_code == 2
    assert "TABLEQUEUE_URL" in json.loads(result.stderr)["error"]


def test_not_a_database(path: Path) -> None:
    path.write_text("no database" * 1000)
    assert "not a SQLite database" in refusal(run(path, "stats"))[0]


def test_read_only(path: Path, emails: Queue) -> None:
    url = f"sqlite:///file:{path}?mode=ro&uri=true"
    for words in (["push", "emails", "1"], ["push", "emails"], ["pop", "emails"], ["queue", "create", "other"]):
        assert "cannot be written" in refusal(run(url, *words, input="1\n"))[0]
    run(url, "stats", code=0)


def test_locked(path: Path, emails: Queue) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    for words in (["push", "emails", "1"], ["push", "emails"], ["queue", "create", "other"]):
        assert "holds" in refusal(run(f"sqlite:///{path}?timeout=0.1", *words, input="1\n"))[0]
    other.close()
    assert emails.stats().ready == 0


def test_a_full_disk(path: Path, emails: Queue) -> None:
    def limit(dbapi: Any, record: Any) -> None:
        dbapi.execute(f"pragma max_page_count = {path.stat().st_size // 4096 + 20}")

    rows = "\n".join([json.dumps("x" * 1000)] * 10_000)
    sa.event.listen(sa.Pool, "connect", limit)
    try:
        assert "no room" in refusal(run(path, "push", "emails", input=rows))[0]
        assert "no room" in refusal(run(path, "push", "emails", json.dumps("x" * 1_000_000)))[0]
    finally:
        sa.event.remove(sa.Pool, "connect", limit)
    assert emails.stats().ready == 0


def test_a_commit_that_fails(path: Path, emails: Queue) -> None:
    def fail(connection: Any) -> None:
        raise sa.exc.OperationalError("commit", None, sqlite3.OperationalError("disk I/O error"))

    sa.event.listen(sa.Engine, "commit", fail)
    try:
        assert "disk I/O error" in refusal(run(path, "push", "emails", input="1\n2\n"))[0]
    finally:
        sa.event.remove(sa.Engine, "commit", fail)
    assert emails.stats().ready == 0


def test_a_newer_schema(path: Path, db: Database, emails: Queue) -> None:
    db.create_queue("old")
    with db.engine.begin() as connection:
        connection.execute(sa.text("update tq_queues set schema_version = 99 where name = 'emails'"))
    db.engine.dispose()
    for words in (["pop", "emails"], ["push", "emails", "1"], ["queue", "show", "emails"]):
        cause, remedy = refusal(run(path, *words))
        assert "99" in cause
        assert "newer" in remedy
    assert run(path, "queue", "list", code=0).stdout == "emails\nold\n"
    result = run(path, "stats", "--json")
    assert json.loads(result.stdout)["queue"] == "old"
    assert "99" in json.loads(result.stderr)["error"]


def test_a_missing_driver() -> None:
    program = "import sys; sys.modules['psycopg'] = None; from tablequeue.cli import main; main()"
    for words in (["--url", "postgresql+psycopg://h/d", "stats"], ["sql", "create", "x", "--dialect", "postgresql"]):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "pip install 'tablequeue[postgresql]'" in done.stderr
        assert "Traceback" not in done.stderr


# -- names and options -------------------------------------------------------------------------------------------------


def test_an_unknown_queue(path: Path, emails: Queue) -> None:
    cause, remedy = refusal(run(path, "pop", "email"))
    assert cause == "error: There is no queue 'email'."
    assert "'emails'" in remedy
    commands = ["push email 1", "push email", "peek email", "dead list email", "stats email", "queue show email"]
    commands += ["queue drop email --yes", "queue purge email --yes", "dead redrive email", "dead purge email --yes"]
    commands += ["lost email", "history list email", "history purge email --older-than 1 --yes"]
    commands += [f"complete email 1 {'0' * 32}", f"fail email 1 {'0' * 32}"]
    for command in commands:
        assert refusal(run(path, *command.split(), input=""))[1] == remedy


def test_a_name_that_cannot_be(path: Path) -> None:
    for name in ("", " emails", "a/b", "..", "x" * 256, "a\nb", "\x1b[2J"):
        result = run(path, "queue", "create", "--", name)
        assert refusal(result)[1]
        assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        "--lease 0",
        "--lease nan",
        "--max-attempts 0",
        "--backoff-jitter 2",
        "--backoff-cap -1",
        "--history -1",
        "--history nan",
        "--strict --groups",
        "--strict --order lifo",
        "--groups --order heap",
        "--delivery at_most_once --history none",
        "--delivery at_most_once --strict",
    ],
)
def test_a_definition_that_cannot_be(path: Path, db: Database, options: str) -> None:
    refusal(run(path, "queue", "create", "emails", *options.split()))
    assert db.queues() == []


@pytest.mark.parametrize(
    "command",
    [
        "nonsense",
        "queue nonsense",
        "push",
        "push emails 1 --due 2030-01-01T00:00:00",
        "push emails 1 --due tomorrow",
        "push emails 1 --due 9999-12-31T23:00:00-05:00",
        "push emails 1 --delay soon",
        "push emails 1 --header novalue",
        "push emails 1 --header =v",
        "push emails 1 --file -",
        "push emails 1 --skip-bad",
        "push emails --file /no/such/file",
        "pop emails -n 0",
        "pop emails -n 99999999999999999999",
        "peek emails --state nonsense",
        "complete emails x token",
        "complete emails 99999999999999999999 token",
        "queue create x --order nonsense",
        "queue create x --history soon",
        "queue create x --delivery nonsense",
        "push emails 1 --on-conflict nonsense",
        "push emails 1 --priority high",
        "push emails 1 --key-field id",
        "push emails --key k",
        "push emails --on-conflict return",
        "push emails --key-field id --key k",
        "push emails --due-field at --delay 1",
        "push emails --priority-field p --priority 1",
        "lost emails -n 0",
        "history purge emails",
        "dead purge emails --error=",
        "queue create x --max-attempts 99999999999999999999",
        "dead redrive emails --id x",
    ],
)
def test_wrong_usage(path: Path, emails: Queue, command: str) -> None:
    result = run(path, *command.split(), code=2)
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert emails.stats().ready == 0


def test_values_that_the_queue_refuses(path: Path, emails: Queue) -> None:
    for options in ("--delay -1", "--delay nan", "--delay 1 --due 2030-01-01T00:00:00Z"):
        refusal(run(path, "push", "emails", "1", *options.split()))
    refusal(run(path, "pop", "emails", "--lease", "-1"))
    assert emails.stats().ready == 0


def test_options_that_the_queue_does_not_have(path: Path, db: Database, emails: Queue) -> None:
    groups, texts = db.create_queue("groups", groups=True), db.create_queue("texts", payload="text")
    once, none = db.create_queue("once", delivery="at_most_once"), db.create_queue("none", history="none")
    for words in (
        "push emails 1 --priority 1",
        "push emails --priority-field p --skip-bad",
        "push emails 1 --group g",
        "push emails --group-field g --skip-bad",
        "push groups 1",
        "push groups --skip-bad",
        "push groups --key-field g --skip-bad",
        "push texts --key-field g --skip-bad",
        "lost emails",
        "pop once --lease 1",
        "history list none",
        "history purge none --older-than 1 --yes",
    ):
        refusal(run(path, *words.split(), input='{"g": 1}\n'))
    assert {queue.stats().ready for queue in (emails, groups, texts, once, none)} == {0}


# -- fields ------------------------------------------------------------------------------------------------------------

BAD_FIELDS = {
    "not there": '{"other": 1}',
    "null": '{"key": null, "priority": null, "due": null}',
    "no object": "[1]",
    "of another type": '{"key": {"a": 1}, "priority": "1", "due": 1}',
    "true": '{"key": true, "priority": true, "due": true}',
    "fractions": '{"key": 1.5, "priority": 1.5, "due": 1.5}',
    "empty": '{"key": "", "priority": "", "due": ""}',
    "too large": json.dumps({"key": "x" * 256, "priority": 1 << 31, "due": "9999-12-31T23:00:00-05:00"}),
    "no text of a database": '{"key": "a\\u0000", "priority": "a\\u0000", "due": "a\\u0000"}',
    "no zone": '{"key": "\\ud800", "priority": [], "due": "2030-01-01T00:00:00"}',
}


@pytest.mark.parametrize("option", ["key", "group", "priority", "due"])
@pytest.mark.parametrize("bad", BAD_FIELDS.values(), ids=BAD_FIELDS.keys())
def test_a_bad_field(path: Path, db: Database, option: str, bad: str) -> None:
    queue = db.create_queue("work", order="priority" if option == "priority" else "fifo", groups=option == "group")
    field = "key" if option == "group" else option
    good = '{"key": "k%d", "priority": 1, "due": "2000-01-01T00:00:00Z"}\n'
    content = good % 1 + bad + "\n" + good % 2
    words = ["push", "work", f"--{option}-field", field]
    cause, remedy = refusal(run(path, *words, input=content))
    assert cause.startswith("error: Line 2: ")
    assert len(cause) < 200
    assert "nothing was pushed" in remedy
    assert queue.stats().ready == 0
    result = run(path, *words, "--skip-bad", "--json", input=content, code=0)
    assert json.loads(result.stdout)["pushed"] == 2
    assert result.stderr == "1 bad line skipped\n"


def test_a_key_that_is_taken(path: Path, emails: Queue) -> None:
    emails.push("there", key="\x1b[2J")
    assert "\\x1b" in refusal(run(path, "push", "emails", "1", "--key", "\x1b[2J"))[0]
    cause, remedy = refusal(run(path, "push", "emails", "--key-field", "k", input='{"k": 1}\n{"k": 1}\n'))
    assert cause.startswith("error: Line 2: ")
    assert "nothing was pushed" in remedy
    assert emails.stats().ready == 1


# -- payloads ----------------------------------------------------------------------------------------------------------

NOT_JSON = {
    "nothing": b"{",
    "single quotes": b"{'a': 1}",
    "NaN": b"NaN",
    "Infinity inside": b'{"a": [-Infinity]}',
    "too large a number": b"1e400",
    "too many digits": b"1" * 5000,
    "two values": b"1 2",
    "a key twice": b'{"a": 1, "a": 2}',
    "no UTF-8": b'"\xff"',
    "UTF-16": '"a"'.encode("utf-16"),
    "a raw control character": b'"\x01"',
    "nested too deeply": b"[" * 100_000 + b"]" * 100_000,
}


@pytest.mark.parametrize("bad", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_malformed_line(path: Path, emails: Queue, bad: bytes) -> None:
    content = b'{"n": 1}\n\n' + bad.replace(b"\n", b"") + b"\n4\n"
    cause, remedy = refusal(run(path, "push", "emails", input=content))
    assert cause.startswith("error: Line 3: ")
    assert "nothing was pushed" in remedy
    assert emails.stats().ready == 0
    result = run(path, "push", "emails", "--skip-bad", "--json", input=content, code=0)
    assert json.loads(result.stdout) == {"pushed": 2, "skipped": 1, "duplicates": 0, "first": 1, "last": 2}
    assert result.stderr == "1 bad line skipped\n"


def test_a_malformed_argument(path: Path, emails: Queue) -> None:
    for payload in ("", "x", "NaN", "\udcff"):
        refusal(run(path, "push", "emails", "--", payload))
    assert emails.stats().ready == 0


def test_text_that_no_column_holds(path: Path, db: Database) -> None:
    texts = db.create_queue("texts", payload="text")
    for bad in (b"a\0b", b"\xff"):
        assert "Line 2: " in refusal(run(path, "push", "texts", input=b"ok\n" + bad))[0]
    refusal(run(path, "push", "texts", "\udcff"))
    assert texts.stats().ready == 0
    assert "1 pushed" in run(path, "push", "texts", "--skip-bad", input=b"a\0b\nok\n", code=0).stdout


def test_a_name_that_is_not_utf8(path: Path, emails: Queue) -> None:
    assert "printable" in refusal(run(path, "--name", "\udcff", "push", "emails", "1"))[1]


# -- half a batch never ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (OSError, 1)])
def test_a_push_that_stops_half_way(
    path: Path, emails: Queue, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], code: int
) -> None:
    push_many, calls = Queue.push_many, iter(range(10))

    def stop(self: Queue, *args: Any, **kwargs: Any) -> list[int]:
        if next(calls) == 2:
            raise error
        return push_many(self, *args, **kwargs)

    monkeypatch.setattr(import_module("tablequeue.cli.push"), "CHUNK", 2)
    monkeypatch.setattr(Queue, "push_many", stop)
    run(path, "push", "emails", input="1\n" * 9, code=code)
    assert emails.stats().ready == 0


def test_interrupted(path: Path, emails: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Queue, "stats", interrupt)
    assert run(path, "stats", code=130).stderr == "error: Interrupted: the command did not finish.\n"
    assert "Interrupted" in json.loads(run(path, "stats", "--json", code=130).stderr)["error"]
