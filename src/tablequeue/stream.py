"""Streams: batches of a queue that can be read again until they are safe elsewhere. What Spark reads by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tablequeue.operations import stream
from tablequeue.operations.stream import StreamState
from tablequeue.queue import Queue


class Stream:
    """A run of the stream `name`, which fences every run before it: they get `StreamRefused` when they go on.

    A batch is claimed without a lease. Its messages stay the stream's, whoever dies, until the stream advances past
    it, or `release` gives them back.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue = queue
        self.name = name
        self.epoch, self.found = stream.begin(queue._context, name)
        """`found`: the state that the run before left."""

    def advance(self, upto: int, n: int, *, last_id: int | None = None, now: datetime | None = None) -> int:
        """Batch `upto` is safe: complete it, with all before it, and claim up to `n` messages as the next batch.

        The number of the last batch: `upto + 1`, or `upto` if there was nothing to claim. A batch that is open already
        is handed out again, as it is. `last_id` leaves messages with higher ids to later batches.
        """
        return stream.advance(self.queue._context, self.name, self.epoch, upto, n, last_id, now)

    def complete(self, upto: int, *, now: datetime | None = None) -> None:
        """Batch `upto` is safe: complete it, with all before it. Those of it that failed become dead letters."""
        stream.complete(self.queue._context, self.name, self.epoch, upto, now)

    def batch(self, number: int) -> tuple[str, list[int]]:
        """The token and the ids of the open batch, to read it by; the same until the stream advances."""
        return stream.ids_of(self.queue._context, self.name, number)


def streams(queue: Queue) -> list[StreamState]:
    """The streams of a queue, by name."""
    return stream.states(queue._context)


def fail(queue: Queue, name: str, errors: Mapping[int, str]) -> None:
    """Messages of the open batch of a stream that cannot be processed: by id, why.

    They become dead letters when the batch is completed. Until then they are read with it again; saying so twice is
    once, and the last word counts.
    """
    stream.fail(queue._context, name, errors)


def complete(queue: Queue, name: str, upto: int) -> None:
    """Complete the batches of a stream that does not run, of which its checkpoint says that they are safe."""
    stream.complete(queue._context, name, None, upto, None)


def release(queue: Queue, name: str) -> int:
    """Give the messages of an abandoned stream back, unworked; how many. Its checkpoint cannot go on."""
    return stream.release(queue._context, name)


__all__ = ["Stream", "StreamState", "complete", "fail", "release", "streams"]
