"""What a batch answers with: its text, asked for as bytes; or nothing, where a stored procedure keeps the rows.

Text comes as the bytes of UTF-16 and is decoded here. mssql-python (1.16) takes the first character of an nvarchar(max)
for the mark of a byte order: U+FEFF is lost, and behind U+FFFE every character is another one. And a surrogate without
its other half, which T-SQL can store, fails in the drivers' own decoding, after the claim, with all of its batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from tablequeue.names import HISTORY

# The columns that are text, and the type of their bytes. The payload is one unless the queue's payloads are bytes.
TEXTS = {
    "payload": "varbinary(max)",
    "headers": "varbinary(max)",
    "errors": "varbinary(max)",
    **dict.fromkeys(("group_key", "dedup_key", "producer", "consumer", "stream"), "varbinary(1024)"),
}
# What the column of an answer is called whose bytes are text.
_MARK = "utf16_"

# An OUTPUT that goes INTO a table, which is the group.
_INTO = re.compile(r"^output\b(?:(?!^output\b)[\s\S])*?\binto (\S+) \([^)]*\)\n", re.MULTILINE)
_CLAUSE = re.compile(r"^(?:output|into|from|where|select|values|order by|group by)\b", re.MULTILINE)


def in_bytes(batch: str, columns: Iterable[str]) -> str:
    """The batch with these columns of its answer as the bytes of their text, and called so."""
    start, end = _answer(batch)
    # As the tables have them, or as nvarchar(510) where they have the bytes.
    name = rf"((?:\w+\.)?({'|'.join(columns)}))"
    asked = re.compile(rf"convert\(nvarchar\(510\), {name}\)(?: as \w+)?|(?<![\w.@(]){name}(?![\w(])(?: as \w+)?")

    def converted(match: re.Match[str]) -> str:
        value, column = match[1] or match[3], match[2] or match[4]
        return f"convert({TEXTS[column]}, {value}) as {_MARK}{column}"

    return batch[:start] + asked.sub(converted, batch[start:end]) + batch[end:]


def decoded(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """The rows of an answer whose columns have these names, with text for its bytes."""
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
    """The batch for a stored procedure: its answer goes into a table variable, or nowhere if the target is `nothing`.

    Where the statement has an OUTPUT ... INTO already, which it can have once: that of the history goes to the target
    instead, for the procedure to pass on, and the answer nowhere; that of a note is left out, for it to note.
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
    """Where the list of the answer begins and ends: of a select, or of an OUTPUT that does not go INTO a table."""
    last = batch.rfind(";\n")
    begin = 0 if last < 0 else last + 2
    clauses = [(clause.start(), clause[0]) for clause in _CLAUSE.finditer(batch, begin)]
    for (start, word), (end, after) in reversed([*pairwise([*clauses, (len(batch), "")])]):
        kept = after == "into" or " into " in batch[start:end]
        if (word == "output" and not kept) or (word == "select" and start == begin):
            return start, end
    return len(batch), len(batch)
