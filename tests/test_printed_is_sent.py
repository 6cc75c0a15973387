"""What `tablequeue sql` prints is what the library sends: the statements of a life are recorded and compared."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Database, Queue
from tablequeue.engines import engine_class
from tablequeue.engines.engine import OPERATIONS, Engine
from tablequeue.engines.mysql.connection import MySQLCursor
from tablequeue.engines.postgresql.connection import OwnCursor as PostgreSQLCursor
from tablequeue.engines.printed import script, without_comments
from tablequeue.engines.printed_values import found_between
from tablequeue.engines.sqlite.connection import OwnCursor as SQLiteCursor
from tablequeue.engines.table import Table
from tablequeue.engines.texts import statements_in
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tablequeue.model.states import STATES
from tests.matrix_rows import COLUMNS, FAST, MANY
from tests.servers import Kind, Place, only
from tests.support import at, design_group

CURSORS = (MySQLCursor, PostgreSQLCursor, SQLiteCursor)
DESIGNS = {name: design.options for name, design in COLUMNS.items() if not design.of_topic} | {
    "fair, paced": {"groups": "fair", "per_group": MANY, "rate": FAST},
    "fair, once": {"groups": "fair", "delivery": "at_most_once"},
    "once, rate": {"delivery": "at_most_once", "rate": FAST},
}
# What holds statements together, or passes what one has found to the next ones. It changes and reads no message.
FRAME = re.compile(
    r"begin|commit|rollback|(release )?(savepoint )?tablequeue|select last_insert_rowid\(\)|select coalesce\(:now, .+\)"
    r"|set @tq_\w+ = .+|execute tq using @tq_n|deallocate prepare tq|select (@tq_\w+|null)(, (@tq_\w+|null))*",
    re.S,
)
STORED = re.compile(r"select [^;]+? into @tq_\w+(?:, @tq_\w+)* from \(\n(.+)\n\) as found", re.S)
# The looks of a claim in turn are one printed statement.
LOOKS = re.compile(r"\(\n(.+)\n\) union all \(\n(.+)\n\)", re.S)
# Statements of operations that are printed under a name of their own.
BESIDE = {
    # Of several messages: see the text of `claim`; and where a process begins, which `begin_ring` contains.
    "claim": ("claim_many", "claim_alone", "claim_limit", "claimed", "claim_ring"),
    "take": ("claim_ring",),
    "push_many": ("push_clock", "push_rows"),
    "complete": ("complete_at_most_once",),
    "release": ("cancel_held",),
    "fail": ("cancel_held",),
    "sweep": ("cancel_held",),
}


class Recorder:
    """The statements that the operations of one engine send on connections of ours, by operation."""

    def __init__(self, database: Database, patch: pytest.MonkeyPatch) -> None:
        self.sent: dict[str, set[str]] = defaultdict(set)
        self._running: list[str] = []
        for kind in CURSORS:
            patch.setattr(kind, "execute", self._execute(kind.execute))
        engine = database._runner.engine
        part = copy(engine.messages)
        methods = {name: self._around(name) for name in OPERATIONS if hasattr(part, name)}
        part.__class__ = type("Recorded", (type(part),), methods)
        engine.messages = part  # type: ignore[misc]  # of this engine alone

    def _execute(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(cursor: Any, query: Any, *args: Any, **options: Any) -> Any:
            if self._running and getattr(cursor, "ours", False):
                text = query.decode() if isinstance(query, bytes) else query
                if isinstance(cursor, MySQLCursor) and args:
                    text = cursor.mogrify(text, *args)
                self.sent[self._running[-1]] |= {*text.split(";\n")}
            return execute(cursor, query, *args, **options)

        return recorded

    def _around(self, name: str) -> Callable[..., Any]:
        def method(part: Any, *args: Any) -> Any:
            self._running.append(name)
            try:
                return getattr(super(type(part), part), name)(*args)
            finally:
                self._running.pop()

        return method


def live(database: Database, queue: Queue) -> None:
    """Each verb on messages, with one message and with several."""
    group = design_group(queue, "g")
    leased = queue.definition.delivery == "at_least_once"
    ids = [queue.push("x", **group), queue.push("y", delay=60, **group), *queue.push_many(["z"] * 6, **group)]
    queue.reschedule(ids[1], delay=90)
    for _ in range(2):
        if claim := queue.pop():
            claim.complete()
    for claims in (queue.pop_many(2), queue.pop_many(2)):
        queue.complete_many(claims)
    if claim := queue.pop():
        claim.fail("why", retry=False)
    queue.redrive(ALL)
    if leased:
        for end in ("fail", "release"):
            if claim := queue.pop():
                claim.extend(90)
                getattr(claim, end)(*["why"] if end == "fail" else [])
    if queue.definition.grouped and leased:
        for claim in queue.pop_many(2, same_group=True):
            claim.complete()
    if queue.definition.fair and leased and not queue.definition.limited:
        queue.complete_many(queue.pop_group("g"))
    queue.pop(now=at(100_000))
    queue.cancel(ids)
    queue.purge()
    if queue.definition.keeps_history:
        queue.purge_history(0)


def shape(text: str) -> str:
    """The text on one line; an INSERT without its rows, of which Python writes as many as there are."""
    line = re.sub(r"\s+", " ", text.replace("%%", "%")).strip()
    return re.sub(r"(?<=\) values )\(.+", "(rows)", line)


def pattern(statement: str) -> re.Pattern[str]:
    """What a printed statement is when its parameters have values."""
    parts = re.split(r"(?<![:\w]):[a-z]\w*|\blimit \d+\b|\b(?<=id > )0\b", shape(statement))
    return re.compile(r".+?".join(map(re.escape, parts)), re.S | re.I)


def printing(queue: Queue) -> Engine:
    """The engine that prints the SQL of the queue."""
    made = context_of(queue).table.engine
    dialect: Any = sa.URL.create(made.dialect.name).get_dialect()
    engine = engine_class(made.dialect.name)(dialect(paramstyle="pyformat"), made.schema)
    engine.place = made.place
    return engine


def printed(queue: Queue, operation: str) -> list[str]:
    """The printed statements of an operation of that queue."""
    engine = printing(queue)
    row = OPERATIONS[operation]
    names = [row.printed or operation, *BESIDE.get(operation, ())]
    if operation == "take" and queue.definition.delivery == "at_most_once":
        names.append("pop")  # which removes what it claims
    texts: list[str] = []
    for name in names:
        for state in STATES if operation in ("peek", "purge") else ("ready",):
            try:
                text = without_comments(script(engine, name, queue.name, queue.definition, state))
            except (BadInput, KeyError):
                continue  # an operation of other queues, or of other engines
            texts += map(shape, statements_in(text))
            for stored in filter(None, map(STORED.fullmatch, statements_in(text))):
                texts += (LOOKS.fullmatch(stored[1]) or stored).groups()
    table = context_of(queue).table
    between = found_between(engine, "pop", "", table) | found_between(engine, "pop", "move_ring", table)
    for name, expression in between.items():
        texts = [text.replace(shape(expression), f":{name}") for text in map(shape, texts)]
    return texts


def compare(queue: Queue, sent: dict[str, set[str]]) -> Iterator[str]:
    """Yield what was sent and is not printed."""
    engine = context_of(queue).table.engine
    clock = pattern(engine.clock)
    for operation, statements in sent.items():
        patterns = [pattern(clock.sub(engine.own_clock, shape(text))) for text in printed(queue, operation)]
        for statement in statements:
            inner = STORED.fullmatch(statement.strip())
            forms = {statement, inner[1] if inner else "", unprepared(statement)}
            forms.add(statement.replace("__results'", "'"))  # the channel of those who wait for results
            shapes = {clock.sub(engine.own_clock, shape(form)) for form in forms}
            if not FRAME.fullmatch(shape(statement)) and not any(
                p.fullmatch(form) for p in patterns for form in shapes
            ):
                yield f"{operation} sends, and nothing prints: {statement}"


def unprepared(statement: str) -> str:
    """The statement in the place of what prepares it, as it is printed."""
    return re.sub(r"\\(['\\n\"])", lambda match: {"n": "\n", "'": "''"}.get(match[1], match[1]), statement)


def judge(database: Database, patch: pytest.MonkeyPatch, **options: Any) -> None:
    recorder = Recorder(database, patch)
    queue = database.create_queue("work", payload="text", **options)
    live(database, queue)
    assert {"push", "take" if options.get("delivery") == "at_most_once" else "claim"} <= recorder.sent.keys()
    assert not (found := [*compare(queue, recorder.sent)]), "\n\n".join(found)


@only("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("design", DESIGNS)
def test_each_statement_that_is_sent_is_printed(place: Place, design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge(place.open(), monkeypatch, **DESIGNS[design])


@only("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("design", ["fifo", "fair", "concurrency"])
def test_mutant_that_sends_another_statement(
    place: Place, kind: Kind, design: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks once more before each claim: the printed SQL lacks that."""
    database = place.open()
    engine = database._runner.engine
    part = copy(engine.messages)

    class Looks(type(part)):  # type: ignore[misc]
        def claim(self, cursor: Any, table: Table, params: Any) -> Any:
            cursor.execute(f"select count(*) from {table.engine.words(table)['queue']}")  # noqa: S608
            cursor.fetchall()
            return super().claim(cursor, table, params)

    part.__class__ = Looks
    engine.messages = part  # type: ignore[misc]
    with pytest.raises(AssertionError, match="nothing prints: select count"):
        judge(database, monkeypatch, **DESIGNS[design])


