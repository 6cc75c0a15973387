"""The states of a message, and every transition from one to another.

The SQL of the engines moves messages; this table lists all transitions. tests/test_states.py compares it with the
texts of every engine and with what real databases do, in both directions. ARCHITECTURE.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

LiveState = Literal["ready", "scheduled", "in_progress", "dead", "blocked"]
"""The state of a message that is in the queue, and not in its history."""
State = LiveState | Literal["finished", "cancelled", "expired"]
"""The state of a message. In the history it is finished, cancelled or expired."""
FailedState = Literal["ready", "scheduled", "blocked", "dead", "lost", "cancelled"]
"""The state of a message after a failed attempt. It is blocked until the other messages of its claim are finished."""
Start = Literal["new"]
End = Literal["deleted"]

STATES: tuple[LiveState, ...] = get_args(LiveState)
HEAD_STATES: tuple[LiveState, ...] = ("ready", "scheduled", "in_progress")
"""The states of a message that is the head of its group: at most one message of a group is in one of them."""
WAITING_STATES: tuple[LiveState, ...] = ("blocked", "ready", "scheduled")
"""The states of a message that waits for a consumer."""


class Transition(NamedTuple):
    """One transition from a state to another."""

    source: State | Start | End
    verb: str
    target: State | End
    queues: str = ""
    """In which queues: names of `engines.conditions.conditions`, which must all be true, or false after `not`."""
    when: str = ""
    """For which messages, if not for all that are in the state."""


# The engines' operations for each verb. A `take` with a token is a claim of a queue that delivers at most once.
VERBS: Mapping[str, str] = {
    "push": "push push_many push_each publish pump",
    "move": "move",
    "claim": "claim claim_run claim_group complete_and_claim stream_claim",
    "take": "take",
    "put_back": "put_back",
    "complete": "complete complete_and_claim",
    "fail": "fail",
    "release": "release",
    "sweep": "sweep block_fronts",
    "expire": "expire",
    "promote": "promote",
    "redrive": "redrive redrive_ids move_back",
    "cancel": "cancel",
    "reschedule": "reschedule",
    "purge": "purge purge_ids",
    "purge_history": "purge_history purge_history_ids",
}

# In the history of a queue that delivers at most once, a message that was not completed is in progress, too.
TRANSITIONS: tuple[Transition, ...] = (
    Transition("new", "push", "ready", "not grouped", "due at once"),
    Transition("new", "push", "scheduled", "not grouped", "due later"),
    Transition("new", "push", "blocked", "grouped"),
    Transition("ready", "claim", "in_progress"),
    Transition("ready", "take", "finished", "keep"),
    Transition("ready", "take", "deleted", "none"),
    Transition("ready", "cancel", "cancelled", "keep"),
    Transition("ready", "cancel", "deleted", "none"),
    Transition("ready", "reschedule", "scheduled", "", "due later"),
    Transition("ready", "purge", "deleted"),
    # A move is the end of a message in one queue, and its beginning in another.
    Transition("new", "move", "ready", "not grouped", "due"),
    Transition("new", "move", "scheduled", "not grouped", "due later"),
    Transition("new", "move", "blocked", "grouped"),
    Transition("new", "move", "dead", "", "dead before"),
    Transition("ready", "move", "deleted"),
    Transition("scheduled", "move", "deleted"),
    Transition("blocked", "move", "deleted", "grouped"),
    Transition("dead", "move", "deleted"),
    Transition("scheduled", "sweep", "ready", "", "due"),
    Transition("scheduled", "sweep", "blocked", "grouped dependencies", "it waits for others, behind a redriven one"),
    Transition("scheduled", "claim", "in_progress", "due", "due"),
    Transition("scheduled", "take", "finished", "due keep", "due"),
    Transition("scheduled", "take", "deleted", "due none", "due"),
    Transition("scheduled", "cancel", "cancelled", "keep"),
    Transition("scheduled", "cancel", "deleted", "none"),
    Transition("scheduled", "reschedule", "ready", "", "due at once"),
    Transition("scheduled", "purge", "deleted"),
    Transition("in_progress", "complete", "finished", "keep"),
    Transition("in_progress", "complete", "deleted", "none"),
    Transition("in_progress", "fail", "ready", "at_least_once", "attempts left, no delay"),
    Transition("in_progress", "fail", "scheduled", "at_least_once", "attempts left, a delay"),
    Transition("in_progress", "fail", "dead", "at_least_once", "no attempts left"),
    Transition("in_progress", "fail", "deleted", "dead_letter_to", "no attempts left"),
    Transition("in_progress", "fail", "blocked", "grouped", "attempts left, in a run"),
    Transition("in_progress", "release", "ready", "at_least_once", "no delay"),
    Transition("in_progress", "release", "scheduled", "at_least_once", "a delay"),
    Transition("in_progress", "release", "blocked", "grouped", "in a run"),
    Transition("in_progress", "sweep", "ready", "at_least_once", "lease expired, attempts left"),
    Transition("in_progress", "sweep", "blocked", "grouped", "lease expired, attempts left, in a run"),
    Transition("in_progress", "sweep", "dead", "at_least_once", "lease expired, no attempts left"),
    Transition("in_progress", "sweep", "deleted", "dead_letter_to", "lease expired, no attempts left"),
    Transition("in_progress", "fail", "cancelled", "at_least_once keep", "told to stop"),
    Transition("in_progress", "fail", "deleted", "at_least_once none", "told to stop"),
    Transition("in_progress", "release", "cancelled", "at_least_once keep", "told to stop"),
    Transition("in_progress", "release", "deleted", "at_least_once none", "told to stop"),
    Transition("in_progress", "sweep", "cancelled", "at_least_once keep", "told to stop, lease expired"),
    Transition("in_progress", "sweep", "deleted", "at_least_once none", "told to stop, lease expired"),
    Transition("in_progress", "purge_history", "deleted", "at_most_once"),
    Transition("blocked", "claim", "in_progress", "grouped", "due, in a run"),
    Transition("blocked", "promote", "ready", "grouped", "due"),
    Transition("blocked", "promote", "scheduled", "grouped", "due later"),
    Transition("blocked", "cancel", "cancelled", "grouped keep"),
    Transition("blocked", "cancel", "deleted", "grouped none"),
    Transition("blocked", "purge", "deleted", "grouped"),
    Transition("dead", "redrive", "ready", "not grouped"),
    Transition("dead", "redrive", "blocked", "grouped"),
    Transition("dead", "cancel", "cancelled", "keep"),
    Transition("dead", "cancel", "deleted", "none"),
    Transition("dead", "purge", "deleted"),
    Transition("ready", "expire", "expired", "expires keep"),
    Transition("ready", "expire", "dead", "expires none"),
    Transition("scheduled", "expire", "expired", "expires keep"),
    Transition("scheduled", "expire", "dead", "expires none"),
    Transition("blocked", "expire", "expired", "expires keep grouped"),
    Transition("blocked", "expire", "dead", "expires none grouped"),
    Transition("expired", "purge_history", "deleted", "expires keep"),
    Transition("finished", "purge_history", "deleted", "keep"),
    Transition("cancelled", "purge_history", "deleted", "keep"),
    # In the transaction of the take, if the caller cannot read the payload.
    Transition("finished", "put_back", "dead", "keep", "payload unreadable"),
    Transition("deleted", "put_back", "dead", "none", "payload unreadable"),
)
