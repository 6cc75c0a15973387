"""The parameters of operations: their names in the SQL as `:name`, their types, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

Time = Any
"""A time as the driver wants it; see `Engine.dump_time`."""
Ids = Any
"""A list of ids as one parameter; see `Engine.dump_ids`."""


class Params(TypedDict, total=False):
    """What one call of an operation is given. Each operation needs those that its SQL and its method name.

    Types alone: at run time it is a dict, which goes to the cursor as it is.
    """

    # What many have
    now: Time | None
    """The time to use; None: the database's clock."""
    n: int
    """How many messages, at most."""
    id: int
    ids: Ids
    token: str | None
    """The token of a claim; None for a take."""
    low: int
    high: int | None
    """The lowest and the highest id."""
    after: int
    """The id after which to look."""
    age: float
    """Seconds since something happened, at least."""
    since: Time
    until: Time
    """When the messages were finished: from `since` on, before `until`."""
    state: str
    """A state of messages, which is spelled into the text."""

    # Messages
    payload: Any
    payloads: Sequence[str | bytes]
    headers: Any
    delay: float | None
    """Seconds until it is ready."""
    due: Time | None
    """When it is ready."""
    priority: int
    group: str | None
    key: str | None
    keys: Any
    """Deduplication keys: a list, which some engines send as JSON."""
    producer: str
    consumer: str
    rows: Any
    """Messages with parameters of their own, each a Params; or JSON of them."""
    place: int | Sequence[int]
    """The number of a message among those of its call."""

    # Claims and finishes
    lease: float
    """Seconds."""
    seen: Any
    """What `look` found, where a claim looks apart."""
    look: int
    """Messages that a claim looks at."""
    low_water: int
    """The id above which a claim begins."""
    held: str
    """The token of what `complete_and_claim` completes."""
    number: int
    """How many `ids` there are."""
    error: Any
    """The words of an error; for `put_back` what is kept of an attempt, as a dict."""
    errors: str
    """The errors of a message, as JSON."""
    max_attempts: int
    attempts: Any
    """How often a message was claimed; for `publish` the attempts at the parts of a write."""
    pushed_at: Time
    popped_at: Time
    lease_until: Time
    within: bool
    """Whether the operation runs in a caller's transaction."""

    # The catalogue, and what looks
    name: str
    """The name of a queue, or of a schedule."""
    names: Sequence[str]
    """The names of all queues."""
    definition: str
    """The entry of a queue; see `Table.entry`."""
    schema_version: int
    table: str
    """The name of a table, with its schema."""
    check: str
    """The operation of a check of `doctor`."""
    operation: str
    """The operation whose text is asked for; see `literal`."""

    # Streams, and writes of many processes
    stream: str
    batch: int
    """The number of a batch, of a stream or of a writer."""
    completed: int
    claim: str | None
    """The token of the open batch; None if no batch is open."""
    failures: str
    """Errors of messages of the open batch by id, as JSON."""
    write: str
    attempt: str
    """The name of an attempt at a part of a write."""
    part: int
    keyed: bool
    """Whether any message of a write may have a key."""
    writer: str | None
