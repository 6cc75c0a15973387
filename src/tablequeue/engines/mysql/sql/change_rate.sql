-- Give a queue another rate. What was spent stays spent: as many messages as before may be claimed less than the burst.
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
update {rate}
set spent_until = {now} + interval ceiling({step} * least(
        {burst}, greatest(0, timestampdiff(microsecond, {now}, spent_until)) / step
    )) microsecond,
    step = {step},
    burst = {burst};
