"""What pages say of the program is true today: the commands that they print, and what they say is not there."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import tablequeue
from tablequeue import aio, worker
from tablequeue.cli import main
from tests.test_docs import ALL, DOCS, name_of

# -- printed commands --------------------------------------------------------------------------------------------------

PROGRAM = re.compile(r"(?:tablequeue|tq)\s+(.*)")
# Each block of a shell, and each command in the middle of a sentence.
SHELL = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`(?:\$ )?((?:tablequeue|tq) [^`]+)`(?!`)")
REDIRECTED = re.compile(r"\s(?:[|&<>;]|2>).*")


def printed(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the arguments of each command of a page, and whether it is whole: one in a sentence need not be."""
    text = re.sub(r"```(?:python|py|sql|json|nginx|yaml|java|go|csharp)\n.*?```", "", text, flags=re.DOTALL)
    for block in SHELL.findall(text):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            line = re.sub(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:python -m |uvx |\S*/)?", "", line.strip())
            if found := PROGRAM.fullmatch(re.sub(r"\s#.*", "", line)):
                yield REDIRECTED.sub("", f" {found[1]}").strip(), True
    for words in INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        found = PROGRAM.fullmatch(re.sub(r"\s+", " ", words))
        if found is not None and re.match(r"-|[a-z]", found[1]):
            yield REDIRECTED.sub("", f" {found[1]}").strip(), False


def sample(word: str) -> str:
    """Return a word that stands for what a reader puts there: the first of `list|release`, an id."""
    return re.sub(r"^(\w+)\|[\w|]+$", r"\1", re.sub(r"…|\.\.\.", "x", "1" if word == "ID" else word))


def parse(words: list[str], whole: bool, command: click.Command = main, parent: click.Context | None = None) -> None:
    """Parse the arguments of a command, and of the commands below it, as the program does; run nothing."""
    if {"--help", "-h", "--version"} & {*words}:
        return
    try:
        context = command.make_context(command.name, [*words], parent=parent)
    except click.exceptions.NoArgsIsHelpError:
        assert not whole or command is not main
        return
    except click.MissingParameter:
        if whole:
            raise
        return
    except click.BadParameter as error:
        if "does not exist" in error.message or "No such file" in error.message:  # a file of the reader's
            return
        raise
    with context:
        if isinstance(command, click.Group):
            rest = [*context._protected_args, *context.args]
            if rest:
                _, below, arguments = command.resolve_command(context, rest)
                assert below is not None
                parse(arguments, whole, below, context)


COMMANDS = [(page, words, whole) for page in ALL for words, whole in printed(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", sorted({page for page, *_ in COMMANDS}), ids=name_of)
def test_every_command_that_a_page_prints_is_one(page: Path) -> None:
    for where, words, whole in COMMANDS:
        if where == page:
            try:
                parse([sample(word) for word in shlex.split(words)], whole)
            except click.UsageError as error:
                pytest.fail(f"tablequeue {words}: {error.format_message()}")


def test_there_are_commands_to_parse() -> None:
    assert sum(whole for *_, whole in COMMANDS) > 50
    assert sum(not whole for *_, whole in COMMANDS) > 50


@pytest.mark.parametrize("words", ["redrive celery", "dead celery", "queue create", "serve --tls", "pop emails -n x"])
def test_a_command_that_is_none_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(words), True)


# -- what is not there -------------------------------------------------------------------------------------------------

COMING_FROM = [page for page in DOCS if page.parent.name == "coming-from"]
# A row of a table that says so, and the words of which the program has none: in a name, a parameter or an option.
NONE = re.compile(r"^\|(?P<there>[^|]+)\| none(?: <!-- no: (?P<words>[^|]*) -->)? \|", re.MULTILINE)


def vocabulary() -> set[str]:
    """Return the words of all public names, their parameters, and the commands and options of the program."""
    names: set[str] = set()
    for module in (tablequeue, aio, worker):
        for name in module.__all__:
            names |= {name, *_of(getattr(module, name))}
    names |= set(_of_command(main))
    return {word for name in names for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name.replace("_", " ")) if word} | {
        word.lower() for name in names for word in re.findall(r"[A-Z][a-z]+", name)
    }


def _of(value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        for name, member in inspect.getmembers(value):
            if not name.startswith("_") or name == "__init__":
                yield name
                yield from _of(member) if not inspect.isclass(member) else ()
        yield from getattr(value, "__annotations__", ())
    elif callable(value):
        try:
            yield from inspect.signature(value).parameters
        except (TypeError, ValueError):
            return


def _of_command(command: click.Command) -> Iterator[str]:
    yield from (command.name or "").split("-")
    for parameter in command.params:
        yield parameter.name or ""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from _of_command(below)


@pytest.mark.parametrize("page", COMING_FROM, ids=name_of)
def test_what_a_page_says_is_not_there_is_not_there(page: Path) -> None:
    known = vocabulary()
    for row in NONE.finditer(page.read_text("utf-8")):
        assert row["words"], f"say after `none` what a test looks for: {row[0]}"
        assert not {*row["words"].split()} & known, row[0]


def test_what_is_there_is_in_the_vocabulary() -> None:
    assert {"expires", "results", "result", "cancel", "rate", "topic", "subscribe", "group", "delay"} <= vocabulary()
