"""The conditions that a definition meets: texts and procedures name those that they need."""

from __future__ import annotations

from collections.abc import Set

from tablequeue.model.definition import FEATURES, Definition

TRAITS = ("promotes", "low_water", "overlaps")
"""The traits of an engine that conditions need."""
_LIMITS = ("limited", "concurrency", "rate", "per_group", "group_rate", "group_limited", "paced", "contended")


def conditions(definition: Definition, traits: Set[str] = frozenset()) -> Set[str]:
    """Return the conditions of texts, procedures and ways that a definition meets.

    `states`: its messages have states. Those of a topic have none. `ranges`: it claims ranges of its topic's log.
    Three need a trait of the engine besides. `promoted`: its groups need `promote`. `marked`: its claims begin at the
    low-water mark, because its messages become ready mostly in the order of their ids. The heads of groups do not.
    `overlapped`: its streams claim while they complete, because no completion makes messages ready or frees a place.
    """
    if definition.kind == "topic":
        chosen = {"segments": definition.retention is not None, "groups": definition.groups}
        return {definition.kind, definition.payload, *(name for name, given in chosen.items() if given)}
    ascending = definition.arrangement in ("heap", "fifo")
    return {
        definition.kind,
        "states",
        definition.arrangement,
        definition.delivery,
        definition.payload,
        "keep" if definition.keeps_history else "none",
        *(name for name in ("grouped", "strict", "retention", *_LIMITS, *FEATURES) if getattr(definition, name)),
        *(["groups"] if definition.needs_groups else []),
        *(["dead_letter_to"] if definition.dead_letter_to else []),
        *(["in_order"] if not definition.fair else []),
        *(["unlimited"] if not definition.limited else []),
        *(["ungrouped"] if not definition.takes_groups else []),
        *(["ranges"] if definition.kind == "subscription" and not definition.groups else []),
        *(["promoted"] if definition.grouped and "promotes" in traits else []),
        *(["overlapped"] if not definition.grouped and not definition.limited and "overlaps" in traits else []),
        *(["marked"] if ascending and not definition.grouped and "low_water" in traits else []),
    }
