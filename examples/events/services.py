"""The three services. Each reads the topic by a subscription of its own, and stores the number of every flight it gets.

python -m examples.events.services alerts|audit|lake URL FOLDER SHARE

A service that has stored SHARE flights takes one more batch, says so, and waits to be killed. With SHARE 0 it runs
until SIGTERM.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import sqlalchemy as sa

import tablequeue
from tablequeue import Claim, Database, LeaseLost
from tablequeue.worker import Finished, Worker

TOPIC = "events"
BATCH = 500
# Seconds that the slow service takes for a batch.
SLOW = 0.03
# Messages in a batch of the stream.
STREAMED = 100_000

stored: Counter[str] = Counter()


def alerts(url: str, folder: Path, share: int) -> None:
    """A worker with a handler of batches."""
    work = Worker(maximum=2)
    with tablequeue.connect(url, name="alerts") as database:

        @work.handler(f"{TOPIC}/alerts", batch=BATCH)
        def keep(messages: list[Claim]) -> Finished:
            store(database, "alerts", messages, share)
            return Finished()

        work.run(database)


def audit(url: str, folder: Path, share: int) -> None:
    """A slow consumer: a loop of its own. Nobody waits for it."""
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with tablequeue.connect(url, name="audit") as database:
        subscription = database.subscription(f"{TOPIC}/audit")
        while not stopped.is_set():
            messages = subscription.pop_many(BATCH)
            if messages:
                time.sleep(SLOW)
                with suppress(LeaseLost):  # this process slept for longer than its lease: they come again
                    store(database, "audit", messages, share)
            else:
                stopped.wait(0.05)


def lake(url: str, folder: Path, share: int) -> None:
    """A stream of Spark into Parquet. At the end it prints how many flights are in the lake, and how many distinct."""
    from pyspark.sql import functions as f

    from tablequeue.spark.session import local_session

    spark = local_session("events", folder / "spark")
    stopped = Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    # The position is also noted in the subscription, which shows the lag, and for which keep="consumed" waits.
    options = {"url": url, "topic": TOPIC, "subscription": "lake", "maxMessagesPerTrigger": str(share or STREAMED)}
    flights = spark.readStream.format("tablequeue").options(**options).load()
    query = (
        flights.selectExpr("offset", "cast(get_json_object(payload, '$.n') as int) as n", "payload")
        .writeStream.format("parquet")
        .option("path", str(folder / "lake"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    while not stopped.wait(0.05) and query.isActive:
        if share and query.lastProgress:
            spark.sparkContext._gateway.proc.kill()  # it is in a session of its own, and would end gracefully
            hold(f"after a batch of {share:,} messages")
    query.processAllAvailable()
    query.stop()
    counts = spark.read.parquet(str(folder / "lake")).agg(f.count("n"), f.countDistinct("n")).first()
    print(json.dumps([*counts]), flush=True)
    spark.stop()


def store(database: Database, service: str, messages: Sequence[Claim], share: int) -> None:
    """Store the flights and complete their messages in one transaction: both, or neither."""
    if share and stored[service] >= share:
        hold(f"with {len(messages):,} messages under a lease")
    with database.engine.begin() as connection:
        rows = [{"service": service, "n": message.payload["n"]} for message in messages]
        connection.execute(sa.text("insert into delivered values (:service, :n)"), rows)
        database.subscription(f"{TOPIC}/{service}").complete_many(messages, connection=connection)
    stored[service] += len(messages)


def hold(state: str) -> None:
    """Tell the parent in which state this service is, and wait to be killed."""
    print(state, flush=True)
    Event().wait()


SERVICES: dict[str, Callable[[str, Path, int], None]] = {"alerts": alerts, "audit": audit, "lake": lake}

if __name__ == "__main__":
    SERVICES[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
