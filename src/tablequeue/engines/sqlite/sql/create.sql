-- A queue's table. Times are whole microseconds since 1970 in UTC.
-- AUTOINCREMENT: without it, an empty queue would give an id a second time.
-- A message is in exactly one of the five partial indexes of the states; the ready one has the columns of the order.
-- A deduplication key is unique among the messages in the table: live ones and dead letters.
-- Runs in one transaction: a crash leaves nothing.
create table {queue} (
    id integer primary key autoincrement,
    state text not null default 'ready' check (state in ({states})),
    attempts integer not null default 0,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    due_at integer,
    first_popped_at integer,
    popped_at integer,
    lease_until integer,
    expires_at integer,
    cancelled_at integer,
    group_key text,
    dedup_key text,
    producer text,
    consumer text,
    headers text check (headers is null or json_valid(headers)),
    errors text check (errors is null or json_valid(errors)),
    payload {payload_type}
) strict;
create index {table}__ready on {queue} ({ready_index}) where {indexed};
create index {table}__scheduled on {queue} (due_at) where state = 'scheduled';
create index {table}__in_progress on {queue} (lease_until) where state = 'in_progress';
create index {table}__dead on {queue} (id) where state = 'dead';
create index {table}__blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}__key on {queue} (dedup_key) where dedup_key is not null;
