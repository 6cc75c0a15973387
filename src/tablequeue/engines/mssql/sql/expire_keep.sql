-- Up to :n waiting messages whose time is over move to the history, as expired.
-- Index: {table}__expires. Locks: the rows; locked rows are skipped. A crash leaves all or nothing.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
with expired as (
    select top (@n)
        {history_row without token finished_at}, expires_at
    from {queue} with (index ({table}__expires), rowlock, readpast, updlock, readcommittedlock)
    where {waiting} and expires_at <= @now
    order by expires_at
)
delete from expired
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)}, 'expired'
into {history} (
    {history_row without token}, outcome
)
output deleted.id, convert(nvarchar(510), deleted.group_key) as group_key;
