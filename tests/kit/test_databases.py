"""The database of a test: its own, empty, and deleted afterwards, in real runs of pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue.errors import BadInput, BadUrl, TablequeueError, Unreachable
from tablequeue.testing import databases, temporary_database
from tests.kit.support import run_pytest
from tests.nightly import by_night

pytestmark = pytest.mark.quick

TESTS = """
    import pytest
    import tablequeue
    from tablequeue.testing import assert_pushed

    @pytest.mark.parametrize("number", range(4))
    def test_a_database_is_empty(tablequeue_database, tablequeue_url, number):
        assert tablequeue_database.queues() == []
        queue = tablequeue_database.create_queue("emails")
        with tablequeue.connect(tablequeue_url) as application:
            application.queue("emails").push(number)
            application.engine.dispose()
        queue.push("left in progress")
        assert len(queue.pop_many(2)) == 2
        assert_pushed(queue, number, count=1)
        print("URL", tablequeue_url)

    def test_a_failure_is_short(tablequeue_database):
        assert_pushed(tablequeue_database.create_queue("emails"), {"to": "ada"})
"""


def urls(output: str) -> set[str]:
    return {line.removeprefix("URL ") for line in output.splitlines() if line.startswith("URL ")}


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_each_test_has_a_file_of_its_own(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    run = run_pytest(tmp_path, {"test_app.py": TESTS}, "-rP", *arguments)
    assert run.counts == {"passed": 4, "failed": 1}, run.output
    assert "Expected one or more messages pushed to 'emails' with payload={'to': 'ada'}, found none." in run.output
    assert "pushed.py" not in run.output.partition("short test summary")[0], "the traceback ends in the test"
    found = urls(run.output)
    assert len(found) == 4
    assert not any(Path(sa.make_url(url).database or "").parent.exists() for url in found)


@pytest.mark.parametrize("way", by_night(["option", "ini", "environment"], "ini".__eq__))
def test_each_test_has_a_schema_of_its_own(tmp_path: Path, postgresql_url: str, way: str) -> None:
    files = {"test_app.py": TESTS}
    if way == "ini":
        files["pytest.ini"] = f"[pytest]\ntablequeue_url = {postgresql_url}\n"
    arguments = ("--tablequeue-url", postgresql_url) if way == "option" else ()
    environment = {"TABLEQUEUE_TEST_URL": postgresql_url if way == "environment" else "sqlite:///not-this-one.db"}
    run = run_pytest(tmp_path, files, "-rP", *arguments, environment=environment)
    assert run.counts == {"passed": 4, "failed": 1}, run.output
    found = urls(run.output)
    assert len(found) == len([url for url in found if "search_path" in url]) == 4
    engine = sa.create_engine(postgresql_url)
    assert not [name for name in sa.inspect(engine).get_schema_names() if name.startswith("tablequeue_test_")]
    engine.dispose()


def test_mariadb_has_a_database_for_each_test(mariadb_url: str) -> None:
    with temporary_database(mariadb_url) as url, tablequeue.connect(url) as db:
        db.create_queue("emails").push(1)
        db.engine.dispose()
    with pytest.raises(Unreachable):
        tablequeue.connect(url)


def test_a_transaction_that_was_left_open_is_named(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 1)
    place = temporary_database(postgresql_url)
    url = place.__enter__()
    db = tablequeue.connect(url)
    queue = db.create_queue("emails")
    connection = db.engine.connect()
    queue.push(1, connection=connection)
    with pytest.raises(TablequeueError, match=r"cannot be dropped: .*lock timeout.* End the transactions"):
        place.__exit__(None, None, None)
    connection.close()
    db.close()
    db.engine.dispose()
    engine = sa.create_engine(postgresql_url)
    with engine.begin() as connection:
        connection.execute(sa.schema.DropSchema(url.partition("search_path%3D")[2], cascade=True))
    engine.dispose()


def test_the_options_of_the_url_stay(postgresql_url: str) -> None:
    given = sa.make_url(postgresql_url).update_query_dict({"options": "-cwork_mem=5MB"})
    with temporary_database(given) as url:
        engine = sa.create_engine(url)
        with engine.connect() as connection:
            assert connection.scalar(sa.text("show work_mem")) == "5MB"
            assert connection.scalar(sa.text("select current_schema()")).startswith("tablequeue_test_")
        engine.dispose()


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(BadUrl, match=r"The database URL cannot be read\. Write it as"):
        temporary_database("bogus").__enter__()


REFUSED = {
    "sqlite:///work.db": r"names the file 'work.db', and each test has a file of its own\. Write sqlite://",
    "mssql+mssqlpython://user@host/db": r"no temporary databases on mssql\. Give the URL of",
}


@pytest.mark.parametrize(("url", "words"), REFUSED.items(), ids=["a file", "SQL Server"])
def test_a_url_without_temporary_databases_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        temporary_database(url).__enter__()


def test_nothing_is_imported_before_a_test_asks(tmp_path: Path) -> None:
    program = """
        import sys

        def test_nothing_heavy():
            assert not {"sqlalchemy", "tablequeue.database", "tablequeue.worker"} & sys.modules.keys()
    """
    assert run_pytest(tmp_path, {"test_app.py": program}).counts == {"passed": 1}
