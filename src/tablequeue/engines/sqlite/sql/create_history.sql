-- The finished messages of a queue. A row without finished_at was claimed and never acknowledged.
create table {history} (
    id integer primary key,
    attempts integer not null,
    pushed_at integer not null,
    due_at integer,
    first_popped_at integer,
    popped_at integer,
    finished_at integer,
    producer text,
    consumer text,
    headers text,
    errors text,
    payload {payload_type}
) strict;
