"""Types and options that several commands share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import click

from tablequeue.cli.lines import time_of
from tablequeue.model.definition import (
    DELIVERIES,
    HISTORIES,
    KEEPS,
    MOST_CONCURRENT,
    ORDERS,
    PAYLOADS,
    RETENTION,
    Definition,
    Kind,
    TopicDefinition,
)
from tablequeue.model.pacing import LARGEST, LONGEST, Backoff, Rate

F = TypeVar("F", bound=Callable[..., Any])

# The numbers that a bigint, and SQL's LIMIT, can hold.
ID = click.IntRange(0, (1 << 63) - 1)
COUNT = click.IntRange(1, LARGEST)
DAY = re.compile(r"\d{4}-\d\d-\d\d")
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class Seconds(click.FloatRange):
    """Seconds that every database can add to its clock."""

    def __init__(self, least: float = 0) -> None:
        super().__init__(least, LONGEST)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return number


class Age(Seconds):
    """A time that has passed: seconds, or a number with a unit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number, unit = _number_and_unit(value)
        return super().convert(super().convert(number, param, ctx) * unit, param, ctx)


def _number_and_unit(value: Any) -> tuple[Any, int]:
    """Return what stands before a unit of time, and the seconds of that unit; 1 if there is none."""
    unit = UNITS.get(value[-1:]) if isinstance(value, str) else None
    return (value, 1) if unit is None else (value[:-1], unit)


class Start(click.ParamType[Any]):
    """A position in the log of a topic: beginning, end, or a time with its zone."""

    name = "start"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        start = value if value in ("beginning", "end") else time_of(value)
        if start is None:
            self.fail(f"{value!r} is not beginning, end, or a time such as 2030-01-31T12:00:00+00:00.", param, ctx)
        return start


