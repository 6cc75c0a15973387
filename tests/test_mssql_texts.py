"""The SQL for SQL Server passes Microsoft's parser and keeps the rules of mssql_rules.py.

SQL Server itself is not involved; `make test` uses it if TABLEQUEUE_TEST_MSSQL_URL names one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from platform import machine
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Definition, PayloadType, Rate, engines
from tablequeue.engines.mssql.answers import TEXTS
from tablequeue.engines.mssql.connection import Batch
from tablequeue.engines.mssql.engine import SQLServer
from tablequeue.engines.mssql.steps import STEP
from tablequeue.engines.printed import kind_of, operations, script
from tablequeue.engines.procedures import template, templates
from tablequeue.engines.table import Table
from tablequeue.engines.texts import operations_of, sql_text
from tablequeue.errors import BadName
from tablequeue.model.definition import HISTORIES, PAYLOADS, Delivery, SubscriptionDefinition, TopicDefinition
from tablequeue.model.states import STATES
from tablequeue.verbs.inspect import BATCH
from tablequeue.verbs.sweep import SWEEP_SIZE
from tests import mssql_rules as rules
from tests.rendering import rendered
from tests.support import DESIGNS
from tests.tsql import parse_errors

Rule = Callable[[str, rules.Layout], list[str]]

parses = pytest.mark.skipif(
    sys.platform != "linux" or machine() != "x86_64", reason="The parser's runtime is for Linux on x86-64."
)
ENGINE = SQLServer(sa.URL.create("mssql").get_dialect()())
WITH_A_SCHEMA = SQLServer(ENGINE.dialect, "mine")
CREATING = (
    "install", "create", "create_due", "create_groups", "create_history", "create_expiry", "create_expired",
    "create_keys", "create_results", "create_group_rates", "create_streams", "create_staged", "create_schedules",
    "create_batches", "create_batch_results", "create_dependencies", "create_progress",
    "create_task_results",
)  # fmt: skip


def by_file(names: Iterable[str]) -> list[Any]:
    """Return the operations in a group for each file that has their texts; those of several texts are a group too.

    A test for each operation would be thousands, which take minutes to collect.
    """
    folder = Path(engines.__file__).parent
    files = {
        name: file.stem
        for each in ("sql", "mssql/sql")
        for file in sorted((folder / each).glob("*.sql"))
        for name in re.findall(r"(?m)^-- name: (\w+)$", file.read_text("utf-8"))
    }
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(files.get(name, "several"), []).append(name)
    return [pytest.param(group, id=file) for file, group in groups.items()]


TOPICS = [name for name in operations_of("mssql") if re.match(r"(create_|drop_|publish_)?(topic|range)|sequence", name)]
OPERATIONS = [name for name in operations_of("mssql") if name not in TOPICS]
# Operations whose number of changed rows the engine needs: it counts the rows that they return.
QUEUE = ("create", "create_groups", "create_history")
COUNTED = (
    *("advance_schedule", "end_keys", "purge", "purge_ids", "purge_history", "purge_history_ids", "sweep", "promote"),
    "writer_advance",
)
FINISHING = (
    "complete", "complete_at_most_once", "fail", "fail_at_most_once", "release", "extend",
)  # fmt: skip


def definitions(design: str) -> Iterator[Definition]:
    # Every payload with every history in one design: the other ones have the same lines for them.
    yield Definition(**DESIGNS[design])
    yield Definition(payload="bytes", history="none", **DESIGNS[design])
    if design == "fifo":
        yield from (Definition(payload=payload, history=history) for payload in PAYLOADS for history in HISTORIES)
    yield Definition(concurrency=20, rate=Rate(100, per=60, burst=20), **DESIGNS[design])
    if design == "fair":
        yield Definition(per_group=2, **DESIGNS[design])
        yield Definition(per_group=2, group_rate=Rate(100, per=60, burst=20), **DESIGNS[design])
    for history in ("keep", "none"):
        yield Definition(expires=60, unique_for=60, results=history == "keep", history=history, **DESIGNS[design])
        yield with_all(design, history=history)
    if design not in ("strict", "groups"):
        yield Definition(delivery="at_most_once", **DESIGNS[design])


def with_all(design: str, **options: Any) -> Definition:
    """Return a definition with batches and dependencies, with results if there is a history."""
    keeps = options.get("history", "keep") == "keep"
    return Definition(batches=True, dependencies=True, results=keeps, expires=60, **options, **DESIGNS[design])


# A schema is only in the names of tables, and these are alike in all designs: one design is shown with a schema.
SHOWN: list[tuple[SQLServer, Iterable[str]]] = [(ENGINE, DESIGNS), (WITH_A_SCHEMA, ["fifo"])]


@cache
def layout_of(design: str) -> rules.Layout:
    definition = with_all(design)
    wanted = [operation for operation in CREATING if operation != "create_due" or definition.order == "due"]
    return rules.Layout.of(ENGINE.render(operation, ENGINE.table("work", definition)) for operation in wanted)


@cache
def batches(operation: str, design: str) -> tuple[str, ...]:
    """Return every batch of an operation in this design once, with `:name` parameters."""
    tables = [ENGINE.table("work", definition) for definition in definitions(design)]
    texts = dict.fromkeys(text for table in tables for text in rendered(ENGINE, operation, table))
    return (*dict.fromkeys(batch for text in texts for batch in ENGINE.split(text)),)


def sent(operation: str, design: str) -> list[Batch]:
    """Return every batch as it is sent to a driver."""
    tables = [ENGINE.table("work", definition) for definition in definitions(design)]
    return list(
        dict.fromkeys(
            batch
            for table in tables
            for state in (STATES if len(rendered(ENGINE, operation, table)) > 1 else STATES[:1])
            for batch in compiled(table, operation, state)
        )
    )


def compiled(table: Table, operation: str, state: str = "ready") -> list[Batch]:
    return [batch for batch in table.statements(operation, state) if isinstance(batch, Batch)]


def topic_tables(engine: SQLServer) -> list[Table]:
    """Return the tables of topics, and of subscriptions with and without groups."""
    tables: list[Table] = []
    for payload in PAYLOADS:
        topic = engine.table("work", TopicDefinition(payload=payload))
        tables.append(topic)
        for groups in (False, True):
            definition = SubscriptionDefinition(payload=payload, groups=groups, topic="work")
            tables.append(engine.table("work/mail", definition, "tq_work__s1", topic))
    return tables


def topic_batches(operation: str) -> list[str]:
    """Return every batch of an operation of topics once, with `:name` parameters."""
    made = "topic" if operation.startswith(("create_topic", "topic_", "publish_topic")) else "subscription"
    tables = [table for table in topic_tables(ENGINE) if table.definition.kind == made]
    return list(dict.fromkeys(batch for table in tables for batch in ENGINE.split(ENGINE.render(operation, table))))


@cache
def layout_of_topics() -> rules.Layout:
    topic, *_, subscription = topic_tables(ENGINE)
    made = {"create_topic": topic, **dict.fromkeys((*QUEUE, "create_ranges"), subscription)}
    return rules.Layout.of(ENGINE.render(operation, table) for operation, table in made.items())


def with_variables(batch: str) -> str:
    return re.sub(r":([a-z]\w*)", r"@\1", batch)


# -- Microsoft's parser ------------------------------------------------------------------------------------------------

WRONG = [
    "selekt * from work",
    "select top 5 from work where",
    "select * from work limit 5",
    "select * from work with (rowlock, readpasst)",
    "select * from work for update skip locked",
    "delete from work where id = 1 returning id",
    "update work set state = 'ready' where id = 1 output inserted.id",
    "with next as (select top (@n) * from work order by id update next set state = 'ready'",
    "insert into work (id) values (1) on conflict do nothing",
    "create index work_ready on work (id) where state = 'ready' include (state)",
    "create table if not exists work (id int)",
    "create unique index on work (id)",
    "declare @n bigint = 5 output inserted.id",
    "select cast(id as) from work",
    "select id from work where id = any(array[1, 2])",
    "begin try select 1 end try",
    "alter table work set (lock_escalation disable)",
    "select :id",
    "select ?",
]


@parses
@pytest.mark.parametrize("statement", WRONG)
def test_the_parser_refuses_what_is_wrong(statement: str) -> None:
    assert parse_errors(statement)


@parses
def test_the_parser_says_where() -> None:
    (first, *_) = parse_errors("select 1;\nselect * from work with (nolokc);")
    assert first.startswith("2:26 nolokc is not a recognized table hint")


@parses
@pytest.mark.parametrize("names", by_file(OPERATIONS))
def test_every_text_parses(names: list[str]) -> None:
    """In every design without a schema, and in one with a schema."""
    for operation in names:
        for engine, designs in SHOWN:
            tables = [engine.table("work", definition) for design in designs for definition in definitions(design)]
            for text in {text for table in tables for text in rendered(engine, operation, table)}:
                assert parse_errors(with_variables(text)) == [], text


@parses
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_printed_claims_in_turn_parse(delivery: Delivery) -> None:
    """Expressions stand in them in place of the group that was served last. A take leaves one parameter."""
    definition = Definition(groups="fair", delivery=delivery)
    for operation, left in (("pop", False), ("take", True)):
        text = script(ENGINE, operation, "work", definition, "ready")
        assert [batch for batch in re.split(r"(?m)^go$", text) if parse_errors(batch)] == []
        assert ("declare @served bigint = @p_served" in text) is left


@parses
@pytest.mark.parametrize("names", by_file(OPERATIONS))
def test_what_is_sent_to_a_driver_parses(names: list[str]) -> None:
    """With a parameter in each place, as ODBC numbers them, and with each and all of them replaced by null."""
    for operation in names:
        for batch in dict.fromkeys(batch for design in DESIGNS for batch in sent(operation, design)):
            for values in (dict.fromkeys(batch.names, "0" * 32), dict.fromkeys(batch.names, None)):
                text, _ = batch.bind(values, "qmark")
                assert text.count("?") == (len(batch.names) if values and all(values.values()) else 0)
                assert parse_errors(text.replace("?", "@P1")) == []
            text, _ = batch.bind(dict.fromkeys(batch.names, "0" * 32), "pyformat")
            assert parse_errors(re.sub(r"%\(\w+\)s", "N'x'", text)) == []


@parses
@pytest.mark.parametrize("operation", ["claim", "take", "complete", "fail", "push", "push_each", "move", "peek"])
def test_the_question_for_the_level_and_a_batch_parse_together(operation: str) -> None:
    """The first batch of a call in a caller's transaction; a WITH needs the end of the statement before it."""
    first = ENGINE.shared.statement("isolation_level")
    for design in DESIGNS:
        for batch in sent(operation, design):
            assert parse_errors(f"{first};\n{batch}".replace("?", "@P1")) == []


