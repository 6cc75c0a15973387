"""Servers that speak a database's protocol and keep less than a queue needs: they are refused by what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Queue
from tablequeue.engines.engine import Engine
from tablequeue.engines.mysql import connection
from tablequeue.engines.mysql.connection import check_version
from tablequeue.engines.postgresql.connection import refused_server
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.errors import BadUrl, DatabaseError
from tablequeue.ext import context_of
from tests import mariadb
from tests.crashes import Steps, stepping
from tests.servers import Kind, Place, only
from tests.support import at_once, claimed, ids_of, refuses, snapshot


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("8.0.11-TiDB-v8.5.0", "TiDB"),
        ("8.0.11-TiDB-v8.5.3-serverless", "TiDB"),
        ("5.7.25-TiDB-v7.1.0", "TiDB"),
        ("8.0.40-Vitess", "Vitess"),
        ("5.7.9-vitess-10.0.0-SNAPSHOT", "Vitess"),
        ("8.0.34-PlanetScale", "Vitess"),
    ],
)
def test_no_mysql(version: str, name: str) -> None:
    refusal = refuses(BadUrl, check_version, version)
    assert f"The server is {name} ({version})" in refusal.cause


@pytest.mark.parametrize(
    "version",
    [
        "8.0.36",
        "8.4.3",
        "9.1.0",
        "8.0.36-28",
        "8.0.35-azure",
        "8.0.mysql_aurora.3.04.0",
        "10.11.6-MariaDB-0+deb12u1-log",
        "5.5.5-10.11.6-MariaDB",
        "11.8.3-MariaDB",
    ],
)
def test_mysql_and_mariadb(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("CockroachDB CCL v25.2.22 (x86_64-pc-linux-gnu, built 2025/02/03 17:28:15, go1.22.8)", "CockroachDB"),
        ("CockroachDB CCL v20.1.15 (x86_64-unknown-linux-gnu, built 2021/04/26 16:11:58, go1.13.9)", "CockroachDB"),
        ("15.2-YB-2025.1.2.0-b0", "YugabyteDB"),
        ("PostgreSQL 11.2-YB-2.25.2.0-b0 on x86_64-pc-linux-gnu", "YugabyteDB"),
    ],
)
def test_no_postgresql(version: str, name: str) -> None:
    refusal = refused_server(version, "db.example.org")
    assert refusal is not None
    assert f"The server is {name} ({version})" in refusal.cause


def test_dsql_is_known_by_its_host() -> None:
    refusal = refused_server("16.9", "siabt3etsijuyijmtlu2nw6scy.dsql.us-east-1.on.aws")
    assert refusal is not None
    assert "Aurora DSQL" in refusal.cause


@pytest.mark.parametrize(
    ("version", "host"),
    [
        ("15.14 (Debian 15.14-0+deb12u1)", "/run/postgresql"),
        ("18.4", "localhost"),
        ("16.4", "tq.cluster-abc.us-east-1.rds.amazonaws.com"),
        ("17.5", "ep-cool-yb-123.eu-central-1.aws.neon.tech"),
        ("15.8", "cockroachdb-migration.dsql.example.org"),
    ],
)
def test_postgresql(version: str, host: str) -> None:
    assert refused_server(version, host) is None


def test_a_version_that_sqlalchemy_cannot_read_is_refused_with_a_remedy() -> None:
    """SQLAlchemy asks for the version before we do."""
    engine = PostgreSQL(sa.make_url("postgresql+psycopg://").get_dialect()())
    words = "Could not determine version from string 'CockroachDB CCL v25.2.22 (x86_64-pc-linux-gnu)'"
    assert isinstance(engine.translate(AssertionError(words)), BadUrl)
    assert engine.translate(AssertionError("something else")) is None


@pytest.fixture(scope="module")
def says_tidb() -> Iterator[str]:
    """The URL of a real server of MariaDB that says it is a TiDB, one so old that SQLAlchemy can speak with MariaDB."""
    programs = mariadb.programs()
    if programs is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("MariaDB is not installed.")
    with mariadb.server(*programs, 20, False, ["--version=5.7.10-TiDB-v2.1.0"]) as (url, _, _):
        yield url


def test_a_server_is_refused_when_it_is_connected_to(says_tidb: str) -> None:
    url = sa.make_url(says_tidb).set(drivername="mysql+pymysql")
    refusal = refuses(BadUrl, tablequeue.connect, url)
    assert "TiDB" in refusal.cause
    assert "SKIP LOCKED" in refusal.cause


def test_a_url_of_mariadb_to_another_server_is_refused_with_a_remedy(says_tidb: str) -> None:
    assert "mysql+pymysql" in refuses(BadUrl, tablequeue.connect, says_tidb).remedy


# -- a claim on a server that locks nothing ----------------------------------------------------------------------------


def locking_nothing(engine: type[Engine]) -> type[Engine]:
    """As TiDB: it reads the words, and locks nothing."""

    class Unlocked(engine):  # type: ignore[misc, valid-type]
        def render(self, *args: Any, **options: Any) -> str:
            return re.sub(r"\s+for update( skip locked)?\b", "", super().render(*args, **options))

    return Unlocked


CLAIMS: dict[str, tuple[dict[str, Any], Callable[[Queue, Place], Any]]] = {
    "take": ({}, lambda queue, place: taken(queue, place)),
    "take, without a history": ({"history": "none"}, lambda queue, place: taken(queue, place)),
}


def taken(queue: Queue, place: Place) -> Any:
    with place.sa_engine().begin() as connection:
        return queue.take_many(2, connection)


def claimed_with(
    place: Place, engine: type[Engine], name: str, between: Callable[[int, str, Queue], None]
) -> list[int]:
    """Claim from a new queue; call `between` after each statement, with its number and its first word."""
    definition, claim = CLAIMS[name]
    steps = Steps(lambda number, words: between(number, words, queue))
    queue = at_once(place.open_with(stepping(engine, steps)).create_queue("work", payload="text", **definition))
    queue.purge(in_progress=True)
    queue.push_many([*"abcd"], group="g" if definition.get("groups") else None)
    context_of(queue).table.ring.served = 0
    steps.armed = True
    try:
        claims = claim(queue, place)
    except DatabaseError as error:
        if "does not keep locks" not in error.cause:
            raise
        return []
    finally:
        steps.armed = False
    return ids_of(claims)


@only("mariadb")
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_on_a_server_that_locks_nothing_claims_for_one(
    place: Place, kind: Kind, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another consumer claims between two statements of a claim, before the first one that writes."""
    # It waits until the server ends the session with which the first one looks: here after a second.
    settings = connection.SETTINGS.replace("@@idle_transaction_timeout, 30)", "@@idle_transaction_timeout, 1)")
    monkeypatch.setattr(connection, "SETTINGS", settings)
    engine = locking_nothing(kind.engine_class)
    words: list[str] = []
    assert claimed_with(place, engine, name, lambda number, word, queue: words.append(word))
    writes = min(words.index(word) for word in ("update", "insert", "delete") if word in words)
    for last in range(1, writes + 1):
        theirs: list[int] = []

        def claim_too(number: int, word: str, queue: Queue, last: int = last, theirs: list[int] = theirs) -> None:
            if number == last:
                other = at_once(place.open_with(engine).queue(queue.name))
                theirs += ids_of(other.pop_many(2))

        ours = claimed_with(place, engine, name, claim_too)
        assert theirs
        assert not {*ours} & {*theirs}, f"after {words[last - 1]}"


