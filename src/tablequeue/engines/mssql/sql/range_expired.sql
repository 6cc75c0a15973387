-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the rows; locked rows are skipped.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
select top (@n) id
from {ranges} with (index ({table}__lease), rowlock, readpast, updlock, readcommittedlock)
where lease_until is not null and lease_until <= @now
order by lease_until;
