"""Nobody waits for a client that is suspended or cut off, wherever in a call it is.

The tests find the places in a call by themselves: each answer of the server, and each step of a driver's cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue.engines.engine import Engine
from tablequeue.errors import ConnectionLost
from tests.crashes import CORE, VERBS, SteppingCursor, Steps, begin, go_through, open_stepping, stepping, torn
from tests.nightly import by_night
from tests.servers import Kind, Place, only
from tests.support import with_parts
from tests.suspended import (
    ACTS,
    CASES,
    ENDED_BY_THE_SERVER,
    SCENES,
    Others,
    Scene,
    await_the_client,
    elsewhere,
    relayed,
)

# A claim in each scene, and each call in the first scene that has it; between two statements, also on ordered topics.
FIRST = {name: scene for scene, name in reversed(CASES)}
BETWEEN = [(scene, name) for scene, name in CASES if name == "pop_many" or scene in (FIRST[name], "ordered topic")]
# Without an answer: claims of each kind of limit once, and no calls that only read, change one row, or work in many
# small pieces.
ELSEWHERE = ("fair", "at most once", "a rate, groups", "a rate, at most once", "places of groups", "a rate of groups")
SMALL = ("read", "extend_many", "progress", "bounds", "trim")
UNANSWERED = [
    (scene, name)
    for scene, name in BETWEEN
    if scene not in ELSEWHERE and name not in SMALL and (name == "pop_many" or FIRST[name] == scene)
]
# Those whose engines keep the promise.
KEEPING = only("sqlite", "postgresql", "mariadb")
# But for those in a transaction of the application's, and one that goes on as long as others push.
STANDING = [name for name, verb in VERBS.items() if not verb.outside and name != "cancel by a predicate"]


@only("postgresql", "mariadb")
@pytest.mark.parametrize(("scene", "act"), by_night(CASES, UNANSWERED.__contains__))
def test_others_are_served_while_a_client_receives_no_answer(place: Place, kind: Kind, scene: str, act: str) -> None:
    database = place.open("the living")
    if act in ENDED_BY_THE_SERVER[kind.name]:
        pytest.skip("The other test has it.")
    with relayed(place) as (relay, behind), ThreadPoolExecutor(2) as threads:
        for answers in count():
            made = Scene(database, f"made_{answers}", SCENES[scene])
            acting: Any = behind.open("the suspended").consumer(made.consumers[0])
            held = made.prepared(ACTS[act], acting)
            relay.stop_after(answers)
            try:
                call = threads.submit(ACTS[act].act, acting, held)
                while not (relay.stopped.wait(0.01) or call.done()):
                    pass
                returned = not relay.stopped.is_set()
                if not returned:
                    await_the_client(place, kind, relay)
                with closing(Others(place, kind, made, threads)) as others:
                    others.are_served()
            finally:
                relay.release()
            call.result()
            if returned:
                break
        assert answers, "it was suspended in the call"


@KEEPING
@pytest.mark.parametrize(("scene", "act"), by_night(CASES, BETWEEN.__contains__))
def test_others_are_served_while_a_client_stays_between_two_statements(
    place: Place, kind: Kind, scene: str, act: str
) -> None:
    made = Scene(place.open("the living"), "made", SCENES[scene])
    ended = act in ENDED_BY_THE_SERVER.get(kind.name, ())
    with ThreadPoolExecutor(1) as threads, closing(Others(place, kind, made, threads, ended)) as others:
        steps = Steps(others.reached)
        acting: Any = open_stepping(elsewhere(place, kind, ended), steps).consumer(made.consumers[0])
        held = made.prepared(ACTS[act], acting)
        steps.armed = True
        with suppress(ConnectionLost) if ended else nullcontext():
            ACTS[act].act(acting, held)
        assert steps.count


def sends_a_range_before_its_commit(engine: type[Engine]) -> type[Engine]:
    class SendsBefore(type(engine.ranges)):  # type: ignore[misc]
        def _claimed_range(self, *args: Any) -> Any:
            with self._atomic(args[0]):
                claim, read = (args[1].statement(f"range_claim.{part}") for part in ("claim", "read"))
                values = {**args[2], **args[3], "all_holes": True}
                args[0].execute(claim, values)
                return args[0].execute(read, values).fetchall()

    return with_parts(engine, {"ranges": SendsBefore})


def sends_messages_under_a_rate(engine: type[Engine]) -> type[Engine]:
    class SendsUnder(type(engine.messages)):  # type: ignore[misc]
        def _claimed(self, *args: Any) -> Any:
            with self._atomic(args[0]):
                return super()._claimed(*args)

    return with_parts(engine, {"messages": SendsUnder})


@only("postgresql")
@pytest.mark.parametrize(
    ("mutant", "scene"), [(sends_a_range_before_its_commit, "topic"), (sends_messages_under_a_rate, "a rate")]
)
def test_a_mutant_is_detected(place: Place, kind: Kind, mutant: Callable[..., type[Engine]], scene: str) -> None:
    made = Scene(place.open("the living"), "made", SCENES[scene])
    with ThreadPoolExecutor(1) as threads, closing(Others(place, kind, made, threads)) as others:
        steps = Steps(others.reached)
        acting: Any = (
            elsewhere(place, kind).open_with(stepping(mutant(kind.engine_class), steps)).consumer(made.consumers[0])
        )
        made.prepared(ACTS["complete_many"], acting)
        steps.armed = True
        with pytest.raises(AssertionError, match="somebody waits"):
            acting.pop_many(1)


@only("mariadb")
def test_a_deadlock_that_is_over_is_no_wait(place: Place, kind: Kind) -> None:
    """The report of the server still has the sessions of the last deadlock, as they waited then."""
    assert kind.blocked is not None
    place.open().create_queue("made", payload="text").push_many(["a", "b"])
    change = f"update {place.table('made')} set producer = 'x' where id = "  # noqa: S608 (our names)
    engine = place.sa_engine()
    with ThreadPoolExecutor(1) as threads, engine.connect() as watch, engine.connect() as one, engine.connect() as two:
        one.exec_driver_sql(f"{change} 1")
        two.exec_driver_sql(f"{change} 2")
        waiting = threads.submit(one.exec_driver_sql, f"{change} 2")
        while not kind.blocked(watch):
            pass
        with suppress(sa.exc.OperationalError):  # the deadlock is an error of one of them
            two.exec_driver_sql(f"{change} 1")
        two.rollback()
        with suppress(sa.exc.OperationalError):
            waiting.result()
        assert not kind.blocked(watch)


@only("mariadb")
@pytest.mark.parametrize("scene", ["a rate", "a rate, at most once"])
def test_a_packet_in_several_round_trips_is_detected(
    place: Place, kind: Kind, scene: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SteppingCursor, "packet", torn)
    with pytest.raises(AssertionError, match="somebody waits"):
        test_others_are_served_while_a_client_stays_between_two_statements(place, kind, scene, "pop_many")


@KEEPING
@pytest.mark.parametrize("name", by_night(STANDING, CORE.__contains__))
def test_others_are_served_while_a_client_stays_in_a_verb(place: Place, kind: Kind, name: str) -> None:
    verb = VERBS[name]
    database = place.open("the living")
    made = Scene(database, "made", verb.definition)
    made.gives_back = True
    verb.before(database.queue("made"))
    with ThreadPoolExecutor(1) as threads, closing(Others(place, kind, made, threads)) as others:
        steps = Steps(others.reached)
        acting: Any = open_stepping(elsewhere(place, kind), steps)
        go_through(verb, begin(verb, acting.queue("made"), acting.engine, steps))
