-- The groups that have a message in progress: what is behind it stays.
-- Index: {table}__in_progress. Locks: none under READ_COMMITTED_SNAPSHOT.
select distinct convert(nvarchar(510), group_key) as group_key from {queue}
where state = 'in_progress'
option (recompile);
