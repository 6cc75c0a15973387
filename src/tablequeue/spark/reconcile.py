"""Completes batches that a stopped query has finished, as its checkpoint says, but not yet completed in the queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tablequeue.bulk import stream
from tablequeue.database import Database
from tablequeue.errors import BadInput


class Place(NamedTuple):
    """The last batch of a stream in the checkpoint of a query."""

    queue: str
    stream: str
    batch: int


def places(checkpoint: Path) -> list[Place]:
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
    return [Place(**offset) for offset in offsets if _ours(offset)]


def reconcile(checkpoint: Path, database: Database) -> list[Place]:
    """Complete what the query of a checkpoint has finished, as the query itself does when it starts again.

    Call it only while the query does not run. Idempotent.
    """
    found = places(checkpoint)
    for place in found:
        stream.complete(database.queue(place.queue), place.stream, place.batch)
    return found


def _ours(offset: Any) -> bool:
    return isinstance(offset, dict) and offset.keys() == set(Place._fields)
