"""The limit of messages in progress on MariaDB and MySQL, whose claims find the free places before they lock some."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import Limits
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table

# A claim of n messages looks at 2 n + LOOK places: other claims may lock the first ones.
LOOK = 32


class MySQLLimits(Limits):
    def _free_slots(self, cursor: Cursor, table: Table, params: Params) -> str:
        if table.definition.concurrency is None:
            return "[]"
        return json.dumps(self._rows(cursor, table, "free_slots", {"look": 2 * params["n"] + LOOK}))
