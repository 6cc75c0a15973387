"""Backlog over time: messages that were pushed and have not ended."""

from __future__ import annotations

_SO_FAR = 'over (partition by queue order by "at")'

BACKLOG = f"""
    select queue, "at",
        cast(sum(pushed - finished - cancelled - expired - dead - lost) {_SO_FAR} as bigint) as backlog,
        cast(sum(pushed - popped - unpopped) {_SO_FAR} as bigint) as waiting
    from throughput order by queue, "at"
"""
"""The backlog at the end of each row of the table `throughput`.

Columns: queue, at, backlog (pushed, and not ended), waiting (of these, never popped). Messages that were purged from
the queue are not known, and not counted.
"""
