"""Hooks for Alembic's autogenerate, which would drop every table that is not in the application's models.

In `env.py`, write `context.configure(..., include_name=include_name)`. This is the better of the two hooks: Alembic
does not even read the tables of queues. `include_object` is for an `env.py` that already uses the hook of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "tq_"
"""The prefix of the names of all tables of tablequeue."""


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """Whether Alembic should read the table of that name. It should not read tables with the prefix `tq_`.

    No table of the application may have that prefix.
    """
    return type_ != "table" or name is None or not name.startswith(PREFIX)


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """The same check for an object that Alembic has read. Tables of the application's models are always included."""
    return not reflected or compare_to is not None or include_name(name, type_, {})