@parses
@pytest.mark.parametrize("names", by_file(operations("mssql")))
def test_every_printed_script_parses(names: list[str]) -> None:
    for operation in names:
        for engine, designs in SHOWN:
            every = [definition for design in designs for definition in definitions(design)]
            if operation == "procedures":  # a queue with batches has none
                every = [definition for definition in every if not definition.batches]
            for printed in {script(engine, operation, "work", definition, "ready") for definition in every}:
                assert parse_errors(with_variables(printed)) == [], printed


def wrong_in_script(text: str) -> list[str]:
    """Return what sqlcmd refuses: a variable that a batch declares twice, and true or false, which T-SQL lacks."""
    batches = re.split(r"(?m)^go$", re.sub(r"(?m)^\s*--.*$", "", text))
    declared = [re.findall(r"(?m)^ *declare (@\w+)", batch) for batch in batches]
    twice = [name for names in declared for name in {*names} if names.count(name) > 1]
    return twice + re.findall(r"\b(?:true|false)\b", re.sub(r"'[^'\n]*'", "''", text))


@pytest.mark.parametrize(
    "names", by_file([name for name in operations("mssql") if name not in ("procedures", "grant")])
)
def test_every_printed_script_runs_in_sqlcmd(names: list[str]) -> None:
    for operation in names:
        kind = kind_of(ENGINE, operation, "work/mail" if operation in ("seek", "pump") else None)
        every = [definition for design in ("fifo", "groups", "fair") for definition in definitions(design)]
        every = (
            every
            if kind == "queue"
            else [table.definition for table in topic_tables(ENGINE) if table.definition.kind == kind]
        )
        name = "work/mail" if kind == "subscription" else "work"
        for printed in {script(ENGINE, operation, name, each, "ready", values=True) for each in every}:
            assert wrong_in_script(printed) == [], printed


