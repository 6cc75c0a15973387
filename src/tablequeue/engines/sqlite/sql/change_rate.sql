-- Give a queue another rate. What was spent stays spent: as many messages as before may be claimed less than the burst.
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + cast(min({burst}, 1.0 * max(0, spent_until - {now}) / step) * {step} + 0.999 as integer),
    step = {step},
    burst = {burst};
