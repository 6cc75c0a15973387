"""The table of all stored procedures. `procedures.py`, `tablequeue sql` and tests read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Procedure(NamedTuple):
    """One stored procedure of a queue. Its template is the text of its name in `procedures/`, if the engine has it."""

    role: str = ""
    """The kind of role that may call it; "": other procedures call it."""
    needs: str = ""
    """The conditions that a queue's definition meets, as a line of conditions in a text names them."""
    of: str = "queue"
    """The kinds of definitions that have it."""


# The kinds that have the procedures which claim and finish messages.
_CLAIMED = "queue subscription"


# In the order in which they are created: a procedure comes before those that call it. On SQL Server procedures and
# tables share one name space. So history is read_history there, and inner procedures have names that no queue's table
# can have: `tq_orders__sweep`. A topic has some templates of its own: topic_push makes `tq_events_push`.
PROCEDURES: Mapping[str, Procedure] = {
    "_due": Procedure(),
    "_move_dead": Procedure(needs="dead_letter_to"),
    "_expire": Procedure(needs="expires"),
    "_expired": Procedure(),
    "_grant_rate": Procedure(needs="rate"),
    "_insert_each": Procedure(),
    "_lock_slots": Procedure(needs="concurrency"),
    "_move_on": Procedure(needs="grouped"),
    "_note_slots": Procedure(needs="concurrency"),
    "_outdated": Procedure(needs="retention"),
    "_peek_blocked": Procedure(),
    "_peek_dead": Procedure(),
    "_peek_in_progress": Procedure(),
    "_peek_ready": Procedure(),
    "_peek_scheduled": Procedure(),
    "_promote": Procedure(needs="grouped"),
    "_spend_group_rates": Procedure(needs="group_rate"),
    "_spend_rate": Procedure(needs="rate"),
    "_sweep": Procedure(),
    "_cancel_held": Procedure(needs="at_least_once"),
    "begin": Procedure(),
    "check": Procedure(),
    "characters": Procedure(of="queue topic"),
    "cancel_held": Procedure(needs="at_least_once"),
    "claim_turn": Procedure(needs="fair limited or at_most_once fair"),
    "take_turn": Procedure(needs="fair limited or fair keep"),
    "claim": Procedure(of=_CLAIMED),
    "find_in_turn": Procedure(needs="fair"),
    "find": Procedure(),
    "insert": Procedure(),
    "list": Procedure(of="queue topic"),
    "move_on": Procedure(needs="grouped"),
    "notify": Procedure(of="queue topic subscription"),
    "options": Procedure(),
    "promote": Procedure(needs="grouped", of=_CLAIMED),
    "push_one": Procedure(),
    "push_all": Procedure(),
    "remove": Procedure(),
    "sweep": Procedure(of=_CLAIMED),
    "undo": Procedure(),
    "unpack": Procedure(needs="at_least_once", of=_CLAIMED),
    "move_apart": Procedure(of="subscription"),
    "set_apart": Procedure(of="subscription"),
    "push": Procedure("producer"),
    "push_many": Procedure("producer"),
    "push_each": Procedure("producer"),
    "cancel": Procedure("producer"),
    "topic_push": Procedure("producer", of="topic"),
    "topic_push_many": Procedure("producer", of="topic"),
    "pop": Procedure("consumer", of=_CLAIMED),
    "take": Procedure("consumer"),
    "look": Procedure("consumer"),
    "wait": Procedure("consumer"),
    "complete": Procedure("consumer", of=_CLAIMED),
    "fail": Procedure("consumer", of=_CLAIMED),
    "release": Procedure("consumer", "at_least_once", of=_CLAIMED),
    "extend": Procedure("consumer", "at_least_once", of=_CLAIMED),
    "stats": Procedure("observer", of=_CLAIMED),
    "peek": Procedure("observer"),
    "history": Procedure("observer", "keep"),
    "read_history": Procedure("observer", "keep"),
    "lost": Procedure("observer", "at_most_once"),
}
