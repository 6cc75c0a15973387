"""`doctor` finds an example of each problem, and none in a healthy database."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from tablequeue import Database, Finding, Queue, Rate
from tablequeue.cli import main
from tablequeue.errors import DuplicateKey, NoRights, QueueNotFound
from tablequeue.verbs import doctor
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, refuses, rewritten, with_parts

pytestmark = pytest.mark.quick


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work")


def words(findings: list[Finding], queue: str | None = "work") -> str:
    assert all(finding.cause.endswith(".") and finding.remedy for finding in findings)
    return "\n".join(f"{finding.cause} {finding.remedy}" for finding in findings if finding.queue == queue)


# -- everywhere --------------------------------------------------------------------------------------------------------


def test_a_history_that_is_kept_for_ever(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "KEPT", 2)
    for queue in (db.create_queue("kept", history="keep"), db.create_queue("young")):
        queue.push_many([1, 2])
        queue.complete_many(queue.pop_many(2))
    assert "about 2 messages, and 2 more a day" in words(db.doctor(), "kept")
    assert words(db.doctor(), "young") == ""


def test_a_limit_that_stays_reached(db: Database) -> None:
    queue = db.create_queue("work", concurrency=1, lease=0.001)
    queue.push_many([1, 2])
    assert not [each for each in db.doctor("work") if "The limit of" in each.cause]
    assert queue.pop(lease=60)
    assert [each for each in db.doctor("work") if "The limit of 1 in progress" in each.cause]


def test_groups_that_stay_at_their_limit(db: Database) -> None:
    queue = db.create_queue("work", groups="fair", per_group=1, lease=0.001)
    queue.push_many([1, 2], group="a")
    assert not [each for each in db.doctor("work") if "Every group" in each.cause]
    assert queue.pop(lease=60)
    assert [each for each in db.doctor("work") if "Every group" in each.cause]


@pytest.mark.parametrize("design", DESIGNS)
def test_a_new_queue_is_healthy(db: Database, design: str) -> None:
    db.create_queue("work", **DESIGNS[design])
    db.create_queue("bare", history="none", **DESIGNS[design])
    assert [finding for finding in db.doctor() if finding.queue] == []
    assert [finding for finding in db.doctor("work") if finding.queue] == []


def test_nothing_is_changed(db: Database, queue: Queue) -> None:
    queue.push_many(range(3))
    before = queue.peek()
    db.doctor()
    assert queue.peek() == before


def test_a_queue_that_is_not_there(db: Database, queue: Queue) -> None:
    refuses(QueueNotFound, db.doctor, "wrok")


def test_a_queue_of_another_version_does_not_hide_the_others(db: Database, place: Place, queue: Queue) -> None:
    db.create_queue("old")
    catalogue = f"{place.schema}.tq_queues" if place.schema else "tq_queues"
    place.execute(f"update {catalogue} set schema_version = 0 where name = 'old'")  # noqa: S608 (our own words)
    assert "tablequeue upgrade" in words(db.doctor(), "old")
    assert words(db.doctor()) == ""


@pytest.mark.parametrize(
    "options",
    [
        {"groups": "fair", "per_group": 1, "group_rate": Rate(10), "rate": Rate(10), "concurrency": 5},
        {"groups": True, "expires": 60, "unique_for": 60, "results": True},
    ],
)
def test_no_index_is_missing_where_none_is(db: Database, options: dict[str, Any]) -> None:
    db.create_queue("work", **options)
    assert "index" not in words(db.doctor())


@pytest.mark.parametrize("index", ["ready", "finished"])
def test_a_missing_index(db: Database, place: Place, kind: Kind, queue: Queue, index: str) -> None:
    mysql = kind.name == "mariadb"
    name = "state" if mysql and index == "ready" else index
    table = place.table("work") + ("_history" if index == "finished" else "")
    prefix = f"{place.schema}." if place.schema and not mysql else ""
    place.execute(f"drop index {prefix}tq_work__{name}" + (f" on {table}" if mysql else ""))
    found = words(db.doctor())
    assert f"The index tq_work__{name} is missing" in found
    schema = f" --schema {place.schema}" if place.schema else ""
    assert f"`tablequeue sql create work --dialect {kind.name}{schema}` has it" in found


def test_a_lease_too_short_for_the_work(db: Database) -> None:
    queue = db.create_queue("work", lease=10)
    now = datetime.now(UTC) - timedelta(seconds=100)
    for seconds in (1, 1, 6):
        queue.push("x", now=now)
        claimed(queue, now=now).complete(now=now + timedelta(seconds=seconds))
    assert "took 5.9 s or longer, and the lease is 10 s" in words(db.doctor())


def test_clocks_that_differ(place: Place, kind: Kind, queue: Queue) -> None:
    class Late(kind.engine_class):  # type: ignore[name-defined]
        def load_time(self, value: Any) -> datetime:
            time: datetime = super().load_time(value)
            return time - timedelta(seconds=30)

    assert "30 s behind this machine's" in words(place.open_with(Late).doctor(), None)
    assert "clock" not in words(place.open().doctor(), None)


def test_a_check_without_rights_says_so(place: Place, kind: Kind) -> None:
    class Refused(type(kind.engine_class.checks)):  # type: ignore[misc]
        def check(self, cursor: Any, table: Any, params: Any) -> Any:
            raise NoRights("The database user may not do this: no.", "Grant the rights, or use another user.")

    database = place.open_with(with_parts(kind.engine_class, {"checks": Refused}))
    database.create_queue("work")
    checks = kind.engine_class.checks.all
    assert len(database.doctor()) == len(checks)
    assert f"{checks[0].operation} could not look: The database user may not" in words(database.doctor(), None)


def test_the_command(place: Place, queue: Queue) -> None:
    def run(*arguments: str) -> Any:
        schema = ["--schema", place.schema] if place.schema else []
        return CliRunner().invoke(main, ["--url", place.url, *schema, *arguments])

    queue.push("x", now=at(0))
    claimed(queue, now=at(0)).complete(now=at(100))
    finding = run("doctor", "work", "--json")
    causes = [json.loads(line) for line in finding.stdout.splitlines()]
    assert all(cause.keys() == {"queue", "cause", "remedy"} for cause in causes)
    assert finding.exit_code == (1 if causes else 0)
    plain = run("doctor")
    assert plain.exit_code == finding.exit_code
    assert ("Nothing was found." in plain.stdout) == (not causes)
    assert "Did you mean 'work'?" in run("doctor", "wrok").stderr


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def minutes_ago(text: str) -> str:
    """Return a check without its threshold of a minute."""
    return (
        text.replace("interval '60 seconds'", "interval '0 seconds'")
        .replace("interval 60 second", "interval 0 second")
        .replace("second, -60", "second, 1")
    )


@only("postgresql", "mariadb", "mssql")  # SQLite does not know its readers
def test_a_long_transaction(place: Place, kind: Kind, queue: Queue) -> None:
    late = rewritten(kind.engine_class, check_transactions=minutes_ago)
    with place.sa_engine().connect() as reader:
        if kind.name == "postgresql":
            reader.execution_options(isolation_level="REPEATABLE READ")
        if kind.name == "mssql":
            queue.push("x", connection=reader)
        reader.exec_driver_sql(f"select * from {place.table('work')}")  # noqa: S608 (our own words)
        if kind.name == "mariadb":
            reader.exec_driver_sql("select sleep(1.1)")  # InnoDB knows when a transaction began to the second
        assert "has had a transaction open for" in words(place.open_with(late).doctor(), None)


@only("postgresql")
def test_dead_rows(place: Place, kind: Kind, queue: Queue) -> None:
    queue.push_many(range(2000))
    queue.purge()
    place.execute("select pg_stat_force_next_flush()") if _version(place) >= 150000 else None
    strict = rewritten(kind.engine_class, check_dead_rows=lambda text: text.replace("> 50000", ">= 0"))
    assert "autovacuum does not keep up" in words(place.open_with(strict).doctor())


def _version(place: Place) -> int:
    return int(place.execute("show server_version_num")[0][0])


@only("postgresql")
def test_autovacuum_that_is_switched_off(place: Place, db: Database, queue: Queue) -> None:
    place.execute(f"alter table {place.table('work')} set (autovacuum_enabled = false)")
    assert "Autovacuum is off for the table tq_work" in words(db.doctor())


@only("postgresql")
@pytest.mark.parametrize(
    ("option", "harm"),
    [
        ("-c synchronous_commit=off", "takes back what push has returned"),
        ("-c default_transaction_isolation=serializable", "fail where they meet others"),
        ("-c default_transaction_read_only=on", "default_transaction_read_only is on: every push and every claim"),
        ("-c statement_timeout=5s", "statement_timeout is 5000 ms: calls that wait for a lock"),
        ("-c idle_session_timeout=60s", "idle_session_timeout is 60000 ms: the session that wakes"),
    ],
)
def test_settings_of_postgresql(place: Place, option: str, harm: str) -> None:
    url = sa.make_url(place.url).update_query_dict({"options": option})
    other = Place(url.render_as_string(hide_password=False), place.schema)
    assert harm in words(other.open().doctor(), None)
    other.close()


# -- SQLite ------------------------------------------------------------------------------------------------------------


@only("sqlite")
def test_a_wal_that_grows(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablequeue.engines.sqlite.checks.LARGEST_WAL", 1 << 20)
    with place.sa_engine().connect() as reader:
        reader.exec_driver_sql("begin")
        reader.exec_driver_sql("select * from tq_work").all()
        queue.push_many(["x" * 1000] * 3000)
        assert "a reader has had a transaction open" in words(place.open().doctor(), None)


@only("sqlite")
def test_a_journal_that_is_no_wal(place: Place, db: Database, queue: Queue) -> None:
    db.close()
    place.execute("pragma journal_mode = delete")
    with place.open() as other:
        assert "The journal mode is delete" in words(other.doctor(), None)
        other.queue("work").push("x")
        assert words(other.doctor(), None) == "", "who writes sets it to WAL again, and who looks does not"


@only("sqlite")
def test_commits_that_are_not_flushed(place: Place, queue: Queue) -> None:
    from tablequeue import connect

    engine = place.sa_engine()
    sa.event.listen(engine, "connect", lambda dbapi, _: dbapi.execute("pragma synchronous = normal"))
    with connect(engine) as database:
        assert "synchronous is 1" in words(database.doctor(), None)


# -- MariaDB -----------------------------------------------------------------------------------------------------------


@only("mariadb")
def test_settings_of_mariadb(place: Place, kind: Kind, queue: Queue) -> None:
    lax = rewritten(kind.engine_class, check_settings=lambda text: text.replace("'STRICT') = 0", "'STRICT') > 0"))
    assert "cut off what does not fit" in words(place.open_with(lax).doctor(), None)
    place.execute("set global read_only = 1")
    try:
        assert "read_only is '1': pushes and claims" in words(place.open().doctor(), None)
    finally:
        place.execute("set global read_only = 0")
    late = rewritten(kind.engine_class, check_purge=lambda text: text.replace("> 100000", ">= 0"))
    assert "are not cleaned up yet" in words(place.open_with(late).doctor(), None)


@only("mariadb")
def test_keys_of_messages_that_others_deleted(place: Place, db: Database, queue: Queue) -> None:
    queue.push("a", key="one")
    queue.push("b", key="two")
    assert "keys are taken" not in words(db.doctor(), queue.name)
    place.execute(f"delete from {place.table(queue.name)} where dedup_key = 'one'")  # noqa: S608 (a checked name)
    finding = next(one for one in db.doctor(queue.name) if "keys are taken" in one.cause)
    assert finding.cause.startswith("1 keys are taken although their messages are gone, such as 'one'")
    refuses(DuplicateKey, queue.push, "c", key="one")
    place.execute(finding.remedy.partition(": ")[2].partition(". Use")[0])
    queue.push("c", key="one")
    refuses(DuplicateKey, queue.push, "d", key="two")