IN_TURN: dict[str, dict[str, Any]] = {
    "fair": {},
    "once": {"delivery": "at_most_once"},
    "per_group": {"per_group": MANY},
}
GROUPS = "abcd"


def batched(items: list[str], n: int) -> Iterator[list[str]]:
    return (items[start : start + n] for start in range(0, len(items), n))


def groups_of_claims(place: Place, queue: Queue, n: int, statements: list[str]) -> list[set[str]]:
    """Run printed statements in one session until they claim nothing. Return the groups of each claim."""
    claims: list[set[str]] = []
    with place.sa_engine().connect() as connection:
        while not claims or claims[-1]:
            given: dict[str, Any] = {"n": n, "consumer": "me", "lease": 60, "now": None, "low_water": 0}
            given["token"] = uuid4().hex
            claimed: list[Any] = []
            for statement in map(sa.text, statements):
                result = connection.execute(statement, {name: given[name] for name in statement.compile().params})
                if result.returns_rows and {"id", "slot"} <= {*result.keys()}:
                    claimed = [*result.all()]
                    given["ids"] = [row.id for row in claimed]
            claims.append({row.group_key for row in claimed})
            connection.commit()
    return claims[:-1]


def judge_turns(place: Place, n: int, options: dict[str, Any], without: str = "nothing") -> None:
    """Each claim of the printed SQL takes the next groups in turn, those that come next for the verb too."""
    database = place.open()
    by_verb, by_text = (
        database.create_queue(name, groups="fair", payload="text", **options) for name in ("verb", "text")
    )
    for queue in (by_verb, by_text):
        for group in GROUPS:
            queue.push_many(["x"] * 6, group=group)
    turns = [str(claim.group) for claim in [by_verb.pop() for _ in GROUPS] if claim]
    assert {*turns} == {*GROUPS}
    text = without_comments(script(printing(by_text), "pop", "text", by_text.definition, "ready"))
    claims = groups_of_claims(place, by_text, n, [one for one in statements_in(text) if without not in one])
    # A session begins with any group.
    rounds = [turns[start:] + turns[:start] for start in range(len(turns))]
    assert claims in [[{*chunk} for chunk in batched(round_ * 6, n)] for round_ in rounds]


@only("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("design", IN_TURN)
def test_printed_claims_of_a_session_serve_all_groups_in_turn(place: Place, design: str, n: int) -> None:
    judge_turns(place, n, IN_TURN[design])


@only("sqlite", "postgresql", "mariadb")
def test_mutant_that_prints_no_turns(place: Place, kind: Kind) -> None:
    """The printed SQL does not note which group was served last."""
    notes = {"sqlite": "set served", "postgresql": "as last", "mariadb": "as numbered"}
    with pytest.raises(AssertionError):
        judge_turns(place, 1, {}, without=notes[kind.name])
