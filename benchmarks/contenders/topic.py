"""A topic of tablequeue with one subscription, and a COPY into a table that is only a log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import sqlalchemy as sa

import tablequeue
from benchmarks.contenders import Contender
from benchmarks.contenders.ours import Tablequeue
from benchmarks.results import OURS

QUEUE, COPY = f"{OURS}, a queue", "COPY into a table with one index"


class Topic(Contender):
    name = OURS

    def __init__(self, url: str, subscriptions: int = 1) -> None:
        self._database = tablequeue.connect(url)
        self._topic = self._database.create_topic(f"bench_{subscriptions}", payload="text")
        self.subscriptions = [self._topic.subscribe(f"s{number}") for number in range(subscriptions)]

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._topic.push(payload)

    def push_bulk(self, payloads: Sequence[str]) -> None:
        self._topic.push_many(payloads)

    def drain_singly(self, number: int) -> list[str]:
        return drained(self.subscriptions[0], number, 1)

    def drain(self, number: int) -> list[str]:
        return drained(self.subscriptions[0], number, 1_000)

    def close(self) -> None:
        self._database.close()


class Queue(Tablequeue):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.name = QUEUE


class Copy(Contender):
    """The limit of a bulk push on PostgreSQL. It is emptied by one statement, which says nothing about a drain."""

    name = COPY

    def __init__(self, url: str) -> None:
        self._database = sa.create_engine(url)
        proxy = self._database.raw_connection()
        proxy.detach()
        self._dbapi = proxy.dbapi_connection
        self._cursor = proxy.cursor()
        self._cursor.execute(
            "create table bench_log (id bigint generated always as identity primary key, "
            "pushed_at timestamptz not null, payload text not null)"
        )
        proxy.commit()

    def push(self, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self._cursor.execute("insert into bench_log (pushed_at, payload) values (now(), %s)", (payload,))
            self._cursor.execute("commit")

    def push_bulk(self, payloads: Sequence[str]) -> None:
        now = datetime.now(UTC)
        with self._cursor.copy("copy bench_log (payload, pushed_at) from stdin") as copy:
            copy.write("".join(f"{payload}\t{now}\n" for payload in payloads))
        self._cursor.execute("commit")

    def drain_singly(self, number: int) -> list[str]:
        return self.drain(number)

    def drain(self, number: int) -> list[str]:
        self._cursor.execute("with gone as (delete from bench_log returning payload) select payload from gone")
        payloads = [row[0] for row in self._cursor.fetchall()]
        self._cursor.execute("commit")
        return payloads

    def close(self) -> None:
        self._cursor.close()
        self._database.dispose()


def drained(subscription: tablequeue.Consumer, number: int, size: int) -> list[str]:
    """Pop in batches; complete each with the pop of the next one. Return the payloads."""
    delivered: list[str] = []
    batch = subscription.pop_many(size)
    while batch:
        delivered += [message.payload for message in batch]
        if len(delivered) >= number:
            subscription.complete_many(batch)
            break
        batch = subscription.pop_many(size, completing=batch)
    return delivered
