-- The token of the claim under which the message :id is in progress.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that
-- change the row.
declare @id bigint = :id;
select lower(replace(convert(char(36), token), '-', '')) as token
from {queue}
where id = @id and state = 'in_progress';
