"""Types and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import click

from tablequeue.cli.lines import time_of
from tablequeue.definition import DELIVERIES, HISTORIES, LARGEST, LONGEST, ORDERS, PAYLOADS, Backoff, Definition

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


def time_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """The callback of an option whose value is a time."""
    time = time_of(value)
    if value is not None and time is None:
        raise click.BadParameter(f"{value!r} is not a time with its zone, such as 2030-01-31T12:00:00+00:00.")
    return time


# -- the definition of a queue -----------------------------------------------------------------------------------------

_DEFAULT = Definition()


def _history(ctx: click.Context, param: click.Parameter, value: str) -> str | float:
    if value in HISTORIES:
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not {', '.join(HISTORIES)} or a number of seconds.") from None


def _option(name: str, type: Any, default: Any, help: str) -> Callable[[F], F]:
    return click.option(name, type=type, default=default, show_default=True, help=help)


_DEFINITION_OPTIONS = (
    _option(
        "--order",
        click.Choice(ORDERS),
        _DEFAULT.order,
        "fifo: lowest id first; lifo: highest id first; due: earliest due time first; priority: highest number "
        "first; heap: any order.",
    ),
    click.option(
        "--strict", is_flag=True, help="fifo only: one message in progress at a time, and none overtakes another."
    ),
    click.option("--groups", is_flag=True, help="fifo only: strict within each group; groups run side by side."),
    _option("--payload", click.Choice(PAYLOADS), _DEFAULT.payload, "What the messages are."),
    _option("--lease", float, _DEFAULT.lease, "Seconds that a popped message stays with its consumer."),
    _option(
        "--max-attempts",
        click.IntRange(max=LARGEST),
        _DEFAULT.max_attempts,
        "Attempts before a message becomes a dead letter.",
    ),
    _option("--backoff-base", float, _DEFAULT.backoff.base, "Seconds that a message waits after its first failure."),
    _option(
        "--backoff-factor", float, _DEFAULT.backoff.factor, "Factor by which the wait grows with each further failure."
    ),
    _option("--backoff-cap", float, _DEFAULT.backoff.cap, "Maximum seconds that a message waits."),
    _option("--backoff-jitter", float, _DEFAULT.backoff.jitter, "Maximum share by which a wait is randomly shortened."),
    click.option(
        "--history",
        callback=_history,
        default=_DEFAULT.history,
        show_default=True,
        metavar=f"[{'|'.join(HISTORIES)}|SECONDS]",
        help="Keep finished messages, do not keep them, or keep them for so many seconds.",
    ),
    _option(
        "--delivery",
        click.Choice(DELIVERIES),
        _DEFAULT.delivery,
        "at_least_once: a message whose consumer dies is delivered again; at_most_once: it never is, see `lost`.",
    ),
)


def definition_options(command: F) -> F:
    """Add the options of a queue's definition to a command; `definition_of` reads them."""
    for option in reversed(_DEFINITION_OPTIONS):
        command = option(command)
    return command


def definition_of(options: Mapping[str, Any]) -> Definition:
    backoff = {name.removeprefix("backoff_"): value for name, value in options.items() if name.startswith("backoff_")}
    others = {name: value for name, value in options.items() if not name.startswith("backoff_")}
    return Definition(**others, backoff=Backoff(**backoff))
