"""The errors. Each says its cause in one sentence and its remedy in another."""

from __future__ import annotations

from collections.abc import Sequence


class TablequeueError(Exception):
    """The base of all errors: `cause` says why, `remedy` says what to do about it."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause} {remedy}")
        self.cause = cause
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (multiprocessing, Spark): rebuild from the two sentences.
        return (self.__class__, (self.cause, self.remedy), self.__dict__)


class BadUrl(TablequeueError):
    """The database URL cannot be read, or names a database that tablequeue does not support."""


class DriverMissing(TablequeueError):
    """The Python driver of this database is not installed."""


class Unreachable(TablequeueError):
    """The database did not answer, or refused the login."""


class ConnectionLost(TablequeueError):
    """The connection broke during a call. It is not known whether that call took effect."""


class QueueNotFound(TablequeueError):
    """There is no queue of this name; or the one that was opened was dropped."""


OPEN_AGAIN = "If it was dropped, open the queue that has its name now, or create it again."
"""The remedy of `QueueNotFound` where a table is gone: a `Queue` never opens another queue that gets its name later."""


class BatchNotFound(TablequeueError):
    """There is no batch with that id."""


class QueueDiffers(TablequeueError):
    """A queue, or some other table, of this name already exists with another definition."""


class SeekRefused(TablequeueError):
    """Messages of the subscription are in progress, so its position was not changed."""


class BadName(TablequeueError):
    """A queue, topic, subscription, schema or pipeline cannot have the name."""


class BadDefinition(TablequeueError):
    """An option of a queue has a value that is not possible."""


class BadInput(TablequeueError):
    """An argument, or a line of a file, cannot be used; nothing was changed."""


class BadPayload(BadInput):
    """The queue's payload type cannot hold this payload exactly; nothing was pushed."""


class DuplicateKey(BadInput):
    """A live message has this deduplication key already; nothing was pushed. `keys` are the keys that are taken."""

    def __init__(self, cause: str, remedy: str, keys: Sequence[str] = ()) -> None:
        super().__init__(cause, remedy)
        self.keys = tuple(keys)


class Cancelled(TablequeueError):
    """The message was cancelled while its consumer worked on it: `Claim.raise_if_cancelled`, or a worker, raises it."""

    def __init__(
        self, cause: str = "The message was cancelled while it was in progress.", remedy: str = "Stop working on it."
    ) -> None:
        super().__init__(cause, remedy)


class Empty(TablequeueError):
    """No message was ready in the time given."""


class LeaseLost(TablequeueError):
    """The lease is no longer held: the message was claimed again, finished or dropped.

    `ids` names these messages. They were not changed; the others of the same call were finished.
    """

    def __init__(self, cause: str, remedy: str, ids: Sequence[int] = ()) -> None:
        super().__init__(cause, remedy)
        self.ids = tuple(ids)


class StreamNotFound(TablequeueError):
    """The queue has no stream of that name."""


class StreamRefused(TablequeueError):
    """This run of a stream may not go on: another one took over, or its checkpoint does not fit the queue.

    Nothing was changed.
    """


class MessagesDropped(TablequeueError):
    """Messages of a topic that were to be read were dropped by its retention."""


class Locked(TablequeueError):
    """Another program holds a lock that the call needs, or a time-out of the database ended it; nothing was changed."""


class ForkUnsafe(TablequeueError):
    """The process was forked while a connection to the database was in use, so it cannot use that database."""


class ReadOnly(TablequeueError):
    """The database cannot be written to."""


class Full(TablequeueError):
    """The disk or the database is full; nothing was changed."""


class Conflict(TablequeueError):
    """The database refused or rolled back this transaction because of a concurrent one; nothing was changed.

    A transaction of the caller must be rolled back, and begun again.
    """


class NoResult(TablequeueError):
    """A message has no result: it is not finished, or it never will be. `state` is its state; None: no such message."""

    def __init__(self, cause: str, remedy: str, state: str | None = None) -> None:
        super().__init__(cause, remedy)
        self.state = state


class NoRights(TablequeueError):
    """The database user may not do this."""


class SchemaTooNew(TablequeueError):
    """The queue was made by a newer tablequeue."""


class SchemaTooOld(TablequeueError):
    """The queue was made by an older tablequeue and has not been upgraded."""


class DatabaseError(TablequeueError):
    """The database refused a statement for a reason that no other class of error covers."""


class ArchiveRefused(TablequeueError):
    """A file of an archive cannot be read, or differs from the history: its messages were not deleted there."""


class ReportFailed(TablequeueError):
    """Spark could not finish a report. The lake is intact: the next report can use it."""


class PipelineFailed(TablequeueError):
    """A stage of a pipeline failed. The next run goes on with the same batch."""


class HandlerFailed(TablequeueError):
    """The processes of a handler do not become ready. The worker has stopped, and has released its messages."""


__all__ = [
    "ArchiveRefused",
    "BadDefinition",
    "BadInput",
    "BadName",
    "BadPayload",
    "BadUrl",
    "BatchNotFound",
    "Cancelled",
    "Conflict",
    "ConnectionLost",
    "DatabaseError",
    "DriverMissing",
    "DuplicateKey",
    "Empty",
    "ForkUnsafe",
    "Full",
    "HandlerFailed",
    "LeaseLost",
    "Locked",
    "MessagesDropped",
    "NoResult",
    "NoRights",
    "PipelineFailed",
    "QueueDiffers",
    "QueueNotFound",
    "ReadOnly",
    "ReportFailed",
    "SchemaTooNew",
    "SchemaTooOld",
    "SeekRefused",
    "StreamNotFound",
    "StreamRefused",
    "TablequeueError",
    "Unreachable",
]


TRANSIENT = (ConnectionLost, Unreachable, Locked, Conflict, Full, ReadOnly)
"""The errors after which the same call may succeed later: the database is away, full, or locked by another program."""