CHANGES: dict[str, dict[str, Any]] = {
    "claim_many": {},
    "claim_many, due": {"order": "due"},
    "claim_group": {"groups": "fair"},
    "claim_run": {"groups": True},
    "take": {},
    "take, none": {"history": "none"},
    "stream_claim": {},
}


@only("mariadb")
@pytest.mark.parametrize("name", CHANGES)
def test_a_claim_changes_no_message_that_another_one_has_claimed(place: Place, kind: Kind, name: str) -> None:
    """Also where its statements are one packet: on a server that locks nothing, another claim runs between them."""
    definition = CHANGES[name]
    queue = place.open().create_queue("work", payload="text", **definition)
    queue.push("x", group="g" if definition.get("groups") else None)
    claim = claimed(queue)
    before = snapshot(queue)
    values: dict[str, Any] = {
        "ids": f"[{claim.id}]",
        "token": "f" * 32,
        "consumer": "another",
        "now": None,
        "run": 1,
        "passed": "[]",
    }
    values |= {"popped_at": "2040-01-01", "lease_until": "2040-01-01", "lease": 60, "n": 1, "high": None}
    statements = context_of(queue).table.statements(name.partition(",")[0])
    with place.sa_engine().begin() as connection:
        cursor = connection.connection.cursor()
        for change in [one for one in statements if one.split()[0] in ("update", "insert", "delete")]:
            assert cursor.execute(change, values) == 0, change
    assert snapshot(queue) == before
