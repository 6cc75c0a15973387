-- What a queue in order of priorities has in addition: an index over the ready messages, by the priority turned round,
-- for MariaDB before 10.8 has no descending indexes.
-- A crash before the end leaves tables that are not in the catalogue: see create.
alter table {queue}
    add column waiting tinyint generated always as (case when {indexed} then 1 end) stored,
    add column urgency bigint generated always as (-priority) stored,
    add key {table}__ready (waiting, {ready_index});
