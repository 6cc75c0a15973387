"""The contenders of the benchmarks that need only tablequeue, and the check of all deliveries."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlalchemy as sa
from benchmarks.contenders import Contender, check, closing, payloads
from benchmarks.contenders.bare import BY_ENGINE, BareCopy, bare
from benchmarks.contenders.ours import Apart, Tablequeue
from benchmarks.contest import Step, contest

from tests.servers import KINDS, Kind, Place

STEPS: dict[str, Step] = {
    "push": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
    "push in bulk": lambda contender, messages: contender.push_bulk(messages),
    "drain": lambda contender, messages: contender.drain(len(messages)),
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in BY_ENGINE], ids=lambda kind: kind.name)
def test_they_deliver_everything_once(kind: Kind, place: Place) -> None:
    url = place.url
    if place.schema:
        place.execute(f"create schema {place.schema}")
        url = str(sa.make_url(url).update_query_dict({"options": f"-csearch_path={place.schema}"}))
    made: list[Contender] = [Tablequeue(url), Tablequeue(url, 7), Apart(url), bare(url), bare(url, 7)]
    made.append(bare(url, 3, history="none"))
    if kind.name == "postgresql":
        made.append(BareCopy(url, 25))
    with closing(made) as contenders:
        figures = list(contest(kind.name, contenders, STEPS, payloads(25), 2))
    assert [(each.what, each.contender) for each in figures] == [(what, one.name) for what in STEPS for one in made]
    assert all(len(each.values) == 2 for each in figures)


@pytest.mark.parametrize("delivered", [["a"], ["a", "a"], ["a", "b", "b"], ["a", "c"], []])
def test_what_is_lost_or_doubled_is_found(delivered: Sequence[str]) -> None:
    check(["a", "b"], ["b", "a"])
    with pytest.raises(AssertionError):
        check(["a", "b"], delivered)
