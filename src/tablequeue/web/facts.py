"""The definition of a queue or a subscription as its page lists it: every option that is set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tablequeue.model.definition import Definition, SubscriptionDefinition
from tablequeue.model.pacing import Backoff, Rate
from tablequeue.verbs.readable import duration, number

Words = Callable[[Any], str]


def _rate(rate: Rate) -> str:
    return f"{rate.number:g} in {duration(rate.per)}, {number(rate.burst)} at once"


def _backoff(backoff: Backoff) -> str:
    times = f"{duration(backoff.base)} \N{MULTIPLICATION SIGN} {backoff.factor:g}"
    jitter = f", up to {backoff.jitter:.0%} less at random" if backoff.jitter else ""
    return f"{times}, at most {duration(backoff.cap)}{jitter}"


def _history(history: str | float) -> str:
    return history if isinstance(history, str) else duration(history)


def _words(value: str) -> str:
    return value.replace("_", " ")


# Each field of a definition: its name on the page, and its value in words. A field that is off is left out.
FACTS: Mapping[str, tuple[str, Words]] = {
    "topic": ("topic", str),
    "order": ("order", str),
    "strict": ("strict", lambda strict: "one in progress at a time"),
    "groups": ("groups", lambda groups: "in turn" if groups == "fair" else "one by one in each group"),
    "payload": ("payload", str),
    "delivery": ("delivery", _words),
    "lease": ("lease", duration),
    "max_attempts": ("maximum attempts", number),
    "backoff": ("backoff", _backoff),
    "history": ("history", _history),
    "dead_letter_to": ("dead letters go to", str),
    "concurrency": ("concurrency", number),
    "rate": ("rate", _rate),
    "per_group": ("concurrency of a group", number),
    "group_rate": ("rate of a group", _rate),
    "expires": ("expires", duration),
    "unique_for": ("keys unique for", duration),
    "results": ("results", lambda results: "kept"),
    "batches": ("batches", lambda batches: "allowed"),
    "dependencies": ("dependencies", lambda dependencies: "allowed"),
    "labels": ("labels", lambda labels: ", ".join(f"{name} = {text}" for name, text in sorted(labels.items()))),
}
# The options that a subscription cannot choose.
NOT_OF_A_SUBSCRIPTION = ("order", "delivery", "history")


def facts(definition: Definition) -> dict[str, str]:
    """Return the name and the value of each option that is set."""
    values = {field: getattr(definition, field, None) for field in FACTS}
    if isinstance(definition, SubscriptionDefinition):
        in_order = None if definition.ordered else "as they became visible"
        values |= dict.fromkeys(NOT_OF_A_SUBSCRIPTION) | {"order": in_order}
    return {FACTS[field][0]: FACTS[field][1](value) for field, value in values.items() if value}
