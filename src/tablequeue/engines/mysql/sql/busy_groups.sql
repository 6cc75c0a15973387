-- The groups that have a message in progress: what is behind it stays.
-- Index: {table}__state. Locks: none.
select distinct convert(group_key using utf8mb4) from {queue} force index ({table}__state)
where state = 'in_progress';
