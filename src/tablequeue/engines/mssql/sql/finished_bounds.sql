-- The lowest and the highest id of the messages that were finished from :since on and before :until.
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
select min(id) as low, max(id) as high
from {history}
where finished_at >= @since and finished_at < @until;
