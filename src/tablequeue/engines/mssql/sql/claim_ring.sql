-- The slot of a random one of up to :n groups that have something ready, in turn. A process begins behind it.
-- Index: {table}__ready, one look for each group. Locks: shared ones while it reads; locked rows are skipped.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
{ring_of_n}
select top (1) slot from @ring order by newid();
