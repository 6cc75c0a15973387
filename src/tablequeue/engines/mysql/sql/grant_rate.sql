-- How many messages the rate allows now, and the time of that now. It waits for other claims.
-- Index: the primary key. Locks: the row, until the transaction ends.
select
    greatest(0, burst - ceiling(greatest(0, timestampdiff(microsecond, {now}, spent_until)) / step)) as tokens,
    {now} as clock
from {rate}
where id = 1
for update;
