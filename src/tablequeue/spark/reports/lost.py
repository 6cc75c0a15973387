"""Lost messages: delivered at most once, and never completed."""

from __future__ import annotations

from tablequeue.spark.reports.messages import LAST

LOST = f"""
    select queue, id, producer, consumer, pushed_at, popped_at, {LAST}.error as error
    from messages where state = 'lost' order by queue, popped_at desc, id
"""
"""A row for each lost message, the last one first.

Columns: queue, id, producer, consumer (that popped it), pushed_at, popped_at, error (null if the consumer reported
none).
"""
