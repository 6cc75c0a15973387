"""The named texts of the `.sql` files, the statements in them, and the order of claimed rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.errors import BadInput
from tablequeue.model.definition import Definition
from tablequeue.model.message import DUE_AT, ID, PRIORITY

Row = Sequence[Any]
# A word in a text, or the name of a part and what it knows.
_GIVEN = r" (\w+)(?:=('[^']*'|[^\s{}']+))?"
_WORD = re.compile(rf"\{{(\w+)((?:{_GIVEN})*)\}}")

# The keys that sort claimed rows in the order of the queue, because the database may return them in any order. None:
# they sort as tuples, by id.
RANKS: Mapping[str, Callable[[Row], Any] | None] = {
    "heap": None,
    "fifo": None,
    "lifo": lambda row: -row[ID],
    "due": lambda row: (row[DUE_AT], row[ID]),
    "priority": lambda row: (-row[PRIORITY], row[ID]),
    "fair": lambda row: 0,  # they come sorted: see fair.py
}


# The order of the claimed messages of a fair queue: the first one of each group, then the second ones.
IN_TURN = "row_number() over (partition by group_key order by id), group_key"


class Client(NamedTuple):
    """The command-line client of a database, which runs the printed SQL; see printed_values.py."""

    name: str
    whole: str
    """A sentence that tells how to run several statements as one transaction."""
    values: Mapping[str, str] = {}
    """Literals of parameters that this SQL writes differently. `stage.key` is the key parameter of `stage` only."""
    parameter: str = ":{}"
    """How a parameter is printed."""
    parameters: str = "A word after a colon is a parameter"
    """A clause that tells how to find the parameters."""
    between: str = "\n\n"
    """What is printed between two texts of an operation."""


@cache
def texts_in(engine: str, folder: str) -> Mapping[str, str]:
    """Return the texts of an engine in the `.sql` files of a folder, by name: its own, and those that engines share.

    A line `-- name: claim` begins a text, and `-- name: claim.read` a section of it, which the text `claim` has too.
    The header of an operation begins with its purpose, which `purposes.sql` has for all engines.
    """
    texts: dict[str, str] = {}
    purposes = _purposes() if folder == "sql" else {}
    for name, text in {**_texts_of(folder), **_texts_of(engine, folder)}.items():
        texts[name] = purposes.get(name, "") + text
        whole = name.partition(".")[0]
        if whole != name:
            texts[whole] += f"\n{text}"
    return {name: text.strip("\n") + "\n" for name, text in texts.items()}


@cache
def _purposes() -> Mapping[str, str]:
    """Return the first lines of headers, by the names of the texts: what each does on every database."""
    text = resources.files("tablequeue.engines").joinpath("purposes.sql").read_text("utf-8")
    return {
        name: f"-- {lines.replace('--   ', '-- ')}\n"
        for name, lines in re.findall(r"(?m)^-- ([\w.]+): (.*(?:\n--   .*)*)", text)
    }


def _texts_of(*folder: str) -> dict[str, str]:
    """Return the texts in the files of one folder, by name, in their order."""
    texts: dict[str, str] = {}
    path = resources.files("tablequeue.engines").joinpath(*folder)
    for file in path.iterdir() if path.is_dir() else ():
        if file.name.endswith(".sql"):
            _, *sections = f"\n{file.read_text('utf-8')}".split("\n-- name: ")
            for section in sections:
                name, _, text = section.partition("\n")
                if name in texts:
                    raise ValueError(f"{'/'.join(folder)} has two texts {name!r}.")
                texts[name] = text
    return texts


def sql_text(engine: str, name: str) -> str:
    """Return a text of an engine, with its header."""
    return texts_in(engine, "sql")[name]


@cache
def operations_of(engine: str) -> tuple[str, ...]:
    """Return the names of the texts of an engine, without those of sections."""
    return tuple(sorted(name for name in texts_in(engine, "sql") if "." not in name))


def texts_for(engine: str, texts: Mapping[str, str], true: Set[str]) -> list[str]:
    """Return the names of `texts` that the engine has and whose conditions are all in `true`."""
    available = operations_of(engine)
    return [text for text, needed in texts.items() if text in available and {*needed.split()} <= true]


@cache
def parts_of(engine: str) -> Mapping[str, str]:
    """Return the texts of an engine that are parts of other texts, by name, without their headers."""
    texts = texts_in(engine, "parts").items()
    return {name: re.sub(r"\A(-- (?!\[).*\n)+", "", text).rstrip("\n") for name, text in texts}


def chosen(text: str, met: Set[str]) -> Iterator[str]:
    """Return the lines for queues that meet the conditions `met`.

    The lines after `-- [keep not grouped]`, or `-- [rate or fair keep]`, up to the next such line or `-- [end]` are for
    such queues only; those after `-- [else]` are for all that did not meet the line before.
    """
    wanted = True
    for line in text.splitlines():
        if mark := re.fullmatch(r"\s*-- \[([\w ]+)\]", line):
            wanted = mark[1] == "end" or (not wanted if mark[1] == "else" else meets(mark[1], met))
        elif wanted:
            yield line


def meets(needed: str, met: Set[str]) -> bool:
    """Return whether a queue that meets the conditions `met` is one of those that a line of conditions names."""
    ways = (re.findall(r"(not )?(\w+)", way) for way in needed.split(" or "))
    return any(all((word in met) is not bool(no) for no, word in way) for way in ways)


def filled_in(text: str, words: Mapping[str, str], met: Set[str], part: Callable[[str], str]) -> str:
    """Return the text with its `{words}`: what `words` has of that name, or else the part of that name.

    The part knows what stands after its name: conditions that it meets in addition, and words, as in `{left of=ready}`.
    """
    lines = []
    for line in text.splitlines():
        margin = "\n" + line[: len(line) - len(line.lstrip())]

        def value(match: re.Match[str], margin: str = margin) -> str:
            name = match[1]
            if name in words:
                return words[name]
            given = re.findall(_GIVEN, match[2])
            inner = met | {condition for condition, expression in given if not expression}
            more = {word: expression for word, expression in given if expression}
            lines_of_part = "\n".join(chosen(part(name), inner))
            return filled_in(lines_of_part, {**words, **more}, inner, part).replace("\n", margin)

        if (done := _WORD.sub(value, line)).strip() or not line:
            lines.append(done)
    return "\n".join(lines)


def statements_in(text: str) -> list[str]:
    """Return the statements of a text, without comments. A semicolon before an unindented line ends a statement.

    So every line of the body of a trigger or a function must be indented.
    """
    bare = re.sub(r"(?m)^\s*--.*\n?", "", text)
    return [statement for part in re.split(r";\s*(?:\n(?=\S)|\Z)", bare) if (statement := part.strip())]


def ready_states(definition: Definition) -> str:
    """Return the predicate of the index of a claim.

    The index of a due queue has its scheduled messages too, so that no sweep need come before a claim.
    """
    return "state in ('ready', 'scheduled')" if definition.order == "due" else "state = 'ready'"


def compile_text(text: str, dialect: Dialect) -> str:
    """Convert `:name` parameters to a dialect's paramstyle."""
    return str(sa.text(text).compile(dialect=dialect))


def quoted_role(quotes: str, name: str) -> str:
    """Return a role's name between `quotes`. Refuse a name that could end them."""
    if not re.fullmatch(r"[\w][\w.$@ \\-]{0,127}", name):
        raise BadInput(f"{name!r} cannot name a role.", "Use letters, digits, and _ . $ @ - after the first.")
    return f"{quotes[0]}{name}{quotes[1]}"
