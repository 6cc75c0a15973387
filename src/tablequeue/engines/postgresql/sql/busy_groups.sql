-- The groups that have a message in progress: what is behind it stays.
-- Index: {table}__in_progress. Locks: none.
select distinct group_key from {queue} where state = 'in_progress';
