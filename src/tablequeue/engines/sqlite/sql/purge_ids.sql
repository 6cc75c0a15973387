-- Delete those of :ids that are {state}. Index: the primary key.
delete from {queue}
where id in (select value from json_each(:ids)) and state = '{state}';
