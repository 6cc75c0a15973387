"""An asyncio client whose tasks are cancelled at any moment."""

from __future__ import annotations

import asyncio
import faulthandler
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import astuple
from pathlib import Path
from time import monotonic
from typing import Any

import sqlalchemy as sa
import sqlalchemy.ext.asyncio  # AsyncDatabase.engine would import it in the event loop

import tablequeue.aio
from tablequeue import TablequeueError
from tablequeue.aio import AsyncClaim, AsyncDatabase, AsyncQueue
from tablequeue.errors import Empty
from tests.stress.client import Client, options, size_of
from tests.stress.ledger import payload_of
from tests.stress.mix import LEASE

TASKS = 6
# Seconds for which the event loop stands still before its stacks are printed.
STILL = 3.0


def cancelling(client: Client, chance: random.Random) -> None:
    asyncio.run(_run(client, chance))


async def _run(client: Client, chance: random.Random) -> None:
    database = None
    while database is None:
        try:
            database = await tablequeue.aio.connect(client.setting.url, schema=client.setting.schema, name=client.who)
        except TablequeueError:
            await asyncio.sleep(0.1)
    watch = asyncio.create_task(_watch_the_loop(Path(client.setting.folder) / f"{client.who}.loop"))
    async with database:
        await asyncio.gather(*(_cancel_one_after_the_other(client, database, chance) for _ in range(TASKS)))
    watch.cancel()
    faulthandler.cancel_dump_traceback_later()


async def _watch_the_loop(path: Path) -> None:
    """Print the stacks of all threads when the event loop stands still."""
    with path.open("w") as file:
        while True:
            faulthandler.dump_traceback_later(STILL, file=file)
            await asyncio.sleep(STILL / 4)


async def _cancel_one_after_the_other(client: Client, database: Any, chance: random.Random) -> None:
    queues: dict[str, AsyncQueue] = {}
    while client.running():
        action = chance.choice([act for kind, act in ACTIONS if kind is None or kind in client.mix.kinds])
        name = chance.choice(client.mix.cancelled)
        try:
            queues[name] = queues.get(name) or await database.queue(name)
        except TablequeueError:
            await asyncio.sleep(0.1)
            continue
        task = asyncio.ensure_future(action(Noted(client, database, queues[name], name), chance))
        await asyncio.wait({task}, timeout=10 ** chance.uniform(-4, -0.5))
        task.cancel()
        try:
            await task
        except (TablequeueError, sa.exc.SQLAlchemyError, asyncio.CancelledError):
            pass
        await asyncio.sleep(chance.expovariate(1 / client.mix.pace))


class Noted:
    """The verbs of an AsyncQueue, each recorded."""

    def __init__(self, client: Client, database: AsyncDatabase, queue: AsyncQueue, name: str) -> None:
        self.client, self.database, self.queue, self.name = client, database, queue, name
        self.ledger = client.ledger

    async def push(self, chance: random.Random, number: int, txn: str = "", connection: Any = None) -> None:
        if self.client.board.full(self.name):
            return
        new = [self.client.new(self.name, chance) for _ in range(number)]
        with self.ledger.op("push", queue=self.name, new=[astuple(each) for each in new], txn=txn) as note:
            if number == 1:
                one = new[0]
                payload = payload_of(one.uid, size_of(one))
                note.pushed(await self.queue.push(payload, connection=connection, **options(one)))
            else:
                messages = [tablequeue.NewMessage(payload_of(each.uid, size_of(each)), **options(each)) for each in new]
                note.pushed(await self.queue.push_many(messages, connection=connection))

    async def take(self, n: int, txn: str, connection: Any) -> None:
        with self.ledger.op("take", queue=self.name, n=n, txn=txn) as note:
            note.got(await self.queue.take_many(n, connection))

    async def pop(self, n: int, completing: Sequence[AsyncClaim] = ()) -> list[AsyncClaim]:
        held = [[claim.id, claim.token] for claim in completing]
        with self.ledger.op("pop", queue=self.name, n=n, lease=LEASE, held=held) as note:
            if n == 1 and len(completing) < 2:
                one = await self.queue.pop(completing=completing[0] if completing else None)
                claims = [one] if one else []
            else:
                claims = await self.queue.pop_many(n, completing=completing)
            note.got(claims)
        return claims

    async def finish(self, verb: str, batch: Sequence[AsyncClaim], call: Awaitable[Any], **words: Any) -> None:
        held = [[claim.id, claim.token] for claim in batch]
        with self.ledger.op(verb, queue=self.name, held=held, **words) as note:
            state = await call
            if isinstance(state, str):
                note.state(state)


