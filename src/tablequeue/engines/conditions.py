"""The conditions that a definition meets: texts and procedures name those that they need."""

from __future__ import annotations

from tablequeue.model.definition import FEATURES, Definition

_LIMITS = ("limited", "concurrency", "rate", "per_group", "group_rate", "group_limited", "paced", "contended")


def conditions(definition: Definition) -> set[str]:
    """Return the conditions of texts and procedures that a definition meets.

    `states`: its messages have states. Those of a topic have none. `ranges`: it claims ranges of its topic's log.
    """
    if definition.kind == "topic":
        chosen = {"segments": definition.retention is not None, "groups": definition.groups}
        return {definition.kind, definition.payload, *(name for name, given in chosen.items() if given)}
    return {
        definition.kind,
        "states",
        definition.arrangement,
        definition.delivery,
        definition.payload,
        "keep" if definition.keeps_history else "none",
        "sorted" if definition.arrangement in ("due", "priority", "fair") else "by_id",
        *(name for name in ("grouped", "strict", "retention", *_LIMITS, *FEATURES) if getattr(definition, name)),
        *(["groups"] if definition.needs_groups else []),
        *(["by_id_or_due"] if definition.arrangement not in ("priority", "fair") else []),
        *(["dead_letter_to"] if definition.dead_letter_to else []),
        *(["in_order"] if not definition.fair else []),
        *(["unlimited"] if not definition.limited else []),
        *(["ungrouped"] if not definition.takes_groups else []),
        *(["ranges"] if definition.kind == "subscription" and not definition.groups else []),
    }
