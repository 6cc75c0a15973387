"""Types and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import click

from tablequeue.cli.lines import time_of
from tablequeue.definition import (
    DELIVERIES,
    HISTORIES,
    KEEPS,
    LARGEST,
    LONGEST,
    ORDERS,
    PAYLOADS,
    Backoff,
    Definition,
    Kind,
    TopicDefinition,
)

F = TypeVar("F", bound=Callable[..., Any])

# The numbers that a bigint, and SQL's LIMIT, can hold.
ID = click.IntRange(0, (1 << 63) - 1)
COUNT = click.IntRange(1, LARGEST)


class Seconds(click.FloatRange):
    """Seconds that every database can add to its clock."""

    def __init__(self, least: float = 0) -> None:
        super().__init__(least, LONGEST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return number


class Start(click.ParamType[Any]):
    """A place in the log of a topic: beginning, end, or a time with its zone."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        start = value if value in ("beginning", "end") else time_of(value)
        if start is None:
            self.fail(f"{value!r} is not beginning, end, or a time such as 2030-01-31T12:00:00+00:00.", param, ctx)
        return start


def time_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """The callback of an option whose value is a time."""
    time = time_of(value)
    if value is not None and time is None:
        raise click.BadParameter(f"{value!r} is not a time with its zone, such as 2030-01-31T12:00:00+00:00.")
    return time


# -- definitions -------------------------------------------------------------------------------------------------------

_DEFAULT = Definition()
_TOPIC = TopicDefinition()


def _words_or_seconds(words: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str], str | float]:
    def convert(ctx: click.Context, param: click.Parameter, value: str) -> str | float:
        if value in words:
            return value
        try:
            return float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not {', '.join(words)} or a number of seconds.") from None

    return convert


def _option(name: str, type: Any, default: Any, help: str) -> Callable[[F], F]:
    return click.option(name, type=type, default=default, show_default=True, help=help)


def _time_option(name: str, words: tuple[str, ...], default: Any, help: str) -> Callable[[F], F]:
    return click.option(
        name,
        callback=_words_or_seconds(words),
        default=default,
        show_default=True,
        metavar=f"[{'|'.join(words)}|SECONDS]",
        help=help,
    )


_OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "order": _option(
        "--order",
        click.Choice(ORDERS),
        _DEFAULT.order,
        "fifo: lowest id first; lifo: highest id first; due: earliest due time first; priority: highest number "
        "first; heap: any order.",
    ),
    "strict": click.option(
        "--strict", is_flag=True, help="fifo only: one message in progress at a time, and none overtakes another."
    ),
    "groups": click.option(
        "--groups", is_flag=True, help="fifo only: strict within each group; groups run side by side."
    ),
    "payload": _option("--payload", click.Choice(PAYLOADS), _DEFAULT.payload, "What the messages are."),
    "lease": _option("--lease", float, _DEFAULT.lease, "Seconds that a popped message stays with its consumer."),
    "max_attempts": _option(
        "--max-attempts",
        click.IntRange(max=LARGEST),
        _DEFAULT.max_attempts,
        "Attempts before a message becomes a dead letter.",
    ),
    "backoff_base": _option(
        "--backoff-base", float, _DEFAULT.backoff.base, "Seconds that a message waits after its first failure."
    ),
    "backoff_factor": _option(
        "--backoff-factor", float, _DEFAULT.backoff.factor, "Factor by which the wait grows with each further failure."
    ),
    "backoff_cap": _option("--backoff-cap", float, _DEFAULT.backoff.cap, "Maximum seconds that a message waits."),
    "backoff_jitter": _option(
        "--backoff-jitter", float, _DEFAULT.backoff.jitter, "Maximum share by which a wait is randomly shortened."
    ),
    "history": _time_option(
        "--history",
        HISTORIES,
        _DEFAULT.history,
        "Keep finished messages, do not keep them, or keep them for so many seconds.",
    ),
    "delivery": _option(
        "--delivery",
        click.Choice(DELIVERIES),
        _DEFAULT.delivery,
        "at_least_once: a message whose consumer dies is delivered again; at_most_once: it never is, see `lost`.",
    ),
    "expires": click.option(
        "--expires", type=Seconds(), help="Seconds after its push at which a waiting message expires.  [default: never]"
    ),
    "key_for": click.option(
        "--key-for",
        type=Seconds(),
        help="Seconds after its push for which a key stays taken, finished or not.  [default: until it is finished]",
    ),
    "results": click.option("--results", is_flag=True, help="Keep the results of finished messages, see `result`."),
    "keep": _time_option(
        "--keep",
        KEEPS,
        _TOPIC.keep,
        "How long a topic keeps messages: for ever, until every subscription has passed them, or so many seconds.",
    ),
    "ordered": click.option(
        "--ordered",
        is_flag=True,
        help="Strict within each group, and groups run side by side; for a topic with groups.",
    ),
}
_RETRIES = ("lease", "max_attempts", "backoff_base", "backoff_factor", "backoff_cap", "backoff_jitter")

# The options of each kind of definition.
OPTIONS: Mapping[Kind, tuple[str, ...]] = {
    "queue": (
        "order",
        "strict",
        "groups",
        "payload",
        *_RETRIES,
        "history",
        "delivery",
        "expires",
        "key_for",
        "results",
    ),
    "topic": ("payload", "groups", "keep"),
    "subscription": ("ordered", *_RETRIES),
}


def definition_options(*kinds: Kind) -> Callable[[F], F]:
    """Add the options of these kinds of definitions to a command; `fields_of` reads them."""

    def add(command: F) -> F:
        for name in reversed([*dict.fromkeys(name for kind in kinds for name in OPTIONS[kind])]):
            command = _OPTIONS[name](command)
        return command

    return add


def fields_of(kind: Kind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a definition, of the options of a command."""
    own = {name: options[name] for name in OPTIONS[kind]}
    backoff = {name.removeprefix("backoff_"): own.pop(name) for name in [*own] if name.startswith("backoff_")}
    return own | ({"backoff": Backoff(**backoff)} if backoff else {})
