"""Mutants of the engines: each breaks one promise, and the check of that promise must detect it."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import unwrap
from threading import Barrier
from typing import Any, ClassVar

import pytest

from tablequeue import Database, LeaseLost, Queue, Rate
from tablequeue.engines.engine import Engine
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.table import Table
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import Definition
from tests import checks
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, with_parts
from tests.transitions import check_states

pytestmark = pytest.mark.quick

Mutant = Callable[[type[Engine]], type[Engine]]


def naive_claim(engine: type[Engine]) -> type[Engine]:
    """Selects and then updates: two consumers that meet in between get the same message."""
    meet = Barrier(2, timeout=60)

    class NaiveClaim(type(engine.messages)):  # type: ignore[misc]
        @operation(Effect.READ)  # in autocommit, also on SQLite
        def claim(self, cursor: Any, table: Any, params: dict[str, Any]) -> list[Any]:
            queue = table.engine.words(table)["queue"]
            cursor.execute(f"select id from {queue} where state = 'ready' limit 1")  # noqa: S608 (a checked name)
            (id,) = cursor.fetchone()
            meet.wait()
            for statement in of_one(table.statements("claim"), id):
                cursor.execute(statement, params)
            rows: list[Any] = cursor.fetchall()
            return rows

    return with_parts(engine, {"messages": NaiveClaim})


def of_one(statements: list[str], id: int) -> list[str]:
    """The statements of a claim, but of a message that was chosen before."""
    # On MariaDB a look whether claims are paused comes first.
    update, *select = statements[1:] if statements[0].startswith("select count") else statements
    if not select:
        head, _, rest = update.partition("\nwhere ")
        return [f"{head}\nwhere id = {id} {rest[rest.rindex('returning') :]}"]
    chosen = re.sub(r"\(\s*select .* skip locked\s*\)", f"(select last_insert_id({id}) as claimed)", update, flags=re.S)
    chosen = re.sub(r"\nwhere state.*", "", chosen)
    return [chosen, *(re.sub(r"and token = .*", "", statement) for statement in select)]


def rewritten(pattern: str, replacement: str, *operations: str) -> Callable[[type[Engine]], type[Engine]]:
    """Return a mutant with changed SQL in some operations."""

    def mutant(engine: type[Engine]) -> type[Engine]:
        class Rewritten(engine):  # type: ignore[misc, valid-type]
            # The number of matches of each pattern, including those of the mutants on which this one builds.
            rewrites: ClassVar = {**getattr(engine, "rewrites", {}), pattern: 0}

            def render(self, operation: str, table: Table, state: str = "ready") -> str:
                text: str = super().render(operation, table, state)
                if operation.partition(".")[0] not in operations:
                    return text
                broken, times = re.subn(pattern, replacement, text)
                type(self).rewrites[pattern] += times
                return broken

        return Rewritten

    return mutant


TOKEN = r"and token = (cast\(:(token|held) as uuid\)|:token)"


def counted_at_failure(engine: type[Engine]) -> type[Engine]:
    """Counts an attempt only when the consumer reports a failure, which a dead consumer does not."""
    uncounted = rewritten(r"attempts = attempts \+ 1,", "", "claim", "claim_many")(engine)
    return rewritten(r"set state", "set attempts = attempts + 1, state", "fail")(uncounted)


def ordered_by(order: str, columns: str) -> Callable[[type[Engine]], type[Engine]]:
    """Return a mutant that delivers messages in another order."""

    def mutant(engine: type[Engine]) -> type[Engine]:
        class OrderedBy(engine):  # type: ignore[misc, valid-type]
            order_by: ClassVar = {**engine.order_by, order: columns}

        assert engine.order_by[order] != columns, "the mutant is no mutant"
        return OrderedBy

    return mutant


def indexed_by_id(order: str) -> Callable[[type[Engine]], type[Engine]]:
    """Return a mutant whose index of ready messages is by id, whatever the order."""

    def mutant(engine: type[Engine]) -> type[Engine]:
        class IndexedById(engine):  # type: ignore[misc, valid-type]
            ready_index: ClassVar = {**engine.ready_index, order: "id"}

        return IndexedById

    return mutant


def retries_without_a_place(engine: type[Engine]) -> type[Engine]:
    """A message that waits for its retry is no head of its group: the next one overtakes it."""

    class RetriesWithoutAPlace(engine):  # type: ignore[misc, valid-type]
        def words(self, table: Table, state: str = "ready") -> dict[str, str]:
            words: dict[str, str] = super().words(table, state)
            head = words["head"].replace("'scheduled', ", "")
            assert head != words["head"], "the mutant is no mutant"
            return words | {"head": head}

    return RetriesWithoutAPlace


def without_heads(engine: type[Engine]) -> type[Engine]:
    """All messages of a group are ready at once, and no index prevents it."""

    class WithoutHeads(rewritten(r"(unique )?((index|key) \S+__front)", r"\2", "create_groups")(engine)):  # type: ignore[misc]
        def words(self, table: Table, state: str = "ready") -> dict[str, str]:
            return {**super().words(table, state), "pushed_ready": "ready"}

    return WithoutHeads


def one_slot(engine: type[Engine]) -> type[Engine]:
    """All groups of a fair queue have the same slot, so claims go by the ids alone."""

    class OneSlot(engine):  # type: ignore[misc, valid-type]
        slot: ClassVar = {"slot": "slot", "ifnull(group_key, '')": "''"}.get(engine.slot, "cast(0 as bigint)")

        def render(self, operation: str, table: Table, state: str = "ready", **options: Any) -> str:
            return re.sub(r"cast\(conv\(.* >> 1", "0", super().render(operation, table, state, **options))

    return OneSlot


def take_and_put_back(engine: type[Engine]) -> type[Engine]:
    """A take that returns a message and leaves it in its place."""

    class TakeAndPutBack(type(engine.messages)):  # type: ignore[misc]
        @operation(Effect.STEP)
        def take(self, cursor: Any, table: Any, params: dict[str, Any]) -> list[Any]:
            cursor.execute("savepoint before_the_take")
            rows: list[Any] = super().take(cursor, table, params)
            cursor.execute("rollback to savepoint before_the_take")
            return rows

    return with_parts(engine, {"messages": TakeAndPutBack})


def half_a_batch(engine: type[Engine]) -> type[Engine]:
    """Completes the first half of a batch, and reports the whole batch."""

    class HalfABatch(type(engine.messages)):  # type: ignore[misc]
        def complete(self, cursor: Any, table: Any, params: dict[str, Any]) -> list[int]:
            asked: list[int] = table.engine.load_ids(params["ids"])
            half = table.engine.dump_ids(asked[: (len(asked) + 1) // 2])
            super().complete(cursor, table, params | {"ids": half})
            return asked

    return with_parts(engine, {"messages": HalfABatch})


def claims_all_the_same(engine: type[Engine]) -> type[Engine]:
    """Claims the next messages even if the previous ones could not be completed."""

    class ClaimsAllTheSame(type(engine.messages)):  # type: ignore[misc]
        @operation(Effect.STEP)
        def complete_and_claim(self, cursor: Any, table: Any, params: dict[str, Any]) -> Any:
            completed = self.complete(cursor, table, params | {"token": params["held"]})
            rows = self.claim(cursor, table, params)
            return (None if len(completed) == params["number"] else completed), rows

    return with_parts(engine, {"messages": ClaimsAllTheSame})


Check = Callable[[Database, Kind], None]


def on(check: Callable[[Queue], None], name: str, **definition: Any) -> Check:
    """Return a check for a text queue with this definition."""

    def run(database: Database, kind: Kind) -> None:
        check(database.create_queue("work", payload="text", **definition))

    run.__name__ = name
    return run


def of_two(check: Callable[[Database, Queue, Queue], None], name: str, **definition: Any) -> Check:
    """Like `on`, for a check that needs the queue twice."""

    def run(database: Database, kind: Kind) -> None:
        queue = database.create_queue("work", payload="text", **definition)
        check(database, queue, database.queue("work"))

    run.__name__ = name
    return run


def order(design: str) -> Check:
    return on(lambda queue: checks.check_order(queue, seed=1), f"order of {design}", **DESIGNS[design])


def plan(design: str) -> Check:
    def run(database: Database, kind: Kind) -> None:
        checks.check_plans(database, kind, database.create_queue("work", **DESIGNS[design]), [("claim", "ready")])

    run.__name__ = f"plan of {design}"
    return run


def _take(database: Database, queue: Queue, _: Queue) -> None:
    with database.engine.connect() as connection:
        checks.check_a_taken_message_is_gone(queue, connection)


CLAIMS = of_two(lambda _, one, other: checks.check_one_claim_one_consumer([one, other]), "claims")
FENCE = of_two(lambda _, slow, fast: checks.check_fence_after_reclaim(slow, fast), "fence")
TAKE = of_two(_take, "take")
RETENTION = of_two(lambda _, one, other: checks.check_retention(one, other), "retention", history=60)
AT_ONCE = on(checks.check_nothing_is_claimed_after_a_lost_lease, "at once")
POISON = on(checks.check_poison_is_counted_at_claim, "poison", max_attempts=3)
STRICT = on(checks.check_a_failed_head_holds_the_others, "strict", strict=True)
GROUPS = on(checks.check_one_in_progress_per_group, "groups", groups=True)
RUNS = on(checks.check_runs, "runs", groups=True, max_attempts=9)
RUN_TURNS = on(checks.check_open_runs_take_turns, "open runs that take turns", groups=True)
OPEN_RUNS = on(checks.check_open_runs, "open runs", groups=True, max_attempts=9)
RUNS_IN_TIME = on(checks.check_no_run_has_what_is_over, "runs in time", groups=True, expires=3_000_000_000)
FAIR = on(checks.check_fair_share, "fair share", groups="fair")
ALONE = on(checks.check_a_group_that_was_alone, "a group that was alone", groups="fair")
POP_GROUP = on(checks.check_pop_group, "pop group", groups="fair")
KEYS = on(checks.check_keys, "keys")
AT_MOST_ONCE = on(checks.check_at_most_once, "at most once", delivery="at_most_once")
REDRIVE = on(checks.check_redrive, "redrive", max_attempts=2)
PAUSE = on(checks.check_pause, "pause")
MOVE = on(checks.check_move, "move", max_attempts=2)
BATCH = on(checks.check_complete_many, "batch")
CANCEL = on(checks.check_cancel, "cancel")
RESCHEDULE = on(checks.check_reschedule, "reschedule")
WINDOW = on(checks.check_window, "window")
EXPIRY = on(checks.check_expiry, "expiry", expires=60)
UNIQUE_FOR = on(checks.check_unique_for, "key for a time", unique_for=300)
RESULTS = on(checks.check_results, "results", results=True)
ERRORS = on(checks.check_errors, "errors", max_attempts=99)
LOST = on(checks.check_lost, "lost", delivery="at_most_once")


def dead_letters(database: Database, kind: Kind) -> None:
    checks.check_dead_letters_move(database)


def of_one_queue(database: Database, kind: Kind) -> None:
    checks.check_a_handle_is_of_one_queue(database)


def of_one_subscription(database: Database, kind: Kind) -> None:
    checks.check_a_handle_is_of_one_subscription(database)


def move_between(database: Database, kind: Kind) -> None:
    checks.check_move_between(database, groups=False)


def move_groups_between(database: Database, kind: Kind) -> None:
    checks.check_move_between(database, groups=True)


def forgets(operation: str) -> Mutant:
    """A move that does not do one of its steps."""

    def mutant(engine: type[Engine]) -> type[Engine]:
        def nothing(part: Any, cursor: Any, table: Any, params: Any) -> None:
            return None

        nothing.__name__ = operation  # the check dies at the operation of that name
        part = type("Forgets", (type(engine.moving),), {operation: nothing})
        return with_parts(engine, {"moving": part})

    return mutant


CONCURRENCY = on(checks.check_concurrency, "concurrency", concurrency=3)
PLACES = on(checks.check_altered_places, "altered places")
LATE = of_two(lambda _, one, other: checks.check_late_claims_count(one, other), "late claims")
ALTERED_RATE = on(checks.check_altered_rate, "altered rate", rate=Rate(1, per=3600, burst=3))
# SQLite counts the messages in progress instead.
COUNTED = r"- \(select count\(\*\) from \S+ where state = 'in_progress'\)"
RATE_BACK = on(checks.check_rate_after_the_clock_goes_back, "clock back", rate=Rate(6, per=60, burst=3))
GROUP_RATE_BACK = on(
    checks.check_rate_after_the_clock_goes_back, "group clock back", groups="fair", group_rate=Rate(6, per=60, burst=3)
)
RATE = on(checks.check_rate, "rate", rate=Rate(6, per=60, burst=3))
PER_GROUP = on(checks.check_per_group, "per group", groups="fair", per_group=2)
GROUP_RATE = on(checks.check_group_rate, "group rate", groups="fair", group_rate=Rate(6, per=60, burst=3))
CLAIMS_AT_ONCE = of_two(
    lambda _, one, other: checks.check_claims_at_once([one, other]), "claims at once", concurrency=3
)
# What finds out whether the message of a place is in progress.
OCCUPIED = (
    r"(?s)(?<=where )not exists \(.*?\n\) and |- \(select count\(\*\) from \S+ where state = 'in_progress'\)|"
    r"\(\s*select true from .*?\) is null and "
)
# What finds out whether a place was filled after the look at it.
NOTE = r"and (place\.)?message = free.message and (place\.)?token = free.token"


def transitions(**options: Any) -> Check:
    def run(database: Database, kind: Kind) -> None:
        check_states(database, **options)

    run.__name__ = f"transitions of {options}" if options else "transitions"
    return run


def counters_agree(database: Database, kind: Kind) -> None:
    try:
        checks.check_counters(database)
    except LeaseLost as error:
        raise AssertionError("what was popped is held") from error


TRANSITIONS, TRANSITIONS_OF_GROUPS = transitions(), transitions(groups=True)

NOT_TOLD = " and cancelled_at is null"
TOLD_IN_SWEEP = r"(message\.)?cancelled_at is not null"
KEY = r"(cast\(:key as text\)|:key)"

MUTANTS: dict[str, tuple[Mutant, Check]] = {
    "a claim that selects, then updates": (naive_claim, CLAIMS),
    "a complete without the token": (rewritten(TOKEN, "", "complete"), FENCE),
    "a complete without the token, with a claim": (
        rewritten(TOKEN, "", "complete", "complete_and_claim"),
        AT_ONCE,
    ),
    "a claim after a lost lease": (claims_all_the_same, AT_ONCE),
    "a fail without the token": (rewritten(TOKEN, "", "fail"), FENCE),
    "a release without the token": (rewritten(TOKEN, "", "release"), FENCE),
    "an extend without the token": (rewritten(TOKEN, "", "extend"), FENCE),
    "an attempt counted at its failure": (counted_at_failure, POISON),
    "a sweep that buries nothing": (rewritten(">= :max_attempts", "> 1000000 + :max_attempts", "sweep"), POISON),
    "a claim of messages that are scheduled": (
        rewritten("state = 'ready'( and sweep_at is null)?", "state in ('ready', 'scheduled')", "claim", "claim_many"),
        order("heap"),
    ),
    "a claim of fewer than there are": (rewritten("limit :n", "limit 1", "claim", "claim_many"), order("heap")),
    "a stack for a fifo": (ordered_by("fifo", "id desc"), order("fifo")),
    "a fifo for a stack": (ordered_by("lifo", "id"), order("lifo")),
    "a fifo for what is due": (ordered_by("due", "id"), order("due")),
    "a fifo for priorities": (ordered_by("priority", "id"), order("priority")),
    "what is due without its index": (indexed_by_id("due"), plan("due")),
    "priorities without their index": (indexed_by_id("priority"), plan("priority")),
    "a retry that is overtaken": (retries_without_a_place, STRICT),
    "two in progress in a group": (without_heads, GROUPS),
    "two in progress in a strict queue": (without_heads, order("strict")),
    "a run that goes on and on": (
        rewritten(r"(max|greatest)\(0, :n - 1\)|:look|(?<=place < )@tq_n", "1000", "claim_run"),
        RUNS,
    ),
    "a run with what is due later": (
        rewritten(r"coalesce\((mine\.)?due_at (?:>|<=) .*?, (0|true)\)", r"\2", "claim_run"),
        RUNS,
    ),
    "a run with what is over": (rewritten(r"(message\.)?expires_at is null", r"1 = 1", "claim_run"), RUNS_IN_TIME),
    "open runs of one group while others wait": (rewritten(":passed", "'[]'", "claim_run"), RUN_TURNS),
    "a failure that opens the group of a run": (rewritten("when in_run <> 0 then ('blocked'|4)", "", "fail"), RUNS),
    "a release that opens the group of a run": (rewritten("when in_run <> 0 then 'blocked'", "", "release"), RUNS),
    "a lease that opens the group of a run": (rewritten("when in_run <> 0 then 'blocked'", "", "sweep"), RUNS),
    "an open run that closes its group": (
        rewritten(r"(\w+\.)?in_run (>= 0|> -next\.id)", "1 = 1", "promote", "create_heads"),
        OPEN_RUNS,
    ),
    "an open run that is overtaken": (
        rewritten(
            r"\w+\.in_run (<> 0|> -[\w.{}]*id)",
            "1 = 0",
            *("promote", "create_heads", "create_group_functions"),
        ),
        OPEN_RUNS,
    ),
    "a run over what is in progress": (
        rewritten(r"coalesce\(-max\(held\.in_run\), (\d+)\)", r"max(\1)", "claim_run"),
        OPEN_RUNS,
    ),
    "fair groups that go by ids": (one_slot, FAIR),
    "a group that stays alone": (
        rewritten(r"(?<=[<>] )(?:cast\(:slot as bigint\)|:slot)(?= order by|\))", "null", "claim_alone"),
        ALONE,
    ),
    "a claim of another group": (rewritten(":group", "'c'", "claim_group"), POP_GROUP),
    "a take that does not delete": (take_and_put_back, TAKE),
    "at most once, and then again": (take_and_put_back, AT_MOST_ONCE),
    "a push that ignores the key": (rewritten(KEY, "null", "push"), KEYS),
    "a redrive that keeps the attempts": (rewritten("attempts = 0, ", "", "redrive"), REDRIVE),
    "a move that revives the dead": (rewritten("then 'dead'", "then 'ready'", "move"), MOVE),
    "a batch that is half done": (half_a_batch, BATCH),
    "a batch that is half done and counted whole": (half_a_batch, counters_agree),
    "a cancel that tells nobody": (
        rewritten(r"set cancelled_at = coalesce\(cancelled_at, .*", "set cancelled_at = null", "cancel"),
        CANCEL,
    ),
    "a cancel that keeps what waits": (rewritten("state <> 'in_progress'", "state = 'dead'", "cancel"), CANCEL),
    "a told message that fails and is retried": (rewritten(NOT_TOLD, "", "fail"), CANCEL),
    "a told message that is released and is retried": (
        rewritten(rf"{NOT_TOLD}|(?<=\n)where cancelled_at is null", "", "release"),
        CANCEL,
    ),
    "a told message whose lease expires and is retried": (rewritten(TOLD_IN_SWEEP, "1 = 0", "sweep"), CANCEL),
    "a reschedule that keeps the due time": (
        rewritten(r"due_at = coalesce\([^=]*?, due_at\s*\)", "due_at = due_at", "reschedule"),
        RESCHEDULE,
    ),
    "a retention that deletes too much": (rewritten(":age", "0", "purge_history"), RETENTION),
    "a window of the whole history": (rewritten(r"finished_at > .* and (?=finished_at)", "", "stats_finished"), WINDOW),
    "a window of all that was pushed": (rewritten(r"pushed_at > .* and (?=pushed_at)", "", "stats_pushed"), WINDOW),
    "pushed messages of the queue alone": (rewritten(r"(?s)union all.*?\)\n(?=    \) as)", "", "stats_pushed"), WINDOW),
    "a wait that ends with the last pop": (rewritten("first_popped_at", "popped_at", "stats_finished"), WINDOW),
    "failed attempts without those of ready messages": (rewritten("'ready'", "'dead'", "stats_failed"), WINDOW),
    "failed attempts of before the window": (rewritten(":age", "1000", "stats_failed"), WINDOW),
    "completed messages that are lost": (rewritten("finished_at is null and ", "", "stats_lost"), LOST),
    "messages that are lost at once": (rewritten(":age", "0", "stats_lost"), LOST),
    "a release that buries": (rewritten(r"'ready' end", "'dead' end", "release"), TRANSITIONS),
    "a push that is never scheduled": (rewritten("'scheduled'", "'ready'", "push"), TRANSITIONS),
    "a redrive that leaves the dead dead": (rewritten("'blocked'", "'dead'", "redrive"), TRANSITIONS_OF_GROUPS),
    "dead letters that stay": (rewritten("'dead'", "'blocked'", "move_dead"), dead_letters),
    "dead letters without their origin": (rewritten(":origin", "'nowhere'", "move_dead"), dead_letters),
    "a claim that takes every place for free": (rewritten(OCCUPIED, "", "claim", "free_slots"), CONCURRENCY),
    "claims at once that take every place for free": (rewritten(OCCUPIED, "", "claim", "free_slots"), CLAIMS_AT_ONCE),
    "a claim that takes every place of a group for free": (
        rewritten(r"\b2 - \(\s*select count", "2000 - (select count", "claim", "claim_rooms"),
        PER_GROUP,
    ),
    "a claim that spends nothing of the rate of a group": (
        rewritten(r"\* 10000000\b", "* 0", "claim", "spend_group_rates"),
        GROUP_RATE,
    ),
    "closed places that hold up nobody": (
        rewritten(rf"(?s)and slot >= case.*?\n\s*else 1\s+end|{COUNTED}", "", "claim", "free_slots"),
        PLACES,
    ),
    "places that stay when they are too many": (
        rewritten("|".join([r"update \S+ set slot = -message .*;\n", COUNTED]), "", "resize_slots", "claim"),
        PLACES,
    ),
    "late claims that do not count": (
        rewritten(rf"-(?=id, id|message\.id, message\.id)|{COUNTED}", "", "close_slots", "claim"),
        LATE,
    ),
    "another rate that forgets what was spent": (rewritten("/ step", "/ step * 0", "change_rate"), ALTERED_RATE),
    "a claim that spends nothing of the rate": (
        rewritten(r"(claimed\.|given\.|:)number \* step", "0", "claim", "grant_rate", "spend_rate"),
        RATE,
    ),
    "a rate that waits for the time before the clock goes back": (
        rewritten("spent_until >", "1 = 0 and spent_until >", "forget_rate"),
        RATE_BACK,
    ),
    "a group that waits for the time before the clock goes back": (
        rewritten("spent_until >", "1 = 0 and spent_until >", "forget_rates"),
        GROUP_RATE_BACK,
    ),
    "a claim of messages whose time is over": (
        rewritten("expires_at is null or", "1 = 1 or", "claim", "claim_many"),
        EXPIRY,
    ),
    "messages that never expire": (rewritten("expires_at <=", "1 = 0 and expires_at <=", "expire"), EXPIRY),
    "a push that forgets when it expires": (rewritten(r"coalesce\(:expires, 60\)", "3000000000", "push"), EXPIRY),
    "a key that is free at once": (
        rewritten(r"coalesce\((.*), 300\)", r"coalesce(\1, 300) * 0.001", "take_keys", "name_keys"),
        UNIQUE_FOR,
    ),
    "a key that stays taken": (rewritten(r"([\w.]*\btaken_until) <= ", r"1 = 0 and \1 <= ", "take_keys"), UNIQUE_FOR),
    "a key that a waiting message keeps": (
        rewritten(r"taken\.taken_until > ", "taken.taken_until >= ", "end_keys", "taken_keys"),
        UNIQUE_FOR,
    ),
    "a key that a waiting message loses": (
        rewritten(r"taken\.taken_until > ", "taken.taken_until < ", "end_keys", "taken_keys"),
        UNIQUE_FOR,
    ),
    "a result that nobody gave": (
        rewritten(r"(cast\(cast\(:result as text\) as json\)|:result)\)", "'1')", "keep_results"),
        RESULTS,
    ),
    "results that outlive their messages": (
        rewritten(
            "(?s)create trigger .*|references .* on delete cascade|,\\s+constraint .* cascade", "", "create_results"
        ),
        RESULTS,
    ),
    "a claim that does not read the pause": (
        rewritten(
            r"(?:not exists \(select 1 from \S+ where name = .*?\)|@tq_paused = 0)( limit| order|\n)",
            r"1 = 1\1",
            "claim",
            "claim_many",
        ),
        PAUSE,
    ),
    "a move that takes what a consumer holds": (
        rewritten(r"state( \|\| '')? <> 'in_progress'", "state <> 'dead'", "waiting"),
        move_between,
    ),
    "a move that takes what is behind it": (
        rewritten("state = 'in_progress'", "state = 'dead'", "busy_groups"),
        move_groups_between,
    ),
    "a move that does not note what has come": (forgets("note_moved"), move_between),
    "a move that leaves what has come": (forgets("forget_aside"), move_between),
    "a move that forgets the attempts": (rewritten(":attempts", "0", "put_aside"), move_between),
    "a move that forgets when a message expires": (rewritten(":expires_at", "null", "put_aside"), move_between),
    "a message that keeps all errors": (rewritten(r">= 10(?=\s+then)", ">= 1000", "fail", "sweep"), ERRORS),
    "errors that are numbered by those that are kept": (rewritten("number'(?!,)", "none'", "fail", "sweep"), ERRORS),
    "a name of a table that is given again": (
        rewritten(r"from (\S+dropped)", r"from \1 where 1 = 0", "dropped"),
        of_one_queue,
    ),
    "a number of a subscription that is used again": (
        rewritten(r"from (\S+dropped)", r"from \1 where 1 = 0", "dropped"),
        of_one_subscription,
    ),
    "a drop that is not noted": (rewritten(r"\('(tq_\w+)'\)", r"('\1 ')", "note_dropped"), of_one_queue),
    "a retention that deletes nothing": (rewritten(":age", "3000000000", "purge_history"), RETENTION),
}
CHECKS = {check.__name__: check for _, check in MUTANTS.values()}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_engine_passes(place: Place, kind: Kind, check: Check) -> None:
    check(place.open_with(kind.engine_class), kind)


@pytest.mark.parametrize(("mutant", "check"), MUTANTS.values(), ids=MUTANTS)
def test_the_mutant_is_noticed(place: Place, kind: Kind, mutant: Mutant, check: Check) -> None:
    engine = mutant(kind.engine_class)
    database = place.open_with(engine)
    with pytest.raises(AssertionError) as caught:
        check(database, kind)
    assert "no mutant" not in str(caught.value)
    for text in operations_of(engine.name):
        database._runner.engine.render(text, database._runner.engine.table("work", Definition()))
    rewrites: dict[str, int] = getattr(engine, "rewrites", {})
    assert all(rewrites.values()), "the mutant is no mutant: its text is the engine's own"


@only("postgresql", "mariadb", "mssql")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_a_place_that_was_filled_while_the_claim_waited(place: Place, kind: Kind, mutated: bool) -> None:
    """A claim that does not compare the notes, after it has waited for the rate, gets places that are occupied."""
    if mutated and kind.name != "postgresql":
        pytest.skip("There the claim looks for places after the wait.")
    mutant = rewritten(NOTE, "", "claim", "lock_slots")(kind.engine_class) if mutated else kind.engine_class
    database = place.open_with(mutant)
    queue = database.create_queue("work", payload="text", concurrency=2, rate=Rate(1000, burst=100))
    with place.sa_engine().connect() as connection:
        got = checks.claimed_after_a_wait(queue, connection, lambda: checks.await_a_wait(place, kind))
    assert got == (2 if mutated else 0)
    assert all(getattr(mutant, "rewrites", {"": 1}).values()), "the mutant is no mutant"


@only("postgresql")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_a_group_that_was_claimed_while_the_claim_waited(place: Place, kind: Kind, mutated: bool) -> None:
    """A claim that does not compare the number of claims, after it has waited for the rate, counts too few."""
    mutant = rewritten(r" and claims = ring\.claims", "", "claim")(kind.engine_class) if mutated else kind.engine_class
    database = place.open_with(mutant)
    rate = Rate(1000, burst=100)
    queue = database.create_queue("work", payload="text", groups="fair", per_group=2, rate=rate)
    with place.sa_engine().connect() as connection:
        got = checks.claimed_after_a_wait(queue, connection, lambda: checks.await_a_wait(place, kind))
    assert got == (2 if mutated else 0)
    assert all(getattr(mutant, "rewrites", {"": 1}).values()), "the mutant is no mutant"


@only("mariadb")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_a_group_that_was_claimed_after_the_look(
    place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch, mutated: bool
) -> None:
    """A claim whose packet does not compare the number of claims of the group counts too few."""
    from tablequeue.engines.mysql import claims
    from tablequeue.engines.mysql.fair import groups_and_wanted

    mutant = rewritten(r" and stripe\.claims = given\.claims", "", "lock_stripes")(kind.engine_class)
    engine = mutant if mutated else kind.engine_class
    queue = place.open_with(engine).create_queue("work", payload="text", groups="fair", per_group=2)
    queue.push_many([*"abcd"], group="g")
    other = place.open_with(engine).queue("work")

    def forestalled(*values: Any) -> Any:
        monkeypatch.setattr(claims, "groups_and_wanted", groups_and_wanted)
        first = other.pop_many(2)
        other.release_many(first, delay=60)
        assert [claim.payload for claim in other.pop_many(2)] == ["c", "d"]
        for claim in first:
            other.reschedule(claim.id, delay=0)
        return groups_and_wanted(*values)

    monkeypatch.setattr(claims, "groups_and_wanted", forestalled)
    got = [claim.payload for claim in queue.pop_many(4)]
    assert got == (["a", "b"] if mutated else [])


def of_two_processes(place: Place, kind: Kind, mutant: Mutant | None) -> Queue:
    """A queue with groups in which two promotions run at once."""
    engine = mutant(kind.engine_class) if mutant else kind.engine_class

    class Ungated(type(engine.messages)):  # type: ignore[misc]
        promote = unwrap(type(engine.messages).promote)

    database = place.open_with(with_parts(engine, {"messages": Ungated}))
    return database.create_queue("work", payload="text", groups=True)


@only("postgresql", "mariadb")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_a_run_that_began_while_a_promotion_waited(place: Place, kind: Kind, mutated: bool) -> None:
    """A promotion that does not look again makes a message ready whose group a run has closed meanwhile."""
    mutant = rewritten(r"\w+\.in_run <> 0", "1 = 0", "promote", "create_group_functions")
    queue = of_two_processes(place, kind, mutant if mutated else None)
    got = checks.ready_beside_a_run(queue, place.sa_engine(), lambda: checks.await_a_wait(place, kind))
    assert got == (1 if mutated else 0)


@only("postgresql", "mariadb")
@pytest.mark.parametrize("mutated", [False, True], ids=["the engine", "the mutant"])
def test_a_group_that_got_a_head_while_a_promotion_waited(place: Place, kind: Kind, mutated: bool) -> None:
    """Two promotions that have seen different messages of a group make one of them ready."""
    mutant = rewritten(r"unique (index \S+__front)", r"\1", "create_groups")
    if kind.name == "mariadb":
        mutant = rewritten(
            r"(not null) primary key,\s+id bigint not null",
            r"\1, id bigint not null, primary key (group_key, id)",
            "create_groups",
        )
    queue = of_two_processes(place, kind, mutant if mutated else None)
    got = checks.ready_beside_a_head(queue, place.sa_engine(), lambda: checks.await_a_wait(place, kind))
    assert got == (2 if mutated else 1)
