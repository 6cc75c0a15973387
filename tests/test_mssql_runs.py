"""What runs on a SQL Server: each test that runs on PostgreSQL or MariaDB, but for those in LEFT_OUT.

Without a server the tests on SQL Server are not even collected. Here they are, for a URL that is never opened.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import mssql
from tests.servers import KINDS

ROOT = Path(__file__).parent.parent
URL = "mssql+pymssql://sa:secret@127.0.0.1:1/master"
ENGINE = re.compile(r"(?<![a-z])(sqlite|postgresql|mariadb|mysql|mssql)(?![a-z])")

POSTGRESQL = "It is about what only PostgreSQL has."
MARIADB = "It is about what only MariaDB and MySQL have."
SAME = "It tests what no engine does; one server stands for all."
NO_SERVER = "The tests cannot kill and start a SQL Server: it is installed, or in a container, by others."
AWAY = (
    "The engine does not keep this promise: a call within limits is several batches in one transaction, and the server "
    "has no time-out for a client that is away in it (docs/adr/0067-nobody-waits-for-a-client-that-is-away.md)."
)
RIGHTS = "Its page documents rights on procedures, which tests/test_rights.py tests, and none on tables."

# What SQL Server leaves out, and why: a pattern of names of tests, in which `@` is the engine.
LEFT_OUT: dict[str, str] = {
    # -- engines that are changed for the tests --
    r"\[@-newer": "A variant of PostgreSQL: another version.",
    # -- what SQL Server has not --
    r"conformance/test_async_transactions\.py": "No async driver of SQL Server is supported; see its page.",
    r"contrib/django/test_backend\.py": "Django has no backend for SQL Server.",
    r"contrib/celery/test_backend\.py::test_(get_is_woken|a_fork)": "SQL Server notifies nobody of a result.",
    r"test_batches\.py::test_one_of_two_ends_a_batch": "Its look at open batches passes over one that another "
    "transaction ends, so the mutant, which does not lock the row, pushes no second callback.",
    r"test_low_water\.py": "Only engines whose index keeps dead entries have a low-water mark.",
    r"streams/test_user_tables\.py": "A write into a table of the user is refused there.",
    r"topics/test_procedures\.py": "Only PostgreSQL has procedures of topics.",
    r"test_procedures\.py::test_(the_check_notices_)?(groups_(that_)?go_on_by|those_of_an_older)": POSTGRESQL,
    r"test_procedures\.py::test_a_push_has_a_time": POSTGRESQL,
    r"test_procedures\.py::test_messages_that_cannot_be_read": "SQL Server's pushes do not check these messages.",
    r"test_streams\.py::test_a_batch_is_claimed_while_the_one_before": "Only PostgreSQL claims beside a completion.",
    r"test_texts\.py::test_a_walk_by_id_is_noticed": POSTGRESQL,
    r"test_procedures\.py::test_an_error_undoes_its_call_alone": "With XACT_ABORT an error ends the transaction; "
    "test_an_error_undoes_all_of_the_transaction_on_sql_server is about that.",
    r"test_refusals\.py::test_a_time_out_of_the_server": "It has no time-out of statements.",
    r"test_refusals\.py::test_a_server_without_a_connection_left": "It has no limit of the connections of a user.",
    r"test_connections\.py::test_a_connection_that_is_read_only": "It has no sessions that are read-only.",
    r"test_rights\.py::test_the_check_notices": "No clause of its procedures gives them their owner's rights.",
    r"test_least_rights\.py": RIGHTS,
    r"test_suspended\.py::test_others_are_served": AWAY,
    r"topics/test_(holes|order_of_commits)\.py": "They count holes, which stay for a minute at least on SQL Server.",
    r"topics/test_late_commits\.py::test_holes_are_forgotten": "Its holes stay for a minute at least.",
    r"topics/test_retention\.py::test_a_trim_tries_again": "Its log has no segments; a trim deletes messages.",
    r"test_mutants\.py::test_a_group_that_was_claimed_after": MARIADB,
    r"test_mutants\.py::test_a_group_that_was_claimed_while": "PostgreSQL claims in one statement, which "
    "compares what it has seen before a wait; the others look after the wait.",
    r"test_mutants\.py::test_a_(run_that_began|group_that_got_a_head)_while_a_promotion": "Its promotion "
    "passes over what is locked, and a trigger in which it waits would keep claims from returning what they change.",
    r"test_neighbours\.py::test_no_group_waits": "It has one level for callers; its matrix has the acts.",
    r"test_neighbours\.py::test_a_promotion_that": "The mutants are other texts; "
    "tests/test_mssql_texts.py has the rule.",
    r"worker/test_wake\.py::test_one_poll_covers": "Its poll asks for one queue after the other: "
    "tests/test_mssql_engine.py has that.",
    # -- what the tests need besides --
    r"(test_crashes\.py::test_(a_server|calls_while|connections_of)|test_topic_crashes\.py::test_a_server)": NO_SERVER,
    r"worker/test_outages\.py::test_(a_worker|the_scheduler)": NO_SERVER,
    r"test_connections\.py::test_(no_\w*verb_fails|the_sqs_endpoint_answers)": NO_SERVER,
    r"test_stress\.py::test_a_round": NO_SERVER,
    r"test_alembic_operations\.py::test_(procedures|a_mutant)": SAME,
    r"test_alembic_operations\.py::test_on_an_async_driver": "No async driver of it is supported.",
    r"(test_printed_sql\.py|test_alembic_operations\.py::test_the_sql)": "Scripts run with the client program of the "
    "engine; sqlcmd is not on every machine.",
    r"test_clients\.py": "The clients of the page are for the programs of other servers.",
    r"test_examples\.py::test_the_(events|services)": "They take no schema; a search path, or a file, divides them.",
    r"kit/test_page\.py::test_a_flask_application": "Tests have no temporary databases there.",
    # -- what is of another engine --
    r"(docs|docs_are_current|pages_are_current)\.py::\w+\[docs/": "A page of another engine.",
    r"::test_\w*(postgresql|mariadb|mysql)\w*": "Another engine, by its name.",
    r"test_(walks|pgbouncer|settings)\.py": POSTGRESQL,
    r"topics/test_(bulk_writes|topics_postgresql|topic_mutants)\.py": POSTGRESQL,
    r"test_(mariadb_packets|look_alikes)\.py|topics/test_topics_mariadb\.py": MARIADB,
    r"test_taskiq_results\.py::test_what_is_too_large": MARIADB,
    r"conformance/test_async\.py::test_the_url_for_calls": "It has no async drivers whose URLs are translated.",
    r"spark/test_topic\.py::TestSequencing": "It takes the lock of PostgreSQL's sequencing.",
    r"test_connections\.py::test_(an_idle|a_server_that_becomes)": "It has no such time-out, and no such switch.",
    r"test_doctor\.py::test_(dead_rows|autovacuum)": POSTGRESQL,
    r"test_doctor\.py::test_keys_of_messages": MARIADB,
    r"test_alter_tables\.py::test_killed_between": MARIADB,
    r"test_alter_tables\.py::test_a_mutant": "The mutant is a text without its trigger; not tried on SQL Server.",
    r"test_procedures_that_wait\.py": "There a consumer waits for a notification of the server.",
    r"test_alter_tables\.py::test_(it_gives_up|another_queue|existing_procedures)": "Each of its waits has a limit; "
    "it has no procedures of such queues.",
    r"test_least_rights\.py::test_a_search_path": POSTGRESQL,
    r"test_texts\.py::test_a_new_queue_without_statistics": POSTGRESQL,
    r"test_procedures\.py::test_the_check_notices": "MariaDB's procedures see to transactions themselves.",
    r"test_suspended\.py::test_a_(mutant|packet|deadlock)": AWAY,
    r"topics/test_definitions\.py::test_a_schema": "It drops a schema with all that is in it, which T-SQL cannot.",
    r"worker/test_wake\.py": "Nothing notifies its consumers, and polls are the same everywhere.",
    r"streams/test_streams\.py::test_a_batch_is_read": "It reads a plan, which a session of SQL Server shows apart.",
    # -- one server is enough --
    r"test_deploy\.py::test_the_query_of_keda": SAME,
    r"contrib/kombu/test_transport\.py": SAME,
    r"sqs/test_messages\.py::test_(a_visibility|connections_to)": SAME,
    r"test_contenders\.py": SAME,
    r"worker/test_(subscriptions|worker)\.py": SAME,
    r"test_(redaction|refusals|drivers|cli_bad_input)\.py": "URLs of other engines, or errors of their drivers.",
    r"spark/test_options\.py": "URLs of other engines.",
    r"test_move_between\.py::test_a_payload_that_the_target": "PostgreSQL holds JSON that MariaDB refuses as too deep.",
    # -- what asks a server in its own words, kills it, or changes its settings --
    r"contrib/test_outages\.py|test_cut\.py": NO_SERVER,
    r"test_(callers_locks|matrix)\.py": "Locked rows and waits are read from the views of PostgreSQL and MariaDB.",
    r"test_foreign_settings\.py": "The settings are those of PostgreSQL, MariaDB and SQLite.",
    r"test_same_names\.py": "The search path, databases and files of the others; not tried on SQL Server.",
    r"test_silence\.py": "SQL Server's drivers cannot ask while they wait.",
    r"sqs/test_unfit\.py::test_(half_an_emoji|headers_that)": "Not tried on SQL Server.",
    r"test_procedures\.py::test_lone_surrogates_are_refused": "Its procedures take them as escapes.",
    r"test_neighbours\.py": MARIADB,
    r"test_printed_is_sent\.py": "What is sent was not compared there; Microsoft's parser reads what is printed.",
    r"cli/test_sql\.py::test_sql_upgrade": "The texts of two engines show it.",
}  # fmt: skip


def collected() -> set[str]:
    """Return the names of all tests, as they are where there is a SQL Server."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    environment = {**os.environ, "TABLEQUEUE_TEST_MSSQL_URL": mssql.URL or URL}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    return {line for line in done.stdout.splitlines() if "::" in line}


