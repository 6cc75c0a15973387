"""Every interleaving of sessions that use the same messages. tests/isolation.py has the checks after each.

No message is held by two, finished twice or lost, the queue drains, and no session waits without need.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.isolation import (
    LEASE,
    OTHER,
    Runner,
    Scenario,
    cancel,
    commit,
    complete,
    complete_and_pop,
    extend,
    fail,
    give,
    move,
    pause,
    pop,
    purge,
    push,
    redrive,
    release,
    reschedule,
    rollback,
    take,
)
from tests.nightly import by_night
from tests.servers import Kind, Place
from tests.support import DESIGNS

LATER = LEASE + 40

WORK = (pop(), complete(), commit)

# By name: the options of the queue, and the sessions.
SCENARIOS: dict[str, tuple[dict[str, Any], Scenario]] = {
    **{
        f"claim, claim ({design})": (
            DESIGNS[design],
            Scenario(
                {"ada": WORK, "bob": WORK}, [("ada", push("aaa", **({"group": "x"} if design == "groups" else {})))]
            ),
        )
        for design in DESIGNS
    },
    "claim, claim that is rolled back": (
        {},
        Scenario({"ada": (pop(), complete(), rollback), "bob": WORK}, [("ada", push("aa"))]),
    ),
    "claim, push": ({}, Scenario({"ada": WORK, "bob": (push(), push(), commit)})),
    "strict claim, push": ({"strict": True}, Scenario({"ada": WORK, "bob": (push(), push(), commit)})),
    **{
        f"{name}, expire": (
            {},
            Scenario(
                {"ada": (verb(LATER), commit), "bob": (pop(LATER), complete(LATER), commit)},
                [("ada", push()), ("ada", pop())],
                may_wait=frozenset({f"ada: {name}({LATER})"}),
            ),
        )
        for name, verb in {"complete": complete, "fail": fail, "release": release}.items()
    },
    "complete that is rolled back, expire": (
        {},
        Scenario(
            {"ada": (complete(LATER), rollback), "bob": (pop(LATER), complete(LATER), rollback), "eve": (pop(LATER),)},
            [("ada", push()), ("ada", pop())],
            may_wait=frozenset({f"ada: complete({LATER})"}),
        ),
    ),
    "extend, expire": (
        {},
        Scenario(
            {"ada": (extend(LEASE - 1, 1000), commit), "bob": (pop(LATER), complete(LATER), commit)},
            [("ada", push()), ("ada", pop())],
            may_wait=frozenset({f"ada: extend({LEASE - 1}, 1000)"}),
        ),
    ),
    "extend that is rolled back, expire": (
        {},
        Scenario(
            {"ada": (extend(LEASE - 1, 1000), rollback), "bob": (pop(LATER), rollback), "eve": (pop(LATER),)},
            [("ada", push()), ("ada", pop())],
            may_wait=frozenset({f"ada: extend({LEASE - 1}, 1000)"}),
        ),
    ),
    "purge, claim": ({}, Scenario({"ada": (purge(), purge()), "bob": WORK}, [("ada", push("aa"))])),
    "purge, claim that is rolled back": (
        {},
        Scenario({"ada": (purge(), purge()), "bob": (pop(), rollback)}, [("ada", push("aa"))]),
    ),
    "purge, claim of groups, push": (
        {"groups": True},
        Scenario(
            {"ada": (purge(),), "bob": (pop(), commit), "eve": (push("a", group="x"), commit)},
            [("ada", push("aa", group="x"))],
        ),
    ),
    "take, take that is rolled back": (
        {},
        Scenario({"ada": (take(), rollback), "bob": (take(), take(), commit)}, [("ada", push("aa"))]),
    ),
    "strict take, take that is rolled back": (
        {"strict": True},
        Scenario({"ada": (take(), rollback), "bob": (take(), take(), commit)}, [("ada", push("aa"))]),
    ),
    "take, claim": ({}, Scenario({"ada": (take(), take(), commit), "bob": WORK}, [("ada", push("aa"))])),
    "take, claim (at most once)": (
        {"delivery": "at_most_once"},
        Scenario({"ada": (take(), commit), "bob": WORK}, [("ada", push("aaa"))]),
    ),
    "release, claim of a group": (
        {"groups": True},
        Scenario(
            {"ada": (release(), commit), "bob": (pop(), commit), "eve": (pop(),)},
            [("ada", push("aa", group="x")), ("ada", pop())],
        ),
    ),
    "complete, push, claim of a group": (
        {"groups": True},
        Scenario(
            {"ada": (complete(), commit), "bob": (push("a", group="x"), commit), "eve": (pop(),)},
            [("ada", push("aa", group="x")), ("ada", pop())],
        ),
    ),
    "complete of the last, push, claim of a group": (
        {"groups": True},
        Scenario(
            {"ada": (complete(), commit), "bob": (push("a", group="x"), commit), "eve": (pop(),)},
            [("ada", push("a", group="x")), ("ada", pop())],
        ),
    ),
    "complete, complete of one claim": (
        {},
        Scenario(
            {"ada": (complete(), commit), "bob": (complete(), commit)},
            [("ada", push()), ("ada", pop()), ("ada", give("bob"))],
            may_wait=frozenset({"ada: complete", "bob: complete"}),
        ),
    ),
    "complete, complete of one claim, both rolled back": (
        {},
        Scenario(
            {"ada": (complete(), rollback), "bob": (complete(), rollback), "eve": (pop(),)},
            [("ada", push()), ("ada", pop()), ("ada", give("bob"))],
            may_wait=frozenset({"ada: complete", "bob: complete"}),
        ),
    ),
    "fail, complete of one claim": (
        {},
        Scenario(
            {"ada": (fail(), commit), "bob": (complete(), commit), "eve": (pop(),)},
            [("ada", push()), ("ada", pop()), ("ada", give("bob"))],
            may_wait=frozenset({"ada: fail", "bob: complete"}),
        ),
    ),
    "last fail, complete of one claim, claim of a group": (
        {"groups": True, "max_attempts": 1},
        Scenario(
            {"ada": (fail(), commit), "bob": (complete(), commit), "eve": (pop(),)},
            [("ada", push("aa", group="x")), ("ada", pop()), ("ada", give("bob"))],
            may_wait=frozenset({"ada: fail", "bob: complete"}),
        ),
    ),
    **{
        f"cancel, claim ({design})": (
            DESIGNS[design],
            Scenario(
                {"ada": (cancel(), commit), "bob": WORK},
                [("ada", push("aa", **({"group": "x"} if design == "groups" else {})))],
                may_wait=frozenset({"ada: cancel", "bob: pop", "bob: complete"}),
            ),
        )
        for design in ("fifo", "strict", "groups")
    },
    **{
        f"cancel{' that is rolled back' if end is rollback else ''}, {name}": (
            {},
            Scenario(
                {"ada": (cancel(), end), "bob": (verb(), commit), "eve": (pop(),)},
                [("ada", push("aa")), ("bob", pop())],
                may_wait=frozenset({"ada: cancel", f"bob: {name}"}),
            ),
        )
        for name, verb in {"complete": complete, "fail": fail, "release": release}.items()
        for end in (commit, rollback)
    },
    "cancel, fail that is rolled back": (
        {},
        Scenario(
            {"ada": (cancel(),), "bob": (fail(LATER), rollback), "eve": (pop(LATER),)},
            [("ada", push("aa")), ("bob", pop())],
            may_wait=frozenset({"ada: cancel", f"bob: fail({LATER})"}),
        ),
    ),
    "cancel, expire": (
        {},
        Scenario(
            {"ada": (cancel(), commit), "bob": (pop(LATER), complete(LATER), commit), "eve": (pop(LATER),)},
            [("ada", push()), ("ada", pop())],
            may_wait=frozenset({"ada: cancel", f"bob: complete({LATER})"}),
        ),
    ),
    "cancel, fail of the head of a group": (
        {"groups": True},
        Scenario(
            {"ada": (cancel(), commit), "bob": (fail(), commit), "eve": (push("a", group="x"), commit)},
            [("ada", push("a", group="x")), ("bob", pop())],
            may_wait=frozenset({"ada: cancel", "bob: fail"}),
        ),
    ),
    **{
        f"move, claim{' that is rolled back' if end is rollback else ''} ({design})": (
            DESIGNS[design],
            Scenario(
                {"ada": (move(),), "bob": (pop(), end), "eve": (push("a", **group), commit)},
                [("ada", push("aa", **group))],
                may_wait=frozenset({"ada: move"}),
            ),
        )
        for design, group in (("fifo", {}), ("groups", {"group": "x"}))
        for end in (commit, rollback)
    },
    "move, push of a key": (
        {},
        Scenario(
            {"ada": (move(),), "bob": (push(key="k", on_conflict="skip"), commit)},
            [("ada", push(key="k"))],
            may_wait=frozenset({"ada: move", "bob: push(key='k', on_conflict='skip')"}),
        ),
    ),
    "pause, claim": ({}, Scenario({"ada": (pause(),), "bob": (pop(), pop(), commit)}, [("ada", push("aa"))])),
    "pause, claim of a group, push": (
        {"groups": True},
        Scenario(
            {"ada": (pause(),), "bob": (complete(), pop(), commit), "eve": (push("a", group="x"), pop(None))},
            [("ada", push("aa", group="x")), ("bob", pop())],
        ),
    ),
    **{
        f"reschedule, claim ({design})": (
            DESIGNS[design],
            Scenario(
                {"ada": (reschedule(1000), commit), "bob": WORK, "eve": (pop(),)},
                [("ada", push("aa", **({"group": "x"} if design == "groups" else {})))],
                may_wait=frozenset({"ada: reschedule(1000)"}),
            ),
        )
        for design in ("fifo", "due", "groups")
    },
    "redrive, claim": (
        {"max_attempts": 1},
        Scenario(
            {"ada": (redrive(),), "bob": (pop(), commit), "eve": (pop(), fail(), rollback)},
            [("ada", push("aa")), ("ada", pop()), ("ada", fail())],
        ),
    ),
    "redrive, claim of a group": (
        {"groups": True, "max_attempts": 1},
        Scenario(
            {"ada": (redrive(),), "bob": (pop(), commit), "eve": (push("a", group="x"), commit)},
            [("ada", push("aa", group="x")), ("ada", pop()), ("ada", fail())],
        ),
    ),
    **{
        f"push, push of the same key ({on_conflict}, {'rolled back' if end is rollback else 'committed'})": (
            {},
            Scenario(
                {
                    name: (push(key="k", on_conflict=on_conflict), ending)
                    for name, ending in (("ada", end), ("bob", commit))
                },
                may_wait=frozenset(f"{name}: push(key='k', on_conflict={on_conflict!r})" for name in ("ada", "bob")),
            ),
        )
        for on_conflict in ("raise", "skip", "return")
        for end in (commit, rollback)
    },
    **{
        f"claim, late commit of a lower id ({design})": (
            DESIGNS[design],
            Scenario({"ada": (push(), commit), "bob": (push(), commit), "eve": (pop(),)}),
        )
        for design in ("fifo", "strict")
    },
    "claim by the database's own clock, late commit of a lower id": (
        {},
        Scenario({"ada": (push(), commit), "bob": (push(), commit), "eve": (pop(None),)}),
    ),
    "claim by the database's own clock, release of a lower id": (
        {},
        Scenario(
            {"ada": (release(), commit), "eve": (pop(None), pop(None), pop(None))},
            [("ada", push("aa")), ("ada", pop())],
        ),
    ),
    "complete_and_pop, claim": (
        {},
        Scenario(
            {"ada": (complete_and_pop(), complete_and_pop()), "bob": (pop(None), commit), "eve": (pop(None), rollback)},
            [("ada", push("aaa")), ("ada", pop(None))],
        ),
    ),
    "complete_and_pop, release, push": (
        {},
        Scenario(
            {"ada": (complete_and_pop(), complete_and_pop()), "bob": (release(), commit), "eve": (push(), commit)},
            [("ada", push("aa")), ("ada", pop(None)), ("bob", pop(None))],
        ),
    ),
}


# By night, too: the same sessions in a design that differs in the order alone, or with the other end of a transaction
# that a kept scenario has already; and those with so many turns that they take longest.
BY_NIGHT = {
    *(f"claim, claim ({design})" for design in ("heap", "lifo", "priority", "fair", "due")),
    *("strict claim, push", "strict take, take that is rolled back", "take, claim", "release, expire"),
    *("complete, push, claim of a group", "complete, complete of one claim", "fail, complete of one claim"),
    *("extend, expire", "cancel, claim (fifo)", "cancel, claim (strict)", "cancel, complete", "cancel, fail"),
    *("cancel that is rolled back, release", "cancel, expire", "move, claim (fifo)", "move, claim (groups)"),
    *("move, claim that is rolled back (fifo)", "purge, claim of groups, push", "pause, claim of a group, push"),
    *("cancel, fail of the head of a group", "cancel, release", "cancel that is rolled back, complete"),
    *("complete that is rolled back, expire", "last fail, complete of one claim, claim of a group"),
    "release, claim of a group",
    *("purge, claim", "reschedule, claim (due)", "reschedule, claim (groups)", "redrive, claim"),
    *("complete_and_pop, release, push", "claim, late commit of a lower id (fifo)"),
}


@pytest.mark.parametrize("name", by_night(SCENARIOS, lambda name: name not in BY_NIGHT))
def test_every_interleaving(place: Place, kind: Kind, name: str) -> None:
    options, scenario = SCENARIOS[name]
    if kind.side_by_side and kind.blocked is None:
        pytest.skip("the server cannot be asked who waits")
    options = {"payload": "text", "history": "keep", **options}  # the clock goes on by months
    queue, _ = (place.open().create_queue(name, **options) for name in ("work", OTHER))
    runner = Runner(place, kind, queue, [*scenario.sessions])
    try:
        assert runner.explore(scenario) > 1
    finally:
        runner.close()
