-- The tables of a queue: create and drop.

-- name: create
-- Times are whole microseconds since 1970 in UTC. AUTOINCREMENT: without it, an empty queue would give an id a second
-- time. A message is in exactly one of the five partial indexes of the states; the ready one has the columns of the
-- order. A deduplication key is unique among the messages in the table: live ones and dead letters. Runs in one
-- transaction: a crash leaves nothing.
create table {queue} (
    id integer primary key autoincrement,
    state text not null default 'ready' check (state in ({states})),
    attempts integer not null default 0,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    {queue_table with
        headers = headers text check (headers is null or json_valid(headers))
        errors = errors text check (errors is null or json_valid(errors))},
    payload {payload_type}
) strict;
create index {table}__ready on {queue} ({ready_index}) where {indexed};
create index {table}__scheduled on {queue} (due_at) where state = 'scheduled';
create index {table}__in_progress on {queue} (lease_until) where state = 'in_progress';
create index {table}__dead on {queue} (id) where state = 'dead';
create index {table}__blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}__key on {queue} (dedup_key) where dedup_key is not null;

-- name: create_history
-- The index is for retention, for lost messages, and for statistics over a time.
create table {history} (
    id integer primary key,
    attempts integer not null,
    priority integer not null default 0,
    token text,
    pushed_at integer not null,
    {history_table},
    payload {payload_type}
) strict;
create index {table}__finished on {history} (finished_at);

-- name: create_results
-- A trigger, and no foreign key: SQLite ignores these on connections that do not ask for them.
create table {results} (
    id integer primary key,
    result text not null check (json_valid(result))
) strict;
create trigger {table}__purged after delete on {history}
    begin
        delete from {results} where id = old.id;
    end;

-- name: create_keys
-- Locks: the database. A crash leaves nothing.
create table {keys} (
    dedup_key text primary key,
    token text not null,
    id integer,
    taken_until integer not null
) strict, without rowid;
create index {table}__keys_until on {keys} (taken_until);