async def push(queue: Noted, chance: random.Random) -> None:
    await queue.push(chance, chance.choice([1, 1, 5]))


async def pop(queue: Noted, chance: random.Random) -> None:
    for claim in await queue.pop(1):
        await asyncio.sleep(chance.choice([0, 0.01]))
        await finish(queue, chance, claim)


async def finish(queue: Noted, chance: random.Random, claim: AsyncClaim) -> None:
    kinds, draw = queue.client.mix.kinds, chance.random()
    if "fail" in kinds and draw < 0.2:
        await queue.finish("fail", [claim], claim.fail("why", retry_in=0.05), delay=0.05, soonest=0.05)
    elif "release" in kinds and draw < 0.4 and queue.name != "once":
        await queue.finish("release", [claim], claim.release())
    else:
        await queue.finish("complete", [claim], claim.complete())


async def pop_many(queue: Noted, chance: random.Random) -> None:
    batch = await queue.pop(chance.choice([3, 20, 300]))
    if batch:
        await queue.finish("complete", batch, queue.queue.complete_many(batch))


async def chain(queue: Noted, chance: random.Random) -> None:
    batch = await queue.pop(1)
    for _ in range(3):
        if batch:
            batch = await queue.pop(1, completing=batch)
    if batch:
        await queue.finish("complete", batch, batch[0].complete())


async def receive(queue: Noted, chance: random.Random) -> None:
    """Receive a message: completed at the end of the block, released if the task is cancelled in it."""
    ledger = queue.ledger
    popping = ledger.begin("pop", queue=queue.name, by="receive", lease=LEASE, wait=0.2)
    finishing = ""
    try:
        async with queue.queue.receive(wait=0.2) as claim:
            ledger.end(popping, got=[[claim.id, claim.payload["uid"], claim.token, claim.attempt]])
            held = [[claim.id, claim.token]]
            try:
                await asyncio.sleep(chance.choice([0, 0, 0.01, 0.05]))
            except asyncio.CancelledError:
                finishing = ledger.begin("release", queue=queue.name, held=held)
                raise
            finishing = ledger.begin("complete", queue=queue.name, held=held)
    except Empty:
        ledger.end(popping, got=[])
    except BaseException as error:
        ledger.end_with(error, finishing or popping)
        raise
    else:
        ledger.end(finishing)


async def consume(queue: Noted, chance: random.Random) -> None:
    ledger, prefetch = queue.ledger, 1 if queue.name == "once" else chance.choice([1, 5])
    words = {"queue": queue.name, "by": "consume", "n": 0, "lease": LEASE, "since": monotonic()}
    with ledger.op("consume", queue=queue.name, n=prefetch, wait=0.05):
        async with aclosing(queue.queue.consume(wait=0.05, prefetch=prefetch)) as messages:  # type: ignore[type-var]
            while True:
                with ledger.op("pop", **words) as note:
                    claim = await anext(messages, None)
                    note.got([claim] if claim else [])
                if claim is None:
                    return
                await finish(queue, chance, claim)


async def in_a_transaction(queue: Noted, chance: random.Random) -> None:
    """Push and take on the caller's async driver. A task that is cancelled before the commit rolls back."""
    ledger, txn = queue.ledger, f"{queue.client.who}/a{next(queue.client.numbers)}"
    ending = ""
    try:
        async with queue.database.engine.connect() as connection:
            try:
                if chance.random() < 0.5:
                    await queue.take(chance.choice([1, 3]), txn, connection)
                await queue.push(chance, chance.choice([1, 3]), txn, connection)
                await asyncio.sleep(chance.choice([0, 0.01]))
                if chance.random() < 0.7:
                    with ledger.op("commit", txn=txn):
                        await connection.commit()
                else:
                    ending = ledger.begin("rollback", txn=txn)
            except BaseException:
                ending = ledger.begin("rollback", txn=txn)
                raise
    except BaseException as error:
        if ending:
            ledger.end_with(error, ending)
        raise
    else:
        if ending:
            ledger.end(ending)


Act = Callable[[Noted, random.Random], Awaitable[None]]
ACTIONS: list[tuple[str | None, Act]] = [
    (None, push),
    (None, push),
    (None, pop),
    (None, pop),
    (None, pop_many),
    (None, chain),
    ("consume", receive),
    ("consume", receive),
    ("consume", consume),
    ("late", in_a_transaction),
]
