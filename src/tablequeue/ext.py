"""For code that extends the library: what the rooms above the public verbs use beside them.

The verbs keep their meaning from version to version; what is here may change with any version.
"""

from __future__ import annotations

from tablequeue.consumer import Consumer
from tablequeue.topic import Topic
from tablequeue.verbs.context import Context


def context_of(opened: Consumer | Topic) -> Context:
    """Return what the verbs of a queue, a subscription or a topic work with: its table, its engine and connections."""
    return opened._context  # noqa: SLF001 -- this is the one way to it