def test_the_rules_of_scripts_fail_where_they_are_broken() -> None:
    assert wrong_in_script("declare @n int = 1;\nselect @n;\n\ndeclare @n int = 2;\nselect @n;") == ["@n"]
    assert wrong_in_script("declare @within bit = true;") == ["true"]


@parses
@pytest.mark.parametrize("names", by_file([*TOPICS, *QUEUE]))
def test_every_text_of_topics_parses(names: list[str]) -> None:
    """As it is printed, and as it is sent."""
    for operation in names:
        for engine in (ENGINE, WITH_A_SCHEMA):
            for table in topic_tables(engine):
                assert parse_errors(with_variables(engine.render(operation, table))) == []
                for batch in compiled(table, operation):
                    for values in (dict.fromkeys(batch.names, "0" * 32), dict.fromkeys(batch.names, None)):
                        text, _ = batch.bind(values, "qmark")
                        assert parse_errors(text.replace("?", "@P1")) == [], text


@parses
@pytest.mark.parametrize("operation", ["peek", "find", "history"])
def test_every_text_in_brief_parses(operation: str) -> None:
    for payload in PAYLOADS:
        table = ENGINE.table("work", Definition(payload=payload)).in_brief()
        for batch in compiled(table, operation):
            text, _ = batch.bind(dict.fromkeys(batch.names), "qmark")
            assert parse_errors(text.replace("?", "@P1")) == [], text
            start = "substring(payload, 1, 8192)"
            named = (
                f"{start} as payload" if payload == "bytes" else f"convert(varbinary(max), {start}) as utf16_payload"
            )
            assert text.count(named) == 1
            assert text.count("null as headers") == 1


@parses
@pytest.mark.parametrize("operation", ["range_peek_ready", "range_peek_in_progress", "range_find", "range_finished"])
def test_every_text_of_topics_in_brief_parses(operation: str) -> None:
    for table in topic_tables(ENGINE):
        if table.definition.kind == "subscription":
            for batch in compiled(table.in_brief(), operation):
                text, _ = batch.bind(dict.fromkeys(batch.names), "qmark")
                assert parse_errors(text.replace("?", "@P1")) == [], text
                assert text.count(" as utf16_payload") == (table.definition.payload != "bytes")
                assert "as convert" not in text


# -- rules beyond syntax -----------------------------------------------------------------------------------------------

# Rules that a text breaks, for the reason in its header. The parts of one chord are sorted.
BREACHES: dict[tuple[Rule, str], list[str]] = {
    (rules.forbidden, "sequence"): ["tablock is there", "holdlock is there"],
    (rules.orders, "chord_parts"): ["no index for order by place, part"],
}


