-- What a queue in order of due times has in addition: an index over the messages that wait, ready or scheduled.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add key {table}__ready (waiting, {ready_index});
