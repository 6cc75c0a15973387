"""Alembic with the env.py of the documentation: its autogenerate proposes queues, and nothing about their tables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tablequeue.alembic import include_name, include_object
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.worker.schedule import Schedule, push_due
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place
from tests.support import DESIGNS

# The URL of a schema on a server, which the URL itself names: Alembic gets no `schema=`.
SCHEMAS: dict[str, Callable[[sa.URL, str], sa.URL]] = {
    "postgresql": lambda url, schema: url.update_query_dict({"options": f"-csearch_path={schema}"}),
    "mariadb": lambda url, schema: url.set(database=schema),
}
PAGE = Path(__file__).parents[1] / "docs" / "alembic.md"
MODELS = """
import sqlalchemy as sa

metadata = sa.MetaData()
sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
"""
HOURLY = Schedule("hourly", "fifo", "0 * * * *", "x")


def models(schema: str | None, *names: str) -> sa.MetaData:
    """Return the models of an application."""
    metadata = sa.MetaData(schema=schema)
    for name in names:
        sa.Table(name, metadata, sa.Column("id", sa.Integer, primary_key=True))
    return metadata


@pytest.fixture
def engine(place: Place) -> sa.Engine:
    """An engine on a database with every table that queues can have, and two of the application."""
    database = place.open()
    for name, design in DESIGNS.items():
        queue = database.create_queue(name, **design)
        Stream(queue, "stream")
        staging.prepare(queue)
    push_due(database, HOURLY)
    engine = place.sa_engine()
    models(place.schema, "orders", "old").create_all(engine)
    return engine


def proposed(engine: sa.Engine, place: Place, **options: Any) -> list[tuple[str, str]]:
    """Return what autogenerate would do: the operation and the table."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True, **options})
        found = compare_metadata(context, models(place.schema, "orders", "new"))
        # A server of the tests has other schemas besides that of the test.
        tables = [(verb, table) for verb, table, *_ in found if isinstance(table, sa.Table)]
        return sorted((verb, table.name) for verb, table in tables if table.schema == place.schema)


@pytest.mark.parametrize("hook", [include_name, include_object])
def test_it_proposes_nothing_about_queues(engine: sa.Engine, place: Place, hook: Callable[..., bool]) -> None:
    assert proposed(engine, place, **{hook.__name__: hook}) == [("add_table", "new"), ("remove_table", "old")]


def test_without_the_hook_it_would_drop_them_all(engine: sa.Engine, place: Place) -> None:
    dropped = {table for verb, table in proposed(engine, place) if verb == "remove_table"}
    assert dropped >= {"old", "tq_queues", "tq__schedules", "tq_fifo", "tq_fifo_history", "tq_groups__turns"} - (
        {"tq_groups__turns"} if engine.dialect.name == "sqlite" else set()
    )


def test_every_table_of_queues_begins_so(engine: sa.Engine, place: Place) -> None:
    inspector = sa.inspect(engine)
    names = {*inspector.get_table_names(place.schema), *inspector.get_view_names(place.schema)} - {"orders", "old"}
    assert len(names) > len(DESIGNS)
    assert not any(include_name(name, "table", {}) for name in names)


@pytest.mark.parametrize(
    ("name", "type_", "wanted"),
    [
        ("tq_queues", "table", False),
        ("orders", "table", True),
        ("tqx", "table", True),
        ("TQ_queues", "table", True),
        (None, "schema", True),
        ("tq_mine", "schema", True),
        ("tq_orders_index", "index", True),
    ],
)
def test_names(name: str | None, type_: str, wanted: bool) -> None:
    assert include_name(name, type_, {}) is wanted
    assert include_object(None, name, type_, True, None) is wanted


def test_a_table_of_the_models_is_the_applications_own() -> None:
    assert include_object(None, "tq_mine", "table", False, None)
    assert include_object(None, "tq_mine", "table", True, object())


def blocks() -> dict[str, str]:
    """Return the programs of the page, by their first line."""
    found = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return {block.partition("\n")[0]: block for block in found}


# The operations of migrations are tested on each engine in test_alembic_operations.py.
@pytest.mark.parametrize(
    "kind", by_night(KINDS, lambda kind: kind.name in ("postgresql", "mssql")), ids=lambda kind: kind.name
)
def test_the_page(place: Place, kind: Kind, tmp_path: Path) -> None:
    """Alembic's command line, with the files of the page, in the default schema."""
    if place.schema:
        place.execute(f"create schema {place.schema}")
    url = sa.make_url(place.url)
    there = Place((SCHEMAS[kind.name](url, place.schema) if place.schema else url).render_as_string(False), None)
    page = blocks()

    def alembic(*words: str) -> str:
        program = [sys.executable, "-m", "alembic", *words]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def revision(name: str) -> str:
        alembic("revision", "--autogenerate", "-m", name)
        (file,) = (tmp_path / "migrations" / "versions").glob(f"*_{name}.py")
        return file.read_text("utf-8")

    alembic("init", "migrations")
    ini = tmp_path / "alembic.ini"
    escaped = there.url.replace("%", "%%")
    ini.write_text(re.sub("(?m)^(sqlalchemy.url = ).*$", lambda match: match[1] + escaped, ini.read_text()))
    (tmp_path / "migrations" / "env.py").write_text(page["# env.py"], "utf-8")
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "queues.py").write_text(page["# queues.py"])
    there.open().create_queue("work", groups=True).push("x", group="g")

    first = revision("first")
    shown = re.findall("^    op.*", page["def upgrade() -> None:"], re.MULTILINE)
    assert re.findall(r"^    op.*(?:queue|topic|subscription)\(.*", first.replace("'", '"'), re.MULTILINE) == shown
    assert "create_table('orders'" in first
    assert "tq_" not in first
    assert "create table tq_emails" in alembic("upgrade", "head", "--sql")
    alembic("upgrade", "head")
    alembic("check")
    assert there.open().queue("work").stats().ready == 1
    emails = there.open().queue("emails")
    assert (emails.definition.order, emails.definition.dead_letter_to) == ("priority", "failed")

    changed = page["# queues.py"].replace('"failed": {}', '"failed": {"backoff": Backoff(cap=60)}')
    (tmp_path / "queues.py").write_text(f"from tablequeue import Backoff\n{changed}")
    assert "import tablequeue" in revision("second")
    alembic("upgrade", "head")
    assert there.open().queue("failed").definition.backoff.cap == 60
    alembic("downgrade", "base")
    assert (there.open().queues(), there.open().topics()) == (["work"], [])
    there.close()
