"""Checks that the broken twins of test_twins.py must fail: run against the real engines too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tablequeue import Claim, Queue
from tests.support import at, check_fenced, claimed, ids_of


def check_one_claim_one_consumer(consumers: Sequence[Queue]) -> None:
    """Consumers that pop at the same moment share the messages out."""
    ids = consumers[0].push_many("a" * (len(consumers) - 1))
    with ThreadPoolExecutor(len(consumers)) as threads:
        claims: list[Claim | None] = list(threads.map(lambda queue: queue.pop(), consumers))
    popped = [claim.id for claim in claims if claim is not None]
    assert sorted(popped) == ids, "each message goes to one consumer"


def check_fence_after_reclaim(slow: Queue, fast: Queue) -> None:
    """A consumer that outlived its lease can do nothing to the message that another one has now."""
    slow.push("x", now=at(0))
    old = claimed(slow, lease=10, now=at(0))
    new = claimed(fast, lease=10, now=at(10))
    assert new.id == old.id
    check_fenced(slow, old)
    new.complete(now=at(15))
    check_fenced(slow, old)


def check_poison_is_counted_at_claim(queue: Queue) -> None:
    """A message that kills every consumer is a dead letter after max_attempts claims."""
    id = queue.push("x", now=at(0))
    attempts = queue.definition.max_attempts
    for attempt in range(attempts):
        assert claimed(queue, lease=10, now=at(10 * attempt)).attempts == attempt + 1
    assert queue.pop(now=at(10 * attempts)) is None, "its attempts are spent"
    (letter,) = queue.dead()
    assert (letter.id, letter.attempts) == (id, attempts)
    assert [error.error for error in letter.errors] == ["lease expired"] * attempts
    assert [error.attempt for error in letter.errors] == list(range(1, attempts + 1))


@dataclass
class Expected:
    """What the reference comparator knows of one message."""

    state: str = "ready"
    attempts: int = 0
    until: float = 0
    claim: Any = None


def check_order(queue: Queue, seed: int, steps: int = 80) -> None:
    """A random life of a queue, beside the plainest model of what its order promises.

    `fifo` gives exactly the lowest ids that are ready; `heap` any that are, and as many as were asked for.
    """
    chance = random.Random(seed)
    model: dict[int, Expected] = {}
    time = 0
    for _ in range(steps):
        time += chance.choice([0, 0, 1, 5])
        step = chance.choice(["push", "pop", "pop", "finish", "finish"])
        if step == "push":
            delay = chance.choice([0, 0, 7])
            ids = queue.push_many(["x"] * chance.randint(1, 6), delay=delay, now=at(time))
            state = "scheduled" if delay else "ready"
            model.update({id: Expected(state, until=time + delay) for id in ids})
        elif step == "pop":
            _check_pop(queue, model, chance.choice([1, 1, 2, 5]), time)
        else:
            _finish_one(queue, model, chance, time)
    while any(message.state != "dead" for message in model.values()):
        time += 20
        for id in _check_pop(queue, model, 5, time):
            queue.complete(model.pop(id).claim, now=at(time))
    assert ids_of(queue.dead(1000)) == sorted(model)


def _check_pop(queue: Queue, model: dict[int, Expected], n: int, time: int) -> list[int]:
    for message in model.values():
        if message.state == "scheduled" and message.until <= time:
            message.state = "ready"
        elif message.state == "in_progress" and message.until <= time:
            message.state = "dead" if message.attempts >= queue.definition.max_attempts else "ready"
    ready = sorted(id for id, message in model.items() if message.state == "ready")
    claims = queue.pop_many(n, lease=12, now=at(time))
    popped = ids_of(claims)
    if queue.definition.order == "fifo":
        assert popped == ready[:n], "fifo: the lowest ids first"
    else:
        assert len(set(popped)) == len(popped) == min(n, len(ready)), "as many as were asked for"
        assert set(popped) <= set(ready), "only ready messages"
    for claim in claims:
        message = model[claim.id]
        message.state, message.until, message.claim = "in_progress", time + 12, claim
        message.attempts += 1
        assert claim.attempts == message.attempts
    return popped


def _finish_one(queue: Queue, model: dict[int, Expected], chance: random.Random, time: int) -> None:
    held = sorted(id for id, message in model.items() if message.state == "in_progress")
    if not held:
        return
    id = chance.choice(held)
    message = model[id]
    verb = chance.choice(["complete", "fail", "fail later", "release", "extend"])
    if verb == "complete":
        queue.complete(message.claim, now=at(time))
        del model[id]
    elif verb == "extend":
        queue.extend(message.claim, 30, now=at(time))
        message.until = time + 30
    elif verb == "release":
        queue.release(message.claim, now=at(time))
        message.state, message.attempts = "ready", message.attempts - 1
    else:
        wait = 9 if verb == "fail later" else 0
        state = queue.fail(message.claim, "no", retry_in=wait, now=at(time))
        spent = message.attempts >= queue.definition.max_attempts
        message.state = "dead" if spent else "scheduled" if wait else "ready"
        message.until = time + wait
        assert state == message.state
