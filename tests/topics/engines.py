"""The engines that have topics."""

from __future__ import annotations

from tests.servers import KINDS

TOPIC_ENGINES = ("sqlite", "postgresql")
TOPIC_KINDS = tuple(kind for kind in KINDS if kind.name in TOPIC_ENGINES)
