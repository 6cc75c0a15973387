"""The texts of an operation: each of them once, because thousands of definitions and states have the same."""

from __future__ import annotations

from functools import cache

from tablequeue.engines.engine import Engine
from tablequeue.engines.table import Table
from tablequeue.model.definition import Definition
from tablequeue.model.states import STATES


@cache
def words_of_state(engine: Engine, definition: Definition) -> tuple[str, ...]:
    """Return the names of the `{words}` that depend on the state."""
    table = engine.table("work", definition)
    every = [engine.words(table, state) for state in STATES]
    return tuple(name for name in every[0] if len({words[name] for words in every}) > 1)


def rendered(engine: Engine, operation: str, table: Table) -> list[str]:
    """Return the texts of an operation: one, or one of each state if the state is in it."""
    mark = "the state"
    text = engine.render(operation, table, instead=dict.fromkeys(words_of_state(engine, table.definition), mark))
    return [engine.render(operation, table, state) for state in STATES] if mark in text else [text]
