"""How an engine writes its stored procedures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class ProcedureSyntax(NamedTuple):
    """How an engine writes its stored procedures; see procedures.py.

    The templates `before_all` and `after_all` are the texts before and after those of a queue, if the engine has them.
    """

    parameter: str
    """The name of a parameter, `{}` in the operations."""
    role: Callable[[str], str]
    """Return the name of a role quoted for SQL. Raise `BadInput` if it is not a valid name."""
    schema: str | None = None
    """The schema in the printed text if none is named; None: that of the session that runs it."""
    kinds: tuple[str, ...] = ("queue",)
    """The kinds of definitions that have procedures."""
    between: str = "\n\n"
    """The text between two procedures."""
    dropped_first: tuple[str, ...] = ()
    """The dialects that cannot replace a procedure: it is dropped first, and the rights on it are lost."""
    words: Mapping[str, str] = MappingProxyType({})
    """The `{words}` of the texts that stand for something else in procedures."""
    there: str = ""
    """The query for names of existing procedures of a queue."""
    kept: Callable[[str, str], str] = lambda statement, target: statement
    """Return a statement whose rows go into a variable of the procedure; see `into=` in procedures.py."""
