"""For code that extends the library: what workers, servers and integrations use beside the public verbs.

The verbs keep their meaning from version to version; these functions may change with any version.
"""

from __future__ import annotations

from collections.abc import Callable

from tablequeue.consumer import Consumer
from tablequeue.model.pacing import Duration
from tablequeue.topic import Topic
from tablequeue.verbs.context import Context
from tablequeue.verbs.wait import Waiter


def context_of(opened: Consumer | Topic) -> Context:
    """Return what the verbs of a queue, a subscription or a topic work with: its table, its engine and connections."""
    return opened._context  # noqa: SLF001 -- this is the one way to it


def waiter_of(
    queue: Consumer, longest_pause: Duration | None = None, on_push: Callable[[], None] | None = None
) -> Waiter:
    """Return a `Waiter`, which waits for messages between the pops of a loop of your own, as `consume` does.

    longest_pause   the longest time between two looks at the queue: seconds, or a timedelta; if not given, as long as
                    the engine allows.
    on_push         what the notifier calls, in its own thread, when there may be a message.
    """
    return Waiter(context_of(queue), longest_pause, on_push)
