"""Names of queues, and of their tables: no two queues ever share a table. Pure: no database here."""

from __future__ import annotations

import hashlib
import itertools
import re
import reprlib
import unicodedata
from collections.abc import Collection

from tablequeue.errors import BadName

CATALOGUE = "tq_queues"
HISTORY = "_history"
PART = "__"
"""The separator between the name of a queue's table and the name of a part, a further table of the queue:
`tq_orders__streams`, `tq_orders__ready`."""

MOVING = f"{PART}moving"
"""The table of the messages that a move to another database has reserved."""

LONGEST_NAME = 255
"""The maximum number of characters of a name in the catalogue; a subscription's name includes its topic:
`events/mail`."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,47}")
# A table's name without the `tq_`. PostgreSQL cuts a name off after 63 bytes: `tq_`, 47 characters, and the longest
# part, `__in_progress`, are 63. A topic leaves room for its subscriptions: `tq_events__s12__in_progress`.
_LONGEST = {"queue": 47, "topic": 40}
_HASH = 10


def check_identifier(name: str, what: str) -> str:
    """Return the name, if it is valid in the SQL of every engine; else `BadName`."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise BadName(
            f"{name!r} cannot name a {what}.",
            "Use 1 to 48 characters: a lower-case letter, then lower-case letters, digits and underscores.",
        )
    return name


def check_table(table: str) -> str:
    """Return the name, if a queue's table can have it; else `BadName`."""
    if not re.fullmatch(r"tq_[a-z0-9][a-z0-9_]*", table):
        raise BadName(f"{table!r} is no table of a queue.", "Use the name that the catalogue has: tq_orders.")
    return table


def check_name(name: str, kind: str = "queue") -> str:
    """Return the name, if a queue, a topic or a subscription within its topic may have it; else `BadName`."""
    if not isinstance(name, str) or not 0 < _length(name) <= LONGEST_NAME or not name.isprintable():
        raise BadName(
            f"{reprlib.repr(name)} cannot name a {kind}.", f"Use 1 to {LONGEST_NAME} characters that can be printed."
        )
    if name != name.strip():
        raise BadName(f"The name {name!r} begins or ends with a space.", "Leave the space out.")
    if "/" in name:
        raise BadName(
            f"The name {name!r} of a {kind} has a slash, which separates a topic from its subscription.",
            "Use another character.",
        )
    if name in (".", ".."):
        raise BadName(f"{name!r} cannot name a {kind}: in the path of a URL it is a folder.", "Use another name.")
    return name


def check_full_name(name: str, kind: str = "queue") -> str:
    """Return the name of a queue or a topic, or a subscription's name with its topic; else `BadName`."""
    topic, slash, subscription = name.partition("/") if isinstance(name, str) else (name, "", "")
    if not slash:
        return check_name(topic, kind)
    return subscription_of(check_name(topic, "topic"), check_name(subscription, "subscription"))


def subscription_of(topic: str, name: str) -> str:
    """Return the name of a subscription in the catalogue: `events/mail`; `BadName` if it is too long."""
    full = f"{topic}/{name}"
    if _length(full) > LONGEST_NAME:
        raise BadName(
            f"The name {reprlib.repr(full)} of a subscription is too long.",
            f"Use at most {LONGEST_NAME} characters, with the topic and the slash.",
        )
    return full


def subscription_table_of(topic_table: str, number: int) -> str:
    """Return the name of the table of a subscription: `tq_events__s1`."""
    return f"{topic_table}{PART}s{number}"


def number_in(subscription_table: str) -> int:
    """Return the number of a subscription, from the name of its table."""
    return int(subscription_table.rpartition(f"{PART}s")[2])


def topic_table_of(subscription_table: str) -> str:
    """Return the name of the topic's table, from the table name of one of its subscriptions."""
    return subscription_table.rpartition(f"{PART}s")[0]


def table_of(name: str, kind: str = "queue", taken: Collection[str] = ()) -> str:
    """Return the name of the table of a new queue or topic, which the catalogue keeps, and which is not in `taken`.

    The names of all existing and all dropped tables are taken: see docs/adr/0064.

    It is `tq_<name>`; the parts of the queue are `tq_<name>_history` and `tq_<name>__<part>`. If that is taken, is no
    valid name of a table, or could be the name of a part of another queue, or leaves no room for the names of parts, it
    is `tq_<what SQL can write of the name>_x<hash>` instead. A name that already looks like this gets such a table too.
    """
    longest = _LONGEST[kind]
    if not _is_odd(name, longest) and f"tq_{name}" not in taken:
        return f"tq_{name}"
    letters = unicodedata.normalize("NFKD", name.lower()).encode("ascii", "ignore").decode()
    stem = re.sub("[^a-z0-9]+", "_", letters[: longest - _HASH - 2]).strip("_") or kind
    # No name has a slash, so no two names have a hash of the same text.
    texts = itertools.chain([name], (f"{name}/{number}" for number in itertools.count(2)))
    tables = (f"tq_{stem}_x{hashlib.sha256(text.encode()).hexdigest()[:_HASH]}" for text in texts)
    return next(table for table in tables if table not in taken)


def _length(name: str) -> int:
    """Return the number of characters, as SQL Server counts them: a character beyond Unicode's first 65,536 counts as
    two."""
    return len(name.encode("utf-16-le", "surrogatepass")) // 2


def _is_odd(name: str, longest: int) -> bool:
    """Whether `tq_<name>` cannot be the name of a table, or could be the table of another queue."""
    return (
        not _IDENTIFIER.fullmatch(name)
        or len(name) > longest
        or PART in name
        or name.endswith(("_", HISTORY))
        or re.search(rf"_x[0-9a-f]{{{_HASH}}}$", name) is not None
        or f"tq_{name}" == CATALOGUE
    )
