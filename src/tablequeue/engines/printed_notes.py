"""What printed SQL says of the Python between its statements, which no script has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from tablequeue.engines.engine import OPERATIONS, Engine
from tablequeue.engines.operation import Effect
from tablequeue.engines.procedures import procedure_for
from tablequeue.engines.table import Table
from tablequeue.engines.texts import texts_in

_PYTHON = {
    "looks": """\
The library runs the statements before `begin` first, as often as it needs, and makes parameters of the later ones from
their rows, in Python.""",
    "steps": """\
The library runs these statements one by one, in one transaction. It takes parameters of the later ones from the rows
of the earlier ones, and leaves out a statement that has nothing to do.""",
    "granted": """\
The claim gets as :n the least of its own :n, the tokens of the rate and the number of the locked places. The library
leaves the claim out if that is 0.""",
    "ring": """\
The library takes :served, the slot of the group that was served last, from the last message in the order of the turns.
A program that gives the same one again serves the same group again.""",
    "turns": """\
Where the library passes a parameter from one statement to the next one, the slot of the group that was served last, an
expression stands here. So the claims of a session serve all groups in turn, if each one has a :token of its own.""",
    "promoted": """\
Before it comes `promote`, in the same transaction: it makes the next message of each group ready, of a strict queue the
next message. Without it, a pop finds no message behind one that is finished.""",
    "apart": """\
The library takes in its caller's transaction. There it finds the messages on a second connection (`claim_find`), so it
locks no gap at REPEATABLE READ. This script does not: run it at READ COMMITTED.""",
}


# What is printed around a claim of a fair queue.
_OF_TURNS = {"begin_ring", "move_ring"}


def notes(
    engine: Engine, operation: str, table: Table, chosen: Sequence[str], composed: Sequence[str], given: Set[str]
) -> str:
    """Return a comment on an operation that is more than its statements in this order; "" if it is these.

    given   the names of the parameters.
    """
    found = [_PYTHON[name] for name in _applying(engine, operation, table, chosen, composed, given)]
    if not found:
        return ""
    if procedure := procedure_for(engine, table, operation):
        found.append(f"The procedure {procedure} does all of it: see `tablequeue sql procedures`.")
    return "\n".join(f"-- {line}" for note in found for line in note.splitlines())


def _applying(
    engine: Engine, operation: str, table: Table, chosen: Sequence[str], composed: Sequence[str], given: Set[str]
) -> Iterator[str]:
    row = next((row for name, row in OPERATIONS.items() if operation in (name, row.printed)), None)
    if row is None or row.effect in (Effect.READ, Effect.DDL):
        return
    if composed and composed[0] != "begin" and "move_ring" not in chosen:
        yield "looks"
    if not composed and (len({*chosen} - _OF_TURNS) > 1 or {*chosen} & _in_sections(engine)):
        yield "steps"
    if not composed and {"grant_rate", "lock_slots"} & {*chosen}:
        yield "granted"
    if "move_ring" in chosen:
        yield "ring" if "served" in given else "turns"
    if operation in ("pop", "take") and "promoted" in table.plan.met:
        yield "promoted"
    if operation == "take" and engine.looks_apart:
        yield "apart"


def _in_sections(engine: Engine) -> set[str]:
    """Return the names of the texts that have sections, which the engine runs one by one."""
    return {name.partition(".")[0] for name in texts_in(engine.name, "sql") if "." in name}