class Position(Start):
    """A position, or an offset; a day is its beginning in UTC."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.isdecimal():
            return ID.convert(int(value), param, ctx)
        if isinstance(value, str) and DAY.fullmatch(value):
            value += "T00:00:00+00:00"
        return super().convert(value, param, ctx)


def time_option(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """The callback of an option with a time as its value."""
    time = time_of(value)
    if value is not None and time is None:
        raise click.BadParameter(f"{value!r} is not a time with its zone, such as 2030-01-31T12:00:00+00:00.")
    return time


due_option = click.option(
    "--due", callback=time_option, metavar="TIME", help="When it is ready, such as 2030-01-31T12:00:00+00:00."
)


# -- definitions -------------------------------------------------------------------------------------------------------

_DEFAULT = Definition()
_TOPIC = TopicDefinition()


def _words_or_seconds(
    words: tuple[str, ...],
) -> Callable[[click.Context, click.Parameter, str | None], str | float | None]:
    def convert(ctx: click.Context, param: click.Parameter, value: str | None) -> str | float | None:
        if value is None or value in words:
            return value
        number, unit = _number_and_unit(value)
        try:
            return float(number) * unit
        except ValueError:
            remedy = f"{value!r} is not {', '.join(words)}, a number of seconds, or a time such as 30d."
            raise click.BadParameter(remedy) from None

    return convert


def _option(name: str, type: Any, default: Any, help: str) -> Callable[[F], F]:
    return click.option(name, type=type, default=default, show_default=True, help=help)


def _time_option(name: str, words: tuple[str, ...], default: Any, help: str) -> Callable[[F], F]:
    return click.option(
        name,
        callback=_words_or_seconds(words),
        default=default,
        show_default=True,
        metavar=f"[{'|'.join(words)}|TIME]",
        help=help,
    )


# The values of --groups. Without a value it means the first one.
GROUPS = ("ordered", "fair")

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
        "--groups",
        type=click.Choice(GROUPS),
        callback=lambda ctx, param, value: {None: False, "fair": "fair"}.get(value, True),
        metavar="[fair]",
        help="fifo only: strict within each group; groups run side by side. `--groups fair`: any number of a group in "
        "progress, and claims take one message of each group in turn.",
    ),
    "payload": _option("--payload", click.Choice(PAYLOADS), _DEFAULT.payload, "The type of the payloads."),
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
        "--backoff-jitter", float, _DEFAULT.backoff.jitter, "Maximum fraction by which a wait is randomly shortened."
    ),
    "history": _time_option(
        "--history",
        HISTORIES,
        f"{RETENTION / UNITS['d']:g}d",
        "How long finished messages stay in the history: for ever, not at all, or this time.",
    ),
    "delivery": _option(
        "--delivery",
        click.Choice(DELIVERIES),
        _DEFAULT.delivery,
        "at_least_once: a message is delivered again if its consumer dies; at_most_once: it never is, see `lost`.",
    ),
    "dead_letter_to": click.option(
        "--dead-letter-to", metavar="QUEUE", help="The queue to which dead letters move.  [default: they stay]"
    ),
    "concurrency": click.option(
        "--concurrency",
        type=click.IntRange(1, MOST_CONCURRENT),
        help="Messages that may be in progress at once, in all consumers together.",
    ),
    "rate": click.option(
        "--rate", type=float, help="Messages that may be claimed in --rate-per seconds, by all consumers together."
    ),
    "rate_per": _option("--rate-per", float, 1.0, "The seconds of --rate."),
    "rate_burst": _option("--rate-burst", click.IntRange(1, LARGEST), 1, "Messages that may be claimed at once."),
    "per_group": click.option(
        "--per-group",
        type=click.IntRange(1, MOST_CONCURRENT),
        help="Messages of a group that may be in progress at once; with --groups fair.",
    ),
    "group_rate": click.option(
        "--group-rate",
        type=float,
        help="Messages of a group that may be claimed in --group-rate-per seconds; with --groups fair.",
    ),
    "group_rate_per": _option("--group-rate-per", float, 1.0, "The seconds of --group-rate."),
    "group_rate_burst": _option(
        "--group-rate-burst", click.IntRange(1, LARGEST), 1, "Messages of a group that may be claimed at once."
    ),
    "expires": click.option(
        "--expires", type=Seconds(), help="Seconds after its push at which a waiting message expires.  [default: never]"
    ),
    "unique_for": click.option(
        "--unique-for",
        type=Seconds(),
        help="Seconds that a key stays taken after its push, even when finished.  [default: until it is finished]",
    ),
    "results": click.option("--results", is_flag=True, help="Keep the results of finished messages, see `result`."),
    "batches": click.option("--batches", is_flag=True, help="Messages may be pushed in batches, with a callback."),
    "dependencies": click.option(
        "--dependencies",
        is_flag=True,
        help="Messages may wait until others have left their queues, see `push --after`.",
    ),
    "keep": _time_option(
        "--keep",
        KEEPS,
        _TOPIC.keep,
        "How long a topic keeps messages: for ever, until every subscription has passed them, or this time.",
    ),
    "ordered": click.option(
        "--ordered",
        is_flag=True,
        help="Strict within each group, and groups run side by side; for a topic with groups.",
    ),
}
_RETRIES = ("lease", "max_attempts", "backoff_base", "backoff_factor", "backoff_cap", "backoff_jitter")

_RATES = ("rate", "group_rate")
_LIMITS = ("concurrency", "per_group", *(f"{rate}{part}" for rate in _RATES for part in ("", "_per", "_burst")))

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
        "dead_letter_to",
        "expires",
        "unique_for",
        "results",
        "batches",
        "dependencies",
        *_LIMITS,
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
    """Return the fields of a definition from the options of a command."""
    own = {name: options[name] for name in OPTIONS[kind]}
    backoff = {name.removeprefix("backoff_"): own.pop(name) for name in [*own] if name.startswith("backoff_")}
    for rate in _RATES:
        per, burst = own.pop(f"{rate}_per", None), own.pop(f"{rate}_burst", None)
        if own.get(rate) is not None:
            own[rate] = Rate(own[rate], per, burst)
    return own | ({"backoff": Backoff(**backoff)} if backoff else {})


# The options that `queue alter` can switch off, each with the value for off.
_OFF: Mapping[str, Any] = {
    "dead_letter_to": None,
    "concurrency": None,
    "rate": None,
    "expires": None,
    "unique_for": None,
    "results": False,
}


def alter_options(command: F) -> F:
    """Add the options of `queue alter`: the options of a definition that can be altered, without defaults."""
    off = click.Choice([name.replace("_", "-") for name in _OFF])
    command = click.option("--off", type=off, multiple=True, help="Switch this off. May be repeated.")(command)
    features = ("dead_letter_to", "expires", "unique_for", "results", "batches", "dependencies")
    alterable = (*_RETRIES, "history", *features, *_LIMITS)
    for name in reversed(alterable):
        command = _OPTIONS[name](command)
        option = command.__click_params__[-1]  # type: ignore[attr-defined]
        option.default, option.show_default = None, False
        option.help = option.help.partition("  [default:")[0]
    return command


def altered_fields(definition: Definition, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that the options of `queue alter` change."""
    off = [name.replace("-", "_") for name in options["off"]]
    given = {name: value for name, value in options.items() if value is not None and name != "off"}
    if both := given.keys() & {*off}:
        raise click.UsageError(f"--{min(both).replace('_', '-')} is given a value and switched off.")
    backoff = {name.removeprefix("backoff_"): given.pop(name) for name in [*given] if name.startswith("backoff_")}
    if backoff:
        given["backoff"] = dataclasses.replace(definition.backoff, **backoff)
    rates = {"rate": "number", "rate_per": "per", "rate_burst": "burst"}
    rate = {field: given.pop(name) for name, field in rates.items() if name in given}
    if rate:
        parts = ({} if definition.rate is None else dataclasses.asdict(definition.rate)) | rate
        if "number" not in parts:
            raise click.UsageError("Give --rate too: the queue has none.")
        given["rate"] = Rate(**parts)
    return given | {name: _OFF[name] for name in off}
