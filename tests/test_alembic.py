"""Alembic's autogenerate proposes nothing about the tables of queues. The env.py is that of the documentation."""

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
from tests.servers import Kind, Place
from tests.support import DESIGNS

PAGE = Path(__file__).parents[1] / "docs" / "retention.md"
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


def test_the_env_py_of_the_page(place: Place, kind: Kind, tmp_path: Path) -> None:
    """`alembic revision --autogenerate` writes a revision in the default schema."""
    (env,) = re.findall(r"^```py\n(# env.py\n.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    url = sa.make_url(place.url)
    if place.schema:
        place.execute(f"create schema {place.schema}")
        options = {"options": f"-csearch_path={place.schema}"}
        url = url.update_query_dict(options) if kind.name == "postgresql" else url.set(database=place.schema)
    there = Place(url.render_as_string(hide_password=False), None)

    def alembic(*words: str) -> None:
        program = [sys.executable, "-m", "alembic", *words]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    there.open().create_queue("work", groups=True).push("x", group="g")
    alembic("init", "migrations")
    ini = tmp_path / "alembic.ini"
    escaped = there.url.replace("%", "%%")
    ini.write_text(re.sub("(?m)^(sqlalchemy.url = ).*$", lambda match: match[1] + escaped, ini.read_text()))
    (tmp_path / "migrations" / "env.py").write_text(env, "utf-8")
    (tmp_path / "models.py").write_text(MODELS)
    alembic("revision", "--autogenerate", "-m", "first")
    (revision,) = (tmp_path / "migrations" / "versions").glob("*.py")
    text = revision.read_text("utf-8")
    assert "create_table('orders'" in text
    assert "tq_" not in text
    alembic("upgrade", "head")
    alembic("check")
    assert there.open().queue("work").stats().ready == 1
    there.close()