@pytest.mark.parametrize("names", by_file(OPERATIONS))
def test_every_text_keeps_the_rules(names: list[str]) -> None:
    for operation in names:
        for design in ["fair"] if operation in ("begin_ring", "claim_ring", "move_ring", "claim_group") else DESIGNS:
            for batch in batches(operation, design):
                for rule in rules.RULES:
                    breaches = BREACHES.get((rule, operation), [])
                    assert rule(batch, layout_of(design)) == breaches, f"{rule.__doc__} {batch}"


@pytest.mark.parametrize("names", by_file([*TOPICS, *QUEUE]))
def test_every_text_of_topics_keeps_the_rules(names: list[str]) -> None:
    for operation in names:
        for batch in topic_batches(operation):
            for rule in rules.RULES:
                breaches = BREACHES.get((rule, operation), []) if "tablock" in batch else []
                assert rule(batch, layout_of_topics()) == breaches, f"{rule.__doc__} {batch}"


@pytest.mark.parametrize("operation", ["claim", "take", "sweep", "purge", "purge_history", "redrive"])
@pytest.mark.parametrize("design", DESIGNS)
def test_every_claim_carries_its_hints(design: str, operation: str) -> None:
    strict = design == "strict" and operation in ("claim", "take")
    for batch in batches(operation, design):
        assert rules.CTE.search(batch)
        assert rules.locks(batch, layout_of(design)) == (["next without readpast"] if strict else [])
        assert re.search(r"with \(index \(\w+\), ", batch)


@pytest.mark.parametrize("design", DESIGNS)
def test_a_stream_claims_like_a_consumer_and_never_waits(design: str) -> None:
    for batch in batches("stream_claim", design):
        assert rules.locks(batch, layout_of(design)) == []
        assert "with (index (tq_work__ready), " in batch
        assert "lease_until = null" in batch


def test_one_run_of_a_stream_acts_at_a_time() -> None:
    (batch,) = batches("stream_lock", "fifo")
    assert "from tq_work__streams with (rowlock, updlock, readcommittedlock)" in batch


@pytest.mark.parametrize("operation", ["stream_ids", "stream_rows"])
def test_a_stream_reads_what_its_token_holds(operation: str) -> None:
    (batch,) = batches(operation, "fifo")
    assert batch.endswith("token = @token") or "token = @token\norder by" in batch


def test_promote_passes_over_a_locked_message_and_chooses_no_other() -> None:
    """If the change of the locked message were undone, the next one in its group would have overtaken it."""
    (batch,) = batches("promote", "groups")
    assert rules.locks(batch, layout_of("groups")) == []
    notes, choice, change, again, *_ = rules.statements(batch)[-6:]
    assert "readpast" in notes
    assert "readpast" not in choice
    assert "as waiting with (index (tq_work__blocked))\n" in choice
    assert "as message with (rowlock, readpast, " in change
    assert "insert into tq_work__turns" in again
    assert "from @next as next where not exists (select 1 from @head " in again


def test_a_run_ends_before_a_locked_message() -> None:
    """A message behind it would overtake it, if the change of the locked one were undone."""
    for batch in batches("claim_run", "groups"):
        assert rules.locks(batch, layout_of("groups")) == []
        search, lock, run, _ = rules.statements(batch)[-4:]
        assert "with (index (tq_work__blocked))\n" in search
        assert "as message with (rowlock, readpast, " in lock
        assert "max(case when mine.id is null or mine.due_at > @now" in run


def test_a_push_holds_the_notification_that_it_relies_on_until_its_commit() -> None:
    """A consumer that received it before the commit would find nothing, and nothing would notify it again."""
    (send,) = batches("send_notification", "fifo")
    hold, dialog = send.split("if @held is null\n")
    assert "get conversation group @held from tq_work__notify;" in hold
    assert "begin dialog" in dialog
    assert not re.search(r"\bselect\b", send), "a select holds nothing, and waits for other pushes"
    (wait,) = batches("wait_for_notification", "fifo")
    assert wait.index("set xact_abort on;") < wait.index("begin transaction;")
    assert wait.index("begin transaction;") < wait.index("waitfor (receive top (1)")
    assert wait.index("end conversation") < wait.index("commit transaction;")


@pytest.mark.parametrize("operation", COUNTED)
@pytest.mark.parametrize("design", DESIGNS)
def test_what_is_counted_answers_with_rows(design: str, operation: str) -> None:
    for batch in batches(operation, design):
        assert rules.says(rules.statements(batch)[-1])


@pytest.mark.parametrize("payload", PAYLOADS)
def test_text_is_asked_for_in_bytes_and_nothing_else_is(payload: PayloadType) -> None:
    """Otherwise drivers misread it: see test_mssql_drivers.py."""
    wanted = {*TEXTS} - ({"payload"} if payload == "bytes" else set())
    asked: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        for definition in (Definition(payload=payload), Definition(payload=payload, groups=True)):
            for batch in compiled(ENGINE.table("work", definition), operation):
                for item in rules.answer(batch):
                    (name,) = re.findall(r"(\w+)\Z", item) or [""]
                    assert name not in wanted, f"{operation} answers with {item}"
                    if name.startswith("utf16_"):
                        asked.setdefault(operation, set()).add(name.removeprefix("utf16_"))
    assert asked["claim"] == {"payload", "headers", "group_key", "dedup_key", "errors"} & wanted
    assert asked["peek"] == wanted - {"stream"}


