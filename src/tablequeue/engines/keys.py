"""The operations on deduplication keys, and those that forget keys and rates."""

from __future__ import annotations

from tablequeue.engines.operation import Effect, by_text, count, distinct, mapping, none, rowcount
from tablequeue.engines.parts import Part


class Keys(Part):
    find_keys = by_text(Effect.READ, mapping)
    """Return the keys among `params["keys"]` that live messages have, with the ids of these messages."""
    take_keys = by_text(Effect.STEP, distinct)
    """Take those of the keys that are free under `token`: `taken` has them, each with its seconds.

    The keys of the queue stay taken for a time. Return those that were free.
    """
    end_keys = by_text(Effect.STEP, rowcount)
    """Let messages lose those of the keys of `taken` whose time is over. Return the number of such messages."""
    name_keys = by_text(Effect.STEP, none)
    """Note the messages that took keys: `taken` has each key with an id and, if it was pushed now, its seconds.

    A key without an id is free again.
    """
    taken_keys = by_text(Effect.READ, mapping)
    """Return those of the keys of `taken` that are taken, with the ids of the messages that took them."""
    forget_keys = by_text(Effect.UPKEEP, count)
    """Delete up to `n` keys whose time is over. Return their number."""
    forget_rate = by_text(Effect.UPKEEP, count)
    """Forget what was spent of the rate if the clock has gone back since. Return the number of rows changed."""
    forget_rates = by_text(Effect.UPKEEP, rowcount)
    """Delete the rows of up to `n` groups whose rate allows a whole burst again. Return their number."""
