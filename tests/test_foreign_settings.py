"""Settings that others have made, of servers and sessions: they change nothing, or the call is refused first."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Database, Queue, Rate
from tablequeue.engines.sqlite.connection import SQLiteConnection
from tablequeue.errors import BadInput, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.verbs import doctor, sweep
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place, only
from tests.support import DESIGNS, claimed, counts, refuses

pytestmark = pytest.mark.quick

OPTIONS: dict[str, dict[str, Any]] = {
    "text": {"payload": "text"},
    "bytes": {"payload": "bytes", "strict": True},
    "groups": {"groups": True, "unique_for": 60},
    "limits": {"concurrency": 50, "rate": Rate(1000, per=1, burst=500), "results": True},
}
PAYLOADS: dict[str, list[Any]] = {
    "bytes": [bytes([number, 0, 255, 92, 39]) for number in range(6)],
}
TEXTS = ["", *(f"x\\y''\"é☃%:a{{}}%s{number}" for number in range(5))]

# The settings of sessions under which the verbs were run, by engine. True: a caller's connection with it is refused.
SETTINGS: dict[str, dict[str, bool]] = {
    "postgresql": {
        "set array_nulls to off": False,
        "set standard_conforming_strings to off": True,
        "set bytea_output to escape": False,
        "set timezone to 'Asia/Kathmandu'": False,
        "set session_replication_role to replica": False,
        "set transform_null_equals to on": False,
        "set search_path to pg_temp": False,
        "set extra_float_digits to -15": False,
    },
    "mariadb": {
        "set session sql_select_limit = 3": True,
        "set session sql_safe_updates = 1": True,
        "set session timestamp = 1000000000": True,
        "set session foreign_key_checks = 0": True,
        "set session unique_checks = 0": True,
        "set session character_set_connection = latin1": True,
        "set session character_set_client = latin1": True,
        "set session character_set_results = latin1": True,
        "set session sql_mode = 'EMPTY_STRING_IS_NULL'": True,
        "set session sql_mode = 'ORACLE'": False,
        "set session sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'": False,
        "set session time_zone = '+05:45'": False,
        "set session group_concat_max_len = 4": False,
        "set session auto_increment_increment = 7, session auto_increment_offset = 3": False,
        "set session collation_connection = utf8mb4_general_ci": False,
        "set session completion_type = 1": False,
        "set session sql_auto_is_null = 1": False,
    },
    "sqlite": {
        "pragma case_sensitive_like = on": False,
        "pragma recursive_triggers = on": False,
        "pragma foreign_keys = on": False,
        "pragma reverse_unordered_selects = on": False,
        "pragma count_changes = on": False,
        "pragma full_column_names = on": False,
        "pragma trusted_schema = off": False,
    },
}
CASES = [(kind, setting, refused) for kind in KINDS for setting, refused in SETTINGS.get(kind.name, {}).items()]
# By day each setting with every other one of the options, in turn.
CELLS = by_night(
    [(*case, options) for case in CASES for options in OPTIONS],
    lambda cell: (CASES.index(cell[:3]) + [*OPTIONS].index(cell[3])) % 2 == 0,
)


@contextmanager
def set_so(place: Place, setting: str) -> Iterator[sa.Engine]:
    """An Engine each of whose connections has the setting."""
    engine = sa.create_engine(place.url, poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "connect")
    def has_it(dbapi: Any, record: Any) -> None:
        with closing(dbapi.cursor()) as cursor:
            cursor.execute(setting)
        dbapi.commit()

    yield engine
    engine.dispose()


def use(queue: Queue, payloads: list[Any], connection: Any = None) -> None:
    """Use the core verbs, and compare all that they return."""
    within: dict[str, Any] = {"connection": connection} if connection is not None else {}
    commit: Callable[[], None] = connection.commit if connection is not None else lambda: None
    group: dict[str, Any] = {"group": "Gé☃"} if queue.definition.groups else {}
    ids = queue.push_many(payloads, **group, **within)
    one = queue.push(payloads[1], key="K☃\\", headers={"a": 'é\\"☃'}, **group, **within)
    assert queue.push(payloads[1], key="K☃\\", on_conflict="return", **group, **within) == one
    commit()
    got = {}
    while batch := queue.pop_many(20, **within):
        commit()
        got.update({message.id: message for message in batch})
        queue.complete_many(batch, **within)
        commit()
    assert {id: got[id].payload for id in ids} == dict(zip(ids, payloads, strict=True))
    assert len(got) == len(payloads) + 1
    assert (got[one].key, got[one].headers) == ("K☃\\", {"a": 'é\\"☃'})
    assert abs(datetime.now(UTC) - got[one].popped_at) < timedelta(minutes=5)
    id = queue.push(payloads[2], **group, **within)
    commit()
    message = claimed(queue, **within)
    message.extend(60, **within)
    message.fail("né\\☃", retry_in=0, **within)
    commit()
    again = claimed(queue, **within)
    assert (again.id, again.payload) == (id, payloads[2])
    again.complete(**within)
    commit()
    assert counts(queue) == {"finished": len(payloads) + 2}


@pytest.mark.parametrize(
    ("kind", "setting", "refused", "options"), CELLS, ids=lambda value: getattr(value, "name", str(value))
)
def test_sessions_of_ours_and_of_callers(
    db: Database, place: Place, kind: Kind, setting: str, refused: bool, options: str
) -> None:
    queues = [db.create_queue(name, **OPTIONS[options]) for name in ("ours", "theirs")]
    payloads = PAYLOADS.get(options, TEXTS)
    with set_so(place, setting) as engine:
        with tablequeue.connect(engine, schema=place.schema) as ours:
            use(ours.queue("ours"), payloads)
        if setting == "pragma trusted_schema = off":
            return  # SQLite refuses every statement of such a connection, or none, by its version
        with engine.connect() as connection:
            if "array_nulls" in setting and options == "groups":
                error = refuses(tablequeue.TablequeueError, use, queues[1], payloads, connection)
                assert "NULL" in error.cause
                return
            if not refused:
                use(queues[1], payloads, connection)
                return
            word = setting.split()[2 if setting.startswith("set session") else 1]
            group = {"group": "a"} if options == "groups" else {}
            error = refuses(BadInput, queues[1].push_many, payloads, connection=connection, **group)
            assert word in error.cause
            connection.rollback()
    assert counts(queues[1]) == {}


@only("mariadb")
def test_a_callers_connection_is_looked_at_once(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    with place.sa_engine().connect() as connection:
        queue.push(1, connection=connection)
        ((before,),) = connection.exec_driver_sql(
            "select variable_value from information_schema.session_status where variable_name = 'questions'"
        )
        queue.push(1, connection=connection)
        ((after,),) = connection.exec_driver_sql(
            "select variable_value from information_schema.session_status where variable_name = 'questions'"
        )
        assert int(after) - int(before) == 2
        connection.rollback()


@only("mariadb")
def test_a_definer_who_is_gone_is_named_with_a_remedy(db: Database, place: Place) -> None:
    with place.sa_engine().begin() as connection:
        connection.exec_driver_sql("create or replace user maker@'%%'")
        connection.exec_driver_sql("grant all on *.* to maker@'%%'")
    maker = sa.make_url(place.url).set(username="maker", password="")
    with tablequeue.connect(maker, schema=place.schema) as database:
        database.create_queue("work", groups=True)
        database.engine.dispose()
    assert not [finding for finding in db.doctor("work") if "maker" in finding.cause]
    place.execute("drop user maker@'%%'")
    (finding,) = [finding for finding in db.doctor("work") if "maker" in finding.cause]
    assert (finding.queue, "Create that user again" in finding.remedy) == ("work", True)
    queue = db.queue("work")
    error = refuses(tablequeue.TablequeueError, queue.push, 1, group="a")
    assert "maker" in error.cause
    place.execute("create user maker@'%%' account lock")
    place.execute(f"grant select, insert, update, delete, trigger on {place.schema}.* to maker@'%%'")
    queue.push(1, group="a")
    claimed(queue).complete()
    place.execute("drop user maker@'%%'")


# -- keys of tables --------------------------------------------------------------------------------------------------

WITHOUT_KEY = {
    "postgresql": "select relname from pg_class where relnamespace = cast('{0}' as regnamespace) and relkind in "
    "('r', 'p') and relreplident <> 'f' and not exists "
    "(select from pg_index where indrelid = pg_class.oid and indisprimary)",
    "mariadb": "select table_name from information_schema.tables as t where table_schema = '{0}' and not exists ("
    "select 1 from information_schema.table_constraints as c where c.table_schema = t.table_schema and c.table_name = "
    "t.table_name and constraint_type = 'PRIMARY KEY')",
}
FEATURES: list[dict[str, Any]] = [
    *({**design, "history": 60, "results": True, "expires": 60} for design in DESIGNS.values()),
    {"concurrency": 2, "rate": Rate(1, per=1, burst=1), "unique_for": 1},
    {"groups": "fair", "per_group": 1, "group_rate": Rate(1, per=1, burst=1)},
    {"batches": True, "dependencies": True, "results": True},
]


@only("postgresql", "mariadb")
def test_every_table_has_a_key(db: Database, place: Place, kind: Kind) -> None:
    """Else change data capture, a cluster or an upgrade by replication refuses to change its rows."""
    queues = [db.create_queue(f"q{number}", **options) for number, options in enumerate(FEATURES)]
    topic = db.create_topic("events", groups=True, keep=60)
    topic.subscribe("mail")
    topic.subscribe("ordered", ordered=True)
    context = context_of(queues[0])
    for name in ("schedules", "streams", "staged", "moving", "progress", "task_results"):
        context.run(getattr(context.engine.catalogue, f"create_{name}"), {})
    there = place.execute("select table_schema from information_schema.tables")
    assert [schema for (schema,) in there].count(place.schema) > 40
    assert place.execute(WITHOUT_KEY[kind.name].format(place.schema)) == []


@only("postgresql")
def test_a_publication_of_all_tables_keeps_nobody_from_changing_them(db: Database, place: Place) -> None:
    rate = db.create_queue("rate", rate=Rate(100, per=1, burst=10))
    batches = db.create_queue("batches", batches=True)
    rate.push(1)
    name = f"all_of_{place.schema}"
    place.execute(f"create publication {name} for tables in schema {place.schema}")
    claimed(rate).complete()
    with batches.batch() as batch:
        batch.push(1)
    claimed(batches).complete()
    for _ in range(3):
        batches.pop()
    progress = db.batch(batch.id).progress()
    assert progress is not None
    assert progress.ended_at is not None
    batches.purge_history(0)
    place.execute(f"drop publication {name}")


# -- files ---------------------------------------------------------------------------------------------------------


@only("sqlite")
def test_a_push_into_a_deleted_file_is_refused(db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    path = Path(str(sa.make_url(place.url).database))
    with place.sa_engine().connect() as connection:
        queue.push(0, connection=connection)
        connection.commit()
        for file in path.parent.iterdir():
            file.unlink()
        refuses(QueueNotFound, queue.push, 1)
        refuses(BadInput, queue.push, 2, connection=connection)
    assert [*path.parent.iterdir()] == []
    again = db.create_queue("work")
    again.push(3)
    assert claimed(again).payload == 3


@only("sqlite")
def test_a_file_that_another_one_has_replaced(db: Database, place: Place, tmp_path: Path) -> None:
    """As a copy that is restored: what is pushed from then on is in the new file."""
    queue = db.create_queue("work")
    path = Path(str(sa.make_url(place.url).database))
    other = tablequeue.connect(f"sqlite:///{tmp_path}/copy.db")
    other.create_queue("work")
    other.close()
    other.engine.dispose()
    for part in ("-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    (tmp_path / "copy.db").replace(path)
    queue.push(1)
    with tablequeue.connect(place.url) as late:
        assert claimed(late.queue("work")).payload == 1


@only("sqlite")
@pytest.mark.parametrize("mode", [0o664, 0o600])
def test_the_lock_file_has_the_mode_of_the_database(place: Place, mode: int) -> None:
    path = Path(str(sa.make_url(place.url).database))
    path.touch()
    path.chmod(mode)
    before = os.umask(0o022)
    try:
        place.open().create_queue("work").push(1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.with_name(f"{path.name}-lock").stat().st_mode) == mode


# -- retention -----------------------------------------------------------------------------------------------------


def finished(queue: Queue, messages: int) -> None:
    queue.push_many(range(messages))
    while batch := queue.pop_many(1000):
        queue.complete_many(batch)


def test_a_history_that_is_behind_is_deleted_faster_and_faster(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """In transactions of a bounded size: the number of them grows, while one call does not suffice."""
    monkeypatch.setattr(sweep, "SWEEP_SIZE", 10)
    queue = db.create_queue("work", history=60)
    context = context_of(queue)
    finished(queue, 105)
    late = datetime.now(UTC) + timedelta(hours=1)
    left = []
    for _ in range(5):
        sweep.purge(context, late)
        left.append(counts(queue).get("finished", 0))
    assert left == [95, 75, 35, 0, 0]
    assert context.table.purges == 1


@only("sqlite", "postgresql", "mariadb")
def test_doctor_tells_of_a_history_that_is_behind(db: Database) -> None:
    queue = db.create_queue("work", history=60)
    finished(queue, 3)
    context = context_of(queue)
    assert [*doctor._history(context, queue.stats())] == []
    early = db.create_queue("early", history=60)
    early.push(1)
    claimed(early).complete(now=datetime.now(UTC) - timedelta(hours=1))
    ((cause, remedy),) = doctor._history(context_of(early), early.stats())
    assert "behind its retention" in cause
    assert "purge_history" in remedy


def test_the_check_notices_a_history_that_is_deleted_at_one_speed(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST_PURGES", 1)
    with pytest.raises(AssertionError):
        test_a_history_that_is_behind_is_deleted_faster_and_faster(db, monkeypatch)


@only("sqlite")
def test_the_check_notices_a_connection_that_stays_with_a_deleted_file(
    db: Database, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SQLiteConnection, "is_open", lambda connection: True)
    with pytest.raises(pytest.fail.Exception):
        test_a_push_into_a_deleted_file_is_refused(db, place)


@only("mariadb")
def test_the_check_notices_settings_that_are_not_looked_at(place: Place, kind: Kind) -> None:
    class Trusting(kind.engine_class):  # type: ignore[name-defined]
        def _checked(self, driver: Any, cursor: Any) -> Any:
            return cursor

    db = place.open_with(Trusting)
    with pytest.raises((pytest.fail.Exception, tablequeue.TablequeueError, AssertionError)):
        test_sessions_of_ours_and_of_callers(db, place, kind, "set session sql_select_limit = 3", True, "text")
