-- Give a queue another rate. What was spent stays spent: as many messages as before may be claimed less than the burst.
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + interval '1 microsecond' * cast(ceil({step} * least(
        {burst}, extract(epoch from greatest(spent_until, {now}) - {now}) * 1000000 / step
    )) as float8),
    step = {step},
    burst = {burst};