def without_engines(name: str) -> str:
    """Return the name with `@` for each engine among the parameters."""
    function, bracket, parameters = name.partition("[")
    return function + bracket + ENGINE.sub("@", parameters)


def test_sql_server_runs_what_others_run_or_says_why_not() -> None:
    there: dict[str, set[str]] = {engine: set() for engine in ("postgresql", "mariadb", "mssql")}
    for name in collected():
        for engine in {*ENGINE.findall(name.partition("[")[2])} & {*there}:
            there[engine].add(without_engines(name))
    assert len(there["mssql"]) > 3000, "the tests on SQL Server are collected"
    missing = (there["postgresql"] | there["mariadb"]) - there["mssql"]
    said = {name: [pattern for pattern in LEFT_OUT if re.search(pattern, name)] for name in missing}
    assert not sorted(name for name, patterns in said.items() if not patterns), "run them, or say why not"
    stale = {*LEFT_OUT} - {pattern for patterns in said.values() for pattern in patterns}
    assert not stale, "nothing of that name is left out any more"


def test_the_connections_of_a_test_are_bounded() -> None:
    """A crowd has as many threads as its engine says, each with a connection."""
    for kind in KINDS:
        if kind.name == "mssql":
            processes, threads = kind.producers_and_consumers
            assert max(processes * threads, kind.crowd) <= mssql.CONNECTIONS
