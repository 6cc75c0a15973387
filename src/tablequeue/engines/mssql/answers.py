"""The result of a batch: text is returned as bytes; in a stored procedure the rows go into a variable instead.

Text comes as UTF-16 bytes and is decoded here. mssql-python (1.16) takes the first character of an nvarchar(max) for a
byte order mark: U+FEFF is lost, and after U+FFFE every character is wrong. And the drivers' own decoding fails at a
lone surrogate, which T-SQL can store. It fails after the claim, and the whole batch with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from tablequeue.model.names import HISTORY

# The text columns, and the type of their bytes. The payload is one of them unless the queue's payloads are bytes.
TEXTS = {
    "payload": "varbinary(max)",
    "headers": "varbinary(max)",
    "errors": "varbinary(max)",
    **dict.fromkeys(("group_key", "dedup_key", "producer", "consumer", "stream"), "varbinary(1024)"),
}
# The prefix of the name of a result column whose bytes are text.
_MARK = "utf16_"

# An OUTPUT ... INTO. The group of the match is the name of its table.
_INTO = re.compile(r"^output\b(?:(?!^output\b)[\s\S])*?\binto (\S+) \([^)]*\)\n", re.MULTILINE)
_CLAUSE = re.compile(r"^(?:output|into|from|where|select|values|order by|group by)\b", re.MULTILINE)


def in_bytes(batch: str, columns: Iterable[str]) -> str:
    """Return the batch with these columns of its result converted to bytes, and their names prefixed by `_MARK`."""
    start, end = _answer(batch)
    # The plain column, its conversion to nvarchar(510) where the table stores bytes, or its start. No name of a null.
    name = rf"(?:\w+\.)?({'|'.join(columns)})"
    asked = re.compile(
        rf"(?:convert\(nvarchar\(510\), ({name})\)|(substring\({name}, 1, \d+\))|"
        rf"(?<![\w.@(])(?<! as )({name})(?![\w(]))(?: as \w+)?"
    )

    def converted(match: re.Match[str]) -> str:
        value, column = (next(filter(None, match.groups()[first::2])) for first in (0, 1))
        return f"convert({TEXTS[column]}, {value}) as {_MARK}{column}"

    return batch[:start] + asked.sub(converted, batch[start:end]) + batch[end:]


def decoded(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the rows of a result with text decoded, in the columns whose names have the prefix `_MARK`."""
    texts = [name.startswith(_MARK) for name in names]
    if not any(texts):
        return [tuple(row) for row in rows]
    return [
        tuple(
            value.decode("utf-16-le", "surrogatepass") if text and value is not None else value
            for value, text in zip(row, texts, strict=True)
        )
        for row in rows
    ]


def kept(batch: str, target: str) -> str:
    """Return the batch for a stored procedure: its result goes into the table variable `target`.

    If the target is `nothing`, the result is dropped. A statement can have only one OUTPUT ... INTO. If it has one for
    the history, that one goes into the target, from which the procedure writes the history, and the result is dropped.
    If it has one for a note, that one is removed, and the procedure writes the note.
    """
    start, end = _answer(batch)
    if target == "nothing":
        return (batch[:start] + batch[end:]).rstrip()
    taken = _INTO.search(batch, batch.rfind(";\n") + 1)
    if taken and taken[1].endswith(HISTORY):
        return (batch[: taken.start(1)] + target + batch[taken.end(1) : start] + batch[end:]).rstrip()
    if batch[start:].startswith("select"):
        return f"{batch[:start]}insert into {target}\n{batch[start:]}"
    answered = f"{batch[:end].rstrip()}\ninto {target}\n{batch[end:]}".rstrip()
    return answered[: taken.start()] + answered[taken.end() :] if taken else answered


def _answer(batch: str) -> tuple[int, int]:
    """Return where the column list of the result begins and ends: in a select, or in an OUTPUT without INTO."""
    last = batch.rfind(";\n")
    begin = 0 if last < 0 else last + 2
    clauses = [(clause.start(), clause[0]) for clause in _CLAUSE.finditer(batch, begin)]
    for (start, word), (end, after) in reversed([*pairwise([*clauses, (len(batch), "")])]):
        has_into = after == "into" or " into " in batch[start:end]
        if (word == "output" and not has_into) or (word == "select" and start == begin):
            return start, end
    return len(batch), len(batch)
