"""The actions of a client's thread, one function for each kind. The verbs of `Client` record each call."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from time import monotonic, sleep

import sqlalchemy as sa

from tablequeue import LeaseLost, TablequeueError
from tablequeue.errors import Empty
from tests.stress.client import KEYS, Client, Held
from tests.stress.mix import LEASE, ordered

Action = Callable[[Client, random.Random], None]


def any_queue(client: Client, chance: random.Random, but: Sequence[str] = ()) -> str:
    """Choose a queue from which mixed clients may pop. The other queues have consumers of their own."""
    own = [queue for queue in client.mix.queues if queue not in (*reserved(client), *but)]
    return chance.choice(own or [queue for queue in client.mix.queues if queue not in but] or client.mix.queues)


def reserved(client: Client) -> list[str]:
    return [queue for queue, kind in (("waited", "wait"), ("worked", "worker")) if kind in client.mix.kinds]


def open_queue(client: Client, chance: random.Random) -> str | None:
    """Choose a queue to push to, unless it has enough messages."""
    queue = chance.choice(client.mix.queues)
    return None if client.board.full(queue) else queue


# -- pushes --------------------------------------------------------------------------------------------------------


def push(client: Client, chance: random.Random) -> None:
    if queue := open_queue(client, chance):
        client.push(queue, [client.new(queue, chance)])


def push_many(client: Client, chance: random.Random) -> None:
    if queue := open_queue(client, chance):
        client.push(queue, [client.new(queue, chance) for _ in range(chance.randint(2, 12))])


def flood(client: Client, chance: random.Random) -> None:
    """Push more messages than consumers ask for. Queues with one message in progress at a time have enough soon."""
    queue = open_queue(client, chance)
    if queue and not ordered(queue):
        client.push(queue, [client.new(queue, chance) for _ in range(300)])


def push_with_a_key(client: Client, chance: random.Random) -> None:
    """Use few keys, so that most of them exist. If delivery is at most once, the claim frees a key."""
    if queue := open_queue(client, chance):
        conflict = chance.choice(["raise", "skip", "return"])
        number = chance.choice([1, 1, 1, 3])
        keys = chance.sample(range(KEYS * 2), number)
        client.push(queue, [client.new(queue, chance, key=f"k{key}") for key in keys], conflict)


def push_late(client: Client, chance: random.Random) -> None:
    """Push in one to three transactions in turn, which stay open and end in another order."""
    with ExitStack() as stack:
        number = chance.choice([1, 2, 2, 3]) if client.setting.side_by_side else 1
        open_ones = [stack.enter_context(client.transaction(chance)) for _ in range(number)]
        same = open_queue(client, chance)
        for _ in range(chance.randint(1, 2)):
            for txn in open_ones:
                queue = same if chance.random() < 0.7 else open_queue(client, chance)
                if queue:
                    client.push(queue, [client.new(queue, chance) for _ in range(chance.choice([1, 1, 4]))], txn=txn)
                hold_open(client, chance)
        for txn in chance.sample(open_ones, len(open_ones)):
            if chance.random() < 0.75:
                txn.commit()
            else:
                txn.rollback()
            if len(open_ones) > 1:
                hold_open(client, chance)


def hold_open(client: Client, chance: random.Random) -> None:
    """Leave a transaction open for a while, sometimes for long. On SQLite nobody else can write in the meantime."""
    side_by_side = [0] * 8 + [0.01] * 8 + [0.1] * 8 + [0.4] * 8 + [1.0] * 8 + [4.0]
    sleep(chance.choice(side_by_side if client.setting.side_by_side else [0, 0.01, 0.05]))


# -- pops ----------------------------------------------------------------------------------------------------------


def pop(client: Client, chance: random.Random) -> None:
    for held in client.pop(any_queue(client, chance)):
        work_at(chance)
        finish(client, chance, held)


def pop_many(client: Client, chance: random.Random) -> None:
    batch = client.pop(any_queue(client, chance), chance.randint(2, 20))
    work_at(chance)
    finish_batch(client, chance, batch)


def chain(client: Client, chance: random.Random) -> None:
    """Complete each message with the pop of the next one."""
    queue, n = any_queue(client, chance), chance.choice([1, 1, 5])
    batch = client.pop(queue, n)
    for _ in range(chance.randint(1, 6)):
        work_at(chance)
        if not batch:
            return
        batch = client.pop(queue, n, completing=batch)
    finish_batch(client, chance, batch)


def large(client: Client, chance: random.Random) -> None:
    """Push and claim hundreds of messages, and finish them at once, in pieces, or with the next claim."""
    queue = any_queue(client, chance, but=["strict", "grouped"])
    if not client.board.full(queue):
        client.push(queue, [client.new(queue, chance) for _ in range(chance.choice([250, 400]))])
    batch = client.pop(queue, 400)
    if not batch:
        return
    work_at(chance)
    match chance.randrange(6):
        case 0:
            client.complete(batch)
        case 1:
            rest = client.pop(queue, 400, completing=batch)
            if rest:
                client.complete(rest)
        case 2:
            pieces = 1 + len(batch) // 3
            for start in range(0, len(batch), pieces):
                client.complete(batch[start : start + pieces])
        case 3:
            client.complete(batch[:1])
            client.complete(batch[1:] or batch)
        case 4:
            if "release" in client.mix.kinds:
                client.release(batch)
            else:
                client.complete(batch)
        case _:
            if "lease" not in client.mix.kinds:
                client.complete(batch)


def work_at(chance: random.Random) -> None:
    sleep(chance.choice([0, 0, 0.005, 0.02, 0.1]))


def finish(client: Client, chance: random.Random, held: Held) -> None:
    """Finish a message in a way that the mix allows."""
    kinds, draw = client.mix.kinds, chance.random()
    if "lease" in kinds and draw < 0.1:
        if draw < 0.04:
            client.extend(held, chance.choice([0.5, LEASE, 2 * LEASE]))
        sleep(chance.choice([0, 0.1, LEASE * 0.9, LEASE * 1.2, LEASE * 1.2]))
        if chance.random() < 0.5:
            return
    if "fail" in kinds and 0.1 < draw < 0.3:
        retry_in = chance.choice([None, 0, 0.05, 0.5])
        client.fail(held, retry_in, retry=chance.random() < 0.8)
    elif "release" in kinds and 0.3 < draw < 0.45:
        client.release([held], chance.choice([0, 0, 0.3]))
    elif "take" in kinds and 0.45 < draw < 0.55:
        complete_in_a_transaction(client, chance, [held])
    else:
        client.complete([held])


def finish_batch(client: Client, chance: random.Random, batch: Sequence[Held]) -> None:
    if not batch:
        return
    draw = chance.random()
    if "release" in client.mix.kinds and draw < 0.15:
        client.release(batch, chance.choice([0, 0, 0.3]))
    elif draw < 0.3:
        for held in batch:
            finish(client, chance, held)
    else:
        client.complete(batch)


# -- in transactions -----------------------------------------------------------------------------------------------


def complete_in_a_transaction(client: Client, chance: random.Random, batch: Sequence[Held]) -> None:
    with client.transaction(chance) as txn:
        client.complete(batch, txn)
        effect(client, chance, txn)
        hold_open(client, chance)
        end(chance, txn)


def take(client: Client, chance: random.Random) -> None:
    """Take or claim in a transaction that also has an effect, and commit or roll back."""
    queue = any_queue(client, chance)
    with client.transaction(chance) as txn:
        if chance.random() < 0.6 or queue == "once":
            batch = client.take(queue, chance.choice([1, 1, 5, 300 if "large" in client.mix.kinds else 5]), txn)
        else:
            batch = client.pop(queue, chance.choice([1, 5]), txn=txn)
            if batch and chance.random() < 0.5:
                client.complete(batch, txn)
                batch = []
        effect(client, chance, txn)
        hold_open(client, chance)
        end(chance, txn)


def lose(client: Client, chance: random.Random) -> None:
    """Complete in a transaction what was lost since it began; go on after the refusal, and commit or roll back."""
    queue = any_queue(client, chance, but=["once"])
    with client.transaction(chance) as txn:
        batch = client.pop(queue, 1)
        if batch:
            client.extend(batch[0], 0)
            pop(client, chance)
            with suppress(LeaseLost):
                client.complete(batch, txn)
        effect(client, chance, txn)
        hold_open(client, chance)
        end(chance, txn)


def effect(client: Client, chance: random.Random, txn: object) -> None:
    """Push a message, which is committed or rolled back with the transaction, like a row of an application."""
    queue = open_queue(client, chance)
    if queue and chance.random() < 0.7:
        client.push(queue, [client.new(queue, chance)], txn=txn)  # type: ignore[arg-type]


def end(chance: random.Random, txn: object) -> None:
    draw = chance.random()
    if draw < 0.65:
        txn.commit()  # type: ignore[attr-defined]
    else:
        txn.rollback()  # type: ignore[attr-defined]


# -- others --------------------------------------------------------------------------------------------------------


def consume(client: Client, chance: random.Random) -> None:
    """Consume a few messages of an iteration and close it, which releases the prefetched ones."""
    queue, wait = any_queue(client, chance), 0.05
    prefetch = 1 if queue == "once" else chance.choice([1, 1, 5])
    begins: deque[float] = deque(maxlen=prefetch)
    with client.ledger.op("consume", queue=queue, n=prefetch, wait=wait):
        messages = client.queue(queue).consume(wait=wait, prefetch=prefetch)
        try:
            for _ in range(chance.randint(1, 8)):
                begins.append(monotonic())
                words = {
                    "n": 0 if prefetch > 1 else 1,
                    "lease": LEASE,
                    "since": begins[0],
                    "wait": wait,
                    "by": "consume",
                }
                with client.ledger.op("pop", queue=queue, **words) as note:
                    claim = next(messages, None)
                    note.got([claim] if claim else [])
                if claim is None:
                    break
                finish(client, chance, Held(queue, claim))
        finally:
            messages.close()  # type: ignore[attr-defined]


def receive(client: Client, chance: random.Random, queue: str | None = None, wait: float = 0.05) -> None:
    """Receive one message. If the block raises an exception, the message has failed."""
    queue = queue or any_queue(client, chance)
    name = client.ledger.begin("pop", queue=queue, by="receive", lease=LEASE, wait=wait)
    ended = False
    try:
        with client.queue(queue).receive(wait=wait) as claim:
            note = [[claim.id, claim.payload["uid"], claim.token, claim.attempt]]
            client.ledger.end(name, got=note)
            ended = True
            work_at(chance)
            held, fails = Held(queue, claim), "fail" in client.mix.kinds and chance.random() < 0.2
            finishing = client.ledger.begin("fail" if fails else "complete", queue=queue, held=[held.words], delay=1.0)
            if fails:
                raise ValueError("the handler's own")
    except Empty:
        client.ledger.end(name, got=[])
    except ValueError:
        client.ledger.end(finishing, state="?")
    except Exception as error:
        client.ledger.end_with(error, finishing if ended else name)
        raise
    else:
        client.ledger.end(finishing)


def redrive(client: Client, chance: random.Random) -> None:
    queue = any_queue(client, chance, but=["once"])
    for letter in client.queue(queue).dead(5):
        with client.ledger.op("redrive", queue=queue, held=[[letter.id, ""]]) as note:
            note.words["n"] = client.queue(queue).redrive([letter.id])


# The actions that each kind allows, with their relative frequency.
ACTIONS: list[tuple[str | None, int, Action]] = [
    (None, 6, push),
    (None, 6, pop),
    (None, 2, chain),
    ("many", 3, push_many),
    ("many", 4, pop_many),
    ("large", 1, large),
    ("backlog", 2, flood),
    ("late", 3, push_late),
    ("take", 3, take),
    ("take", 2, lose),
    ("keys", 3, push_with_a_key),
    ("consume", 1, consume),
    ("consume", 1, receive),
    ("fail", 1, redrive),
]


def chosen_at_random(kinds: Sequence[str], chance: random.Random) -> Iterator[Action]:
    """Yield actions that these kinds allow, without end."""
    allowed = [each for each in ACTIONS if each[0] is None or each[0] in kinds]
    weights = [weight for _, weight, _ in allowed]
    while True:
        yield chance.choices(allowed, weights)[0][2]


def act(client: Client, chance: random.Random) -> None:
    """Act at random until the round winds down."""
    for action in chosen_at_random(client.mix.kinds, chance):
        if not client.running():
            break
        attempt(action, client, chance)
        client.close_at_times(chance)
        sleep(chance.expovariate(1 / client.mix.pace))


def attempt(action: Callable[..., None], *args: object) -> None:
    """Run an action. Its refusals, and calls that break off with the connection, are in the ledger already."""
    try:
        action(*args)
    except (TablequeueError, sa.exc.SQLAlchemyError):
        sleep(0.05)


# -- consumers that nothing befalls --------------------------------------------------------------------------------


def steady(client: Client, chance: random.Random, queues: Sequence[str]) -> None:
    """Pop from these queues and complete the messages, until the end of the round."""
    while not client.ended():
        for queue in queues:
            attempt(steady_step, client, chance, queue)
        client.close_at_times(chance)
        sleep(client.mix.pace)


def steady_step(client: Client, chance: random.Random, queue: str) -> None:
    little = "backlog" in client.mix.kinds and client.running()
    n = chance.choice([1, 1, 3] if little else [1, 3, 20, 300])
    if not (batch := client.pop(queue, n)):
        return
    for _ in range(5):
        if chance.random() < 0.3:
            batch = client.pop(queue, n, completing=batch)
        else:
            client.complete(batch)
            return
        if not batch:
            return
    client.complete(batch)


def waiting(client: Client, chance: random.Random, queue: str) -> None:
    """Wait for one message after the other, until the end of the round."""
    while not client.ended():
        attempt(receive, client, chance, queue, 3.0)
