-- How many messages the rate allows now, and the time of that now. It waits for other claims.
-- Index: the primary key. Locks: the row, until the transaction ends.
declare @now datetime2(6) = {now};
select
    case
        when spent_until > @now then burst - (datediff_big(microsecond, @now, spent_until) + step - 1) / step
        else burst
    end as tokens,
    convert(varchar(33), @now, 126) as clock
from {rate} with (rowlock, updlock, readcommittedlock)
where id = 1;
