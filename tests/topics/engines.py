"""The engines that have topics."""

from __future__ import annotations

import pytest

from tests.servers import KINDS

TOPIC_ENGINES = ("sqlite", "postgresql", "mariadb")
TOPIC_KINDS = tuple(kind for kind in KINDS if kind.name in TOPIC_ENGINES)


def only(*names: str) -> pytest.MarkDecorator:
    """Mark a test, or a module, for those of these engines that have topics."""
    return pytest.mark.parametrize(
        "kind", [kind for kind in TOPIC_KINDS if kind.name in names], ids=lambda kind: kind.name
    )
