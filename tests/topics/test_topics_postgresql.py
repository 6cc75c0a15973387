"""What only PostgreSQL has: settings of roles, dumps, forks of a process that uses them, and its warnings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

import tablequeue
from tablequeue import ALL, LeaseLost
from tablequeue.bulk.arrow import columns, log_batches
from tablequeue.engines.postgresql.messages import COPY_FROM
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs import topics
from tests.forked import Child
from tests.servers import Place, only, postgresql_bin, private_postgresql
from tests.support import at, claimed, counts, ids_of, refuses
from tests.topics import checks

pytestmark = only("postgresql")


def test_a_topic_goes_on_in_another_cluster(place: Place, topic: Topic, mail: Subscription) -> None:
    """Transaction ids begin anew there. Holes of the old cluster are forgotten, and no message is lost."""
    programs = postgresql_bin()
    assert programs
    ids = topic.push_many(map(str, range(300)))
    ordered = topic.subscribe("log")
    with place.sa_engine().connect() as connection:
        topic.push_many([*"abc"], connection=connection)
        last = topic.push("last")
        held = mail.pop_many(100)
        claimed(ordered).fail("no", retry=False)
        # As in a cluster that has run for years.
        place.execute(f"update {place.table('events')}__holes set bound = '900000000000'")  # noqa: S608 (our name)
        url = sa.make_url(place.url).set(drivername="postgresql").render_as_string(hide_password=False)
        dump = subprocess.run(
            [programs / "pg_dump", "--no-owner", f"--schema={place.schema}", url],
            check=True,
            capture_output=True,
        ).stdout
        connection.rollback()
    with private_postgresql(programs) as new:
        target = sa.make_url(new).set(drivername="postgresql").render_as_string(hide_password=False)
        subprocess.run(
            ["psql", "-q", "-v", "ON_ERROR_STOP=1", target], input=dump, check=True, stdout=subprocess.DEVNULL
        )
        there = Place(new, place.schema)
        try:
            database = there.open()
            new_mail, new_topic = database.subscription("events/mail"), database.topic("events")
            new_mail.complete_many(held)
            later = new_topic.push("later")
            assert ids_of(new_mail.pop_many(1000)) == [*ids[100:], last, later]
            for _ in range(3):
                new_topic.push("x")
                new_mail.pop_many(10)
            assert checks.holes(there) == []
            assert database.subscription("events/log").redrive(ALL) == 1
            checks.check_a_late_commit_comes_late(there, new_topic, new_mail)
        finally:
            there.close()


def test_a_bulk_push_has_the_time_of_its_statement(place: Place, topic: Topic, mail: Subscription) -> None:
    """Also in a transaction that began before; or the time that it was given."""
    topic.push_many(["x"] * COPY_FROM, now=at(0))
    assert {claim.pushed_at for claim in mail.pop_many(COPY_FROM)} == {at(0)}
    with place.sa_engine().begin() as connection:
        began = connection.scalar(sa.select(sa.func.now()))
        topic.push_many(["x"] * COPY_FROM, connection=connection)
    (pushed_at,) = {claim.pushed_at for claim in mail.pop_many(COPY_FROM)}
    assert began is not None
    assert pushed_at > began


SETTINGS = {
    "timezone": "Australia/Adelaide",
    "search_path": "pg_catalog",
    "synchronous_commit": "off",
    "datestyle": "SQL, DMY",
    "default_transaction_isolation": "serializable",
    "intervalstyle": "sql_standard",
    "jit": "on",
    "plan_cache_mode": "force_custom_plan",
}
CHECKS: tuple[Callable[[Topic, Subscription], None], ...] = (
    checks.check_what_is_left_of_an_expired_range,
    checks.check_a_failed_message_comes_back_alone,
    checks.check_a_claim_from_before_a_seek_is_fenced,
)


def test_a_role_with_other_settings(place: Place) -> None:
    user = f"{place.schema}_user"
    place.execute(f"create role {user} login superuser")
    for setting, value in SETTINGS.items():
        place.execute(f"alter role {user} set {setting} = '{value}'")
    url = sa.make_url(place.url).set(username=user)
    try:
        with tablequeue.connect(url, schema=place.schema) as database:
            for number, check in enumerate(CHECKS):
                mine = database.create_topic(f"events_{number}", payload="text")
                check(mine, mine.subscribe("mail", max_attempts=3))
            mine.push("x", now=at(0))
            assert claimed(mine.subscribe("other", start=at(0))).pushed_at == at(0)
            database.engine.dispose()
    finally:
        place.execute(f"drop owned by {user} cascade")
        place.execute(f"drop role {user}")


def test_no_transaction_begins_inside_of_another(place: Place, topic: Topic, mail: Subscription) -> None:
    """PostgreSQL would warn, and the inner commit would commit what the outer one had not finished."""
    warnings: list[str] = []
    engine = place.sa_engine()

    @sa.event.listens_for(engine, "connect")
    def listen(dbapi: Any, _: object) -> None:
        dbapi.add_notice_handler(lambda notice: warnings.append(notice.message_primary))

    with tablequeue.connect(engine, schema=place.schema) as database:
        queue = database.subscription("events/mail")
        topic.push_many(map(str, range(40)), now=at(0))
        first, second = queue.pop_many(5, lease=10, now=at(0)), queue.pop_many(5)
        queue.complete_many([first[0], second[0]])
        queue.release_many([first[1], second[1]])
        second[2].fail("no", retry_in=0)
        queue.pop_many(5, completing=second[3:4])
        queue.pop_many(5, completing=queue.pop_many(5))
        queue.pop_many(50, now=at(100))
        refuses(LeaseLost, queue.pop_many, 5, completing=[first[0], first[2]])
        queue.redrive(ALL)
        topic.subscription("mail").seek("end", force=True)
    assert warnings == []


def test_a_fork(place: Place, topic: Topic, mail: Subscription) -> None:
    """The child of a process that uses a topic has connections of its own."""
    ids = topic.push_many(map(str, range(40)))

    def work(pause: Any) -> list[int]:
        first = mail.pop_many(10)
        pause()
        mail.complete_many(first)
        return ids_of(first) + ids_of(mail.pop_many(10))

    mine = mail.pop_many(5)
    child = Child(work)
    child.until_it_pauses()
    mine += mail.pop_many(5)
    child.go_on()
    theirs = child.result()
    mail.complete_many(mine)
    assert sorted(theirs + ids_of(mine)) == ids[: len(theirs) + 10]
    assert counts(mail) == {"ready": 10, "in_progress": 10, "finished": 20}
    assert os.getpid() != child.pid


def test_many_sessions_complete_parts_of_one_range(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push_many(map(str, range(120)))
    batch = mail.pop_many(120)
    consumers = [place.open().subscription("events/mail") for _ in range(4)]

    def work(number: int) -> None:
        for start in range(number, 120, 8):
            consumers[number].complete_many(batch[start : start + 1])
            consumers[number].release(batch[start + 4])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert counts(mail) == {"ready": 60, "finished": 60}


def test_arrow_batches_come_by_one_connection(place: Place, topic: Topic) -> None:
    """The next read takes the connection of the last, unless the server has ended it, or the read was broken off."""
    topic.push_many(map(str, range(5000)))
    first, end = topics.bounds(context_of(topic))
    schema = columns(topic, "log")
    sessions = f"select pid from pg_stat_activity where query like 'COPY%%' and strpos(query, '{place.schema}') > 0"  # noqa: S608

    def read() -> list[int]:
        assert sum(batch.num_rows for batch in log_batches(topic, first, end, schema)) == 5000
        return [pid for (pid,) in place.execute(sessions)]

    before = read()
    assert (len(before), read()) == (1, before)
    child = Child(lambda pause: [1 for _ in log_batches(topic, first, end, schema)])
    child.go_on()
    assert child.result()
    assert before[0] in read(), "it is still the parent's"
    place.execute(f"select pg_terminate_backend({before[0]}, 5000)")
    (other,) = read()
    assert other != before[0]
    for _ in log_batches(topic, first, end, schema):
        break
    assert other not in read()
    place.close()
    assert [pid for (pid,) in place.execute(sessions)] == []
