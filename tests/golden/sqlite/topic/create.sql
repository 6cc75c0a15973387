-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- The catalogue: one row a queue, with its definition as JSON and the version of its tables.
-- Locks: the caller's BEGIN IMMEDIATE lets one creator at a time through. A crash leaves nothing.
create table if not exists tq_queues (
    name text primary key,
    definition text not null check (json_valid(definition)),
    schema_version integer not null,
    created_at integer not null
) strict, without rowid;

-- The log of a topic. Its rows are never changed. One transaction writes at a time. So the ids have the order of the
-- commits, and no gaps: the offset of a message is its id.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events (
    id integer primary key autoincrement,
    pushed_at integer not null,
    producer text,
    group_key text,
    headers text check (headers is null or json_valid(headers)),
    payload text not null check (json_valid(payload))
) strict;

-- Enter a queue in the catalogue, in the transaction that makes its tables.
insert into tq_queues (name, definition, schema_version, created_at)
values ('events', '{"backoff": {"base": 1.0, "cap": 3600.0, "factor": 2.0, "jitter": 0.1}, "delivery": "at_least_once", "groups": false, "history": "keep", "keep": "forever", "lease": 60.0, "max_attempts": 5, "order": "fifo", "payload": "json", "strict": false, "table": "tq_events"}', 4, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000);
