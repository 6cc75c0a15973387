"""The variables of T-SQL that have the parameters of a batch: their declarations are in `parameters.sql`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

_COMMENT = re.compile(r"(?m)^\s*--.*$")
_USED = re.compile(r"(?<!@)@([a-z]\w*)")
_DECLARED = re.compile(r"\bdeclare @(\w+)")
# The parameters and variables of a module are declared in it.
_MODULE = re.compile(r"(?m)^create (?:or alter )?(?:procedure|trigger)\b")
_HEADER = re.compile(r"(?:\s*--.*\n|\s*\n)*")


def declared(text: str, words: Mapping[str, str]) -> str:
    """Return a text in which each batch begins, after its header, with the declarations of the parameters it uses."""
    return "".join(_batch(part, words) for part in re.split(r"(?m)(^go$)", text))


@cache
def _declarations() -> Mapping[str, str]:
    """Return the declaration of each parameter, in their order."""
    text = resources.files("tablequeue.engines.mssql").joinpath("parameters.sql").read_text("utf-8")
    return {_DECLARED.findall(line)[0]: line for line in text.splitlines() if line.startswith("declare")}


def _batch(batch: str, words: Mapping[str, str]) -> str:
    bare = _COMMENT.sub("", batch)
    missing = {*_USED.findall(bare)} - {*_DECLARED.findall(bare)}
    if not missing or _MODULE.search(bare):
        return batch
    lines = [
        re.sub(r"\{(\w+)\}", lambda word: words[word[1]], line)
        for name, line in _declarations().items()
        if name in missing
    ]
    header = _HEADER.match(batch)
    start = header.end() if header else 0
    return batch[:start] + "".join(f"{line}\n" for line in lines) + batch[start:]
