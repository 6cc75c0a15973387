-- Delete the rates of up to :n groups of which a whole burst may be claimed again: a row of the past means what no row
-- means. Index: {table}__spent. Locks: the rows; locked ones are skipped.
-- A claim that comes meanwhile waits for the end of this statement, and adds its row again.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
with over_rates as (
    select top (@n) slot, spent_until
    from {group_rates} with (index ({table}__spent), rowlock, readpast, updlock, readcommittedlock)
    where spent_until <= @now
    order by spent_until
)
delete from over_rates
output deleted.slot;
