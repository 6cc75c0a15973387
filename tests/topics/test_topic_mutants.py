"""Mutants of topics: each breaks one promise, and the check of that promise must detect it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tablequeue import Backoff, Database
from tablequeue.engines.engine import Engine
from tablequeue.engines.operation import Effect, operation
from tablequeue.topic import Subscription, Topic
from tests.servers import KINDS, Kind, Place
from tests.support import with_parts
from tests.test_mutants import Mutant, rewritten
from tests.topics import checks

pytestmark = pytest.mark.quick

OPTIONS: dict[str, Any] = {"max_attempts": 3, "backoff": Backoff(base=10, jitter=0)}
# A check of a topic, one of its subscriptions, and an ordered one of another topic.
Check = Callable[[Place, Database], None]


def of_topic(check: Callable[[Topic], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        check(database.create_topic("events", payload="text"))

    run.__name__ = name
    return run


def of_subscription(check: Callable[[Topic, Subscription], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        topic = database.create_topic("events", payload="text")
        check(topic, topic.subscribe("mail", **OPTIONS))

    run.__name__ = name
    return run


def of_ordered(check: Callable[[Topic, Subscription], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        topic = database.create_topic("orders", payload="text", groups=True)
        check(topic, topic.subscribe("turns", ordered=True, **OPTIONS))

    run.__name__ = name
    return run


def of_retention(check: Callable[[Topic], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        check(database.create_topic("events", keep=checks.KEEP))

    run.__name__ = name
    return run


def of_late_commits(check: Callable[[Place, Topic, Subscription], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        topic = database.create_topic("events", payload="text")
        check(place, topic, topic.subscribe("mail", **OPTIONS))

    run.__name__ = name
    return run


def of_groups(check: Callable[[Place, Topic, Subscription], None], name: str) -> Check:
    def run(place: Place, database: Database) -> None:
        topic = database.create_topic("orders", payload="text", groups=True)
        check(place, topic, topic.subscribe("turns", ordered=True, **OPTIONS))

    run.__name__ = name
    return run


def _claims(place: Place, database: Database) -> None:
    topic = database.create_topic("events", payload="text")
    topic.subscribe("mail")
    checks.check_one_claim_one_consumer(topic, [database.subscription("events/mail") for _ in range(4)])


def _fence(place: Place, database: Database) -> None:
    topic = database.create_topic("events", payload="text")
    checks.check_fence(topic, topic.subscribe("mail"), database.subscription("events/mail"))


def _waits(place: Place, database: Database) -> None:
    topic = database.create_topic("events", payload="text")
    checks.check_a_claim_waits_for_another_one(place, topic, topic.subscribe("mail"))


EVERY = of_topic(checks.check_every_subscription_gets_every_message, "every subscription")
TWICE = of_subscription(checks.check_a_message_given_several_times_is_one, "several times")
AT_ONCE = of_subscription(checks.check_nothing_is_claimed_after_a_lost_lease, "at once")
ALONE = of_subscription(checks.check_a_failed_message_comes_back_alone, "alone")
EXPIRED = of_subscription(checks.check_what_is_left_of_an_expired_range, "expired")
POISON = of_subscription(checks.check_poison_is_counted, "poison")
GROUPS = of_ordered(checks.check_a_group_has_one_in_progress, "groups")
LOOSE = of_groups(checks.check_a_message_without_a_group_stops_nobody, "without a group")
HOLDS = of_ordered(checks.check_a_failed_message_holds_its_group, "holds")
TOKENS = of_subscription(checks.check_a_token_is_for_its_own_messages, "tokens")
REPLAY = of_subscription(checks.check_a_claim_from_before_a_seek_is_fenced, "replay")
ONE_OF_EACH = of_subscription(checks.check_a_seek_leaves_one_of_each_message, "one of each")
NO_FAILURE = of_subscription(checks.check_no_failure_takes_the_lease_of_another_consumer, "no failure")
NO_EXPIRY = of_subscription(checks.check_no_expiry_takes_the_lease_of_another_consumer, "no expiry")
SKIPPED = of_ordered(checks.check_a_seek_skips_what_was_moved_to_the_queue, "skipped")
KEPT = of_retention(checks.check_what_is_claimed_is_not_dropped, "kept")
DONE = of_subscription(checks.check_what_is_completed_twice_is_refused, "done")
LATE = of_late_commits(checks.check_a_late_commit_comes_late, "late")
HOLES = of_late_commits(checks.check_holes_are_forgotten, "holes")
_claims.__name__, _fence.__name__, _waits.__name__ = "claims", "fence", "waits"


def shared_position(engine: type[Engine]) -> type[Engine]:
    """All subscriptions of a topic have the table of one."""
    return rewritten(r"__s[0-9]+__ranges", "__s1__ranges", "range_claim")(engine)


def unordered_pump(engine: type[Engine]) -> type[Engine]:
    """The messages of an ordered subscription are all ready at once, and no index prevents it."""

    class UnorderedPump(rewritten(r"(unique )?((index|key) \S+__front)", r"\2", "create_groups")(engine)):  # type: ignore[misc]
        def words(self, *args: Any, **options: Any) -> dict[str, str]:
            return {**super().words(*args, **options), "pushed_ready": "ready"}

    return UnorderedPump


def completes_by_number_and_sum(engine: type[Engine]) -> type[Engine]:
    """Completes a range if the number and the sum of ids match, though some are given several times."""

    class ByNumberAndSum(type(engine.ranges)):  # type: ignore[misc]
        def complete(self, cursor: Any, table: Any, params: dict[str, Any]) -> list[int]:
            ids = table.engine.load_ids(params["ids"])
            if self._complete_range(cursor, table, params, ids):
                return list(ids)
            done: list[int] = super().complete(cursor, table, params)
            return done

    return with_parts(engine, {"ranges": ByNumberAndSum})


def claims_all_the_same(engine: type[Engine]) -> type[Engine]:
    """Claims the next range even if the previous messages could not be completed."""

    class ClaimsAllTheSame(type(engine.ranges)):  # type: ignore[misc]
        @operation(Effect.STEP)
        def complete_and_claim(self, cursor: Any, table: Any, params: dict[str, Any]) -> Any:
            self.complete(cursor, table, params | {"token": params["held"]})
            return None, self.claim(cursor, table, params)

    return with_parts(engine, {"ranges": ClaimsAllTheSame})


LEFT = r"and left_ids is null|left_ids is null and "
TOKEN = r"token = (cast\(:token as uuid\)|:token) and "
NOT_LEFT = (
    r"\n?\s*(and|where) (\(left_ids is null or \S+ <> all\(left_ids\)\)|left_ids is null or log\.id <> all\(left_ids\)"
    r"|\S+ not in \(\s*select gone\.value from [^)]*json_each\(held\.left_ids\)[^)]*\))"
)
FUNCTIONS = "create_topic_functions"
DECIDES = ("range_absorb", "range_remaining")
IN_PROGRESS = r"(state (?:<>|=) )'in_progress'"
ALL = frozenset(kind.name for kind in KINDS)
SQL = frozenset({"sqlite", "postgresql"})
WITHOUT_MSSQL = SQL | {"mariadb"}
POSTGRESQL = frozenset({"postgresql"})

# Each mutant, the check that detects it, and the engines in whose texts it is made.
MUTANTS: dict[str, tuple[Mutant, Check, frozenset[str]]] = {
    "subscriptions that share a position": (shared_position, EVERY, WITHOUT_MSSQL),
    "a claim that does not wait for another one": (
        rewritten(
            r"perform pg_advisory_xact_lock\(hash[^;]*\);\n(?=        select greatest)", "", "create_range_functions"
        ),
        _waits,
        POSTGRESQL,
    ),
    "a completion of a range without the token": (rewritten(TOKEN, "", "range_complete"), REPLAY, WITHOUT_MSSQL),
    "a completion of messages without the token": (
        rewritten(TOKEN, "", "range_hold", "range_mark"),
        TOKENS,
        SQL,
    ),
    "a message given several times": (completes_by_number_and_sum, TWICE, SQL),
    "a claim after a lost lease": (claims_all_the_same, AT_ONCE, ALL),
    "a completion that ignores what has left": (rewritten(LEFT, "", "range_complete"), DONE, WITHOUT_MSSQL),
    "an expiry that ignores what has left": (rewritten(NOT_LEFT, "", "range_expire"), EXPIRED, SQL),
    "a hold that ignores what has left": (rewritten(NOT_LEFT, "", "range_hold"), ALONE, SQL),
    "an expired attempt that does not count": (
        rewritten(r"end, 1, (log\.)?pushed_at", r"end, 0, \1pushed_at", "range_expire"),
        POISON,
        SQL,
    ),
    "a failed message that is never ready": (
        rewritten(r"'scheduled' else 'ready'", "'scheduled' else 'scheduled'", "range_detach"),
        ALONE,
        SQL,
    ),
    "a pump that keeps a missing group": (
        rewritten(r"coalesce\((\S*group_key), ''\)", r"\1", "range_pump", "create_range_functions"),
        LOOSE,
        ALL,
    ),
    "a seek that leaves what was moved to the queue": (
        rewritten(r"first_popped_at is null or", "", *DECIDES),
        SKIPPED,
        ALL,
    ),
    "a seek that leaves what waits for a retry": (
        rewritten(r"(first_id|\bid) >= :start", r"\1 < 0", *DECIDES),
        ONE_OF_EACH,
        ALL,
    ),
    "a failure that takes a lease": (rewritten(IN_PROGRESS, r"\1'none'", "range_detach"), NO_FAILURE, ALL),
    "an expiry that takes a lease": (
        rewritten(IN_PROGRESS, r"\1'none'", "range_expire", "range_detach"),
        NO_EXPIRY,
        ALL,
    ),
    "a trim that ignores leases": (
        rewritten(r"(min\(first_offset\) from \S+.* where )lease", r"\1false and lease", "range_floor", FUNCTIONS),
        KEPT,
        ALL,
    ),
    "an ordered subscription without order": (unordered_pump, GROUPS, WITHOUT_MSSQL),
    "a position that passes what is in flight": (
        rewritten(
            r"exists \(select from \S+ where id between hole\.first_id and hole\.last_id\)",
            "false",
            "create_topic_functions",
        ),
        LATE,
        POSTGRESQL,
    ),
    "a run that is not asked for gaps": (
        rewritten(r"elsif fresh\.low = .* then", "else", "create_topic_functions"),
        LATE,
        POSTGRESQL,
    ),
    "a hole that is forgotten by the end of the snapshot": (
        rewritten(r"horizon = pg_snapshot_xmin\(", "horizon = pg_snapshot_xmax(", "create_topic_functions"),
        HOLES,
        POSTGRESQL,
    ),
    "a hole that is never forgotten": (
        rewritten(r"and bound <= horizon", "and false", "create_topic_functions"),
        HOLES,
        POSTGRESQL,
    ),
}
CHECKS = {check.__name__: check for _, check, _ in MUTANTS.values()} | {
    each.__name__: each for each in (_claims, _fence, HOLDS)
}
OF_ENGINES = {
    f"{kind.name}: {name}": (kind, mutant, check)
    for name, (mutant, check, engines) in MUTANTS.items()
    for kind in KINDS
    if kind.name in engines
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_engine_passes(place: Place, kind: Kind, check: Check) -> None:
    if check in (LATE, HOLES, _waits) and kind.name != "postgresql":
        pytest.skip("It is about the texts of PostgreSQL.")
    check(place, place.open_with(kind.engine_class))


@pytest.mark.parametrize(("kind", "mutant", "check"), OF_ENGINES.values(), ids=OF_ENGINES)
def test_the_mutant_is_noticed(place: Place, kind: Kind, mutant: Mutant, check: Check) -> None:
    engine = mutant(kind.engine_class)
    with pytest.raises(AssertionError) as caught:
        check(place, place.open_with(engine))
    assert "no mutant" not in str(caught.value)
    rewrites: dict[str, int] = getattr(engine, "rewrites", {})
    assert all(rewrites.values()), "the mutant is no mutant: its text is the engine's own"
