"""What a cleanly stopped query had finished: its checkpoint says so, and nobody has told the queue yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from tablequeue import stream
from tablequeue.database import Database
from tablequeue.errors import BadInput


class Place(NamedTuple):
    """How far the checkpoint of a query has come in a stream."""

    queue: str
    stream: str
    batch: int


def places(checkpoint: Path) -> list[Place]:
    """The streams of tablequeue that a query reads, and their last batches that are safe in its sink.

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
    """Complete what the query of a checkpoint has finished, and which it would say when it starts again.

    Only while the query does not run. Doing it twice is doing it once.
    """
    found = places(checkpoint)
    for place in found:
        stream.complete(database.queue(place.queue), place.stream, place.batch)
    return found


def _ours(offset: Any) -> bool:
    return isinstance(offset, dict) and offset.keys() == set(Place._fields)
