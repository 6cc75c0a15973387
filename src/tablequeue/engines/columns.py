"""The lists of a message's columns. The SQL texts name a list instead of repeating its columns.

A text writes `{claimed}` for the list of that name. More of the syntax:

- `{claimed of inserted}` puts `inserted.` before each column;
- `{history_row without token popped_at}` leaves columns out;
- `{claimed with` ends the line, and each line up to the next `}` replaces one column by an expression, as in
  `attempts = attempts + 1`. A single replacement may stay in the line: `{claimed with attempts = attempts + 1}`.

A list that begins its line is wrapped, with the same indentation. The list of a table has one column in a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tablequeue.model.message import CLAIMED, Message

# The columns of a stored message, in the order that peek, dead and history select them, by the names of `Message`.
COLUMNS = list(Message.__dataclass_fields__)
# The same, by their names in the tables.
_STORED = [{"group": "group_key", "key": "dedup_key"}.get(column, column) for column in COLUMNS]

# The columns of a queue's table, and of its history, in their order there, but for those of `ALSO`.
QUEUE_ROW = (
    "id state attempts priority token pushed_at due_at first_popped_at popped_at lease_until group_key dedup_key "
    "producer consumer headers errors payload"
).split()
HISTORY_ROW = (
    "id attempts priority token pushed_at due_at first_popped_at popped_at finished_at group_key dedup_key producer "
    "consumer headers errors payload"
).split()

# Columns that each table declares by itself: their keys, defaults and checks differ.
OWN = "id state attempts priority token pushed_at payload".split()
# What a table has besides the columns of its row, behind the column of that name. Few texts are about these.
ALSO = {
    "queue_table": {"lease_until": ["expires_at", "cancelled_at"]},
    "history_table": {"finished_at": ["outcome"]},
    "moving_table": {"popped_at": ["expires_at"]},
}


def of_table(name: str, row: Iterable[str]) -> list[str]:
    """Return the columns that a table has of the list of that name."""
    return [each for column in row if column not in OWN for each in (column, *ALSO[name].get(column, ()))]


LISTS: Mapping[str, list[str]] = {
    # A message, as COLUMNS: from the queue, and from its history.
    "live_columns": _STORED,
    "history_columns": _STORED,
    # A message of a topic's log that a range has finished, as COLUMNS.
    "log_columns": _STORED,
    # A claimed row, as CLAIMED of model/message.py; the bare names of its columns; and a null for each.
    "claimed": CLAIMED,
    "claimed_names": CLAIMED,
    "claimed_nulls": CLAIMED,
    # A row of the queue, and of its history; and the parameters of operations that are the values of a row.
    "queue_row": QUEUE_ROW,
    "queue_values": QUEUE_ROW,
    "history_row": HISTORY_ROW,
    "history_values": HISTORY_ROW,
    # The columns of tables, with their types: of the queue, of its history, and of what leaves for another database.
    "queue_table": of_table("queue_table", QUEUE_ROW),
    "history_table": of_table("history_table", HISTORY_ROW),
    "moving_table": of_table("moving_table", [column for column in QUEUE_ROW if column != "lease_until"]),
    # The columns with types for what a function returns and for table variables.
    "claimed_types": CLAIMED,
    "message_types": _STORED,
    "history_types": HISTORY_ROW,
}

# The columns that are times.
TIMES = (*(column for column in _STORED if column.endswith(("_at", "_until"))), "expires_at", "cancelled_at")
# The parameters of operations that have other names than their columns.
PARAMETERS = {"group_key": "group", "dedup_key": "key", "due_at": "due"}
# The longest line of a text.
WIDTH = 120

_LIST = re.compile(
    rf"(?m)(^ *)?\{{({'|'.join(LISTS)})"
    r"(?: of (\w+))?(?: without ((?:\w+ ??)+))?(?: with\s+((?:[^{}]|\{\w+\})*))?\}"
)


def common_expressions(time: str) -> dict[str, dict[str, str]]:
    """Return the expressions that replace columns on every engine. `time` is a null of the type of times."""
    state = "coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state"
    return {
        "claimed_nulls": dict.fromkeys(CLAIMED, "null"),
        "queue_values": {column: f":{PARAMETERS.get(column, column)}" for column in QUEUE_ROW},
        "history_values": {column: f":{PARAMETERS.get(column, column)}" for column in HISTORY_ROW},
        "live_columns": {"finished_at": f"{time} as finished_at"},
        "history_columns": {"state": state, "lease_until": f"{time} as lease_until"},
        "log_columns": {
            "state": "'finished' as state",
            "attempts": "1 as attempts",
            "priority": "0 as priority",
            "dedup_key": "null as dedup_key",
            "due_at": f"{time} as due_at",
            "first_popped_at": "popped_at as first_popped_at",
            "lease_until": f"{time} as lease_until",
            "errors": "null as errors",
        },
    }


def typed(types: Mapping[str, str]) -> dict[str, str]:
    """Return each column with its type, for the lists that have types."""
    return {column: f"{column} {kind}" for column, kind in types.items()}


def tables(types: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the expressions of the lists of tables."""
    return dict.fromkeys(ALSO, typed(types))


def listed(text: str, expressions: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text with its lists filled in.

    `expressions` replace columns of a list; `{}` in one stands for the prefix of the column, as in `inserted.`.
    """

    def columns(match: re.Match[str]) -> str:
        indent, name, of, without, replaced = match.groups()
        names = [column for column in LISTS[name] if column not in (without or "").split()]
        prefix = f"{of}." if of else ""
        values = {column: expression.replace("{}", prefix) for column, expression in expressions.get(name, {}).items()}
        for line in (replaced or "").splitlines():
            column, _, expression = line.strip().partition(" = ")
            if column not in names:
                raise ValueError(f"{{{name}}} has no column {column!r}.")
            values[column] = expression
        if name in ALSO:
            return ",\n".join(f"{indent}{values[column]}" for column in names)
        items = [values.get(column, prefix + column) for column in names]
        return ", ".join(items) if indent is None else filled(items, indent)

    return _LIST.sub(columns, text)


def filled(items: Iterable[str], indent: str) -> str:
    """Return the items in lines that are as long as allowed. A line ends between two items."""
    lines = [""]
    for item in items:
        if lines[-1] and len(f"{indent}{lines[-1]} {item},") > WIDTH:
            lines.append("")
        lines[-1] += f" {item}," if lines[-1] else f"{item},"
    return "\n".join(indent + line for line in lines)[:-1]
