"""What a queue is: its name, order, payload, lease, retries and history. Pure: no database here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, get_args

from tablequeue.errors import BadDefinition
from tablequeue.model.pacing import (
    LARGEST,
    Backoff,
    Duration,
    Rate,
    check_count,
    check_duration,
    check_number,
    check_one_of,
    check_positive,
    in_seconds,
)

Order = Literal["fifo", "heap", "lifo", "due", "priority"]
PayloadType = Literal["json", "text", "bytes"]
Delivery = Literal["at_least_once", "at_most_once"]
Groups = bool | Literal["fair"]
"""Whether the messages of a group are in order, one at a time; `fair`: claims take one of each group in turn."""
Kept = Literal["keep", "none"]
History = Kept | Duration

ORDERS: tuple[Order, ...] = get_args(Order)
PAYLOADS: tuple[PayloadType, ...] = get_args(PayloadType)
Kind = Literal["queue", "topic", "subscription"]
Keep = Literal["forever", "consumed"] | Duration

KEEPS: tuple[str, ...] = ("forever", "consumed")
HISTORIES: tuple[Kept, ...] = get_args(Kept)
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)
FEATURES = ("expires", "unique_for", "results", "batches", "dependencies")
"""The options that switch a feature on. Each is a condition of the SQL texts; see `operations.conditions`."""
_DURATIONS = ("expires", "unique_for")
_FLAGS = ("strict", "results", "batches", "dependencies")
RETENTION = 30 * 86400.0
"""Seconds that finished messages stay in the history, if the option `history` is not given."""
MOST_CONCURRENT = 10_000
"""The highest limit of messages in progress: a claim looks at a row for each."""
LARGEST_LABELS = 40_000
"""The characters of all labels of a queue: with the rest they fit into the smallest column of a catalogue, 64 KB."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a queue, as it is stored in the catalogue.

    Its fields are the options of `Database.create_queue`, which explains them. Durations are kept as seconds.
    """

    order: Order = "fifo"
    strict: bool = False
    groups: Groups = False
    payload: PayloadType = "json"
    lease: float = 60.0
    max_attempts: int = 5
    backoff: Backoff = field(default_factory=Backoff)
    history: History = RETENTION
    delivery: Delivery = "at_least_once"
    dead_letter_to: str | None = None
    concurrency: int | None = None
    rate: Rate | None = None
    per_group: int | None = None
    group_rate: Rate | None = None
    expires: float | None = None
    unique_for: float | None = None
    results: bool = False
    batches: bool = False
    dependencies: bool = False
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    kind: ClassVar[Kind] = "queue"
    may_be_fair: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("lease", "history", *_DURATIONS):
            if isinstance(getattr(self, name), timedelta):
                object.__setattr__(self, name, in_seconds(getattr(self, name)))
        check_one_of("order", self.order, ORDERS)
        check_one_of("payload", self.payload, PAYLOADS)
        check_one_of("delivery", self.delivery, DELIVERIES)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise BadDefinition(f"{name} is {getattr(self, name)!r}.", "Give True or False.")
        self._check_grouping()
        self._check_history()
        self._check_batches()
        check_duration("lease", self.lease, "Give at most 100 years.")
        check_count("max_attempts", self.max_attempts, LARGEST)
        self._check_limits()
        self._check_labels()
        if self.dead_letter_to is not None:
            self._check_dead_letters()
        for name in _DURATIONS:
            if (value := getattr(self, name)) is not None:
                check_duration(name, value, "Give at most 100 years.")
        if not isinstance(self.backoff, Backoff):
            raise BadDefinition(f"backoff is {self.backoff!r}.", "Give a tablequeue.Backoff.")
        check_positive("backoff.cap", self.backoff.cap)
        check_positive("backoff.factor", self.backoff.factor)
        for name, value in (("backoff.base", self.backoff.base), ("backoff.jitter", self.backoff.jitter)):
            check_number(name, value)
            if value < 0:
                raise BadDefinition(f"{name} is {value!r}.", "Give a number that is not negative.")
        if self.backoff.jitter > 1:
            raise BadDefinition(f"backoff.jitter is {self.backoff.jitter!r}.", "Give a number from 0 to 1.")

    def _check_grouping(self) -> None:
        self._check_groups()
        if self.strict and self.fair:
            raise BadDefinition("Both strict and fair groups are given.", "Give one of the two.")
        if self.fair and self.order != "fifo":
            raise BadDefinition(f"Fair groups do not go with order={self.order!r}.", "Use order='fifo'.")
        if self.strict and self.groups:
            raise BadDefinition("Both strict and groups are given.", "Give groups alone: each group is strict.")
        if self.grouped and self.order != "fifo":
            raise BadDefinition(f"strict and groups do not go with order={self.order!r}.", "Use order='fifo'.")
        if self.grouped and self.delivery == "at_most_once":
            raise BadDefinition(
                "strict and groups do not go with at_most_once, which does not know when a message is finished.",
                "Use at_least_once with max_attempts=1.",
            )

    def _check_groups(self) -> None:
        if not isinstance(self.groups, bool) and (self.groups != "fair" or not self.may_be_fair):
            choice = "True, False or 'fair'" if self.may_be_fair else "True or False"
            raise BadDefinition(f"groups is {self.groups!r}.", f"Give {choice}.")

    def _check_history(self) -> None:
        if self.results and self.history == "none":
            raise BadDefinition(
                "results need a history: a result is kept as long as its message is.",
                "Use history='keep' or a retention.",
            )
        if isinstance(self.history, str):
            if self.history not in HISTORIES:
                raise BadDefinition(
                    f"history is {self.history!r}.", f"Give one of: {', '.join(HISTORIES)}, or a number of seconds."
                )
        else:
            check_duration("history", self.history, "Give at most 100 years, or 'keep'.")
        if not self.keeps_history and self.delivery == "at_most_once":
            raise BadDefinition(
                "at_most_once needs a history: a lost message is found there.", "Use history='keep' or a retention."
            )

    def _check_batches(self) -> None:
        if self.batches and self.delivery == "at_most_once":
            raise BadDefinition(
                "batches do not go with at_most_once, which does not know when a message is finished.",
                "Use at_least_once with max_attempts=1.",
            )
        if self.batches and self.dead_letter_to is not None:
            raise BadDefinition(
                "batches do not go with dead_letter_to: a dead letter of a batch stays in its queue.",
                "Leave one of the two out.",
            )

    def _check_dead_letters(self) -> None:
        if not isinstance(self.dead_letter_to, str) or not self.dead_letter_to:
            raise BadDefinition(f"dead_letter_to is {self.dead_letter_to!r}.", "Give the name of a queue.")
        if self.delivery == "at_most_once":
            raise BadDefinition(
                "dead_letter_to does not go with at_most_once, which has no dead letters.",
                "Use at_least_once with max_attempts=1; or find lost messages with lost().",
            )

    def _check_limits(self) -> None:
        if self.concurrency is not None:
            check_count("concurrency", self.concurrency, MOST_CONCURRENT)
            if self.delivery == "at_most_once":
                raise BadDefinition(
                    "concurrency does not go with at_most_once, which does not know when a message is finished.",
                    "Use at_least_once with max_attempts=1.",
                )
        if self.per_group is not None:
            check_count("per_group", self.per_group, MOST_CONCURRENT)
        for name in ("rate", "group_rate"):
            rate = getattr(self, name)
            if rate is not None and not isinstance(rate, Rate):
                raise BadDefinition(f"{name} is {rate!r}.", "Give a tablequeue.Rate.")
            if rate is not None:
                rate.check(name)
        if self.group_limited:
            self._check_group_limits()

    def _check_group_limits(self) -> None:
        if self.groups is True:
            raise BadDefinition(
                "per_group and group_rate do not go with groups=True, where one message of a group is in progress.",
                "Use groups='fair', or leave them out.",
            )
        if not self.fair:
            raise BadDefinition("per_group and group_rate need groups.", "Use groups='fair'.")
        if self.per_group is not None and self.delivery == "at_most_once":
            raise BadDefinition(
                "per_group does not go with at_most_once, which does not know when a message is finished.",
                "Use at_least_once with max_attempts=1.",
            )

    def _check_labels(self) -> None:
        texts = isinstance(self.labels, Mapping) and all(
            isinstance(text, str) for pair in self.labels.items() for text in pair
        )
        if not texts:
            raise BadDefinition("labels are not a dict of strings.", "Give strings as names and as values.")
        try:
            "".join(text for pair in self.labels.items() for text in pair).encode()
        except UnicodeEncodeError:
            raise BadDefinition(
                "The labels have a lone surrogate, which is no Unicode text.", "Give them without it."
            ) from None
        if sum(len(name) + len(value) for name, value in self.labels.items()) > LARGEST_LABELS:
            raise BadDefinition("The labels are too long.", f"Give at most {LARGEST_LABELS} characters in all.")

    @property
    def limited(self) -> bool:
        """Whether a claim may find messages ready and get fewer than it asks for."""
        return self.concurrency is not None or self.rate is not None or self.group_limited

    @property
    def group_limited(self) -> bool:
        """Whether a claim may pass over a group that has messages ready."""
        return self.per_group is not None or self.group_rate is not None

    @property
    def contended(self) -> bool:
        """Whether a claim locks a row that other claims need: the row of a rate, or a row that limits some groups."""
        return self.rate is not None or self.group_limited

    @property
    def limits_in_progress(self) -> bool:
        """Whether a message in progress may keep others from being claimed."""
        return self.concurrency is not None or self.per_group is not None

    @property
    def paced(self) -> bool:
        """Whether a claim spends a rate."""
        return self.rate is not None or self.group_rate is not None

    @property
    def grouped(self) -> bool:
        """Whether a message may hold up others. A strict queue is one group."""
        return self.strict or self.groups is True

    @property
    def fair(self) -> bool:
        """Whether claims take one message of each group in turn."""
        return self.groups == "fair"

    @property
    def arrangement(self) -> Order | Literal["fair"]:
        """How the messages that are ready are arranged for claims: by the order, or by groups that take turns."""
        return "fair" if self.fair else self.order

    @property
    def takes_groups(self) -> bool:
        """Whether a message may name a group."""
        return bool(self.groups)

    @property
    def needs_groups(self) -> bool:
        """Whether each message must name its group."""
        return self.groups is True

    @property
    def claims_ranges(self) -> bool:
        """Whether a claim may be one range of a log: then no other row has its token."""
        return False

    @property
    def keeps_history(self) -> bool:
        return self.history != "none"

    @property
    def retention(self) -> float | None:
        """Seconds that a finished message stays in the history; None: for ever."""
        return self.history if isinstance(self.history, (int, float)) else None

    def to_dict(self) -> dict[str, Any]:
        """Return what the catalogue holds: options that are off are left out."""
        optional = ("dead_letter_to", "concurrency", "rate", "per_group", "group_rate", "labels", *FEATURES)
        return {name: value for name, value in dataclasses.asdict(self).items() if value or name not in optional}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        rates = {name: Rate(**values[name]) for name in ("rate", "group_rate") if values.get(name)}
        return cls(**{**values, "backoff": Backoff(**values["backoff"]), **rates})

    def differences(self, other: Definition) -> list[str]:
        """Return a line for each option that differs, with this definition's value first. Labels may differ."""
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        names = [name for name in mine if name != "labels" and mine[name] != theirs[name]]
        return [f"{name}: {mine[name]!r} is not {theirs[name]!r}" for name in names]


