"""The table of all operations. The runner, `tablequeue sql`, upgrades and tests read them.

An operation is a method of an engine. Its SQL is the text of its name in `sql/`, or several texts. Over 400 lines,
because it is one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from tablequeue.engines.conditions import conditions
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import Definition


class Effect(Enum):
    """What an operation does, and whether it needs a transaction around it."""

    READ = "changes nothing; runs in autocommit"
    UPKEEP = "as WRITE, and if it runs twice, all is as if it had run once"
    WRITE = "changes messages; on a server it is one statement, or sees to its transaction by itself"
    STEP = "changes messages or rows about them, as a part of a transaction"
    DDL = "makes, changes or drops tables, in a transaction where the database can"


class Operation(NamedTuple):
    """One row of the table."""

    effect: Effect
    texts: Mapping[str, str] = MappingProxyType({})
    """The texts of its SQL, in the order in which they run, each with the `conditions` that a definition must meet.

    An engine need not have all of them. Empty: the text of the operation's name, if there is one.
    """
    others: str = ""
    """Texts that are not operations, which some engines or all of them run in addition or instead."""
    printed: str = ""
    """Its name in `tablequeue sql`, if that differs."""

    @property
    def repeatable(self) -> bool:
        """Whether it may run again if it is not known whether it took effect, because its connection broke."""
        return self.effect in (Effect.READ, Effect.UPKEEP)


# The texts that create a queue, in the order in which they run.
CREATE = {
    "create_topic": "topic",
    "create_parts": "topic",
    "create_topic_functions": "topic",
    "create_topic_groups": "topic groups",
    "create": "states",
    "create_due": "due",
    "create_priority": "priority",
    "create_fair": "fair",
    "create_groups": "grouped",
    "create_group_functions": "grouped",
    "create_group_triggers": "grouped",
    "create_heads": "grouped",
    "create_history": "keep",
    "create_results": "results",
    "create_keys": "unique_for",
    "create_expiry": "expires",
    "create_expired": "expires keep",
    "create_ranges": "subscription",
    "create_range_functions": "subscription",
    "create_slots": "concurrency",
    "create_rate": "rate",
    "create_stripes": "group_limited",
    "create_group_rates": "group_rate",
    "create_batches": "batches",
    "create_batch_results": "batches results",
    "create_dependencies": "dependencies",
}

# The texts that upgrade a queue to each schema version from the one before, with their conditions. There is only
# version 1 so far.
UPGRADES: dict[int, Mapping[str, str]] = {}

# What detaches messages from a range.
_DETACH = dict.fromkeys(("range_hold", "range_detach", "range_mark"), "ranges")
_LOCKED = {"lock": ""}
_UNLOCKED = {"unlock": ""}


# What a claim of a queue with limits runs before and after it, on engines where its own text does not do it.
_GRANTED = {"grant_rate": "rate", "lock_slots": "concurrency"}
_SPENT = {"note_slots": "concurrency", "spend_rate": "rate", "spend_group_rates": "group_rate"}
# What a claim of a fair queue runs before and after it: it learns and notes the group that was served last. On most
# engines Python does, and the texts are only printed.
_BEGUN, _SERVED = {"begin_ring": "fair"}, {"move_ring": "fair"}


def _made(*texts: str) -> Operation:
    """Return the operation that creates tables at their first use, one creator at a time."""
    return Operation(Effect.DDL, _LOCKED | dict.fromkeys(texts, "") | _UNLOCKED)


# Some others are only printed, never run. `unlock`: a connection of ours frees its locks when it commits. The
# notifications of SQL Server are for consumers in T-SQL (docs/engines/sql-server.md): the engine itself polls, because
# they have not been tested on a server yet.
OPERATIONS: Mapping[str, Operation] = {
    # The catalogue, and what is made
    "has_table": Operation(Effect.READ),
    "has_schema": Operation(Effect.READ),
    "has_catalogue": Operation(Effect.READ, others="has_table"),
    "lookup": Operation(Effect.READ),
    "names": Operation(Effect.READ),
    "dropped": Operation(Effect.READ),
    "identity": Operation(Effect.READ),
    "lock": Operation(Effect.DDL, others="unlock"),
    "install": Operation(Effect.DDL, others="install_schema"),
    "create": Operation(
        Effect.DDL,
        {
            **_LOCKED,
            "install_schema": "schema",
            "install": "",
            "unused": "",
            **CREATE,
            "register": "",
            **_UNLOCKED,
        },
        others="leftovers leftovers_of_dropped create_notifications",
    ),
    "create_streams": _made("create_streams"),
    "create_staged": _made("create_staged"),
    "create_schedules": _made("create_schedules"),
    "create_moving": _made("create_moving"),
    "create_progress": _made("create_progress"),
    "create_task_results": _made("create_task_results"),
    "redefine": Operation(
        Effect.DDL,
        {**_LOCKED, "resize_slots": "concurrency", "change_rate": "rate", "redefine": "", **_UNLOCKED},
        others="limit_waits",
    ),
    "upgrade": Operation(Effect.DDL, _LOCKED | {"upgrade": "", "set_version": ""} | _UNLOCKED),
    "renew_identity": Operation(Effect.DDL, _LOCKED | {"renew_identity": ""} | _UNLOCKED),
    "rename": Operation(Effect.DDL, _LOCKED | {"rename": ""} | _UNLOCKED),
    "drop": Operation(
        Effect.DDL,
        {
            "drop_progress": "states",  # first, as a report locks it before the queue
            "drop_topic": "topic",
            "drop_ranges": "subscription",
            "drop": "states",
            "drop_fair": "fair",
            "drop_groups": "grouped",
            # What is switched off keeps its tables: see `Catalogue.redefine`.
            "drop_results": "queue",
            "drop_history": "keep",
            "drop_slots": "queue",
            "drop_rate": "queue",
            "drop_stripes": "group_limited",
            "drop_group_rates": "group_rate",
            "drop_keys": "queue",
            "drop_batches": "batches",
            "drop_dependencies": "dependencies",
            "drop_streams": "",
            "resume": "",
            "note_dropped": "",
            "unregister": "",
        },
        others="drop_notifications",
    ),
    # Pushes
    "push": Operation(Effect.WRITE, {"push": "queue", "topic_push": "topic"}, others="push_clock push_rows"),
    "push_many": Operation(
        Effect.WRITE,
        {"push_many": "queue", "topic_push_many": "topic"},
        others="push_reserve push_copy push_clock push_rows topic_push_rows topic_reserve topic_copy",
    ),
    "push_each": Operation(
        Effect.STEP,
        {"push_each": "queue", "topic_push_each": "topic"},
        others="push_clock push_rows topic_push_rows",
    ),
    "move": Operation(Effect.STEP),
    "find_keys": Operation(Effect.READ),
    "take_keys": Operation(Effect.STEP),
    "end_keys": Operation(Effect.STEP, others="end_live_keys"),
    "name_keys": Operation(Effect.STEP),
    "taken_keys": Operation(Effect.READ),
    "forget_keys": Operation(Effect.UPKEEP),
    "forget_rate": Operation(Effect.UPKEEP),
    "forget_rates": Operation(Effect.UPKEEP),
    "notify": Operation(Effect.STEP, others="attend leave send_notification wait_for_notification"),
    # Topics, and the positions of their subscriptions
    "sequence": Operation(Effect.WRITE),
    "close_holes": Operation(Effect.UPKEEP),
    "bounds": Operation(Effect.READ, {"topic_bounds": ""}),
    "pushed_at": Operation(Effect.READ, {"topic_pushed_at": ""}),
    "topic_rows": Operation(Effect.READ),
    "size": Operation(Effect.READ, {"topic_size": ""}),
    "settle": Operation(Effect.WRITE, others="sequence_lock topic_flush"),
    "trim": Operation(Effect.WRITE, {"topic_trim": ""}),
    "purge_ranges": Operation(Effect.UPKEEP, {"range_purge": ""}),
    "expire_ranges": Operation(Effect.UPKEEP, others="range_expired range_expire"),
    "floor": Operation(Effect.READ, {"range_floor": ""}),
    "seek": Operation(
        Effect.WRITE,
        {"range_seek": "", "range_absorb": ""},
        others="range_wait range_end_leases range_remaining",
    ),
    "position": Operation(Effect.READ, {"range_position": ""}),
    "note_position": Operation(Effect.WRITE, {"range_note": ""}, others="range_wait"),
    "progress": Operation(Effect.READ, {"range_stats": ""}),
    "pump": Operation(
        Effect.WRITE, {"range_pump": ""}, others="range_lock range_last range_stay create_range_functions"
    ),
    # Claims
    "claim": Operation(
        Effect.WRITE,
        _BEGUN
        | _GRANTED
        | {"claim": "at_least_once", "take": "at_most_once", "range_claim": "ranges"}
        | {"read_claimed": "contended at_least_once", "read_taken": "contended at_most_once"}
        | _SPENT
        | _SERVED,
        others="claim_find claim_many claim_ring claim_alone claim_rooms find_in_turn lock_stripes note_stripes "
        "free_slots claim_held claim_counts isolation_level lock_seen_slots lock_seen_stripes",
        printed="pop",
    ),
    "claim_run": Operation(
        Effect.WRITE,
        _GRANTED | {"claim_limit": "", "claim_run": "", "claimed": ""} | _SPENT,
        printed="pop_same_group",
    ),
    "claim_group": Operation(Effect.WRITE, {"claim_group": "", "claimed": ""}, printed="pop_group"),
    "take": Operation(
        Effect.WRITE,
        _BEGUN
        | {"grant_rate": "rate", "take": "queue", "spend_rate": "rate", "spend_group_rates": "group_rate"}
        | _SERVED,
    ),
    "put_back": Operation(Effect.STEP, others="forget"),
    "sweep": Operation(
        Effect.UPKEEP,
        {"range_due": "ranges", "range_expired": "ranges", "range_expire": "ranges", "sweep": ""}
        | {"move_dead": "dead_letter_to"},
    ),
    "expire": Operation(Effect.UPKEEP, {"expire": "", "move_dead": "none dead_letter_to"}),
    "promote": Operation(Effect.UPKEEP),
    "close_slots": Operation(Effect.UPKEEP),
    "pause": Operation(Effect.UPKEEP),
    "resume": Operation(Effect.UPKEEP),
    "paused": Operation(Effect.READ),
    # Finishing
    "complete": Operation(
        Effect.WRITE,
        {
            "range_complete": "ranges",
            "complete": "at_least_once",
            "complete_at_most_once": "at_most_once",
        },
        others="range_id",
    ),
    "complete_stream": Operation(Effect.STEP),
    "complete_and_claim": Operation(Effect.STEP, {"complete_and_claim": "unlimited"}),
    "keep_results": Operation(Effect.STEP),
    "notify_results": Operation(Effect.STEP),
    "result": Operation(Effect.READ),
    "fail": Operation(
        Effect.WRITE,
        _DETACH | {"fail": "at_least_once", "fail_at_most_once": "at_most_once", "move_dead": "dead_letter_to"},
        others="fail_state",
    ),
    "release": Operation(Effect.WRITE, _DETACH | {"release": ""}),
    "extend": Operation(Effect.UPKEEP, {"range_extend": "ranges", "extend": ""}),
    # Changing
    "cancel": Operation(Effect.WRITE),
    "cancel_held": Operation(Effect.WRITE),
    "told": Operation(Effect.READ),
    "holder": Operation(Effect.READ),
    "reschedule": Operation(Effect.WRITE),
    # Maintenance
    "redrive": Operation(Effect.WRITE),
    "redrive_ids": Operation(Effect.WRITE),
    "move_back": Operation(Effect.STEP),
    "purge": Operation(Effect.WRITE),
    "purge_ids": Operation(Effect.WRITE),
    "purge_history": Operation(Effect.WRITE),
    "purge_history_ids": Operation(Effect.UPKEEP),
    # Looking
    "peek": Operation(
        Effect.READ,
        {"range_peek_ready": "ranges", "range_peek_in_progress": "ranges", "peek": ""},
        others="range_ready",
    ),
    "find": Operation(Effect.READ, {"find": "", "range_find": "subscription"}),
    "in_log": Operation(Effect.READ, others="range_find"),
    "until_next": Operation(Effect.READ, {"until_next": "queue", "range_until_next": "subscription"}),
    "history": Operation(Effect.READ),
    "history_bounds": Operation(Effect.READ),
    "lost": Operation(Effect.READ),
    "stats": Operation(
        Effect.READ,
        {
            "stats": "",
            "stats_history": "keep",
            "stats_lost": "at_most_once",
            "stats_finished": "keep",
            "stats_failed": "keep",
            "stats_pushed": "keep",
            "stats_expired": "expires keep",
            "stats_batches": "batches",
        },
    ),
    "of_many": Operation(Effect.READ, others="holding"),
    "stats_finished": Operation(Effect.READ, others="range_stats_finished"),
    "stats_failed": Operation(Effect.READ),
    "stats_pushed": Operation(Effect.READ, others="topic_stats_pushed"),
    "stats_lost": Operation(Effect.READ),
    "check": Operation(Effect.READ, others="note note_staged server session place check_session"),
    "missing_indexes": Operation(Effect.READ, others="indexes"),
    "read_clock": Operation(Effect.READ),
    "sizes": Operation(Effect.READ),
    # Schedules
    "enter_schedule": Operation(Effect.STEP),
    "schedule_state": Operation(Effect.STEP),
    "advance_schedule": Operation(Effect.STEP),
    "schedules": Operation(Effect.READ),
    "rerun_schedule": Operation(Effect.UPKEEP),
    # Streams, and writes of many processes
    "live": Operation(Effect.READ, others="range_live"),
    "live_bounds": Operation(Effect.READ, others="range_live_bounds"),
    "finished": Operation(Effect.READ, others="range_finished"),
    "finished_bounds": Operation(Effect.READ, others="range_finished_bounds"),
    "archivable": Operation(Effect.READ),
    "literal": Operation(Effect.READ),
    "stream_open": Operation(Effect.STEP),
    "stream_lock": Operation(Effect.STEP),
    "stream_set": Operation(Effect.STEP),
    "stream_claim": Operation(Effect.STEP),
    "stream_ids": Operation(Effect.READ),
    "stream_rows": Operation(Effect.READ),
    "streams": Operation(Effect.READ),
    "stage": Operation(Effect.STEP, others="topic_stage_reserve topic_stage_copied topic_stage_copy"),
    "staged_count": Operation(Effect.READ),
    "staged_taken": Operation(Effect.READ),
    "writer_advance": Operation(Effect.STEP),
    "writer_last": Operation(Effect.READ),
    "publish": Operation(Effect.STEP, {"publish": "queue", "publish_topic": "topic"}, others="publish_keyed"),
    "unstage": Operation(Effect.STEP, {"unstage": ""}, others="topic_unstage"),
    # Batches
    "open_batch": Operation(Effect.STEP),
    "batch_of": Operation(Effect.STEP),
    "batches_of": Operation(Effect.STEP),
    "count_batch": Operation(Effect.STEP),
    "find_batch": Operation(Effect.READ),
    "open_batches": Operation(Effect.READ),
    "lock_batch": Operation(Effect.STEP),
    "note_failed": Operation(Effect.STEP),
    "end_batch": Operation(Effect.STEP),
    "batch_progress": Operation(Effect.READ),
    "batches_progress": Operation(Effect.READ),
    "batch_results": Operation(Effect.READ),
    "uncancelled": Operation(Effect.READ),
    "forget_batches": Operation(Effect.UPKEEP),
    # Dependencies
    "add_dependencies": Operation(Effect.STEP),
    "existing_ids": Operation(Effect.READ),
    "awaited_tables": Operation(Effect.READ),
    "waits_for": Operation(Effect.READ),
    "is_awaited": Operation(Effect.READ),
    "ended_dependencies": Operation(Effect.READ),
    "orphaned_dependencies": Operation(Effect.READ),
    "freed_heads": Operation(Effect.READ),
    "free_heads": Operation(Effect.UPKEEP),
    "waiting_fronts": Operation(Effect.READ),
    "block_fronts": Operation(Effect.UPKEEP),
    "forget_dependencies": Operation(Effect.UPKEEP),
    # Progress of messages
    "report_progress": Operation(Effect.UPKEEP),
    "reported_progress": Operation(Effect.READ),
    "forget_progress": Operation(Effect.UPKEEP),
    # Results of tasks, and chords
    "store_result": Operation(Effect.UPKEEP),
    "store_part": Operation(Effect.UPKEEP),
    "read_results": Operation(Effect.READ),
    "forget_result": Operation(Effect.UPKEEP),
    "open_chord": Operation(Effect.UPKEEP),
    "size_chord": Operation(Effect.UPKEEP),
    "add_to_chord": Operation(Effect.WRITE),
    "claim_chord": Operation(Effect.UPKEEP),
    "chord_parts": Operation(Effect.READ),
    "complete_chords": Operation(Effect.READ),
    "end_chord": Operation(Effect.STEP, others="forget_parts"),
    "expire_results": Operation(Effect.UPKEEP),
    # Moves between databases
    "waiting": Operation(Effect.STEP),
    "busy_groups": Operation(Effect.READ),
    "set_aside": Operation(Effect.STEP),
    "aside": Operation(Effect.READ),
    "forget_aside": Operation(Effect.WRITE),
    "find_moved": Operation(Effect.READ),
    "put_aside": Operation(Effect.STEP),
    "note_moved": Operation(Effect.STEP),
    "put_history": Operation(Effect.STEP),
}


def in_autocommit(*steps: str, writes: bool = True) -> frozenset[str]:
    """Return the operations that an engine runs in autocommit: reads, the given `steps`, and writes on a server."""
    effects = {Effect.READ, Effect.UPKEEP, Effect.WRITE} if writes else {Effect.READ}
    return frozenset({*steps, *(name for name, operation in OPERATIONS.items() if operation.effect in effects)})


def texts_for(engine: str, texts: Mapping[str, str], true: Set[str]) -> list[str]:
    """Return the names of `texts` that the engine has and whose conditions are all in `true`."""
    available = operations_of(engine)
    return [text for text, needed in texts.items() if text in available and {*needed.split()} <= true]


def created_by(engine: str, definition: Definition) -> list[str]:
    """Return the texts that create the tables of a queue of that definition, in the order in which they run."""
    return texts_for(engine, CREATE, conditions(definition))
