-- The messages that left a queue. A row without finished_at was delivered at most once and is not completed (yet);
-- its token fences the completion.
-- The index is for retention, for lost messages, and for statistics over a time.
create table {history} (
    id integer primary key,
    attempts integer not null,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    due_at integer,
    first_popped_at integer,
    popped_at integer,
    finished_at integer,
    outcome text,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers text,
    errors text,
    payload {payload_type}
) strict;
create index {table}__finished on {history} (finished_at);
