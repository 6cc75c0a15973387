-- Delete those of :ids that are {state}. Index: the primary key.
delete from {queue}
where id = any(cast(:ids as bigint[])) and state = '{state}';
