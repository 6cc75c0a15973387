-- Delete up to :n keys whose time is over.
-- Index: {table}__keys_until. Locks: the rows. A crash leaves all or nothing.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
with over_keys as (
    select top (@n) dedup_key, taken_until
    from {keys} with (index ({table}__keys_until), rowlock, readpast, updlock, readcommittedlock)
    where taken_until <= @now
    order by taken_until
)
delete from over_keys
output convert(nvarchar(510), deleted.dedup_key) as dedup_key;
