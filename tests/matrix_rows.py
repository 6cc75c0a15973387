"""The rows and columns of the matrix: what is called in the open transaction, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tablequeue import LeaseLost, Rate
from tablequeue.errors import BadInput, DuplicateKey
from tests.matrix import CALLED, LATER, TAKEN, Act, Design, Ground
from tests.support import DESIGNS

FAST = Rate(1_000_000, burst=1_000_000)
MANY = 1000
COLUMNS: dict[str, Design] = {
    **{name: Design(options) for name, options in DESIGNS.items()},
    "unique_for": Design({"unique_for": 600}),
    "batches": Design({"batches": True}),
    "dependencies": Design({"dependencies": True}),
    "results": Design({"results": True}),
    "expires": Design({"expires": LATER}),
    "once": Design({"delivery": "at_most_once"}),
    "no history": Design({"history": "none"}),
    "concurrency": Design({"concurrency": MANY}),
    "rate": Design({"rate": FAST}),
    "per_group": Design({"groups": "fair", "per_group": MANY}),
    "group_rate": Design({"groups": "fair", "group_rate": FAST}),
    "subscription": Design({}, ordered=False),
    "ordered subscription": Design({}, ordered=True),
}


# Which designs have a verb.
Fits = Callable[[Design], bool]


def _queue(design: Design) -> bool:
    return not design.of_topic


def _topic(design: Design) -> bool:
    return design.of_topic


def _leased(design: Design) -> bool:
    return design.options.get("delivery") != "at_most_once"


def _reported(design: Design) -> bool:
    return _queue(design) and _leased(design)


def _batches(design: Design) -> bool:
    return "batches" in design.options


def _dependencies(design: Design) -> bool:
    return "dependencies" in design.options


def _taking(design: Design) -> bool:
    return _queue(design) and not _batches(design)


def _many(design: Design) -> bool:
    """Whether several messages can be in progress."""
    return "strict" not in design.options


def _both(*fits: Fits) -> Fits:
    return lambda design: all(each(design) for each in fits)


def _ids(claims: Any) -> list[int]:
    return [claim.id for claim in (claims if isinstance(claims, list) else [claims]) if claim is not None]


def _batch(ground: Ground, connection: Any, messages: list[Any]) -> None:
    with ground.producer.batch(then=(CALLED, "x"), connection=connection) as batch:
        batch.push_many(messages)


def _finish_batch(ground: Ground, connection: Any) -> None:
    with ground.producer.batch() as batch:
        pass
    batch.push_many(ground.messages(2))
    batch.finish(connection)


def _batch_of(ground: Ground, connection: Any) -> list[int]:
    with ground.acting.batch_of(ground.mine[0], connection=connection) as batch:
        batch.push_many(ground.messages(2))
    return [ground.mine[0].id]


def _new(call: Callable[[Ground, Any], object]) -> Callable[[Ground, Any], None]:
    """A call that acts on no message that was there before."""

    def run(ground: Ground, connection: Any) -> None:
        call(ground, connection)

    return run


def _pushed(**options: Any) -> Callable[[Ground, Any], None]:
    return _new(lambda g, c: g.producer.push("x", connection=c, **options, **g.plain()))


def _pushed_many(*keys: str | None, **options: Any) -> Callable[[Ground, Any], None]:
    return _new(lambda g, c: g.producer.push_many([g.message(key=key) for key in keys], connection=c, **options))


def _waiting(ground: Ground) -> int:
    """A message that waits, with which nobody else has to do."""
    return ground.scheduled[0]


def _rescheduled(ground: Ground, connection: Any) -> list[int]:
    ground.acting.reschedule(_waiting(ground), delay=5, connection=connection)
    return [_waiting(ground)]


def _cancelled(which: Callable[[Ground], Any]) -> Callable[[Ground, Any], list[int]]:
    def run(ground: Ground, connection: Any) -> list[int]:
        result = ground.acting.cancel(which(ground), connection=connection)
        return [*result.cancelled, *result.in_progress]

    return run


def _done(verb: str, *args: Any, **options: Any) -> Callable[[Ground, Any], list[int]]:
    """A verb that acts under the claim of the caller, of the consumer or of the claim itself."""

    def run(ground: Ground, connection: Any) -> list[int]:
        claim = ground.mine[0]
        owner, _, name = verb.partition(".")
        if owner == "Claim":
            getattr(claim, name)(*args, connection=connection, **options)
        else:
            getattr(ground.acting, name)(claim, *args, connection=connection, **options)
        return [claim.id]

    return run


def _done_many(name: str, *args: Any, **options: Any) -> Callable[[Ground, Any], list[int]]:
    def run(ground: Ground, connection: Any) -> list[int]:
        getattr(ground.acting, name)(ground.mine, *args, connection=connection, **options)
        return _ids(ground.mine)

    return run


def _finishing() -> Iterator[tuple[str, Act]]:
    verbs: dict[str, tuple[tuple[Any, ...], Fits]] = {
        "complete": ((), lambda design: True),
        "fail": (("why",), lambda design: True),
        "release": ((), _leased),
        "extend": ((90,), _leased),
    }
    for name, (args, fits) in verbs.items():
        one, many = f"Consumer.{name}", f"Consumer.{name}_many"
        yield name, Act(one, _done(one, *args), 2, fits=fits)
        yield f"{name} of a claim", Act(f"Claim.{name}", _done(f"Claim.{name}", *args), 1, fits=fits)
        yield f"{name}_many", Act(many, _done_many(f"{name}_many", *args), 3, fits=fits)
        lost = _both(fits, _leased)
        yield f"{name} of a lost claim", Act(one, _done(one, *args), 1, "lost", refused=LeaseLost, fits=lost)
        yield f"{name} of what is finished", Act(one, _done(one, *args), 1, "finished", refused=LeaseLost, fits=fits)
        yield (
            f"{name}_many with a lost claim",
            Act(many, _some_lost(name, args), 3, "lost", fits=_both(lost, _many)),
        )
    yield "fail for good", Act("Consumer.fail", _done("Consumer.fail", "why", retry=False), 1)
    yield "extend to its end", Act("Consumer.extend", _done("Consumer.extend", 0), 1, fits=_leased)
    progress = "Consumer.report_progress"
    yield "report_progress", Act(progress, _done(progress, 0.5), 1, fits=_reported)
    yield "progress of a claim", Act("Claim.progress", _done("Claim.progress", 0.5), 1, fits=_reported)


def _some_lost(name: str, args: tuple[Any, ...]) -> Callable[[Ground, Any], list[int]]:
    def run(ground: Ground, connection: Any) -> list[int]:
        try:
            getattr(ground.acting, f"{name}_many")(ground.mine, *args, connection=connection)
        except LeaseLost:
            return _ids(ground.mine[1:])
        raise AssertionError("one of them was lost")

    return run


def _pop_completing(ground: Ground, connection: Any) -> list[int]:
    done = ground.mine[:1]
    return _ids(done) + _ids(ground.acting.pop_many(1, completing=done, connection=connection))


ACTS: dict[str, Act] = {
    "push": Act("Queue.push", _pushed(), fits=_queue),
    "push with a key": Act("Queue.push", _pushed(key="mine"), fits=_queue),
    "push with a delay": Act("Queue.push", _pushed(delay=60), fits=_queue),
    "push with a taken key": Act("Queue.push", _pushed(key=TAKEN), refused=DuplicateKey, fits=_queue),
    "push with a taken key, skipped": Act("Queue.push", _pushed(key=TAKEN, on_conflict="skip"), fits=_queue),
    "push with a taken key, returned": Act("Queue.push", _pushed(key=TAKEN, on_conflict="return"), fits=_queue),
    "push after others": Act(
        "Queue.push",
        _new(lambda g, c: g.producer.push("x", after=[g.scheduled[1]], connection=c, **g.plain())),
        fits=_dependencies,
    ),
    "push_many after others": Act(
        "Queue.push_many",
        _new(lambda g, c: g.producer.push_many(g.messages(2), after=g.scheduled[1:2], connection=c)),
        fits=_dependencies,
    ),
    "push_many": Act("Queue.push_many", _pushed_many(None, None, None), fits=_queue),
    "push_many with keys": Act("Queue.push_many", _pushed_many("a", "b"), fits=_queue),
    "push_many with a taken key": Act("Queue.push_many", _pushed_many("a", TAKEN), refused=DuplicateKey, fits=_queue),
    "push_many with a taken key, skipped": Act(
        "Queue.push_many", _pushed_many("a", TAKEN, on_conflict="skip"), fits=_queue
    ),
    "push into a topic": Act("Topic.push", _pushed(), fits=_topic),
    "push_many into a topic": Act("Topic.push_many", _pushed_many(None, None, None), fits=_topic),
    "batch": Act("Queue.batch", lambda g, c: _batch(g, c, g.messages(3)), fits=_batches),
    "empty batch": Act("Queue.batch", lambda g, c: _batch(g, c, []), fits=_batches),
    "batch with keys": Act("Queue.batch", lambda g, c: _batch(g, c, [g.message(key="mine")]), fits=_batches),
    "batch with a taken key": Act(
        "Queue.batch", lambda g, c: _batch(g, c, [g.message(key=TAKEN)]), refused=DuplicateKey, fits=_batches
    ),
    "batch by hand": Act("OpenBatch.finish", _finish_batch, fits=_batches),
    "batch_of": Act("Queue.batch_of", _batch_of, 1, fits=_batches),
    "batch_of a lost claim": Act("Queue.batch_of", _batch_of, 1, "lost", refused=LeaseLost, fits=_batches),
    "batch_of what is finished": Act("Queue.batch_of", _batch_of, 1, "finished", refused=LeaseLost, fits=_batches),
    "pop": Act("Queue.pop", lambda g, c: _ids(g.acting.pop(connection=c)), fits=_queue),
    "pop_many": Act("Queue.pop_many", lambda g, c: _ids(g.acting.pop_many(3, connection=c)), fits=_queue),
    "pop of nothing": Act(
        "Queue.pop", lambda g, c: _ids(g.acting.pop(connection=c)), empty=True, fits=_both(_queue, _many)
    ),
    "pop completing": Act("Queue.pop_many", _pop_completing, 2, fits=_queue),
    "pop completing a lost claim": Act("Queue.pop_many", _pop_completing, 1, "lost", refused=LeaseLost, fits=_reported),
    "take": Act("Queue.take", lambda g, c: _ids(g.acting.take(c)), fits=_taking),
    "take_many": Act("Queue.take_many", lambda g, c: _ids(g.acting.take_many(3, c)), fits=_taking),
    "take of nothing": Act("Queue.take", lambda g, c: _ids(g.acting.take(c)), empty=True, fits=_both(_taking, _many)),
    **dict(_finishing()),
    "cancel": Act("Consumer.cancel", _cancelled(_waiting), fits=_queue),
    "cancel of what is in progress": Act(
        "Consumer.cancel", _cancelled(lambda g: g.theirs.pop().id), fits=_both(_reported, _many)
    ),
    "cancel of nothing": Act("Consumer.cancel", _cancelled(lambda g: [10**9]), fits=_queue),
    "cancel by a function": Act(
        "Consumer.cancel", _cancelled(lambda g: lambda message: message.id == _waiting(g)), fits=_queue
    ),
    "reschedule": Act("Consumer.reschedule", _rescheduled, fits=_queue),
    "reschedule of what is in progress": Act(
        "Consumer.reschedule",
        lambda g, c: g.acting.reschedule(g.theirs[0].id, delay=5, connection=c),
        refused=BadInput,
        fits=_both(_queue, _many),
    ),
    "pause": Act("Consumer.pause", _new(lambda g, c: g.acting.pause(60, connection=c))),
    "resume": Act("Consumer.resume", _new(lambda g, c: g.acting.resume(connection=c))),
}
