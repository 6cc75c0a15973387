"""Names of queues, and of their tables: no two queues ever share a table. Pure: no database here."""

from __future__ import annotations

import hashlib
import re

from tablequeue.errors import BadName

CATALOGUE = "tq_queues"
HISTORY = "_history"
PART = "__"
"""What separates the name of a queue's table from that of a part: `tq_orders__streams`, `tq_orders__ready`."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
# The table of a queue of this name would be the catalogue.
_RESERVED = frozenset({CATALOGUE.removeprefix("tq_")})
# Characters of the name of a topic: its subscriptions have tables of longer names, as `tq_events__s12__packs_lease`.
LONGEST_TOPIC = 40
# PostgreSQL cuts a name off after 63 bytes: `tq_`, 47 characters, and the longest part, `__packs_lease`, are 63.
_LONGEST = 47
_HASH = 10


def check_name(name: str, what: str = "queue") -> str:
    """Return the name, if it can name a table on every engine; else `BadName`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} cannot name a {what}.",
            "Use 1 to 48 characters: a lower-case letter, then lower-case letters, digits and underscores.",
        )
    if what == "topic" and len(name) > LONGEST_TOPIC:
        raise BadName(f"{name!r} is too long for a topic.", f"Use at most {LONGEST_TOPIC} characters.")
    if what in ("queue", "topic") and name in _RESERVED:
        raise BadName(f"{name!r} is reserved for the catalogue of queues.", "Choose another name.")
    return name


def check_full_name(name: str, what: str = "queue") -> str:
    """Return the name of a queue or a topic, or that of a subscription with its topic; else `BadName`."""
    topic, slash, subscription = name.partition("/") if isinstance(name, str) else (name, "", "")
    check_name(topic, what)
    if slash:
        check_name(subscription, "subscription")
    return name


def subscription_of(topic: str, name: str) -> str:
    """Return the name of a subscription in the catalogue: `events/mail`."""
    return f"{topic}/{name}"


def subscription_table_of(topic_table: str, number: int) -> str:
    """Return the name of the table of a subscription: `tq_events__s1`."""
    return f"{topic_table}{PART}s{number}"


def topic_table_of(subscription_table: str) -> str:
    """Return the name of the topic's table, from that of one of its subscriptions."""
    return subscription_table.rpartition(f"{PART}s")[0]


def table_of(name: str) -> str:
    """Return the name of a new queue's table, which the catalogue keeps.

    It is `tq_<name>`; the parts of the queue are `tq_<name>_history` and `tq_<name>__<part>`. If that could be the name
    of a part of another queue, or leaves no room for the names of parts, it is `tq_<start of the name>_x<hash>`
    instead. So it is for a name that already looks like that.
    """
    odd = PART in name or name.endswith(("_", HISTORY)) or len(name) > _LONGEST
    if not odd and not re.search(rf"_x[0-9a-f]{{{_HASH}}}$", name):
        return f"tq_{name}"
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    stem = re.sub("_+", "_", name[: _LONGEST - _HASH - 2]).rstrip("_")
    return f"tq_{stem}_x{digest}"
