"""Scripts of claims and promotions: what the library would send, written down.

Python composes such a packet. The same Python composes the script, so the two cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tablequeue.engines.mysql.messages import MySQLMessages
from tablequeue.engines.mysql.packets import stored
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row, meets

_PARAMETER = re.compile(r"%\((\w+)\)s|%%")
# The most places of a queue: a script looks at all of them, whatever `n` is.
PLACES = 10_000


class Composed(NamedTuple):
    """An operation that Python composes."""

    run: Callable[[MySQLMessages, Any, Table, Params], Any]
    needs: str = ""
    """The conditions of its queues, as in a text."""
    found: Mapping[str, Row] = {}
    """The row that a look finds, by the name of its text: Python goes on after it."""
    answer: Sequence[Row] = ()
    """What the packet answers."""


_LOOKS = {"claim_ring": (0, 0), "claim_rooms": (0, 0, 1, 0)}
COMPOSED: Mapping[str, Sequence[Composed]] = {
    "pop": (
        Composed(MySQLMessages.claim, "fair at_least_once or limited at_least_once", _LOOKS),
        Composed(MySQLMessages.take, "queue at_most_once", _LOOKS),
    ),
    "pop_same_group": (Composed(MySQLMessages.claim_run),),
    "pop_group": (Composed(MySQLMessages.claim_group),),
    "promote": (Composed(MySQLMessages.promote, "", {"promote.find": (0,)}, [(0,)]),),
}
"""By the name that is printed."""


class Given(int):
    """A number that the caller gives. It is written as a parameter."""

    name: str

    def __new__(cls, name: str, value: int = 0) -> Given:
        given = super().__new__(cls, value)
        given.name = name
        return given

    def __sub__(self, other: int) -> int:
        return int(self) - other if other else self


class Script:
    """A cursor of no connection, which notes the statements that it gets, with `:name` parameters."""

    ours = True
    host_info = db = ""

    def __init__(self, table: Table, one: Composed) -> None:
        self.statements: list[str] = []
        self.looks: dict[str, list[str]] = {}
        """The statements of each look whose rows the other ones need."""
        self.connection = self
        self._table, self._one = table, one
        self._row: Row = ()

    def get_autocommit(self) -> bool:
        return True

    def execute(self, statement: str, params: Mapping[str, Any]) -> None:
        asked = (name for name in self._one.found if name.partition(".")[0] in self._table.used)
        (name,) = [name for name in asked if self._table.statement(name) == statement]
        self._row = self._one.found[name]
        noted = self.looks.setdefault(name, []) if name in _LOOKS else self.statements
        if (written := self.mogrify(statement, params)) not in noted:
            noted.append(written)

    def in_turn(self, params: Mapping[str, Any]) -> list[str]:
        """Return the statements of a claim in turn, with SQL in place of what Python does between them."""
        looks = "\n) union all (\n".join(self.looks["claim_ring"])
        found = [stored(f"(\n{looks}\n)", tq_looked="json_arrayagg(json_array(id, slot))")]
        for rooms in self.looks.get("claim_rooms", ()):
            found.append(self._table.statement("find_in_turn.slots"))
            found.append(stored(rooms, tq_rooms="json_arrayagg(json_array(slot, claims, room))"))
        begin, wanted, moved = map(self._table.statement, ("find_in_turn.begin", "find_in_turn.wanted", "move_ring"))
        return [begin, *found, wanted, *self.statements, self.mogrify(moved, params)]

    def fetchall(self) -> list[Row]:
        return [self._row]

    def packet(self, statements: Sequence[str], params: Mapping[str, Any]) -> list[Sequence[Row]]:
        self.statements += [self.mogrify(statement, params) for statement in statements]
        return [self._one.answer]

    def mogrify(self, statement: str, params: Mapping[str, Any]) -> str:
        """Return the statement with the numbers that Python chooses; the other values are parameters."""

        def written(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            value = params[match[1]]
            if isinstance(value, Given):
                return f":{value.name}"
            return f":{match[1]}" if isinstance(value, str) else "null" if value is None else f"{value:d}"

        return _PARAMETER.sub(written, statement)


def composed(messages: MySQLMessages, operation: str, table: Table) -> list[str]:
    """Return the statements of an operation, in order; none if its texts are what the library sends."""
    for one in COMPOSED.get(operation, ()):
        if not one.needs or meets(one.needs, table.plan.met):
            script = Script(table, one)
            given: Any = dict.fromkeys(("token", "consumer", "lease", "now", "group", "passed"), "")
            table.ring.served = Given("served")
            more: Any = {"n": Given("n", PLACES), "run": Given("run"), "low_water": 0}
            one.run(messages, script, table, given | more)
            return script.in_turn(given) if script.looks else script.statements
    return []
