"""Completes batches that a stopped query has finished, as its checkpoint says, but not yet completed in the queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tablequeue.bulk import stream
from tablequeue.bulk.identity import identity_of
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.queue import Queue
from tablequeue.spark.checkpoints import Origin


class LastBatch(NamedTuple):
    """The last batch of a stream in the checkpoint of a query; see `tablequeue.spark.checkpoints`."""

    database: str
    table: str
    queue: str
    stream: str
    batch: int
    token: str | None = None


def last_batches(checkpoint: Path) -> list[LastBatch]:
    """Return the last batch of each tablequeue stream of a query that its sink has.

    From the checkpoint's commit log, a folder of this machine. Empty if no batch was committed yet. `BadInput` for a
    folder that is no checkpoint.
    """
    try:
        (checkpoint / "metadata").read_bytes()  # Spark writes it first, and the logs when there is something to log
        batches = [int(file.name) for file in checkpoint.glob("commits/*") if file.name.isdigit()]
        if not batches:
            return []
        # A version, the query's own state, and a line for each source.
        _, _, *sources = (checkpoint / "offsets" / str(max(batches))).read_text("utf-8").splitlines()
        offsets = [json.loads(line) for line in sources if line != "-"]
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{str(checkpoint)!r} is not the checkpoint of a Spark query: {error}.",
            "Name the folder that was the query's checkpointLocation.",
        ) from None
    return [LastBatch(**offset) for offset in offsets if _ours(offset)]


def reconcile(checkpoint: Path, database: Database) -> list[LastBatch]:
    """Complete what the query of a checkpoint has finished, as the query itself does when it starts again.

    Call it only while the query does not run. Idempotent. `StreamRefused` for a checkpoint of another database.
    """
    found = last_batches(checkpoint)
    queues = [_queue(database, last) for last in found]
    for last, queue in zip(found, queues, strict=True):
        stream.complete(queue, last.stream, last.batch, last.token)
    return found


def _queue(database: Database, last: LastBatch) -> Queue:
    """Return the queue of a last, which may have another name now."""
    there = [database.queue(name) for name in database.queues()]
    found = next((queue for queue in there if identity_of(queue) == (last.database, last.table)), None)
    if found is None:
        found = database.queue(last.queue)
        Origin(found, last.stream).check(last._asdict())
    return found


def _ours(offset: Any) -> bool:
    return isinstance(offset, dict) and offset.keys() >= {*LastBatch._fields} - {*LastBatch._field_defaults}