@pytest.mark.parametrize("operation", FINISHING)
@pytest.mark.parametrize("design", DESIGNS)
def test_every_finishing_statement_asks_for_the_token(design: str, operation: str) -> None:
    for batch in batches(operation, design):
        assert rules.fence(batch, layout_of(design)) == []


# The maximum length of a parameter in UTF-16 code units: names, keys and groups have 255 characters. Of the names of
# queues these units are counted.
LONGEST = {
    **dict.fromkeys(("group", "key", "name", "stream", "writer", "consumer", "producer"), 510),
    "new_name": 255,
    "stem": 63,
    "table": 48 + len(".") + 63,
    **dict.fromkeys(("write", "attempt", "token"), 32),
    "origin": 255,
    "on_dead": len("continue"),
    "on_table": 63,
    **dict.fromkeys(("chord", "member", "after_chord"), 64),
}


@pytest.mark.parametrize("names", by_file(OPERATIONS))
def test_no_cast_cuts_off_what_a_parameter_has(names: list[str]) -> None:
    """CAST to a shorter text silently truncates."""
    for operation in names:
        for batch in batches(operation, "groups"):
            for name, size in re.findall(r"cast\(:(\w+) as n?(?:var)?char\((\d+)\)\)", batch):
                longest = 255 if name == "name" and "tq_queues" in batch else LONGEST[name]
                longest = 64 if name == "key" and "tq__task_results" in batch else longest
                assert int(size) >= longest, f"{name} of {operation}"


def test_one_statement_touches_a_thousand_messages_at_most() -> None:
    """SQL Server tries lock escalation from 5,000 locks on: see STEP. test_mssql_engine.py tests larger calls, which
    have several steps."""
    assert max(STEP, SWEEP_SIZE, BATCH) == 1000


LAYOUTS = {
    "fifo": "clustered",
    "lifo": "clustered",
    "priority": "clustered",
    "strict": "clustered",
    "groups": "clustered",
    "fair": "clustered",
    "heap": "nonclustered",
    "due": "nonclustered",
}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_layout_is_that_of_the_order(design: str) -> None:
    layout = layout_of(design)
    create = batches("create", design)[0]
    assert f"primary key {LAYOUTS[design]}" in create
    assert "lock_escalation = disable" in create
    assert "lock_escalation = disable" in batches("create_staged", design)[0]
    assert layout.indexes["tq_work__ready"][1] == ENGINE.ready_index[Definition(**DESIGNS[design]).arrangement].split(
        ", "
    )
    if design == "due":
        assert layout.indexes["tq_work__due"][1] == ["due_at", "id"]
    assert layout.indexes["tq_work__front"][2] == "state in ('ready', 'scheduled', 'in_progress')"


def test_no_queue_can_be_named_like_a_constraint_of_another() -> None:
    """Constraints are objects and share the namespace of tables."""
    for operation in CREATING:
        for batch in batches(operation, "groups"):
            for name in re.findall(r"\bconstraint (\w+)", batch):
                assert re.match(r"(pk|ck|df)_tq_", name)


def test_what_output_writes_to_has_nothing_that_it_refuses() -> None:
    """The target of OUTPUT ... INTO has no trigger, foreign key or check. The table of a queue may have a trigger: see
    the next test."""
    for operation in CREATING:
        for batch in batches(operation, "groups"):
            triggers = re.findall(r"\btrigger \w+ on (\w+) after delete as\b", batch)
            assert batch.count("trigger") == len(triggers)
            assert triggers in ([], ["tq_work"])
            assert not re.search(r"\b(foreign key|references)\b", batch)
            assert operation == "create" or not re.search(r"\bcheck\b", batch)


# Operations that no queue with batches has: its definition refuses them.
WITHOUT_BATCHES = ("take", "set_aside")


@pytest.mark.parametrize("names", by_file(OPERATIONS))
def test_no_delete_that_fires_a_trigger_answers(names: list[str]) -> None:
    """The trigger of a queue with batches counts what leaves it without being completed."""
    for operation in names:
        wrong = []
        for design in DESIGNS:
            for history in ("keep", "none"):
                table = ENGINE.table("work", with_all(design, history=history))
                for batch in ENGINE.split(ENGINE.render(operation, table)):
                    wrong += rules.triggers(batch, layout_of(design))
        assert bool(wrong) == (operation in WITHOUT_BATCHES), wrong


