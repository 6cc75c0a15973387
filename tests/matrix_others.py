"""What others do beside the open transaction of the matrix, with other messages and with other queues."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tablequeue import ALL
from tablequeue.errors import Locked
from tests.matrix import CALLED, LATER, Ground

Calls = Mapping[str, Callable[[], object]]


def others(ground: Ground) -> Iterator[Calls]:
    """Each step of the others: calls that are made at once, beside the open transaction."""
    yield _reads(ground) | _work(ground) | _elsewhere(ground)
    yield {"sweep": lambda: _swept(ground)}
    yield from ({name: call} for name, call in _keeping(ground).items())


def _reads(ground: Ground) -> dict[str, Callable[[], object]]:
    queue = ground.others
    calls: dict[str, Callable[[], object]] = {
        "peek": lambda: queue.peek(100, state="in_progress"),
        "stats": lambda: queue.stats(window=60),
        "dead": lambda: queue.dead(),
        "find": lambda: queue.find(1),
        "progress": lambda: queue.progress(1),
        "doctor": lambda: ground.scene.others.doctor(ground.name),
    }
    if ground.definition.keeps_history:
        calls |= {"history": lambda: queue.history(), "history_bounds": lambda: queue.history_bounds()}
    return calls


def _work(ground: Ground) -> dict[str, Callable[[], object]]:
    """What consumers and producers do, with other messages."""
    queue, definition = ground.others, ground.definition
    calls: dict[str, Callable[[], object]] = {
        "push": lambda: ground.pushing.push("x", **ground.plain()),
        "push_many": lambda: ground.pushing.push_many(ground.messages(3)),
    }
    if not ground.of_topic:
        calls |= {
            "push with another key": lambda: ground.pushing.push("x", key=secrets.token_hex(4), **ground.plain()),
            "push_many with other keys": lambda: ground.pushing.push_many(
                [ground.message(key=secrets.token_hex(4)) for _ in range(3)]
            ),
            "push with the lowest key": lambda: ground.pushing.push("x", key="\x01", **ground.plain()),
            "push with the highest key": lambda: ground.pushing.push("x", key="\U0010ffff", **ground.plain()),
            "reschedule": lambda: queue.reschedule(ground.scheduled[2], delay=LATER),
            "cancel": lambda: queue.cancel(ground.scheduled[3]),
        }
    finishing: dict[str, Callable[[Any], object]] = {
        "complete": lambda claim: queue.complete(claim),
        "fail": lambda claim: queue.fail(claim, "why"),
        "fail for good": lambda claim: queue.fail(claim, "why", retry=False),
    }
    if ground.leased:
        finishing |= {
            "release": lambda claim: queue.release(claim),
            "extend": lambda claim: queue.extend(claim, 90),
            "complete_many": lambda claim: queue.complete_many([claim]),
            "fail_many": lambda claim: queue.fail_many([claim]),
        }
        if not ground.of_topic:
            finishing |= {
                "report_progress": lambda claim: queue.report_progress(claim, 0.5),
                "cancel of what is in progress": lambda claim: queue.cancel(claim.id),
            }
    if definition.batches:
        finishing["batch_of"] = lambda claim: _more(ground, claim)
        calls["batch"] = lambda: _own_batch(ground)
        calls["empty batch"] = lambda: _own_batch(ground, 0)
    if definition.dependencies:
        calls["push after"] = lambda: ground.pushing.push("x", after=[ground.scheduled[4]], **ground.plain())
    if not definition.strict:
        finishing["pop completing"] = lambda claim: queue.pop_many(1, completing=[claim])
        if not ground.act.empty:
            calls["pop"] = lambda: _got(queue.pop_many(2))
    # A strict queue has one claim, so only the first of them is made.
    return calls | {
        name: partial(call, claim) for (name, call), claim in zip(finishing.items(), ground.theirs, strict=False)
    }


def _got(claims: list[Any]) -> None:
    assert claims, "gets nothing, though messages are ready"


def _more(ground: Ground, claim: Any) -> None:
    with ground.others.batch_of(claim) as batch:
        batch.push_many(ground.messages(1))


def _own_batch(ground: Ground, size: int = 2) -> None:
    with ground.pushing.batch(then=(CALLED, "x")) as batch:
        batch.push_many(ground.messages(size))


def _swept(ground: Ground) -> None:
    """Pop as a process that has just begun, which sweeps first."""
    ground.scene.others.consumer(ground.others.name).pop_many(1)


def _elsewhere(ground: Ground) -> dict[str, Callable[[], object]]:
    """What others do with other queues."""
    database = ground.scene.others
    own = database.queue(CALLED)

    def served() -> None:
        own.resume()
        own.purge(in_progress=True)
        with own.batch(then=(CALLED, "x")) as batch:
            batch.push_many(["a", "b"])
        own.push("x", key=secrets.token_hex(4))
        # Among callbacks of other batches.
        claim = next(claim for claim in own.pop_many(100) if claim.payload == "a")
        with own.batch_of(claim) as more:
            more.push("c")
        own.cancel(own.push("x"))
        own.push("x", after=[claim])
        claim.complete()
        own.pause(60)
        own.resume()
        own.purge()

    def lived() -> None:
        name = f"m{secrets.token_hex(4)}"
        made = database.create_queue(name, payload="text")
        made.alter(lease=50)
        database.rename(name, f"{name}r")
        made.drop()

    return {"all with another queue": served, "a queue that comes and goes": lived}


def _keeping(ground: Ground) -> Calls:
    """What operators do, one after the other."""
    queue = ground.others
    database = ground.scene.others
    calls: dict[str, Callable[[], object]] = {
        "pause": lambda: queue.pause(60),
        "resume": lambda: queue.resume(),
        "alter": lambda: queue.alter(lease=50),
        "redrive": lambda: queue.redrive(ALL),
        "purge_dead": lambda: queue.purge_dead(ALL),
    }
    if ground.definition.keeps_history:
        calls["purge_history"] = lambda: queue.purge_history(0)
    if ground.of_topic:
        calls["seek"] = lambda: _or_locked(lambda: queue.seek("end", force=True))
        calls["trim"] = lambda: _or_locked(lambda: ground.pushing.trim())
        return calls

    def moved() -> None:
        options: dict[str, Any] = {"groups": ground.definition.groups} if ground.grouped else {}
        queue.move(ALL, to=database.create_queue(f"{ground.name}_to", payload="text", **options), state="ready")

    stay = ground.definition.batches or ground.definition.dependencies
    moving = {} if stay else {"move": moved}
    return calls | moving | {"purge": lambda: queue.purge()}


def _or_locked(call: Callable[[], object]) -> None:
    try:
        call()
    except Locked:
        return
