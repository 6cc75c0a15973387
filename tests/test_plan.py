"""What a definition decides, it decides once: the plan of a queue, and the tables of ways that it chooses from."""

from __future__ import annotations

import inspect
import pkgutil
import re
from importlib import import_module

import pytest

from tablequeue import Definition, Rate, SubscriptionDefinition, TopicDefinition
from tablequeue.engines.conditions import TRAITS, conditions
from tablequeue.engines.plan import Plan, Ways
from tablequeue.engines.printed import PRINTED
from tablequeue.engines.texts import operations_of
from tablequeue.ext import context_of
from tablequeue.model.definition import HISTORIES, ORDERS, PAYLOADS
from tablequeue.verbs import claim, sweep
from tests.servers import Place
from tests.test_texts import FOLDERS, files_of

pytestmark = pytest.mark.quick

DEFINITIONS = [
    *(Definition(order=order) for order in ORDERS),
    *(Definition(history=history) for history in HISTORIES),
    *(Definition(payload=payload) for payload in PAYLOADS),
    Definition(history=60, expires=60, unique_for=60, results=True, batches=True, dependencies=True),
    Definition(dead_letter_to="dead"),
    Definition(groups="fair", concurrency=1, per_group=1, rate=Rate(1), group_rate=Rate(1)),
    Definition(delivery="at_most_once"),
    Definition(strict=True),
    Definition(groups=True),
    TopicDefinition(),
    TopicDefinition(groups=True, keep="consumed"),
    SubscriptionDefinition(topic="t"),
    SubscriptionDefinition(topic="t", groups=True),
]
KNOWN = {name for each in DEFINITIONS for name in conditions(each, frozenset(TRAITS))}


def ways() -> dict[str, Ways[object]]:
    """Return all tables of ways, by their names."""
    modules = [import_module(f"tablequeue.{room}") for room in ("engines", "verbs")]
    names = [one.name for module in modules for one in pkgutil.walk_packages(module.__path__, f"{module.__name__}.")]
    found: dict[str, Ways[object]] = {}
    for name in names:
        try:
            module = import_module(name)
        except ImportError:  # of drivers that need not be installed
            continue
        for name, value in inspect.getmembers(module):
            members = inspect.getmembers(value) if inspect.isclass(value) else [(name, value)]
            found |= {f"{module.__name__}.{each}": way for each, way in members if isinstance(way, Ways)}
    return found


def words(needed: str) -> set[str]:
    return {*re.findall(r"\w+", needed)} - {"not", "or"}


def test_ways_name_conditions_that_there_are() -> None:
    named = {f"{name}: {word}" for name, way in ways().items() for needed in way.ways for word in words(needed)}
    assert len(named) > 20
    assert {one for one in named if one.partition(": ")[2] not in KNOWN} == set()


@pytest.mark.parametrize("name", FOLDERS)
def test_texts_name_conditions_that_there_are(name: str) -> None:
    """Or those that a part meets where it is included, as in {left taken}. A misspelled one would hide its lines.

    What is printed in place of parameters has the operation and the text for conditions too: see found_between.
    """
    texts = "\n".join(file.read_text("utf-8") for file in files_of(name))
    given = {
        word for words in re.findall(r"\{\w+((?: \w+(?:=(?:'[^']*'|[^\s{}']+))?)+)\}", texts) for word in words.split()
    }
    named = {word for line in re.findall(r"-- \[([\w ]+)\]", texts) for word in words(line)} - {"end", "else"}
    assert named - KNOWN - given - {*PRINTED, *operations_of(name)} == set()


def test_the_first_way_is_chosen_once() -> None:
    table = Ways({"fair keep": "both", "fair or keep": "one", "": "none"})
    assert Plan({"keep", "fair"}).way(table) == "both"
    assert Plan({"keep"}).way(table) == "one"
    assert Plan({"rate"}).way(table) == "none"
    met = {"fair"}
    plan = Plan(met)
    assert plan.way(table) == "one"
    met.clear()
    assert plan.way(table) == "one"


def test_all_steps_that_a_queue_needs() -> None:
    table = Ways({"": 1, "keep": 2, "not keep": 3, "fair": 4})
    assert Plan({"keep", "fair"}).steps(table) == (1, 2, 4)
    assert Plan(set()).steps(table) == (1, 3)


def test_an_altered_queue_has_a_new_plan(place: Place) -> None:
    queue = place.open().create_queue("work")
    assert not context_of(queue).table.plan.steps(sweep.UPKEEP)
    queue.alter(concurrency=3)
    assert len(context_of(queue).table.plan.steps(sweep.UPKEEP)) == 1


@pytest.mark.parametrize(
    ("definition", "steps"),
    [
        (Definition(), 1),
        (Definition(groups=True), 2),
        (Definition(expires=60), 2),
        (Definition(groups=True, expires=60, results=True), 3),
        (SubscriptionDefinition(topic="t", groups=True), 3),
        (Definition(rate=Rate(5)), 1),
    ],
)
def test_a_feature_that_is_not_used_adds_no_step_to_a_sweep(definition: Definition, steps: int) -> None:
    plan = Plan(conditions(definition, frozenset({"promotes"})))
    assert len(plan.steps(sweep.SWEEPS)) == steps
    assert plan.way(claim.AGAIN) is Plan(set()).way(claim.AGAIN)
