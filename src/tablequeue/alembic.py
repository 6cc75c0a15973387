"""For Alembic's autogenerate, which would drop every table that the application's models do not have.

In `env.py`: `context.configure(..., include_name=include_name)`. Of the two hooks it is the better one, for the tables
of queues are not even looked at; `include_object` is for an `env.py` that has only that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "tq_"
"""What the names of all tables of tablequeue begin with."""


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """Whether Alembic is to look at what the database has under that name: not at tables that begin with `tq_`.

    Of the application's own tables none may begin with it.
    """
    return type_ != "table" or name is None or not name.startswith(PREFIX)


def include_object(object: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:
    """The same, of what Alembic has looked at already; a table of the application's models is its own."""
    return not reflected or compare_to is not None or include_name(name, type_, {})


__all__ = ["include_name", "include_object"]