@pytest.mark.parametrize("operation", ["ended_dependencies", "forget_progress"])
def test_what_a_mixed_look_finds_is_tested_again(operation: str) -> None:
    """A row that was read with READPAST may be younger than what the same statement sees of the messages."""
    table = ENGINE.table("work", with_all("fifo"))
    (batch,) = ENGINE.split(ENGINE.render(operation, table))
    *_, find, act = rules.statements(batch)
    assert find.startswith("insert into @")
    assert find.count("readpast") == 1
    condition = find[find.index(" is null") :].partition("\norder by")[0]
    assert act.partition("\norder by")[0].endswith(condition), "the same condition"
    (heads,) = ENGINE.split(ENGINE.render("freed_heads", table))
    assert heads.count("readcommittedlock") == 2, "both looks see the rows as they are"


def test_the_index_of_a_batch_has_no_state_in_its_key() -> None:
    """Without READ_COMMITTED_SNAPSHOT a look could miss a message whose entry moves when its state changes; or, if it
    were not unique, when its due time changes, which is in the clustered index."""
    assert layout_of("due").indexes["tq_work__batch"] == ("tq_work", ["batch_id", "id"], "batch_id is not null")
    assert any("create unique index tq_work__batch on" in batch for batch in batches("create_batches", "due"))


@pytest.mark.parametrize("operation", ["push", "push_each", "fail", "purge", "purge_ids"])
def test_grouped_queues_note_what_promote_must_look_at(operation: str) -> None:
    for design in DESIGNS:
        for batch in batches(operation, design):
            assert ("into tq_work__turns (group_key)" in batch) == (design in ("strict", "groups"))


# Operations whose notes the engine writes by the operation `note` or `note_staged`, because the history takes their
# OUTPUT ... INTO, or one note suffices for all messages. And one that inserts a dead letter, which holds no group.
NOTED_DETACH = ("complete", "expire", "take", "move", "publish", "push_many", "put_back")


@pytest.mark.parametrize("names", by_file(OPERATIONS))
@pytest.mark.parametrize("design", ["strict", "groups"])
def test_what_changes_a_grouped_queue_notes_its_groups(design: str, names: list[str]) -> None:
    """In the queue itself, and in a queue that takes its dead letters and is grouped too."""
    for operation in names:
        wrong = []
        for history in ("keep", "none"):
            definition = Definition(history=history, dead_letter_to="failed", **DESIGNS[design])
            table = ENGINE.table("work", definition)
            table.dead_letters = ENGINE.table("failed", Definition(**DESIGNS[design]))
            for batch in ENGINE.split(ENGINE.render(operation, table)):
                wrong += rules.notes(batch, ("tq_work", "tq_failed"))
        assert bool(wrong) == (operation in NOTED_DETACH), wrong


def test_no_text_needs_a_server_newer_than_2016() -> None:
    """Later features are not used. STRING_AGG and others work at any compatibility level, but not on older servers."""
    newer = (
        r"\b(?:string_agg|concat_ws|translate|trim|approx_\w+|greatest|least|generate_series|date_bucket|datetrunc|"
        r"json_array|json_object|json_path_exists|json_contains|regexp_\w+)\s*\(|\bdistinct from\b"
    )
    texts = [sql_text("mssql", operation) for operation in operations_of("mssql")]
    texts += [template("mssql", file) for file in templates("mssql")]
    assert len(texts) > 100
    for text in texts:
        assert not re.search(newer, text)
    assert re.search(newer, "select string_agg (id, ',')")


@parses
def test_what_doctor_tells_to_set_says_what_it_does_besides() -> None:
    """Setting READ_COMMITTED_SNAPSHOT waits for all other connections, or closes them."""
    (check,) = [check for check in SQLServer.checks.all if check.operation == "check_settings"]
    (batch,) = batches("check_settings", "fifo")
    cases = [re.findall(r"'([^']*)'", re.sub(r"'\s+\+ '", "", case)) for case in batch.split("case when ")[1:]]
    remedies = {words[-5]: check.remedy.format(*words[-5:]) for words in (case[:6] for case in cases)}
    assert [*remedies] == ["read_committed_snapshot", "delayed_durability", "auto_close"]
    for remedy in remedies.values():
        assert parse_errors(remedy.removeprefix("Run ").partition(".")[0]) == []
    snapshot = remedies["read_committed_snapshot"]
    assert "set read_committed_snapshot on with rollback immediate. " in snapshot
    assert "ends their connections" in snapshot


def test_settings_of_filtered_indexes_are_set() -> None:
    (session,) = ENGINE.split(ENGINE.render("session", ENGINE.table("work", Definition())))
    for option in "ansi_nulls ansi_padding ansi_warnings arithabort concat_null_yields_null quoted_identifier".split():
        assert re.search(rf"set [a-z_, ]*\b{option}\b[a-z_, ]* on;", session)
    assert "set numeric_roundabort off" in session
    assert "set transaction isolation level read committed" in session


@pytest.mark.parametrize("name", ["a]b", "a'b", "a;drop table x", "[a]", "a" * 49, "é"])
def test_no_name_of_a_user_goes_into_a_text_unchecked(name: str) -> None:
    with pytest.raises(BadName):
        SQLServer(ENGINE.dialect, name)
    text = script(ENGINE, "create", name, Definition(), "ready")
    assert text.count("'" + name.replace("'", "''") + "'") == 1, "as a value of the catalogue"
    assert re.search(r"create table (tq_\w+) ", text)
    assert name not in re.sub(r"(?s)insert into tq_queues.*", "", text)


