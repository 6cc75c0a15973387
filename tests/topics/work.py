"""What the processes of these tests do. Fresh processes can import this module."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from tablequeue.bulk import staging
from tests.servers import Place


def create(place: Place, subscribes: bool, barrier: Any, pipe: Connection) -> None:
    """Make the same topic, or the same subscription, as all the others at the same moment. Push a message."""
    database = place.open()
    barrier.wait()
    topic = database.create_topic("events", payload="text")
    if subscribes:
        topic.subscribe("mail")
    pipe.send(topic.push("x"))
    place.close()


def hold_a_batch(place: Place, n: int, completed: int, pipe: Connection) -> None:
    """Pop a batch, complete some of it, report the ids, and hold the rest until killed."""
    queue = place.open("the dead").subscription("events/mail")
    batch = queue.pop_many(n)
    for claim in batch[:completed]:
        claim.complete()
    pipe.send([claim.id for claim in batch])
    pipe.recv()


def push_and_never_commit(place: Place, n: int, pipe: Connection) -> None:
    """Push a batch inside a transaction, report it, and hold the transaction until killed."""
    topic = place.open().topic("events")
    with place.sa_engine().begin() as connection:
        pipe.send(topic.push_many(map(str, range(n)), connection=connection))
        pipe.recv()


def stage_and_stop(place: Place, write: str, pipe: Connection) -> None:
    """Stage a part of a bulk write, report it, and wait until killed."""
    topic = place.open().topic("events")
    staging.stage(topic, write, "dead", 0, [pa.RecordBatch.from_pydict({"payload": ["a", "b"]})])
    pipe.send(True)
    pipe.recv()
