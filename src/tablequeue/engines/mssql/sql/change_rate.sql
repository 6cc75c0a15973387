-- Give a queue another rate. What was spent stays spent: as many messages as before may be claimed less than the burst.
-- Index: none, it is one row. Locks: the row; it waits for claims. A crash leaves the rate as it was.
declare @now datetime2(6) = {now};
declare @wait bigint = (
    select cast(ceiling({step} * case
        when spent_until <= @now then 0.0
        when datediff_big(microsecond, @now, spent_until) >= 1.0 * step * {burst} then 1.0 * {burst}
        else cast(datediff_big(microsecond, @now, spent_until) as float) / step
    end) as bigint)
    from {rate}
    where id = 1
);
update {rate}
set spent_until = dateadd(
        microsecond, cast(@wait - @wait / 60000000 * 60000000 as int), dateadd(
            minute, cast(@wait / 60000000 as int), @now
        )
    ),
    step = {step},
    burst = {burst}
where id = 1;
