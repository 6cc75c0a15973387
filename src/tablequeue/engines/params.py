"""The parameters of operations: their names, which are `:name` in the SQL, their types and their meanings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from tablequeue.model.definition import Definition

Time = Any
"""A time as the driver takes it; see `Engine.dump_time`."""
Ids = Any
"""A list of ids as one parameter; see `Engine.dump_ids`."""


class Params(TypedDict, total=False):
    """The parameters of one call of an operation. Each operation needs those that its SQL and its method name.

    At run time this is a plain dict, which goes to the cursor unchanged.
    """

    # Common to many operations
    now: Time | None
    """The time to use; None: the database's clock."""
    n: int
    """The maximum number of messages."""
    live: int
    """The maximum number of messages of a state in the queue."""
    id: int
    ids: Ids
    token: str | None
    """The token of a claim; None for a take."""
    low: int
    high: int | None
    """The lowest and the highest id."""
    after: int
    """The id after which to look."""
    served: Any
    """The slot of the group of a fair queue that was served last."""
    slot: Any
    """The slot of the group of a fair queue to claim from."""
    starts: Any
    above: Any
    ends: Any
    """The segments of the ring of a fair queue: from a slot and an id on, without these, up to a slot."""
    age: float
    """Seconds since an event; of a condition, the minimum."""
    since: Time
    until: Time
    """The interval in which messages were finished: from `since` on, before `until`; of `archivable`, up to it."""
    state: str
    """A state of messages. It is written into the text as a literal."""

    # Messages
    payload: Any
    payloads: Sequence[str | bytes]
    headers: Any
    delay: float | None
    """Seconds until the message is ready."""
    due: Time | None
    """The time at which the message is ready."""
    expires: float | None
    """Seconds until the message expires; None: those of the queue."""
    priority: int | None
    group: str | None
    """The group of a message, or the one of which to claim."""
    passed: str
    """Groups that a claim takes only if no other one has something ready, as JSON."""
    by_group: str
    """Groups with what a claim needs of each, by their slots, as JSON."""
    key: str | None
    keys: Any
    """Deduplication keys: a list. Some engines send it as JSON."""
    unique_for: float | None
    """Seconds that the key of the message stays taken; None: those of the queue."""
    seen: int
    """1: a look on a connection of our own has found keys free, or a message in progress."""
    taken: str
    """Keys with their seconds, or with the ids of messages, as JSON."""
    ended: str
    """Keys that messages lose, with the ids of these messages, as JSON."""
    result: str
    """The result of a message, as JSON."""
    producer: str
    consumer: str
    rows: Any
    """Messages with options of their own, each a Params; or their JSON."""
    columns: Any
    """Messages as an Arrow batch."""
    place: int | Sequence[int]
    """The position of a message in its call."""

    # Claims and finishes
    lease: float
    """Seconds."""
    run: int
    """Of a claim of one group: 1 if the run closes it, -1 if the run is open."""
    delays: Any
    """The delays of messages that fail; see `Engine.dump_delays`."""
    look: int
    """The maximum number of messages that a claim looks at."""
    low_water: int
    """The low-water mark: a claim looks only at ids above it."""
    since_sweep: float | None
    """Seconds before now in which a sweep looks for messages that are due, or whose lease has expired; None: all."""
    until_lease: float | None
    """Seconds from now on in which a look finds leases that end; None: all of them."""
    held: str
    """The token of the messages that `complete_and_claim` completes."""
    number: int
    """The number of `ids`."""
    error: str | None
    """The text of an error; None: there is none."""
    errors: str
    """The errors of a message, as JSON."""
    max_attempts: int
    origin: str
    """The name of the queue that dead letters move from."""
    attempts: Any
    """How often a message was claimed; for `publish`, the names of the attempts to publish."""
    pushed_at: Time
    popped_at: Time
    lease_until: Time
    slots: str
    """Free places of a queue, each with its note, as JSON."""
    places: str
    """Places, each with the message that it is to note, as JSON."""
    removes: bool
    """Whether messages are removed, so that none is in progress after that."""
    within: bool
    """Whether the operation runs in a caller's transaction."""

    # Progress
    fraction: float
    """How much of the work on a message is done, from 0 to 1."""
    detail: str | None
    """What else its consumer reports, as JSON."""

    # Dependencies
    message: int
    """The id of a message that waits for others."""
    on_table: str
    """The table of a message that it waits for; "" in the head."""
    on_id: int

    # Batches
    batch_id: int | None
    """The batch of a message; None: it is in none."""
    on_dead: str
    then_push: str | None
    failed_push: str | None
    """What a batch pushes when it ends, and when it has a dead letter, as JSON."""
    pushed: int
    cancelled: int
    dead: int
    """Numbers of messages of a batch; of a look, `dead` is 1 if it finds dead letters too."""

    # Topics, and their subscriptions
    sum: int
    """The sum of the `number` ids of a range."""
    least: int
    """The minimum number of messages of a range."""
    left_ids: str
    """The ids of the messages that have left a range, as JSON."""
    apart_ids: str
    """The messages of a range that were detached, as JSON."""
    runs: str
    """Runs of a topic, as JSON: their first offset, first id and last id."""
    pieces: str
    """Pairs of a first and a last id, as JSON."""
    first_offset: int
    last_offset: int
    last_id: int
    highest: int
    """The highest id of a topic that was ever dropped."""
    version: int
    """The number of changes of the offsets of a topic, as a look has seen it; it is counted down."""
    all_holes: bool
    """Whether to look at all holes of a topic."""
    start: int
    """An offset."""
    end: int
    """The offset after the last one."""
    final: bool
    """Whether to leave out the ranges in progress, because their time of the finish may still change."""
    consumed: bool
    """Whether a topic keeps what some subscription has not consumed."""
    tables: Sequence[Any]
    """The tables of the subscriptions of a topic."""
    force: bool
    """Whether to seek while messages are in progress."""
    to_end: bool
    """Whether to seek to the end of the log, wherever that is by now."""

    # Moves between databases
    new_id: int
    """The id of a message in the database to which it has moved."""
    first_popped_at: Time
    finished_at: Time
    expires_at: Time
    outcome: str | None
    """How a message of the history left its queue, if it was not completed."""

    # The catalogue, and reads
    name: str
    """The name of a queue, or of a schedule."""
    cron: str
    """The expression of a schedule, with its time zone."""
    new_name: str
    definition: str
    """The entry of a queue; see `Table.entry`."""
    before: Definition
    """The definition that another one replaces."""
    schema_version: int
    table: str
    """The name of a table, with its schema."""
    stem: str
    """The beginning of names of tables, without the schema."""
    check: str
    """The operation of a check of `doctor`."""
    operation: str
    """The operation whose text `literal` returns, or which `of_many` runs."""

    # Streams, and writes of many processes
    stream: str
    batch: int
    """The number of a batch, of a stream or of a writer."""
    completed: int
    claim: str | None
    """The token of the open batch; None if no batch is open."""
    failures: str
    """What is known of the open batch, as JSON; see `tablequeue.bulk.failures`."""
    write: str
    attempt: str
    """The name of an attempt at a part of a write."""
    part: int
    keyed: bool
    """Whether any message of a write may have a key."""
    writer: str | None

    # Results of tasks, and chords
    body: bytes
    """A result; of a chord, what is sent when it is complete."""
    success: bool
    """Whether a result is final: a later one does not replace it."""
    chord: str | None
    member: str
    """A part of a chord; `place` is its place among them."""
    returned: bytes
    """What it has returned."""
    after_chord: str
    """The chord after which to look."""