def test_no_value_of_a_definition_but_its_names_goes_into_a_text() -> None:
    plain = Definition()
    odd = Definition(lease=12345.5, max_attempts=54321)
    for operation in OPERATIONS:
        assert ENGINE.render(operation, ENGINE.table("work", plain)) == ENGINE.render(
            operation, ENGINE.table("work", odd)
        )


# -- the rules can fail ------------------------------------------------------------------------------------------------

OF_IDS = "select given.id from openjson(@ids) with (id bigint '$') as given"
BROKEN: list[tuple[Rule, str, str, str, str]] = [
    (rules.forbidden, "claim", "fifo", "readpast", "nolock"),
    (rules.forbidden, "claim", "fifo", "update next", "merge into next"),
    (rules.forbidden, "peek", "fifo", "select top (@n)\n    id, ", "select * --"),
    (rules.hints, "claim", "fifo", "rowlock", "paglock"),
    (rules.hints, "push", "fifo", "with (readcommittedlock)", "with (readcommittedlock, tablock)"),
    (rules.hints, "push", "fifo", "with (readcommittedlock)", "with (holdlock, repeatableread)"),
    (rules.identities, "push", "fifo", "output inserted.id", "output scope_identity()"),
    (rules.locks, "claim", "fifo", "readpast, ", ""),
    (rules.locks, "claim", "fifo", ", readcommittedlock", ""),
    (rules.locks, "sweep", "due", "updlock, ", ""),
    (rules.locks, "stream_claim", "strict", "readpast, ", ""),
    (rules.bounded, "claim", "fifo", "top (@n)", ""),
    (rules.bounded, "purge", "fifo", "bigint = :n", "bigint = 1000000"),
    (rules.orders, "claim", "fifo", "order by id", "order by pushed_at"),
    (rules.orders, "claim", "priority", "order by priority desc, id", "order by priority, id"),
    (rules.orders, "stream_claim", "priority", "order by priority desc, id", "order by id"),
    (rules.orders, "publish", "fifo", "order by part, place", "order by place"),
    (rules.orders, "claim", "due", "order by due_at, id", "order by id"),
    (rules.orders, "history", "fifo", "order by id", "order by finished_at, id"),
    (rules.orders, "promote", "groups", "order by waiting.id", "order by waiting.pushed_at"),
    (rules.filters, "claim", "fifo", "state = 'ready' and", "state in ('ready', 'scheduled') and"),
    (rules.filters, "claim", "due", "state in ('ready', 'scheduled') and", "state <> 'dead' and"),
    (rules.filters, "purge", "due", "state in ('ready', 'scheduled') and ", ""),
    (rules.filters, "claim", "fifo", "index (tq_work__ready)", "index (tq_work_claim)"),
    (rules.filters, "stream_ids", "fifo", "state = 'in_progress' and ", ""),
    (rules.filters, "publish", "fifo", " and there.dedup_key is not null", ""),
    (rules.filters, "publish", "fifo", " and earlier.dedup_key is not null", ""),
    (rules.filters, "push", "fifo", " and there.dedup_key is not null", ""),
    (rules.variables, "claim", "fifo", "declare @lease float = cast(:lease as float);\n", ""),
    (rules.variables, "claim", "fifo", "popped_at = @now", "popped_at = @then"),
    (rules.variables, "push", "fifo", "declare @headers", "declare @payload"),
    (rules.variables, "push", "fifo", "cast(:payload as nvarchar(max))", ":payload"),
    (
        rules.variables,
        "extend",
        "fifo",
        "and message.token = @token",
        "and message.token = cast(:token as uniqueidentifier)",
    ),
    (rules.columns, "claim", "fifo", "headers, errors, payload", "headers, errors"),
    (rules.columns, "claim", "fifo", "popped_at, lease_until, group_key", "popped_at, group_key"),
    (rules.columns, "take", "fifo", "deleted.errors;", "deleted.lease_until;"),
    (rules.columns, "stream_claim", "fifo", "popped_at, lease_until", "popped_at"),
    (rules.looks, "push", "fifo", " with (readcommittedlock)", ""),
    (rules.looks, "push_each", "fifo", " with (readcommittedlock)", ""),
    (rules.looks, "publish", "fifo", " with (readcommittedlock)", ""),
    (rules.looks, "staged_taken", "fifo", " with (readcommittedlock)", ""),
    (rules.looks, "writer_advance", "fifo", ", readcommittedlock", ""),
    (rules.looks, "enter_schedule", "fifo", ", readcommittedlock", ""),
    (rules.times, "name_keys", "fifo", "message.pushed_at", "sysutcdatetime()"),
    (rules.outputs, "publish", "fifo", "dedup_key, @now", "@now"),
    (rules.outputs, "stage", "fifo", "given.place, ", ""),
    (rules.outputs, "complete", "fifo", "deleted.errors, ", ""),
    (rules.outputs, "take", "fifo", "consumer, headers, errors, payload\n)", "consumer, headers, errors\n)"),
    (rules.outputs, "push", "fifo", "@payload, @headers,", "@payload,"),
    (rules.answers, "publish", "fifo", "order by part", "output inserted.id\norder by part"),
    (rules.answers, "promote", "groups", "output deleted.group_key into @turn (group_key)", "output deleted.group_key"),
    (rules.filtered, "streams", "fifo", "\noption (recompile)", ""),
    (rules.kept, "cancel_held", "fifo", "select held.id from @held as held", OF_IDS),
    (rules.kept, "move", "fifo", "select free.id from @free as free", OF_IDS),
    (rules.kept, "batch_of", "fifo", "message.id = @held", f"message.id in ({OF_IDS})"),
    (rules.literals, "purge", "fifo", "'ready'", "':state'"),
    (rules.literals, "install_schema", "fifo", "N'create schema mine'", "N'create schema ' + @name"),
    (rules.fence, "fail", "fifo", "\nwhere message.token = @token", ""),
    (rules.fence, "complete", "fifo", "\n    and message.token = @token", ""),
    (rules.fence, "release", "groups", "message.token = @token", "message.id = message.id"),
]