@dataclass(frozen=True, slots=True)
class TopicDefinition(Definition):
    """The definition of a topic. It uses only `payload` and `groups` of the fields of a queue's definition."""

    keep: Keep = "forever"
    kind: ClassVar[Kind] = "topic"
    may_be_fair: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        if isinstance(self.keep, str):
            check_one_of("keep", self.keep, KEEPS)
        else:
            object.__setattr__(self, "keep", in_seconds(self.keep))
            check_duration("keep", self.keep, "Give at most 100 years, or 'forever'.")

    @property
    def grouped(self) -> bool:
        return False

    @property
    def retention(self) -> float | None:
        """Seconds that a message stays in the log at least; None: for ever."""
        return 0.0 if self.keep == "consumed" else self.keep if isinstance(self.keep, (int, float)) else None

    @property
    def takes_groups(self) -> bool:
        return True

    @property
    def history_of_detached(self) -> History:
        """The `history` of its subscriptions: messages that they detach are kept as long as the log, or longer."""
        return "keep" if isinstance(self.keep, str) else self.keep


@dataclass(frozen=True, slots=True)
class SubscriptionDefinition(Definition):
    """The definition of a subscription: the definition of the queue for its detached messages, and its topic's name.

    If it is `ordered`, all of its messages go through that queue, which has groups.
    """

    topic: str = ""
    kind: ClassVar[Kind] = "subscription"
    may_be_fair: ClassVar[bool] = False

    @property
    def ordered(self) -> bool:
        return self.groups is True

    @property
    def claims_ranges(self) -> bool:
        return not self.ordered


KINDS: dict[Kind, type[Definition]] = {
    kind.kind: kind for kind in (Definition, TopicDefinition, SubscriptionDefinition)
}


def kind_of(values: dict[str, Any]) -> Kind:
    """Return the kind of an entry of the catalogue: queue, topic or subscription."""
    return "topic" if "keep" in values else "subscription" if "topic" in values else "queue"


def table_in(entry: str) -> str:
    """Return the name of the table in an entry of the catalogue."""
    table: str = json.loads(entry)["table"]
    return table


def definition_of(entry: str) -> tuple[Definition, str]:
    """Return the definition in an entry of the catalogue, and the name of the table."""
    values = json.loads(entry)
    table_name = values.pop("table")
    return KINDS[kind_of(values)].from_dict(values), table_name


__all__ = [
    "Definition",
    "Delivery",
    "Groups",
    "History",
    "Keep",
    "Kind",
    "Order",
    "PayloadType",
    "SubscriptionDefinition",
    "TopicDefinition",
]
