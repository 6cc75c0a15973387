"""The file of a SQLite database: calls that only read neither create nor change it; the first create_queue creates
it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import tablequeue
from tablequeue import Database, aio
from tablequeue.cli import main
from tablequeue.engines.runner import Runner
from tablequeue.engines.sqlite.engine import SQLite
from tablequeue.errors import BadUrl, QueueNotFound, ReadOnly, Unreachable
from tests.async_support import in_loop
from tests.cli.support import COMMANDS
from tests.support import counts, refuses

pytestmark = pytest.mark.quick

# Forms of the URL of the file `work.db` in the working folder {0}.
URLS = [
    "sqlite:///work.db",
    "sqlite:///./work.db",
    "sqlite:///{0}/work.db",
    "sqlite:///work.db?timeout=1",
    "sqlite:///work.db?uri=true",
    "sqlite:///file:work.db?uri=true",
    "sqlite:///file:{0}/work.db?mode=rwc&uri=true",
    "sqlite:///file://{0}/work.db?uri=true",
    "sqlite:///file://localhost{0}/work.db?uri=true",
    "sqlite:///file:w%6Frk.db?uri=true",
    "sqlite:///link.db",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.db").symlink_to("work.db")
    return tmp_path


def made(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.is_symlink())


@pytest.mark.parametrize("url", URLS)
def test_the_first_queue_makes_the_file(folder: Path, url: str) -> None:
    with tablequeue.connect(url.format(folder)) as database:
        assert (database.queues(), database.upgrade()) == ([], {})
        for look in (database.queue, database.doctor, database.install_procedures):
            error = refuses(QueueNotFound, look, "work")
            assert str(folder) in error.cause
            assert "work.db" in error.cause or "link.db" in error.cause
            assert "URL" in error.remedy
        assert made(folder) == []
        database.create_queue("work").push(1)
    assert "work.db" in made(folder)
    assert tablequeue.connect(f"sqlite:///{folder}/work.db").queues() == ["work"]


@in_loop
async def test_the_first_queue_makes_the_file_for_asyncio(folder: Path) -> None:
    async with await aio.connect("sqlite+aiosqlite:///work.db") as database:
        assert await database.queues() == []
        assert made(folder) == []
        await database.create_queue("work")
        assert await database.queues() == ["work"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_makes_a_file(folder: Path, command: str) -> None:
    result = CliRunner().invoke(main, ["--url", "sqlite:///wrok.db", *command.split()], input="")
    assert made(folder) == []
    if result.exit_code:
        assert str(folder / "wrok.db") in result.stderr
        assert "Traceback" not in result.output


def test_what_no_command_makes_is_every_command(folder: Path) -> None:
    """Except commands that only print, run elsewhere, or create a queue."""
    tried = {command.split()[0] for command in COMMANDS} | {"sql", "serve", "sqs", "report", "pipeline", "demo"}
    assert tried == {*main.modules}


def test_queue_create_makes_the_file(folder: Path) -> None:
    assert CliRunner().invoke(main, ["--url", "sqlite:///work.db", "queue", "create", "work"]).exit_code == 0
    assert "work.db" in made(folder)


def test_an_engine_of_the_callers_own(folder: Path) -> None:
    engine = sa.create_engine("sqlite:///work.db")
    with tablequeue.connect(engine) as database:
        refuses(QueueNotFound, database.queue, "work")
        assert made(folder) == []
        with engine.begin() as connection:
            connection.exec_driver_sql("create table orders (id integer)")
        assert database.queues() == [], "the caller's own transactions make the file as ever"
        database.create_queue("work")
    engine.dispose()


def test_an_engine_with_a_creator_of_its_own(folder: Path) -> None:
    """The URL does not show what the creator opens."""
    tablequeue.connect("sqlite:///work.db").create_queue("work")
    engine = sa.create_engine("sqlite:///elsewhere.db", creator=lambda: sqlite3.connect("work.db"))
    with tablequeue.connect(engine) as database:
        assert database.queues() == ["work"]
    engine.dispose()


def test_a_relative_path_is_that_of_the_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tablequeue.connect("sqlite:///work.db") as database:
        (folder / "sub").mkdir()
        monkeypatch.chdir(folder / "sub")
        database.create_queue("work")
        assert database.queues() == ["work"]
        assert made(folder / "sub") == []


def test_a_file_that_is_deleted_is_not_made_again(folder: Path) -> None:
    with tablequeue.connect("sqlite:///work.db") as database:
        queue = database.create_queue("work")
        database.close()
        for path in folder.iterdir():
            path.unlink()
        for call in (lambda: queue.push(1), queue.pop, queue.stats, lambda: next(queue.consume(wait=0))):
            assert str(folder / "work.db") in refuses(QueueNotFound, call).cause
        assert made(folder) == []


def _no_folder(folder: Path) -> str:
    return f"{folder}/none/work.db"


def _file_for_a_folder(folder: Path) -> str:
    (folder / "file").write_text("")
    (folder / "file").chmod(0o755)
    return f"{folder}/file/work.db"


def _a_folder(folder: Path) -> str:
    (folder / "sub").mkdir()
    return f"{folder}/sub"


@pytest.mark.parametrize("place", [_no_folder, _file_for_a_folder, _a_folder])
def test_what_cannot_be_opened_is_refused_at_once(folder: Path, place: Callable[[Path], str]) -> None:
    path = place(folder)
    before = made(folder)
    assert "folder" in refuses(Unreachable, tablequeue.connect, f"sqlite:///{path}").remedy
    assert made(folder) == before


def test_a_folder_that_may_not_be_written_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Simulated, because the tests may run as root, who may write everywhere.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    error = refuses(Unreachable, tablequeue.connect, "sqlite:///work.db")
    assert str(folder) in error.cause
    assert made(folder) == []


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_mode_that_makes_no_file(folder: Path, mode: str) -> None:
    refuses(Unreachable, tablequeue.connect, f"sqlite:///file:work.db?mode={mode}&uri=true")
    assert made(folder) == []


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///file:?uri=true", "sqlite:///file::memory:?uri=true"]
)
def test_what_is_no_file_is_refused_at_once(folder: Path, url: str) -> None:
    refuses(BadUrl, tablequeue.connect, url)
    assert made(folder) == []


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_reading_changes_no_file(folder: Path, mode: str) -> None:
    """The file may be the database of another program, named by mistake."""
    with closing(sqlite3.connect("work.db")) as other:
        other.execute(f"pragma journal_mode = {mode}")
        other.execute("create table orders (id integer)")
    content = (folder / "work.db").read_bytes()
    with tablequeue.connect("sqlite:///work.db") as database:
        assert database.queues() == []
        database.doctor()
        refuses(QueueNotFound, database.queue, "work")
    database.engine.dispose()
    assert (folder / "work.db").read_bytes() == content
    assert made(folder) == ["work.db"]


def test_a_queue_that_is_there_needs_no_right_to_write(folder: Path) -> None:
    with tablequeue.connect("sqlite:///work.db") as database:
        database.create_queue("work").push(1)
        with tablequeue.connect("sqlite:///file:work.db?mode=ro&uri=true") as reader:
            assert counts(reader.create_queue("work")) == {"ready": 1}
            assert reader.upgrade() == {"work": database.schema_version}
            refuses(ReadOnly, reader.create_queue, "other")


class LooksAndMakes(SQLite):
    def missing(self) -> None:
        return None


def test_the_check_notices_an_engine_that_creates_a_file(folder: Path) -> None:
    engine = sa.create_engine("sqlite:///work.db")
    with Database(engine, Runner(engine, LooksAndMakes(engine.dialect)), None) as database:
        assert database.queues() == []
    assert made(folder) == ["work.db"]
    engine.dispose()