@pytest.mark.parametrize(("rule", "operation", "design", "old", "new"), BROKEN)
def test_a_rule_fails_where_it_is_broken(rule: Rule, operation: str, design: str, old: str, new: str) -> None:
    engine = SQLServer(ENGINE.dialect, "mine") if "mine" in old else ENGINE
    text = engine.render(operation, engine.table("work", Definition(**DESIGNS[design])))
    assert old in text, "the text that is to be broken"
    found = [wrong for batch in engine.split(text.replace(old, new)) for wrong in rule(batch, layout_of(design))]
    assert found, rule.__doc__


@pytest.mark.parametrize(("operation", "old"), [("push", "output inserted.group_key into tq_work__turns (group_key)\n"),
    ("move_dead", "output inserted.group_key into tq_failed__turns (group_key)\n"),
    ("move_back", "output deleted.group_key into tq_failed__turns (group_key)\n"),
    ("block_fronts", "output inserted.group_key into tq_work__turns (group_key)\n"),
    ("complete", "output deleted.group_key into tq_work__turns (group_key)\n")])  # fmt: skip
def test_the_rule_of_notes_fails_where_one_is_missing(operation: str, old: str) -> None:
    table = ENGINE.table("work", Definition(groups=True, history="none", dead_letter_to="failed"))
    table.dead_letters = ENGINE.table("failed", Definition(groups=True))
    text = ENGINE.render(operation, table)
    assert old in text, "the text that is to be broken"
    assert any(rules.notes(batch, ("tq_work", "tq_failed")) for batch in ENGINE.split(text.replace(old, "")))


BROKEN_TOPICS: list[tuple[Rule, str, str, str]] = [
    (rules.applocks, "range_claim", "N'Transaction'", "N'Session'"),
    (rules.ranges, "range_claim", "@begins <= @ends and ", ""),
    (rules.applocks, "range_wait", "object_id(N'tq_work__s1__ranges')", "1"),
    (rules.applocks, "sequence_lock", "@granted < 0", "1 = 0"),
    (rules.pages, "create_topic", " with (allow_page_locks = off)", ""),
    (rules.hints, "sequence", "(tablock, holdlock)", "(tablock, readcommittedlock)"),
]


@pytest.mark.parametrize(("rule", "operation", "old", "new"), BROKEN_TOPICS)
def test_a_rule_fails_where_a_text_of_topics_is_broken(rule: Rule, operation: str, old: str, new: str) -> None:
    broken = [batch.replace(old, new, 1) for batch in topic_batches(operation) if old in batch]
    assert broken, "the text that is to be broken"
    assert all(rule(batch, layout_of_topics()) for batch in broken), rule.__doc__


def test_a_hole_is_forgotten_only_at_a_moment_without_pushes() -> None:
    """The shared lock on the log is asked for after the sequencing, is not waited for, and holes are a minute old."""
    (batch,) = topic_batches("sequence")
    assert batch.index("__sequence 1;") < batch.index("set lock_timeout 0;") < batch.index("(tablock, holdlock)")
    assert "dateadd(minute, -1, sysutcdatetime())" in batch
    assert re.search(r"if @quiet = 1\s+delete top \(1000\) from hole", batch)


def test_each_fact_that_the_texts_rely_on_has_a_rule_or_a_test() -> None:
    """The page says of each fact of the manual what holds the texts to it."""
    folder = Path(__file__).parent
    page = (folder.parent / "docs" / "engines" / "sql-server.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| .+ \| (.+) \|$", page.partition("| checked by |")[2].partition("\n\n")[0])
    tests = {name for file in folder.glob("test_*.py") for name in re.findall(r"(?m)^def (test_\w+)", file.read_text())}
    there = tests | {f"rules.{rule.__name__}" for rule in (*rules.RULES, rules.locks, rules.fence, rules.triggers)}
    assert len(rows) > 20
    for held in rows[1:]:
        names = re.findall(r"`([\w.]+)`", held)
        assert {*names} <= there, held
        assert names or held.startswith("none: ")
