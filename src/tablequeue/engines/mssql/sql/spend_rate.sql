-- Spend the rate of :number messages, which the transaction has claimed.
-- Index: the primary key. Locks: the row. In one transaction with the claim: after a crash nothing is spent.
declare @number bigint = :number;
declare @now datetime2(6) = {now};
update {rate}
set spent_until = dateadd(
    microsecond, cast(@number * step - @number * step / 60000000 * 60000000 as int), dateadd(
        minute, cast(@number * step / 60000000 as int), case when spent_until > @now then spent_until else @now end
    )
)
where id = 1;
